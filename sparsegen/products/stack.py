"""Several matrices in one product: which rows of the one matrix that kernels read are whose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from sparsegen.arrays import describe, detached
from sparsegen.callsite import located, user_loc
from sparsegen.formats.library import library_of
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.stack import interleaved, stacked, whole_strips
from sparsegen.ir.errors import ArrayError, ProductError
from sparsegen.ir.op_spmm import SEVERAL


@dataclass(frozen=True)
class Stack:
    """Matrices one below the other, or a ``gated`` pair, whose rows take turns; ``rows``: how many each has.

    ``ragged``: they (or so many pairs) are experts, which have columns of x of their own.
    """

    rows: tuple[int, ...]
    gated: bool = False
    ragged: bool = False

    @property
    def experts(self) -> int:
        """How many have columns of their own; 0 where all have the same."""
        return self.ragged * len(self.rows) // (1 + self.gated)

    @property
    def out(self) -> int:
        """Rows of y."""
        return self.rows[0] if self.gated or self.ragged else sum(self.rows)

    @property
    def vector(self) -> tuple[int, ...]:
        """The shape of ``bias`` and ``scale``."""
        return (*(self.experts,) * self.ragged, *(2,) * self.gated, self.out)

    def of(self, y: Any) -> Any:
        """What a call gives back of y: a view of its rows for each matrix; of a pair, or of experts, all of it."""
        if self.gated or self.ragged:
            return y
        return tuple(y[..., first:last, :] for first, last in pairwise(accumulate(self.rows, initial=0)))

    def one(self, name: str, arrays: Sequence[Any]) -> Any:
        """An array of all rows from one of each matrix, of pairs two; ArrayError for others, by their ``name``."""
        if self.gated and self.ragged:
            arrays = [a for pair in arrays for a in (pair if isinstance(pair, (list, tuple)) else (pair,))]
        if len(arrays) != len(self.rows):
            raise ArrayError(f"{name} is {len(arrays)} arrays, there are {self}", hint="give an array for each")
        views = [describe(a) for a in arrays]
        for i, (view, rows) in enumerate(zip(views, self.rows, strict=True)):
            if view.layout.shape != (rows,) or view.layout.device_index != views[0].layout.device_index:
                raise ArrayError(
                    f"{name}[{i}] has shape {view.layout.shape} on {view.layout.where()}, matrix {i} has {rows} rows",
                    hint=f"give arrays of shapes {', '.join(f'({rows},)' for rows in self.rows)} on one device",
                )
        lib, _ = library_of(views[0])
        with lib.active():
            return lib.xp.concatenate([detached(a) for a in arrays]).reshape(self.vector)

    def __str__(self) -> str:
        each = "gated pair" if self.gated else "matrix"
        if self.ragged:
            return f"{self.experts} experts, each a {each} of {self.out} rows"
        if self.gated:
            return f"a {each} of {self.out} rows each"
        return f"{len(self.rows)} matrices of {', '.join(map(str, self.rows))} rows"


@dataclass(frozen=True, eq=False)
class Gated:
    """A pair of matrices whose products are multiplied with one another; ``w``: both, rows in turn.  See `gated`."""

    w: SparseMatrix
    rows: int


def gated(gate: SparseMatrix, up: SparseMatrix) -> Gated:
    """The pair of a gated layer (SwiGLU, GeGLU), for :func:`sparsegen.spmm`: one launch for both and their product.

    ``y = activation(scale * (gate @ x) + bias) * (scale * (up @ x) + bias) + residual``; ``activation="silu"`` is
    SwiGLU.  Both are [M, K] of one dtype in the format bitmap; they are encoded again as one matrix, once as long as
    ``gate`` lives.  ProductError for others.
    """
    with located(user_loc()):
        pair = [_matrix(w, f"matrix {i}: ") for i, w in enumerate((gate, up))]
        _alike(pair)
        if gate.shape[0] != up.shape[0]:
            raise ProductError(
                f"matrix 1 of the pair has {up.shape[0]} rows, matrix 0 {gate.shape[0]}",
                hint="each row of y is the product of one row of each: give both as many",
            )
        if gate.format not in SEVERAL:
            raise ProductError(
                f"a gated pair in {gate.format}, which no kernel reads",
                hint='encode both again: sg.sparse(W.to_dense(), format="bitmap"); or make two products',
            )
        return Gated(_once(gate, "gated", [up], lambda: interleaved(gate, up)), gate.shape[0])


def together(
    w: SparseMatrix | Gated | Sequence[SparseMatrix | Gated], ragged: bool = False
) -> tuple[SparseMatrix, Stack | None]:
    """The matrix that kernels read, made once as long as the first one lives, and what it is made of, if of several.

    ProductError for matrices that do not go together.
    """
    if ragged:
        return _experts(w)
    if isinstance(w, Gated):
        return w.w, Stack((w.rows, w.rows), gated=True)
    if not isinstance(w, (list, tuple)):
        return _matrix(w), None
    parts = [_matrix(other, f"matrix {i}: ") for i, other in enumerate(w)]
    if not parts:
        raise ProductError("a product of no matrices", hint="name at least one: sg.spmm([W_q, W_k, W_v], n=...)")
    _alike(parts)
    first, *rest = parts
    return _once(first, "stacked", rest, lambda: stacked(parts)), Stack(tuple(m.shape[0] for m in parts))


def _experts(w: Any) -> tuple[SparseMatrix, Stack]:
    """The same of experts, whose strips are whole."""
    if not isinstance(w, (list, tuple)) or not w:
        raise ProductError(
            "ragged=True without several matrices",
            hint="name the experts: sg.spmm([W_0, W_1, ...], n=..., ragged=True)",
        )
    pairs = all(isinstance(one, Gated) for one in w)
    parts = [one.w if pairs else _matrix(one, f"matrix {i}: ") for i, one in enumerate(w)]
    _alike(parts)
    rows = [one.rows if pairs else one.shape[0] for one in w]
    for i, mine in enumerate(rows):
        if mine != rows[0]:
            raise ProductError(
                f"expert {i} has {mine} rows, expert 0 {rows[0]}",
                hint="all write rows of one y [M, n]: make a product of those with as many",
            )
    first, *rest = parts
    if first.format not in SEVERAL:
        raise ProductError(
            f"experts in {first.format}, of which no kernel reads several",
            hint='encode all again: sg.sparse(W.to_dense(), format="bitmap"); or make a product of each',
        )
    made = _once(first, "experts", rest, lambda: whole_strips(parts))
    return made, Stack(tuple(m for m in rows for _ in range(1 + pairs)), pairs, ragged=True)


def _once(first: SparseMatrix, how: str, rest: list[SparseMatrix], make: Callable[[], SparseMatrix]) -> SparseMatrix:
    """What is made of a matrix and others, which are kept with it: so their ids are not given to others."""
    return first.once((how, *map(id, rest)), lambda: (make(), rest))[0]


def _matrix(w: Any, which: str = "") -> SparseMatrix:
    """ProductError for what is no sparse matrix."""
    if isinstance(w, Gated):
        raise ProductError(
            f"{which}a gated pair among other matrices",
            hint="make a product of its own: sg.spmm(sg.gated(W, V), n=...)",
        )
    if not isinstance(w, SparseMatrix):
        raise ProductError(
            f"{which}spmm needs a sparse matrix, not {type(w).__module__}.{type(w).__qualname__}",
            hint="encode the weights first: W = sg.sparse(w)",
        )
    return w


def _alike(parts: Sequence[SparseMatrix]) -> None:
    """ProductError for a matrix of another K, dtype, format or place than the first."""
    first = parts[0]
    for i, w in enumerate(parts):
        if w.scale is not None:
            raise ProductError(
                f"matrix {i} of the product has a scale of its own, which products of one matrix apply",
                hint="encode it without, sg.sparse(w, scale=None), and pass all to the call: spmm(..., scale=True)",
            )
        for what, mine, theirs, remedy in (
            ("K", w.shape[1], first.shape[1], "all multiply one x [K, n]: make a product for each K"),
            ("dtype", w.dtype, first.dtype, f"convert the weights and encode them again, all in {first.dtype}"),
            ("format", w.format, first.format, f"encode it again: sg.sparse(W.to_dense(), format={first.format!r})"),
            ("options", w.spec.options, first.spec.options, f"encode all in {first.format} with the same options"),
            ("library", w.library.name, first.library.name, "encode all from arrays of one library"),
            ("place", w.library.where, first.library.where, "encode all from arrays of one device"),
        ):
            if mine != theirs:
                raise ProductError(f"matrix {i} of the product has {what} {mine}, matrix 0 {theirs}", hint=remedy)

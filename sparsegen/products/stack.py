"""Several matrices in one product: which rows of the one matrix that kernels read are whose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from sparsegen.arrays import describe, detached
from sparsegen.formats.library import library_of
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.stack import stacked
from sparsegen.ir.errors import ArrayError, ProductError


@dataclass(frozen=True)
class Stack:
    """Matrices one below the other; ``rows``: how many each has."""

    rows: tuple[int, ...]

    def of(self, y: Any) -> tuple[Any, ...]:
        """The parts of an array of all rows, views of it, in the order of the matrices."""
        return tuple(y[..., first:last, :] for first, last in pairwise(accumulate(self.rows, initial=0)))

    def one(self, name: str, arrays: Sequence[Any]) -> Any:
        """An array of all rows from one of each matrix; ArrayError for others, by their ``name``."""
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
            return lib.xp.concatenate([detached(a) for a in arrays])

    def __str__(self) -> str:
        return f"{len(self.rows)} matrices of {', '.join(map(str, self.rows))} rows"


def together(w: SparseMatrix | Sequence[SparseMatrix]) -> tuple[SparseMatrix, Stack | None]:
    """The matrix that kernels read, made once as long as the first one lives, and what it is made of, if of several.

    ProductError for matrices that do not go together.
    """
    if not isinstance(w, (list, tuple)):
        return _matrix(w), None
    parts = [_matrix(other, f"matrix {i}: ") for i, other in enumerate(w)]
    if not parts:
        raise ProductError("a product of no matrices", hint="name at least one: sg.spmm([W_q, W_k, W_v], n=...)")
    _alike(parts)
    first, *rest = parts
    made = first.once(("stacked", *map(id, rest)), lambda: (stacked(parts), rest))[0]  # ids are of what is kept
    return made, Stack(tuple(m.shape[0] for m in parts))


def _matrix(w: Any, which: str = "") -> SparseMatrix:
    """ProductError for what is no sparse matrix."""
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

"""Layouts are values: maps from a logical index to a storage index, composed with ``@`` and checked by enumeration.

A layout has named dimensions, one or more integer expressions of them (the storage index), and a predicate ``where``
that says for which indices it is defined.  Its text is ``layout<[g<8, q<266] -> g * 268 + q>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from . import expr as ex
from .errors import IRError
from .expr import TRUE, Bin, Const, Expr, ExprLike, Select, Value, as_expr, binary, substitute

Ints = NDArray[np.int64]
Point = tuple[int, ...] | None

_NUMPY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod, "&": np.bitwise_and,
    "|": np.bitwise_or, "^": np.bitwise_xor, ">>": np.right_shift, "<<": np.left_shift, "min": np.minimum,
    "max": np.maximum, "<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def evaluate_arrays(e: Expr, env: dict[str, Ints]) -> Ints:
    """:func:`sparsegen.ir.expr.evaluate` over arrays; IRError for a number that 64 bits do not hold."""
    if isinstance(e, Const):
        if not -(2**63) <= e.value < 2**63:
            raise IRError(f"a layout with the number {e.value}", hint="indices have 64 bits")
        return np.asarray(e.value, dtype=np.int64)
    if isinstance(e, Value):
        return env[e.name]
    if isinstance(e, Select):
        c, a, b = (evaluate_arrays(x, env) for x in (e.c, e.a, e.b))
        return np.where(c != 0, a, b)
    assert isinstance(e, Bin)
    return np.asarray(_NUMPY[e.op](evaluate_arrays(e.a, env), evaluate_arrays(e.b, env)), dtype=np.int64)


#: Points of a layout that are worked out one by one: a tile has thousands.
MOST_POINTS = 1 << 24


@dataclass(frozen=True)
class Layout:
    """``dims[i]`` runs over ``0 .. extents[i]-1``; ``index`` is the storage index; ``where`` tells what is stored."""

    dims: tuple[str, ...]
    extents: tuple[int, ...]
    index: tuple[Expr, ...]
    where: Expr = TRUE

    def __post_init__(self) -> None:
        if len(self.dims) != len(self.extents) or len(set(self.dims)) != len(self.dims) or not self.index:
            raise IRError(f"a layout needs one extent for each of its dimensions {self.dims}, got {self.extents}")
        for d, n in zip(self.dims, self.extents, strict=True):
            if not re.fullmatch(r"[A-Za-z_]\w*", d) or d in RESERVED or n < 1:
                raise IRError(f"layout dimension {d!r} < {n}: needs a name and a positive extent")
        known = set(self.vars)
        for v in (v for e in (*self.index, self.where) for v in ex.values(e)):
            if v not in known:
                raise IRError(f"layout over {', '.join(self.dims)} reads %{v.name}, which is none of its dimensions")

    @property
    def vars(self) -> tuple[Value, ...]:
        """The dimensions as values with their ranges."""
        return tuple(Value(d, lo=0, hi=n - 1) for d, n in zip(self.dims, self.extents, strict=True))

    # ------------------------------------------------------------------------------------------------ mapping
    def _bind(self, index: Sequence[ExprLike]) -> dict[Value, Expr]:
        if len(index) != len(self.dims):
            raise IRError(f"{self} takes {len(self.dims)} indices, got {len(index)}")
        by = {v: as_expr(x) for v, x in zip(self.vars, index, strict=True)}
        for v, x in by.items():
            if x.lo > v.hi or x.hi < 0:
                raise IRError(f"{self}: index {x} of dimension {v.name} is outside 0..{v.hi}")
        return by

    def at(self, *index: ExprLike) -> tuple[Expr, ...]:
        """The storage index of a logical one, as expressions (constants for integers).

        An index expression may exceed the extents only where the caller's own predicate excludes it.
        """
        by = self._bind(index)
        return tuple(substitute(e, by) for e in self.index)

    def __call__(self, *index: ExprLike) -> Expr:
        """The storage index of a layout with one-dimensional storage."""
        if len(self.index) != 1:
            raise IRError(f"{self} has {len(self.index)} storage dimensions: use .at(...)")
        return self.at(*index)[0]

    def defined(self, *index: ExprLike) -> Expr:
        """The predicate that the index is stored."""
        return substitute(self.where, self._bind(index))

    def __matmul__(self, g: Layout) -> Layout:
        """``(f @ g)(x) = f(g(x))``: g's storage index is f's logical one."""
        if len(g.index) != len(self.dims):
            raise IRError(f"cannot compose: {g} gives {len(g.index)} indices, {self} takes {len(self.dims)}")
        by = dict(zip(self.vars, g.index, strict=True))
        if any(e.lo < 0 or e.hi > v.hi for v, e in by.items()):  # the ranges do not say that it fits: look
            held = g.mask().ravel()
            for v, table in zip(self.vars, g.tables(), strict=True):
                t = np.ravel(table)[held]
                if t.size and (t.min() < 0 or t.max() > v.hi):
                    raise IRError(f"cannot compose: {g} gives {v.name} in {t.min()}..{t.max()}, {self} takes 0..{v.hi}")
        where = binary("and", g.where, substitute(self.where, by))
        return Layout(g.dims, g.extents, tuple(substitute(e, by) for e in self.index), where)

    # ------------------------------------------------------------------------------------------------ enumeration
    def _env(self) -> dict[str, Ints]:
        if (points := prod(self.extents)) > MOST_POINTS:
            raise IRError(f"a layout of {points} points", hint=f"layouts are of tiles: at most {MOST_POINTS} points")
        grid = np.indices(self.extents, dtype=np.int64)
        return dict(zip(self.dims, grid, strict=True))

    def tables(self) -> tuple[Ints, ...]:
        """The storage index of every logical one: for each storage dimension an array of shape ``extents``."""
        env = self._env()
        return tuple(np.broadcast_to(evaluate_arrays(e, env), self.extents) for e in self.index)

    def mask(self) -> NDArray[np.bool_]:
        """Which logical indices are stored, of shape ``extents``."""
        return np.broadcast_to(evaluate_arrays(self.where, self._env()), self.extents).astype(bool)

    def shape(self) -> tuple[int, ...]:
        """For each storage dimension the largest index plus one (0 if nothing is stored)."""
        m = self.mask()
        return tuple(int(t[m].max()) + 1 if m.any() else 0 for t in self.tables())

    def size(self) -> int:
        """Elements of storage that the layout spans, holes included."""
        return prod(self.shape())

    def _flat(self) -> Ints:
        m = self.mask()
        stored = tuple(t[m] for t in self.tables())
        if any(t.size and t.min() < 0 for t in stored):
            raise IRError(f"{self} gives negative storage indices")
        return np.asarray(np.ravel_multi_index(stored, self.shape()) if m.any() else np.zeros(0), dtype=np.int64)

    def injective(self) -> bool:
        """Whether no two stored indices share storage."""
        flat = self._flat()
        return bool(np.unique(flat).size == flat.size)

    def inverse_table(self) -> Ints:
        """For each storage element the flat (row-major) logical index that it holds, -1 where it is a hole."""
        if not self.injective():
            raise IRError(f"{self} has no inverse: two indices share storage")
        out = np.full(self.size(), -1, dtype=np.int64)
        out[self._flat()] = np.flatnonzero(self.mask())
        return out.reshape(self.shape())

    def conflict_degree(self, lanes: Iterable[Point], elem_bytes: int, width: int = 1) -> int:
        """How many times over a warp's shared-memory access is run because of bank conflicts (1: none).

        ``lanes`` gives each lane's logical index (None: inactive); each lane accesses ``width`` adjacent elements.
        4-byte accesses (and smaller) run in one phase of 32 lanes, 8-byte ones in halves, 16-byte ones in quarters.
        """
        return bank_degree([None if i is None else ex.evaluate(self(*i), {}) for i in lanes], elem_bytes, width)

    def walk_degree(self, elem_bytes: int, elsewhere: int = -1) -> int:
        """The worst conflict degree when warps walk the logical indices in order, 32 at a time.

        Indices that the layout leaves out are skipped, or go to the element ``elsewhere`` (a dirty slot).
        """
        return walk_degree(np.where(self.mask(), self.tables()[0], elsewhere), elem_bytes)

    # ------------------------------------------------------------------------------------------------ text
    def __str__(self) -> str:
        where = "" if self.where == TRUE else f" where {_bare(self.where)}"
        dims = ", ".join(f"{d}<{n}" for d, n in zip(self.dims, self.extents, strict=True))
        to = _bare(self.index[0]) if len(self.index) == 1 else f"[{', '.join(map(_bare, self.index))}]"
        return f"layout<[{dims}] -> {to}{where}>"

    def picture(self, limit: int = 16) -> str:
        """The storage indices as a small matrix (rows: all dimensions but the last); ``.`` where nothing is stored."""
        rows, cols = prod(self.extents[:-1]), self.extents[-1]
        tables, mask = [t.reshape(rows, cols) for t in self.tables()], self.mask().reshape(rows, cols)
        cells = [[",".join(str(t[r, c]) for t in tables) if mask[r, c] else "." for c in range(min(cols, limit))]
                 for r in range(min(rows, limit))]  # fmt: skip
        wide = max(len(c) for line in cells for c in line)
        more = " …" if cols > limit else ""
        lines = [" ".join(c.rjust(wide) for c in line) + more for line in cells]
        return "\n".join([str(self), *lines, *(["…"] if rows > limit else [])])


#: Names that mean something in the text of an expression, so no dimension may have them.
RESERVED: Final = frozenset({"min", "max", "select", "and", "or", "where"})


def _bare(e: Expr) -> str:
    return re.sub(r"%(?=[A-Za-z_])", "", str(e))


def walk_degree(elements: Ints, elem_bytes: int) -> int:
    """The worst conflict degree when each warp accesses 32 consecutive entries of a list of elements (-1: none)."""
    padded = np.full(-(-elements.size // 32) * 32, -1, dtype=np.int64)
    padded[: elements.size] = elements.ravel()
    lanes = 128 // max(elem_bytes, 4)  # of one phase, and units of that size in a row of banks
    unit = padded if elem_bytes >= 4 else padded * elem_bytes // 4
    rows = np.sort(np.where(padded < 0, -1, unit).reshape(-1, lanes), axis=1)
    fresh = (rows >= 0) & np.concatenate([np.ones((len(rows), 1), bool), rows[:, 1:] != rows[:, :-1]], axis=1)
    hits = np.zeros((len(rows), lanes), dtype=np.int64)
    at, _ = np.nonzero(fresh)
    np.add.at(hits, (at, rows[fresh] % lanes), 1)
    return max(1, int(hits.max(initial=1)))


def bank_degree(elements: Iterable[int | None], elem_bytes: int, width: int = 1) -> int:
    """The conflict degree of one shared-memory access: the first element of each of the 32 lanes, None if inactive."""
    lanes, nbytes = list(elements), elem_bytes * width
    if nbytes not in (1, 2, 4, 8, 16):
        raise IRError(f"a lane accesses 1, 2, 4, 8 or 16 bytes at once, not {nbytes}")
    phase = 32 if nbytes <= 4 else 128 // nbytes
    worst = 1
    for p in range(0, 32, phase):
        words = {w for i in lanes[p : p + phase] if i is not None
                 for w in range(i * elem_bytes // 4, (i * elem_bytes + nbytes - 1) // 4 + 1)}  # fmt: skip
        banks = [w % 32 for w in words]
        worst = max([worst, *(banks.count(b) for b in set(banks))])
    return worst


# ---------------------------------------------------------------------------------------------------- constructors
def layout(dims: dict[str, int], index: Callable[..., Any], where: Callable[..., Expr] | None = None) -> Layout:
    """``layout({"g": 8, "q": 266}, lambda g, q: g * 268 + q)``."""
    values = [Value(d, lo=0, hi=n - 1) for d, n in dims.items()]
    to = index(*values)
    exprs = tuple(map(as_expr, to)) if isinstance(to, tuple) else (as_expr(to),)
    return Layout(tuple(dims), tuple(dims.values()), exprs, TRUE if where is None else where(*values))


def row_major(extents: Sequence[int], stride: int | None = None, names: Sequence[str] | None = None) -> Layout:
    """Rows one after the other, ``stride`` elements apart (the row's length if not given)."""
    n, pitch = tuple(extents), extents[-1] if stride is None else stride
    if pitch < n[-1]:
        raise IRError(f"rows of {n[-1]} elements do not fit a stride of {pitch}")

    def index(*i: Expr) -> Expr:
        row: Expr = Const(0)
        for d in range(len(n) - 1):
            row = row * n[d] + i[d]
        return row * pitch + i[-1]

    return layout(dict(zip(names or ("z", "r", "c")[-len(n) :], n, strict=True)), index)


def stencil2row_columns(k: int, groups: int) -> int:
    """Columns of the raw tile, halo included: ``groups * (k + 1) + k - 1``."""
    return groups * (k + 1) + k - 1


def stencil2row_a(k: int, groups: int, rows: int) -> Layout:
    """ConvStencil's matrix A: raw (x, y) to (g, q) with ``A[g, k*x + j] = u[x, g*(k+1) + j]``, ``0 <= j < k``."""
    n = stencil2row_columns(k, groups)
    return layout({"x": rows, "y": n}, lambda x, y: (y // (k + 1), x * k + y % (k + 1)),
                  lambda x, y: ex.all_of(y.le(n - k - 1), (y % (k + 1)).ne(k)))  # fmt: skip


def stencil2row_b(k: int, groups: int, rows: int) -> Layout:
    """ConvStencil's matrix B: raw (x, y) to (g, q) with ``B[g, k*x + j] = u[x, g*(k+1) + k + j]``, ``0 <= j < k``."""
    n = stencil2row_columns(k, groups)  # y - k is y + 1 less one group: so nothing divides a negative number
    return layout({"x": rows, "y": n}, lambda x, y: ((y + 1) // (k + 1) - 1, x * k + (y + 1) % (k + 1)),
                  lambda x, y: ex.all_of(y.ge(k), (y % (k + 1)).ne(k - 1)))  # fmt: skip

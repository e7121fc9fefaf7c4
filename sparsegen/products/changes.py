"""What would change the choice of a product's schedule: more columns of x, another sparsity, another GPU.

These rank a part of what ``compile`` does (``few``), so a time may be a little above what a search of all would find.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product as combinations
from typing import TYPE_CHECKING, Final, Literal

from sparsegen.explain.page import Change
from sparsegen.explain.parts import other_profiles
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.op_spmm import STRIP
from sparsegen.products.compile import doubtful
from sparsegen.products.cost import SpmmCost, cost, dense_cost
from sparsegen.products.geometry import CHUNK, legal
from sparsegen.products.product import Problem, Product
from sparsegen.products.schedule import COLUMNS, SpmmSchedule

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.products.compile import SpmmChoice

#: Columns of x up to which their doubling is tried, and shares of zeros that are.
MOST_COLUMNS: Final = 128
SPARSITIES: Final = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Words of the reduced search: warps, strips of a warp, stages, splits; values of a chunk.
_WARPS: Final = ((1, 8), (1, 12), (1, 16), (2, 4), (2, 6), (2, 8), (2, 12), (4, 4), (4, 6), (8, 2))
_ROWS, _STAGES, _SPLITS, _VALUES = range(1, 9), 2, (1, 2, 4, 8), 4
#: The ranking's best combinations of warps, stages and splits, which are tried with all numbers of rows.
_BEST = 16


def changes(product: Product, choice: SpmmChoice, device: DeviceProfile) -> Iterator[Change]:
    """All that was tried, whether it changes the choice or not."""
    p, kept = Problem.of(product), product.w.nnz
    forms = list(dict.fromkeys((c.schedule.warps, c.schedule.stages, c.schedule.splits) for c in choice.ranking))[
        :_BEST
    ]

    def tried(
        kind: Literal["columns", "sparsity", "device"], what: str, p: Problem, d: DeviceProfile, note: str
    ) -> Change:
        return _change(kind, what, choice, best(p, d, forms), dense_cost(p, d), note)

    n = 2 * p.n
    while n <= max(MOST_COLUMNS, 2 * p.n):
        yield tried("columns", f"n={n}", with_columns(p, n, product.epilogue.residual), device, "")
        n *= 2
    for share in SPARSITIES:
        yield tried("sparsity", f"{share:.0%} zeros, hypothetical", with_sparsity(p, share, kept), device, "")
    for there in other_profiles(device).values():
        yield tried("device", there.name, p, there, "costs only" if there.explain_only else "")


def _change(
    kind: Literal["columns", "sparsity", "device"], what: str, choice: SpmmChoice, sparse: SpmmCost | None,
    dense: SpmmCost, note: str,
) -> Change:  # fmt: skip
    winner = dense if sparse is None or dense.time < sparse.time else sparse
    told = "no bitmap schedule" if sparse is None else f"bitmap {sparse.time / dense.time:.2f}x dense's time"
    a, b = winner.schedule, choice.cost.schedule
    other = a.family != b.family or (a.family != "dense" and (a.cols, a.mma) != (b.cols, b.mma))
    return Change(
        kind, what, str(a), winner.time, winner.bandwidth / 1e12, winner.binds, other,
        ", ".join(filter(None, (told, note))), dense.time,
    )  # fmt: skip


def best(p: Problem, device: DeviceProfile, forms: list[tuple[tuple[int, int], int, int]]) -> SpmmCost | None:
    """The cheapest of a few bitmap schedules; None if none is legal."""
    found: SpmmCost | None = None
    for s in few(p, forms):
        try:
            g = legal(p, s, device)
        except ScheduleError:
            continue
        if doubtful(s, g):
            continue
        c = cost(p, s, device)
        if found is None or c.time < found.time:
            found = c
    return found


def few(p: Problem, forms: list[tuple[tuple[int, int], int, int]]) -> Iterator[SpmmSchedule]:
    """Schedules for a problem: ``forms`` (warps, stages, splits) with many rows, and a coarse grid of all words."""
    enough = next((c for c in COLUMNS if c >= p.n), COLUMNS[-1])
    shapes = [(f"{p.dtype}.m16n8k16", c) for c in COLUMNS if c <= enough] + [("none", 1)] * (p.n == 1)
    strips = -(-p.m // STRIP)
    coarse = combinations(_WARPS, [_STAGES], _SPLITS)
    for (mma, cols), (warps, stages, splits) in combinations(shapes, dict.fromkeys([*forms, *coarse])):
        for rows in _ROWS:
            if rows <= strips:
                yield SpmmSchedule("bitmap", mma, cols, warps, rows, stages, splits)


def with_columns(p: Problem, n: int, residual: bool) -> Problem:
    """The same matrix times ``n`` columns; a residual grows with them."""
    return replace(p, n=n, operands=p.operands + 2 * p.m * (n - p.n) * residual)


def with_sparsity(p: Problem, share: float, kept: int) -> Problem:
    """A hypothetical matrix with so many zeros, spread as those of this one, which keeps ``kept`` values."""
    fill = p.chunks - kept / _VALUES  # what fills up the last chunk of each tile stays
    chunks = round((1 - share) * p.m * p.k / _VALUES + fill)
    widest = tuple(max(1, round(n * chunks / p.chunks)) for n in p.widest)
    return replace(p, chunks=chunks, widest=widest, nbytes=p.nbytes + CHUNK * (chunks - p.chunks))

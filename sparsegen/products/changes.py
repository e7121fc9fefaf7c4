"""What would change the choice of a product's schedule: more columns of x, another sparsity, another GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from sparsegen.explain.page import Change
from sparsegen.explain.parts import other_profiles
from sparsegen.families.products import ProductFamily
from sparsegen.ir.numbers.bitmap import CHUNK
from sparsegen.problems.product import SpmmProblem, readers
from sparsegen.products.product import Problem

if TYPE_CHECKING:
    from sparsegen.choose import Choice
    from sparsegen.cost.cost import Cost
    from sparsegen.cost.devices import DeviceProfile

#: Columns of x up to which their doubling is tried, and shares of zeros that are.
MOST_COLUMNS: Final = 128
SPARSITIES: Final = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Values of a chunk.
_VALUES: Final = 4


def changes(problem: SpmmProblem, choice: Choice, device: DeviceProfile) -> Iterator[Change]:
    """All that was tried, whether it changes the choice or not."""
    p, w, found = problem.facts, problem.what.w, readers(problem.format)

    def tried(kind: Literal["columns", "sparsity", "device"], what: str, p: Any, d: DeviceProfile, note: str) -> Change:
        return _change(kind, what, choice, {f: best for f in found if (best := f.every(p, d).best)}, note)

    n = 2 * p.n
    while n <= max(MOST_COLUMNS, 2 * p.n):
        more = w.kind.nbytes * p.m * (n - p.n) * problem.what.epilogue.residual
        yield tried("columns", f"n={n}", replace(p, n=n, operands=p.operands + more), device, "")
        n *= 2
    for share in SPARSITIES if isinstance(p, Problem) else ():
        yield tried("sparsity", f"{share:.0%} zeros, hypothetical", with_sparsity(p, share, w.nnz), device, "")
    for there in other_profiles(device).values():
        yield tried("device", there.name, p, there, "costs only" if there.explain_only else "")


def _change(
    kind: Literal["columns", "sparsity", "device"], what: str, choice: Choice, best: Mapping[ProductFamily, Cost],
    note: str,
) -> Change:  # fmt: skip
    """``best``: the cheapest of each family that reads the matrix."""
    winner = min(best.values(), key=lambda c: c.time)
    dense = next((c for f, c in best.items() if f.library), None)
    told = ""
    if dense is not None:
        sparse = next((c for f, c in best.items() if not f.library), None)
        told = "no bitmap schedule" if sparse is None else f"bitmap {sparse.time / dense.time:.2f}x dense's time"
    a, b = winner.schedule, choice.cost.schedule
    other = a.family != b.family or any(getattr(a, word) != getattr(b, word) for word in a.rules.telling)
    return Change(
        kind, what, str(a), winner.time, winner.bandwidth / 1e12, winner.binds, other,
        ", ".join(filter(None, (told, note))), dense.time if dense is not None else None,
    )  # fmt: skip


def with_sparsity(p: Problem, share: float, kept: int) -> Problem:
    """A hypothetical matrix with so many zeros, spread as those of this one, which keeps ``kept`` values."""
    fill = p.chunks - kept / _VALUES  # what fills up the last chunk of each tile stays
    chunks = round((1 - share) * p.m * p.k / _VALUES + fill)
    widest = tuple(max(1, round(n * chunks / p.chunks)) for n in p.widest)
    return replace(p, chunks=chunks, widest=widest, nbytes=p.nbytes + CHUNK * (chunks - p.chunks))

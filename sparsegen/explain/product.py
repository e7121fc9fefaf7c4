"""What the page of a sparse product's kernel says: also whether dense is faster, and what other N and sparsities would
choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from sparsegen.choose import Request
from sparsegen.explain.kind import Kind, Trial
from sparsegen.explain.page import Fact
from sparsegen.explain.units import nbytes, seconds
from sparsegen.families.spmm.dense import DENSE
from sparsegen.formats.ratio import intensity
from sparsegen.ir.numbers.bitmap import CHUNK
from sparsegen.problems.product import SpmmProblem
from sparsegen.products.product import BitmapNumbers

if TYPE_CHECKING:
    from sparsegen.choose import Choice
    from sparsegen.cost.cost import Cost
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.kernel import Kernel

#: Columns of x up to which their doubling is tried, and shares of zeros that are.
MOST_COLUMNS: Final = 128
SPARSITIES: Final = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Options by which ``format="auto"`` takes another format than bitmap, and those beside them.
_CHOOSING: Final = ("n", "m", "vector", "height")
#: Formats that say by bits where the values are: SpInfer judges them by their intensity.
_MASKS: Final = ("bitmap", "tca_bme")
_Tried = Literal["columns", "sparsity", "device"]


class ProductPage(Kind):
    """Dense, the product of a library, stands beside the families that read the matrix's format."""

    kind = "product"
    unit = "a product"

    def __init__(self, kernel: Kernel, choice: Choice, plan: Any) -> None:
        super().__init__(kernel, choice, plan)
        problem = kernel.problem
        assert isinstance(problem, SpmmProblem)
        self.what, self.numbers, self.readers = problem.what, problem.facts, problem.readers
        own = self.cost.schedule.rules
        if own.library:  # it stands beside those that read the format, which come first
            own = next(iter(self.readers))
            self.options = problem.options(None, self.device, Request(every=True))
        self.ranking = [c for c in self.options.costs if not c.schedule.rules.library]
        self.dense = next((f.options(p, None, self.device).best for f, p in self.readers.items() if f.library), None)
        self.terms_of = f"a product (they overlap, but for {', '.join(self._apart())}; * binds)"
        self.across = f"FLOP ({own.counted}) per byte of DRAM traffic"
        self.up = f"FLOP/s, {own.counted.removeprefix('those with ')}"
        tried = {c.schedule.family for c in self.options.costs} | {r.schedule.family for r in self.options.rejected}
        self.families = [*dict.fromkeys((*(f.name for f in self.readers if not f.library), *tried))]
        #: All schedules of the families that the line leaves out.
        self.untried = {
            f.name: f.options(p, None, self.device)
            for f, p in self.readers.items()
            if not (f.library or f.name in tried)
        }
        self.beside = [best for best in (self.dense, *(o.best for o in self.untried.values())) if best]
        self.note, self.nonfinite = own.because, own.nonfinite
        self.workspace = self.cost.schedule.rules.scratch if kernel.workspace_nbytes else ""

    def _apart(self) -> list[str]:
        return [term for term in self.cost.terms if term in self.cost.law.beside]

    def facts(self) -> Iterator[Fact]:
        w, s = self.what.w, self.cost.schedule
        read, size = self.kernel.problem.format, self.numbers.nbytes
        smaller = f"{w.compression * w.nbytes / size:.2f} times smaller than dense"
        again = f"; encoded again, of {w.format}: {nbytes(w.nbytes)}" * (read != w.format)
        yield Fact("format", f"{read}: {nbytes(size)}, {smaller}{again}")
        if read in _MASKS and not self.what.experts:
            yield Fact("intensity", self._intensity())
        if blocks := s.rules.blocks(self.numbers, s, self.device):
            yield Fact("blocks", blocks)
        if self.dense is None:
            return
        dense, own = self.dense.time, self.cost.time
        text = f"the library's product is predicted to take {seconds(dense)}"
        if self.cost.schedule == DENSE:
            best = f"and no {w.format} schedule can run here"
            if self.ranking:
                best = f"{self.ranking[0].schedule.family} {seconds(self.ranking[0].time)}"
            how = "chosen as the faster one" if self.choice.automatic else "given"
            yield Fact("dense", f"{text}, {best}: dense was {how}")
        elif own <= dense:
            yield Fact("dense", f"{text}, this kernel {seconds(own)}: sparse is {dense / own:.2f} times faster")
        else:
            take = "schedule='dense'" if self.what.w.auto else f"{self._auto()}, or schedule='dense'"
            yield Fact(
                "dense", f"{text}, this kernel {seconds(own)}: dense is {own / dense:.2f} times faster; take {take}"
            )

    def _intensity(self) -> str:
        """SpInfer's figures: of the format as it is, of one whose places cost nothing, and of the dense matrix in x's
        type, which W of 8 bits is multiplied in."""
        p, w, item = self.numbers, self.what.w, self.what.types.x.nbytes
        dense, kept = item * p.m * p.k, (1 - w.sparsity) * p.item / item
        real, ideal, plain = (intensity(p.m, p.n, share) for share in (p.nbytes / dense, kept, 1.0))
        return (
            f"M N / (M / CR + N) = {real:.1f} FLOP a byte of W and x, CR = {dense / p.nbytes:.2f}"
            f"{' against f16' * (p.item < item)}; were bits free "
            f"M N / (M (1 - s) + N) = {ideal:.1f}, dense M N / (M + N) = {plain:.1f}"
        )

    def _auto(self) -> str:
        """How W is made so that a product may take the dense matrix."""
        told = "".join(f", {name}={value}" for name, value in self.what.w.spec.options if name in _CHOOSING)
        return f"sg.sparse(w, format='auto'{told})"

    def refusal(self, family: str) -> str:
        refused = self.untried[family].rejected if family in self.untried else ()
        return refused[0].reason if refused else super().refusal(family)

    def rest(self) -> Iterator[Fact]:
        if self.cost.schedule.rules.library:
            whole = "torch._int_mm on torch tensors" if self.what.w.kind.is_int else ""
            yield Fact("arrays", whole or "torch.mm on torch tensors, matmul of CuPy on its arrays")
        else:
            yield from super().rest()

    def work(self, cost: Cost) -> tuple[float, float]:
        return cost.schedule.rules.operations(cost), cost.bandwidth * cost.time

    def usual(self) -> Cost:
        return self.cost

    def trials(self) -> Iterator[Trial]:
        p, w, n = self.numbers, self.what.w, 2 * self.numbers.n
        while n <= max(MOST_COLUMNS, 2 * p.n):
            more = replace(self.what, n=n).operand_bytes - self.what.operand_bytes
            wider = partial(replace, n=n, operands=p.operands + more)
            yield self._tried("columns", f"n={n}", wider, self.device)
            n *= 2
        for share in SPARSITIES if w.format == "bitmap" and not self.what.experts else ():
            others = partial(sparser, share=share, kept=w.nnz)
            yield self._tried("sparsity", f"{share:.0%} zeros, hypothetical", others, self.device)

    def elsewhere(self, device: DeviceProfile) -> Trial:
        return self._tried("device", device.name, lambda numbers: numbers, device)

    def _tried(self, kind: _Tried, what: str, other: Callable[[Any], Any], device: DeviceProfile) -> Trial:
        """The cheapest of the families that read the matrix, for a product in ``other`` numbers; of those of our own,
        unless W was made with ``format="auto"`` or in bitmap tiles, whose dense product most people have as well."""
        alike = [(f, p) for f, p in self.readers.items() if kind != "sparsity" or p.format == self.what.w.format]
        best = [found for f, p in alike if (found := f.every(other(p.facts), device, {}).best)]
        dense = next((c.time for c in best if c.schedule == DENSE), None)
        ours = sorted((c for c in best if c.schedule != DENSE), key=lambda c: c.time)
        w = self.what.w
        winner = min(best if w.auto or w.format == "bitmap" else ours, key=lambda c: c.time, default=None)
        if dense is None:
            return Trial(kind, what, winner)
        told = f"no {w.format} schedule"
        if ours:
            told = f"{self.readers[ours[0].schedule.rules].format} {ours[0].time / dense:.2f}x dense's time"
        return Trial(kind, what, winner, told, dense)


def sparser(p: BitmapNumbers, share: float, kept: int) -> BitmapNumbers:
    """A hypothetical matrix with so many zeros, spread as those of this one, which keeps ``kept`` values."""
    each = CHUNK // p.item  # values of a chunk
    fill = p.chunks - kept / each  # what fills up the last chunk of each tile stays
    chunks = round((1 - share) * p.m * p.k / each + fill)
    widest = tuple(max(1, round(n * chunks / p.chunks)) for n in p.widest)
    return replace(p, chunks=chunks, widest=widest, nbytes=p.nbytes + CHUNK * (chunks - p.chunks))

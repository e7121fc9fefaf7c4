"""How the cases of suite ``unstructured`` are measured: ours, checked first, torch's dense product and cuSPARSE's.

Of part ``auto`` also the cheapest schedule of each family by the model, all with short graphs and no cold times, as
there are hundreds of products.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import sparsegen as sg
from sparsegen.bench import beside, floors
from sparsegen.bench.beside import LAUNCHES, Beside
from sparsegen.bench.bitmaps import COLD, WARM
from sparsegen.bench.chosen import WITHIN, of_best
from sparsegen.bench.cusparse import CuSparse
from sparsegen.bench.harness import TOLERANCE, nothing
from sparsegen.bench.lab import SECONDS, Lab
from sparsegen.bench.unstructured import AUTO, CUBLAS, CUSPARSE, SparseCase, SparseRow, words
from sparsegen.formats.hybrid import Hybrid
from sparsegen.formats.others import read_as

if TYPE_CHECKING:
    from sparsegen.formats import SparseMatrix
    from sparsegen.formats.rows import Rows
    from sparsegen.kernel import SpmmKernel

#: Elements up to which a matrix is also stored densely, and multiplied so.
DENSE: Final = 1 << 28
#: Rows up to which an order of them is looked for.
ORDERED: Final = 16_384
#: Of part ``auto``: seconds of a graph of calls, how often it is replayed, and of idleness before.
BURST, FEW, REST = 1e-3, 5, 0.01

Call = Callable[[], object]


def formats_of(w: SparseMatrix) -> list[SparseMatrix]:
    """A matrix of ``format="auto"``, and what it may not look at itself: of 16 bits vectors, and dense tiles where an
    order of the rows finds any."""
    m, k = w.shape
    if m * k > DENSE:
        return [w]
    vectors = [read_as(w, "sr_bcrs")] if w.kind.bits == 16 else []
    tiled = [read_as(w, "hybrid")] if m <= ORDERED else []
    return [w, *vectors, *(each for each in tiled if isinstance(each, Hybrid) and each.tiles)]


@dataclass(frozen=True)
class Built:
    """The kernel that the model takes of a case, and the cheapest one of each other family."""

    kernel: SpmmKernel
    others: Mapping[str, SpmmKernel]


class Unstructured(Beside[SparseCase, SparseRow]):
    """Suite ``unstructured`` on a GPU."""

    row = SparseRow

    def __init__(
        self, lab: Lab, seed: int = 0, seconds: float = SECONDS, device: str = "cuda", backend: str = "cuda"
    ) -> None:
        super().__init__(lab, seed, seconds, device, backend)
        self._cusparse = CuSparse(self.torch) if device == "cuda" else None

    def run(
        self,
        cases: Sequence[SparseCase],
        say: Callable[[str], None] = nothing,
        beside: Sequence[str] = (),
        keep: Callable[[Sequence[SparseRow]], None] = nothing,
    ) -> list[SparseRow]:
        """As in every suite; floors are given the words for the cases (``unstructured.words``)."""
        with TemporaryDirectory(prefix="sparsegen-patterns-") as folder:
            more = shlex.join(words(cases, Path(folder)) if beside else [])
            return super().run(cases, say, [f"{line} {more}".rstrip() for line in beside], keep)

    def prepare(self, cases: Sequence[SparseCase]) -> None:
        """The matrices; why there is none is said when it is built."""
        self._tensors: dict[tuple[str, str], Any] = {}
        self._matrices: dict[tuple[str, str], SparseMatrix | Exception] = {}
        for case in cases:
            if (key := (case.matrix.name, case.dtype)) in self._matrices:
                continue
            try:
                self._tensors[key] = w = self._tensor(case.matrix.rows, case.dtype, self.seed + len(self._matrices))
                self._matrices[key] = sg.sparse(w, format="auto")
            except Exception as error:  # those rows' alone, as in harness.compiled
                self._matrices[key] = error

    def _tensor(self, rows: Rows, dtype: str, seed: int) -> Any:
        """A torch tensor of layout ``sparse_csr`` with these entries, its values random."""
        tables = [self.torch.from_numpy(a).to(self.device) for a in (rows.ptr, rows.idx)]
        return self.torch.sparse_csr_tensor(*tables, self.uniform((rows.nnz,), dtype, seed), size=rows.shape)

    def build(self, case: SparseCase) -> Built:
        """The kernel that ``format="auto"`` takes; of part auto those of every family."""
        matrix = self._matrices[case.matrix.name, case.dtype]
        if isinstance(matrix, Exception):
            raise matrix
        best = self.kernel(matrix, case.n, ["rows"])
        others: dict[str, SpmmKernel] = {}
        for w in formats_of(matrix) if case.part == AUTO else ():
            for cost in sg.schedules(sg.spmm(w, case.n), device=best.device):
                family = cost.schedule.family
                if family not in others and family != best.schedule.family and not cost.schedule.rules.library:
                    others[family] = self.kernel(w, case.n, ["rows"], str(cost.schedule))
        return Built(best, others)

    def labels(self, case: SparseCase, seed: int) -> dict[str, Any]:
        """What every row says of its case, and the floor of it."""
        rows = case.matrix.rows
        m, k = rows.shape
        return {
            "part": case.part, "case": case.matrix.name, "kind": case.matrix.kind, "shape": (m, k, case.n),
            "dtype": case.dtype, "seed": seed, "entries": rows.nnz, "sparsity": 1 - rows.nnz / (m * k),
            "target": None if case.peer else case.least and case.least * 1e-6,
            "aim": None if case.peer else case.aim and case.aim * 1e-6,
            **self.of_floor(floors.matrix(case.matrix.name, case.n, case.dtype)),
        }  # fmt: skip

    def measure(self, case: SparseCase, kernel: Built, seed: int) -> SparseRow:
        """Check, then time a product, those of libraries, and of part auto of every family."""
        torch, w = self.torch, self._tensors[case.matrix.name, case.dtype]
        (m, k), n, brief = w.shape, case.n, case.part == AUTO
        x = self.uniform((k, n), case.dtype, seed)
        y = torch.empty((m, n), dtype=x.dtype, device=x.device)
        wide = torch.sparse_csr_tensor(w.crow_indices(), w.col_indices(), w.values().double(), size=(m, k))
        exact = wide @ x.double()
        call = partial(kernel.kernel, x, out=y)
        error, same = self.checked(call, y, exact)
        timing = None if brief else self.series(call, COLD)
        row = SparseRow(
            **self.labels(case, seed), **self.uses(kernel.kernel, "rows"), **(timing.fields if timing else {}),
            hot_s=self._hot(call, brief), error=error, same=same,
            beside=self._libraries(w, case.dtype, x, y, brief),
            families={name: self._hot(way, brief) for name, other in kernel.others.items()
                      if self.off(way := partial(other, x, out=y), y, exact) <= TOLERANCE[case.dtype]},
        )  # fmt: skip
        return judged(row, case)

    def _libraries(self, w: Any, dtype: str, x: Any, y: Any, brief: bool) -> dict[str, dict[str, float]]:
        """Times of libraries by state of L2: of the dense product where the matrix is not too large, and of the
        algorithm of cuSPARSE that is the fastest with warm L2."""
        found = dict[str, dict[str, float]]()
        ways: list[tuple[str, Call]] = []
        if w.shape[0] * w.shape[1] <= DENSE:
            ways.append((CUBLAS, partial(self.torch.mm, w.to_dense(), x, out=y)))
        algorithms = self._cusparse.products(w, dtype, x, y) if self._cusparse else ()
        fastest = min(((self._hot(way, brief), name, way) for name, way in algorithms), default=None)
        ways += [(CUSPARSE, fastest[2])] if fastest else []
        for name, way in ways:
            hot = fastest[0] if fastest and name == CUSPARSE else self._hot(way, brief)
            found[name] = {WARM: hot} if brief else {WARM: hot, COLD: self.series(way, COLD).median}
        return found

    def _hot(self, call: Call, brief: bool) -> float:
        """Seconds of a call with warm L2; ``brief``: of few calls."""
        if not brief:
            return self.hot(call)
        once = self.lab.times(call, 0.0, None, 1, 1, 1)[0]
        return self.replayed(call, max(1, min(LAUNCHES, round(BURST / once))), FEW, REST)

    line = staticmethod(beside.line)


def judged(row: SparseRow, case: SparseCase) -> SparseRow:
    """The row with its ``ok``, and with its target where that is a share of cuSPARSE's time."""
    peer = (row.beside or {}).get(CUSPARSE, {}).get(WARM)
    if case.peer and peer:
        row = replace(row, target=case.least and case.least * peer, aim=case.aim and case.aim * peer)
    right = row.error is not None and row.error <= TOLERANCE[row.dtype] and bool(row.same)
    met = row.hot_s is not None and row.hot_s <= (row.target or row.hot_s)
    best = case.part != AUTO or of_best(row.as_json()) >= WITHIN
    return replace(row, ok=right and met and best)

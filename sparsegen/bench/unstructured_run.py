"""How the cases of suite ``unstructured`` are measured: ours, checked first, torch's dense product and cuSPARSE's.

Of part ``auto`` also the cheapest schedule of each family by the model, all of a case in turns, with short graphs and
no cold times, as there are hundreds of products.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
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
from sparsegen.bench.unstructured import AUTO, CUBLAS, CUSPARSE, LIBRARIES, PAPER, SparseCase, SparseRow, words
from sparsegen.formats.hybrid import Hybrid
from sparsegen.formats.others import read_as
from sparsegen.ir.errors import ScheduleError
from sparsegen.measure import timed
from sparsegen.problems.product import SpmmProblem

if TYPE_CHECKING:
    from sparsegen.formats import SparseMatrix
    from sparsegen.formats.rows import Rows
    from sparsegen.kernel import SpmmKernel

#: Elements up to which a matrix is also stored densely, and multiplied so.
DENSE: Final = 1 << 28
#: Rows up to which an order of them is looked for.
ORDERED: Final = 16_384
#: Of part ``auto``: seconds of a graph of calls, how often each has its turn, and of idleness before a turn.
BURST, TURNS, REST = 1e-3, 5, 2e-3
#: What the chosen kernel is called among families and libraries that have their turns.
_CHOSEN: Final = "chosen"

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
    """The kernel that the model takes of a case, and the cheapest one of each other family; ``predicted``: seconds of
    those that the model compared it with; ``paper``: the two kernels of BSA-SpMM's own way."""

    kernel: SpmmKernel
    others: Mapping[str, SpmmKernel]
    predicted: Mapping[str, float]
    paper: SpmmKernel | None = None


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
        predicted: dict[str, float] = {}
        for w in formats_of(matrix) if case.part == AUTO else ():
            for family in SpmmProblem(sg.spmm(w, case.n)).readers:
                if family.library or family.name in (best.schedule.family, *others):
                    continue
                with suppress(ScheduleError):  # it has none for this matrix
                    others[family.name] = kernel = self.kernel(w, case.n, ["rows"], family.name)
                    predicted |= {family.name: kernel.cost.time} if w is matrix else {}
        ordered = case.part == "clustered" and case.dtype != "f32"
        paper = sg.sparse(self._tensors[case.matrix.name, case.dtype], format=PAPER) if ordered else None
        return Built(best, others, predicted, self.kernel(paper, case.n, ["rows"]) if paper is not None else None)

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
        (m, k), n = w.shape, case.n
        x = self.uniform((k, n), case.dtype, seed)
        y = torch.empty((m, n), dtype=x.dtype, device=x.device)
        wide = torch.sparse_csr_tensor(w.crow_indices(), w.col_indices(), w.values().double(), size=(m, k))
        exact = wide @ x.double()
        call = partial(kernel.kernel, x, out=y)
        error, same = self.checked(call, y, exact)
        others = {name: way for name, other in kernel.others.items()
                  if self.off(way := partial(other, x, out=y), y, exact) <= TOLERANCE[case.dtype]}  # fmt: skip
        libraries: Iterable[tuple[str, Call]] = self._libraries(w, case.dtype, x, y)
        if kernel.paper is not None and self.off(way := partial(kernel.paper, x, out=y), y, exact) <= TOLERANCE["f16"]:
            libraries = chain([(PAPER, way)], libraries)
        figures = self._compared(call, others, libraries) if case.part == AUTO else self._apart(call, libraries)
        row = SparseRow(
            **self.labels(case, seed), **self.uses(kernel.kernel, "rows"), **figures, error=error, same=same,
            predicted=kernel.predicted,
        )  # fmt: skip
        return judged(row, case)

    def _libraries(self, w: Any, dtype: str, x: Any, y: Any) -> Iterator[tuple[str, Call]]:
        """What libraries have: of a matrix that is not too large the dense product, then the algorithms of cuSPARSE,
        each of which is made ready when it is asked for: what comes next may undo that."""
        if w.shape[0] * w.shape[1] <= DENSE:
            yield CUBLAS, partial(self.torch.mm, w.to_dense(), x, out=y)
        for _, way in self._cusparse.products(w, dtype, x, y) if self._cusparse else ():
            yield CUSPARSE, way

    def _compared(
        self, call: Call, others: Mapping[str, Call], libraries: Iterable[tuple[str, Call]]
    ) -> dict[str, Any]:
        """What a row says of times with warm L2 that were measured in turns."""
        found = self.turns(chain([(_CHOSEN, call)], others.items(), libraries))
        beside = {name: {WARM: found[name]} for name in LIBRARIES if name in found}
        return {"hot_s": found[_CHOSEN], "families": {name: found[name] for name in others}, "beside": beside}

    def turns(self, ways: Iterable[tuple[str, Call]]) -> dict[str, float]:
        """Seconds of a call by name, of those with the same name the fastest: medians of graphs that are replayed in
        turns, so that a clock which changes changes all of them alike.

        An untimed replay goes before each timed one: it fills L2, and while it runs the host is done with launching.
        """
        held = list[tuple[str, Call, Call, int]]()  # the calls too, as what they hold is read by their graphs
        for name, call in ways:
            once = self.lab.times(call, 0.0, None, 1, 1, 1)[0]
            many = max(1, min(LAUNCHES, round(BURST / once)))
            held.append((name, call, self.captured(call, many), many))
        timer, rounds = self.lab.runtime.timer(), list[list[float]]()
        for _ in range(TURNS):
            rounds.append([])
            for _, _, replay, many in held:
                time.sleep(REST)
                replay()
                rounds[-1].append(timed(timer, replay) / many)
        medians = map(median, zip(*rounds, strict=True))
        found: dict[str, float] = {}
        for (name, *_), took in zip(held, medians, strict=True):
            found[name] = min(took, found.get(name, took))
        return found

    def _apart(self, call: Call, libraries: Iterable[tuple[str, Call]]) -> dict[str, Any]:
        """What a row says of times with warm and with cold L2, each measured for itself, as floors are."""
        cold, hot = self.series(call, COLD), self.hot(call)
        fastest: dict[str, tuple[float, Call]] = {}
        for name, way in libraries:
            took = self.hot(way)
            if name not in fastest or took < fastest[name][0]:
                fastest[name] = took, way
        beside = {name: {WARM: took, COLD: self.series(way, COLD).median} for name, (took, way) in fastest.items()}
        return {**cold.fields, "hot_s": hot, "families": {}, "beside": beside}

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

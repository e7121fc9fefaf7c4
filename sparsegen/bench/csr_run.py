"""How products of graphs are measured: fresh random numbers, f64 beside them, then the time, cold and hot.

Cold times are between CUDA events around a call after a memset of 256 MB; hot ones are those of CALLS calls of a CUDA
graph, which no host is too slow for.  cuSPARSE is timed in the same way on the same arrays, all its algorithms; the
fastest counts, right or not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparsegen.bench import graphs
from sparsegen.bench.bitmap_run import Products, program
from sparsegen.bench.bitmaps import COLD
from sparsegen.bench.cusparse import CuSparse
from sparsegen.bench.graphs import Adjacency, GraphCase
from sparsegen.bench.harness import Timing
from sparsegen.formats import sparse
from sparsegen.products.product import spmm

if TYPE_CHECKING:
    from sparsegen.formats import SparseMatrix
    from sparsegen.kernel import SpmmKernel

#: Largest error that counts as correct, |y - exact| / |exact| over all elements.
TOLERANCE: Final = {"f16": 1e-3, "f32": 1e-5}
#: Calls of a graph, and how often it is replayed.
CALLS, REPLAYS = 20, 9


@dataclass(frozen=True)
class CsrRow:
    """One result, as it stands in the JSON; times are seconds.

    ``median_s``, ``p10``, ``p90``: a call with cold L2; ``hot_s``: one with warm L2.  ``cusparse``: of each algorithm
    the cold and the hot time, and its error.  ``ahead``: how many times faster than the fastest of them, both hot, it
    must be.  ``error``: |y - exact| / |exact|; ``same``: the second run gave the same bits; ``ok``: both, and the
    target met if there is one; ``failed``: why there are no numbers.
    """

    part: str
    case: str
    shape: tuple[int, ...]
    dtype: str
    seed: int
    entries: int
    schedule: str = ""
    ahead: float | None = None
    median_s: float | None = None
    p10: float | None = None
    p90: float | None = None
    repeats: int = 0
    hot_s: float | None = None
    cusparse: Mapping[str, Mapping[str, float]] | None = None
    predicted_s: float | None = None
    bound: str | None = None
    regs: int | None = None
    spills: int | None = None
    error: float | None = None
    same: bool | None = None
    ok: bool = False
    failed: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values; an infinite error becomes text, which JSON can hold."""
        out = asdict(self)
        if self.error is not None and not math.isfinite(self.error):
            out["error"] = str(self.error)
        return out


def fastest(row: Mapping[str, Any], state: str) -> tuple[float, str] | None:
    """Seconds and name of the fastest algorithm of cuSPARSE, ``cold`` or ``hot``; None where there are none."""
    return min(((times[state], name) for name, times in (row["cusparse"] or {}).items()), default=None)


class Graphs:
    """What measures products of graphs, with torch's arrays on a GPU."""

    def __init__(self, products: Products) -> None:
        self._products, self._torch = products, products.torch
        self._cusparse = CuSparse(products.torch)

    def random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Numbers from -1 to 1."""
        torch = self._torch
        made = 2 * torch.rand(shape, generator=self._products.random(seed), device=self._products.device) - 1
        return made.to({"f16": torch.float16, "f32": torch.float32}[dtype])

    def matrix(self, graph: Adjacency, dtype: str, seed: int) -> Any:
        """A torch tensor of layout ``sparse_csr`` with the entries of a graph, its values random."""
        torch = self._torch
        tables = [torch.from_numpy(a).to(self._products.device) for a in (graph.ptr, graph.idx)]
        values = self.random((len(graph.idx),), dtype, seed)
        return torch.sparse_csr_tensor(*tables, values, size=(graph.nodes, graph.nodes))

    def hot(self, call: Callable[[], object]) -> float:
        """Seconds of a call among many of a CUDA graph."""
        torch = self._torch
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                call()
        times = []
        for _ in range(REPLAYS + 2):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3 / CALLS)
        return Timing.of(times[2:]).median

    def measure(self, case: GraphCase, kernel: SpmmKernel, w: Any, seed: int) -> CsrRow:
        """Check, then time a product and those of cuSPARSE; ``w``: the matrix as torch's."""
        torch, (m, k), n = self._torch, w.shape, case.n
        x = self.random((k, n), case.dtype, seed)
        y = torch.empty((m, n), dtype=x.dtype, device=x.device)
        wide = torch.sparse_csr_tensor(w.crow_indices(), w.col_indices(), w.values().double(), size=(m, k))
        exact = wide @ x.double()

        def error() -> float:
            found = float((y.double() - exact).norm() / exact.norm())
            return found if math.isfinite(found) else math.inf

        results, errors = [], []
        for _ in range(2):
            y.fill_(float("nan"))
            kernel(x, out=y)
            errors.append(error())
            results.append(y.clone())
        timing = self._products.series(lambda: kernel(x, out=y), COLD, 1)
        hot = self.hot(lambda: kernel(x, out=y))
        peers = {}
        for name, launch in self._cusparse.products(w, case.dtype, x, y):
            y.fill_(float("nan"))
            launch()
            off = error()
            cold = self._products.series(launch, COLD, 1).median
            peers[name] = {"cold": cold, "hot": self.hot(launch), "error": min(off, 1e30)}
        uses = self._products.figures(kernel, "rows")
        row = CsrRow(
            **labels(case, w, seed), schedule=str(kernel.schedule), median_s=timing.median, p10=timing.p10,
            p90=timing.p90, repeats=timing.repeats, hot_s=hot, cusparse=peers, predicted_s=kernel.cost.time,
            bound=kernel.cost.binds, regs=uses["regs"], spills=uses["spills"], error=max(errors),
            same=torch.equal(*results),
        )  # fmt: skip
        return judged(row)


def labels(case: GraphCase, w: Any, seed: int) -> dict[str, Any]:
    """What every row says of its case."""
    return {
        "part": case.part, "case": case.name, "shape": (*w.shape, case.n), "dtype": case.dtype, "seed": seed,
        "entries": int(w.values().shape[0]), "ahead": case.ahead,
    }  # fmt: skip


def judged(row: CsrRow) -> CsrRow:
    """The row with its ``ok``."""
    right = row.error is not None and row.error <= TOLERANCE[row.dtype] and bool(row.same)
    peer = fastest(row.as_json(), "hot")
    met = row.ahead is None or peer is None or peer[0] >= row.ahead * (row.hot_s or math.inf)
    return replace(row, ok=right and met)


def build(cases: Sequence[GraphCase], matrices: Mapping[tuple[str, str], SparseMatrix]) -> list[Any]:
    """The kernel of each case, or why there is none; nvcc runs on as many at once as there are cores."""
    import sparsegen as sg

    def one(case: GraphCase) -> Any:
        try:
            kernel = sg.compile(spmm(matrices[case.part, case.dtype], case.n), backend="cuda")
            kernel._builds.get(program(kernel, "rows")).compiled()
        except Exception as error:  # a fault of ours is that row's alone
            return error
        return kernel

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        return list(pool.map(one, cases))


def run(
    parts: Sequence[str],
    file: Path | None,
    quick: bool,
    bench: Products,
    say: Callable[[str], None],
    keep: Callable[[Sequence[CsrRow]], None],
) -> list[CsrRow]:
    """Measure all products of the generated graph and of that of a file; ``keep`` gets the rows after each one."""
    start = time.perf_counter()
    found, lab = graphs.parts(parts, file), Graphs(bench)
    cases = [case for part, name, _ in found for case in graphs.cases(part, name, quick)]
    tensors = {
        (part, dtype): lab.matrix(adjacency, dtype, bench.seed + at)
        for part, _, adjacency in found
        for at, dtype in enumerate(graphs.DTYPES)
    }
    built = build(cases, {key: sparse(w, format="csr") for key, w in tensors.items()})
    say(f"{len(cases)} cases compiled in {time.perf_counter() - start:.1f} s")
    rows = list[CsrRow]()
    for at, (case, kernel) in enumerate(zip(cases, built, strict=True)):
        w, seed = tensors[case.part, case.dtype], bench.seed + len(graphs.DTYPES) + at
        try:
            if isinstance(kernel, Exception):
                raise kernel
            rows.append(lab.measure(case, kernel, w, seed))
        except Exception as error:  # a fault of ours is that row's alone
            rows.append(CsrRow(**labels(case, w, seed), failed=f"{type(error).__name__}: {error}"))
        keep(rows)
        say(line(rows[-1]))
    say(f"measured in {time.perf_counter() - start:.1f} s")
    return rows


def line(row: CsrRow) -> str:
    """A row as a line of progress."""
    what = f"{row.case} {'x'.join(map(str, row.shape))} {row.dtype}"
    if row.median_s is None or row.hot_s is None:
        return f"{what}: {row.failed}"
    cold, hot = (fastest(row.as_json(), state) for state in ("cold", "hot"))
    against = f", cuSPARSE {hot[0] * 1e6:.1f} ({hot[1]}), cold {cold[0] * 1e6:.1f}" if hot and cold else ""
    told = f"{row.hot_s * 1e6:.2f} us hot, {row.median_s * 1e6:.2f} cold{against}, error {row.error:.1e}"
    return f"{what}: {told}{'' if row.ok else ', NOT OK'}; {row.schedule}"

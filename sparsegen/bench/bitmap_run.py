"""How products are measured: fresh random matrices, poisoned results, fp64 beside them, then the time, cold and hot.

Times are between CUDA events around one call, or of hot ones around HOT calls; cuBLAS is timed in the same way on the
same arrays, through ``torch.mm(out=)``.  Each case is measured with x and y packed by rows and by columns (as a linear
layer has them); the better order counts, for cuBLAS too.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from os import cpu_count
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sparsegen.arrays import describe
from sparsegen.bench import bitmaps, floors
from sparsegen.bench.bitmaps import COLD, CUBLAS, ORDERS, READ, STATES, WARM, ProductCase, Weights, best
from sparsegen.bench.harness import REST, SECONDS, Lab, Timing
from sparsegen.calls.product import variant
from sparsegen.formats import sparse
from sparsegen.inspection import resources
from sparsegen.ir.errors import DeviceError
from sparsegen.products.cost import dense_cost
from sparsegen.products.product import Problem, spmm

if TYPE_CHECKING:
    from sparsegen.formats import SparseMatrix
    from sparsegen.kernel import SpmmKernel
    from sparsegen.program import Program

#: Largest error that counts as correct, |y - exact| / |exact| over all elements: rounding y costs 2e-4 and 1.7e-3.
TOLERANCE: Final = {"f16": 1e-3, "bf16": 4e-3}
#: Fewest and most repeats of a series, and calls that a hot one is the mean of.
LEAST, MOST, HOT = 11, 101, 20
_WARM_UP: Final = 3
#: Rows of a matrix that are multiplied in f64 at once.
_BAND: Final = 4096


@dataclass(frozen=True)
class ProductRow:
    """One result, as it stands in the JSON; times are seconds.

    ``median_s``, ``p10``, ``p90``: a call after the memset, x and y packed by ``x``, the better order (an encoding: a
    call).  ``times`` and ``cublas``: the medians of each order after each of STATES.  ``predicted_s`` and ``bound`` are
    the cost model's, ``dense_s`` is what it says of the dense product.  ``target`` is ``share`` times ``of``.
    ``error``: over both orders, |y - exact| / |exact|; ``same``: the second run gave the same bits; ``ok``: both, and
    the target met if there is one; ``failed``: why there are no numbers.
    """

    part: str
    case: str
    shape: tuple[int, ...]
    sparsity: float
    dtype: str
    seed: int
    schedule: str = ""
    target: float | None = None
    aim: float | None = None
    share: float | None = None
    of: str | None = None
    x: str | None = None
    median_s: float | None = None
    p10: float | None = None
    p90: float | None = None
    repeats: int = 0
    times: Mapping[str, Mapping[str, float]] | None = None
    cublas: Mapping[str, Mapping[str, float]] | None = None
    floor_s: float | None = None
    floor_by: str | None = None
    predicted_s: float | None = None
    dense_s: float | None = None
    bound: str | None = None
    regs: int | None = None
    spills: int | None = None
    smem: int | None = None
    nbytes: int | None = None
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


def labels(case: ProductCase, seed: int, made: SparseMatrix | None = None) -> dict[str, Any]:
    """What every row says of its case; with the share of zeros of what was made of it."""
    w = case.weights
    return {
        "part": case.part, "case": case.name, "shape": case.shape, "sparsity": made.sparsity if made else w.sparsity,
        "dtype": w.dtype,
        "seed": seed, "target": None if case.of else case.target, "aim": case.aim,
        "share": case.target if case.of else None, "of": case.of or None,
    }  # fmt: skip


def failure(case: ProductCase, seed: int, error: Exception) -> ProductRow:
    """The row of a case that gave no numbers."""
    return ProductRow(**labels(case, seed), failed=f"{type(error).__name__}: {error}")


def orders(n: int) -> tuple[str, ...]:
    """The orders that x and y may have; one column has but one."""
    return ORDERS if n > 1 else ORDERS[1:]


class Products:
    """A GPU with torch's arrays on ``device``, kernels of ``backend``; ``seed`` is the first of the random inputs."""

    def __init__(self, lab: Lab, seed: int = 0, seconds: float = SECONDS, device: str = "cuda", backend: str = "cuda"):
        try:
            self.torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise DeviceError("suite bitmap needs torch, for cuBLAS", hint="pip install torch") from error
        self.lab, self.seed, self.seconds = lab, seed, seconds
        self.device, self.backend = device, backend

    def dtype(self, name: str) -> Any:
        """torch's type of that name."""
        return {"f16": self.torch.float16, "bf16": self.torch.bfloat16}[name]

    def random(self, seed: int) -> Any:
        """A generator of random numbers."""
        return self.torch.Generator(self.device).manual_seed(seed)

    # ------------------------------------------------------------------------------------------------------ matrices
    def weights(self, w: Weights, seed: int) -> Any:
        """A new random matrix: normal numbers where it is not zero.  ArrayError for a pattern that is not here."""
        torch, generator, (m, k) = self.torch, self.random(seed), w.shape
        if w.pattern:
            kept = torch.from_numpy(bitmaps.pattern(w.pattern)).to(self.device)
            kept = kept.repeat(-(-m // kept.shape[0]), -(-k // kept.shape[1]))[:m, :k]
            if w.shuffled:
                places = torch.randperm(m * k, generator=generator, device=self.device)
                kept = kept.reshape(-1)[places].reshape(m, k)
        else:
            kept = torch.rand((m, k), generator=generator, device=self.device) >= w.sparsity
        values = torch.randn((m, k), generator=generator, device=self.device).to(self.dtype(w.dtype))
        return values.masked_fill_(~kept, 0)  # a product with a mask would keep -0.0

    def matrices(self, cases: Sequence[ProductCase]) -> Iterator[tuple[Weights, SparseMatrix | Exception]]:
        """The encoded weights of all products, each matrix once."""
        for at, w in enumerate(dict.fromkeys(case.weights for case in cases if case.n)):
            try:
                yield w, sparse(self.weights(w, self.seed + at))
            except Exception as error:  # the rows of this matrix say so
                yield w, error

    def build(self, cases: Sequence[ProductCase]) -> list[SpmmKernel | Exception | None]:
        """The kernel of each case, built for both orders; None: an encoding.

        nvcc runs on as many kernels at once as there are cores.
        """
        import sparsegen as sg

        known = dict(self.matrices(cases))

        def one(case: ProductCase) -> SpmmKernel | Exception | None:
            if not case.n:
                return None
            w = known[case.weights]
            if isinstance(w, Exception):
                return w
            try:
                kernel = sg.compile(spmm(w, case.n), backend=self.backend)
                if self.backend == "cuda":
                    for order in orders(case.n):
                        kernel._builds.get(program(kernel, order)).compiled()
            except Exception as error:  # a fault of ours is that row's alone
                return error
            return kernel

        with ThreadPoolExecutor(cpu_count() or 1) as pool:
            return list(pool.map(one, cases))

    # -------------------------------------------------------------------------------------------------------- times
    def series(self, call: Callable[[], object], state: str, share: int) -> Timing:
        """Device time of ``call``, L2 being in ``state`` before it; ``share`` series make up ``seconds``.

        A pause comes first: without, the power limit of the board lowers its clock.
        """
        before = {COLD: self.lab.overwrite, READ: self.lab.flush}.get(state)
        calls = HOT if state == WARM else 1
        timer = self.lab.runtime.timer()

        def once() -> float:
            if before is not None:
                before()
            timer.start()
            for _ in range(calls):
                call()
            timer.stop()
            return float(timer.seconds()) / calls

        time.sleep(REST)
        guess = [once() for _ in range(_WARM_UP)][-1]
        repeats = math.ceil(self.seconds / share / max(guess * calls, 1e-7))
        return Timing.of([once() for _ in range(min(MOST, max(LEAST, repeats)))])

    # ------------------------------------------------------------------------------------------------------ one case
    def measure(self, case: ProductCase, kernel: SpmmKernel, seed: int, other: float | None) -> ProductRow:
        """Check, then time a product.  ``other``: the time that a target in terms of UNIFORM is a multiple of."""
        torch, w, n = self.torch, kernel.product.w, case.n
        dense, kind = w.to_dense(), self.dtype(w.dtype)
        x = (2 * torch.rand((w.shape[1], n), generator=self.random(seed), device=self.device) - 1).to(kind)
        exact = torch.cat([rows.double() @ x.double() for rows in dense.split(_BAND)])
        errors, same = list[float](), True
        series = dict[str, dict[str, Timing]]()
        cublas = dict[str, dict[str, float]]()
        for order in orders(n):
            u, y = (packed(a, order) for a in (x, torch.empty_like(exact, dtype=kind)))
            results = []
            for _ in range(2):
                y.fill_(float("nan"))
                kernel(u, out=y)
                results.append(y.clone())
                error = float((y.double() - exact).norm() / exact.norm())
                errors.append(error if math.isfinite(error) else math.inf)
            same &= torch.equal(*(result.view(torch.int16) for result in results))
            share = 2 * len(STATES) * len(orders(n))
            series[order] = {state: self.series(lambda: kernel(u, out=y), state, share) for state in STATES}  # noqa: B023
            cublas[order] = {
                state: self.series(lambda: torch.mm(dense, u, out=y), state, share).median  # noqa: B023
                for state in STATES
            }
        x_order = min(series, key=lambda order: series[order][COLD].median)
        timing = series[x_order][COLD]
        row = labels(case, seed, w)
        if case.of:
            other = best(cublas, COLD) if case.of == CUBLAS else other
            row["target"] = other and other * (case.target or 1)
        right = max(errors) <= TOLERANCE[w.dtype] and same
        problem = Problem.of(kernel.product)
        return ProductRow(
            **row,
            **self.figures(kernel, x_order),
            schedule=str(kernel.schedule),
            x=x_order,
            median_s=timing.median,
            p10=timing.p10,
            p90=timing.p90,
            repeats=timing.repeats,
            times={o: {state: t.median for state, t in each.items()} for o, each in series.items()},
            cublas=cublas,
            predicted_s=kernel.cost.time,
            dense_s=dense_cost(problem, kernel.device).time,
            bound=kernel.cost.binds,
            nbytes=w.nbytes,
            error=max(errors),
            same=same,
            ok=right and ((row["target"] is None and not case.of) or timing.median <= (row["target"] or 0)),
        )

    def figures(self, kernel: SpmmKernel, order: str) -> dict[str, Any]:
        """What nvcc made of the kernel for an order."""
        if self.backend != "cuda":
            return {}
        uses = resources(kernel._builds.get(program(kernel, order)), kernel.device.arch)
        return {"regs": uses.registers, "spills": uses.spills, "smem": uses.shared}

    def encode(self, case: ProductCase, seed: int) -> ProductRow:
        """Time an encoding; its error is 0 if the result is right bit for bit: decoded, or compared with the GPU's."""
        torch, weights = self.torch, self.weights(case.weights, seed)
        on_gpu = sparse(weights)
        times = list[float]()
        if case.on == "host":
            host = weights.view(torch.int16).cpu().numpy().view(on_gpu.kind.numpy())
            start = time.perf_counter()
            made = sparse(host)
            times.append(time.perf_counter() - start)
            there = on_gpu.to_host().arrays
            right = all(np.array_equal(array, there[name]) for name, array in made.arrays.items())
        else:
            for _ in range(LEAST):
                self.lab.runtime.synchronize()
                start = time.perf_counter()
                on_gpu = sparse(weights)
                self.lab.runtime.synchronize()
                times.append(time.perf_counter() - start)
            right = torch.equal(on_gpu.to_dense().view(torch.int16), weights.view(torch.int16))
        t = Timing.of(times)
        return ProductRow(
            **labels(case, seed, on_gpu), schedule=on_gpu.format, median_s=t.median, p10=t.p10,
            p90=t.p90, repeats=t.repeats, nbytes=on_gpu.nbytes, error=0.0 if right else math.inf, same=right,
            ok=right and t.median <= (case.target or math.inf),
        )  # fmt: skip


def packed(a: Any, order: str) -> Any:
    """A copy of a matrix in torch, packed by rows or by columns."""
    return a.clone() if order == "rows" else a.t().contiguous().t()


def program(kernel: SpmmKernel, order: str) -> Program:
    """The program of a kernel for x and y packed so, and aligned as torch's arrays are."""
    m, k, n = kernel.shape
    views = []
    for rows in (k, m):
        a = np.empty((rows, n), kernel.dtype)
        views.append(describe(a if order == "rows" else a.reshape(n, rows).T))
    return kernel._programs.get(1, variant(*views, copied=True))


def run(
    cases: Sequence[ProductCase],
    bench: Products,
    say: Callable[[str], None] = lambda _: None,
    beside: Sequence[str] = (),
    keep: Callable[[Sequence[ProductRow]], None] = lambda _: None,
) -> list[ProductRow]:
    """Measure all cases, one after another, after all are compiled; a case that fails is a row that says why.

    ``beside``: floors of products to compile and run in the same call (see ``floors``).  ``keep`` gets the rows that
    there are after each one.
    """
    start = time.perf_counter()
    with floors.compiling(beside, bench.lab.runtime.info().arch) as prepared:
        built = bench.build(cases)
        say(f"{len(cases)} cases compiled in {time.perf_counter() - start:.1f} s")
        known = floors.figures(prepared, floors.parse_products, say)
    say(f"{len(known)} figures of floors by {time.perf_counter() - start:.1f} s")
    rows = list[ProductRow]()
    times = dict[ProductCase, float]()
    for at, (case, kernel) in enumerate(zip(cases, built, strict=True)):
        seed = bench.seed + len(cases) + at
        shuffled = replace(case, weights=replace(case.weights, shuffled=True), target=None, of="")
        try:
            if isinstance(kernel, Exception):
                raise kernel
            measured = bench.measure(case, kernel, seed, times.get(shuffled)) if kernel else bench.encode(case, seed)
        except Exception as error:  # a fault of ours is that row's alone
            measured = failure(case, seed, error)
        if measured.median_s is not None:
            times[case] = measured.median_s
        plain = case.weights.dtype == "f16" and not case.weights.pattern
        if plain and (floor := floors.best_product(known, case.shape, case.weights.sparsity)):
            measured = replace(measured, floor_s=floor.seconds, floor_by=str(floor))
        rows.append(measured)
        keep(rows)
        say(line(measured))
    say(f"measured in {time.perf_counter() - start:.1f} s")
    return rows


def line(row: ProductRow) -> str:
    """A row as a line of progress."""
    what = f"{row.part} {row.case}, {'x'.join(map(str, row.shape))} {row.dtype}"
    if row.median_s is None:
        return f"{what}: {row.failed}"
    against = f", cuBLAS {best(row.cublas, COLD) * 1e6:.1f}" if row.cublas else ""
    told = f"{row.median_s * 1e6:.1f} us{against}, error {row.error:.1e}{'' if row.ok else ', NOT OK'}"
    return f"{what}: {told}; {row.schedule}"

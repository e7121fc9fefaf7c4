"""How the candidates of suite ``regret`` are measured: all of a part are compiled first, then problem after problem.

Each result is compared with that of a naive kernel, or of f64, before anything is timed.  Then the candidates of a
problem are timed in ROUNDS over all of them.  Each timed call comes after a read that empties L2: stencils after one
more call, as in a loop; products at once, as the weights of a layer are read.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import cpu_count
from typing import TYPE_CHECKING, Any, Final

from sparsegen.bench import regret
from sparsegen.bench.harness import TOLERANCE, Lab, Timing
from sparsegen.bench.regret import Point, ProductProblem, StencilProblem
from sparsegen.ir.boundary import describe

if TYPE_CHECKING:
    from sparsegen.kernel import Kernel, SpmmKernel

#: Rounds over a problem's candidates, so that a drift of the clock does not favour one of them; fewest and most timed
#: calls of a candidate in a round.
ROUNDS, LEAST, MOST = 2, 3, 40
COLUMNS: Final = "columns"  #: how x and y of a product are packed
_BAND: Final = 4096  #: rows of a matrix that are multiplied in f64 at once


@dataclass
class Candidate:
    """A point to measure; ``kernel``: its kernel when it is compiled, or the exception that says why there is none."""

    point: Point
    kernel: Any


def timed(lab: Lab, calls: Sequence[Callable[[], object]], seconds: float, cold: bool) -> list[Timing]:
    """Device times of each of ``calls``, about ``seconds`` of it in all, in ROUNDS over all of them.

    A read of far more than L2 comes before each timed call; it takes so long that the host's own time is hidden.
    Unless ``cold``, a call that is not timed then fills L2 as in a loop.
    """
    timer = lab.runtime.timer()
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, times in zip(calls, found, strict=True):

            def once(call: Callable[[], object] = call) -> float:
                lab.flush()
                if not cold:
                    call()
                timer.start()
                call()
                timer.stop()
                return float(timer.seconds())

            once()
            guess = once()
            times += [once() for _ in range(min(MOST, max(LEAST, math.ceil(seconds / ROUNDS / max(guess, 1e-7)))))]
    return [Timing.of(times) for times in found]


def compiled(candidates: Sequence[Candidate], build: Callable[[Candidate], Any]) -> None:
    """The kernels of all candidates, nvcc running on as many at once as there are cores."""

    def one(candidate: Candidate) -> None:
        try:
            candidate.kernel = build(candidate)
        except Exception as error:  # a fault of ours is that point's alone
            candidate.kernel = error

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        list(pool.map(one, candidates))


def finished(group: Sequence[Candidate], fail: dict[int, Exception]) -> Iterator[tuple[int, Candidate]]:
    """The candidates that have a kernel and did not fail."""
    for at, candidate in enumerate(group):
        if not isinstance(candidate.kernel, Exception) and at not in fail:
            yield at, candidate


def failed(point: Point, error: Exception) -> Point:
    """The point without a time."""
    return replace(point, failed=f"{type(error).__name__}: {error}")


# ------------------------------------------------------------------------------------------------------- the stencils
class Stencils:
    """The part ``stencils`` on a GPU."""

    def __init__(self, lab: Lab, seconds: float) -> None:
        self.lab, self.seconds = lab, seconds

    def candidates(self, p: StencilProblem, draw: random.Random) -> list[Candidate]:
        """The points of a problem, to be compiled and measured."""
        import sparsegen as sg
        from sparsegen.cost.total import total_time

        costs = sg.schedules(p.stencil, p.shape, p.steps)
        picked = regret.candidates(costs, lambda c: total_time(c, p.steps), draw)
        return [
            Candidate(
                Point("stencils", p.name, p.shape, p.stencil.dtype, describe(p.stencil.sides), p.steps, None, how,
                      str(c.schedule), seconds, c.binds, stencil=p.stencil.name),
                None,
            )
            for c, seconds, how in picked
        ]  # fmt: skip

    def build(self, p: StencilProblem, candidate: Candidate) -> Kernel:
        """The kernel of a candidate, all its programs compiled."""
        import sparsegen as sg

        schedule = candidate.point.schedule
        kernel = sg.compile(p.stencil, p.shape, p.steps, backend="cuda", schedule=schedule)
        for program, _ in kernel._plan(p.steps).programs:
            kernel._builds.get(program).compiled()
        return kernel

    def measure(self, p: StencilProblem, group: Sequence[Candidate]) -> list[Point]:
        """The points of a problem."""
        lab, dtype = self.lab, p.stencil.dtype
        first = next((c.kernel for c in group if not isinstance(c.kernel, Exception)), None)
        points = [failed(c.point, c.kernel) if isinstance(c.kernel, Exception) else c.point for c in group]
        if first is None:
            return points
        errors, fail = dict[int, float](), dict[int, Exception]()
        with lab.fields(4, first.shape, first.dtype) as (u, out, expected, spare):
            lab.fresh(u, dtype)
            lab.naive.run(p.stencil, p.shape, p.steps, u.pointer, expected.pointer, spare.pointer)
            for at, c in finished(group, fail):
                lab.naive.poison(out.pointer, out.count, dtype)
                try:
                    c.kernel(u, out=out)
                    errors[at] = lab.naive.error(out.pointer, expected.pointer, out.count, dtype)
                except Exception as error:
                    fail[at] = error
            ready = list(finished(group, fail))
            calls = [lambda c=c: c.kernel(u, out=out) for _, c in ready]
            for (at, c), times in zip(ready, timed(lab, calls, self.seconds, cold=False), strict=True):
                ok = errors[at] <= TOLERANCE[dtype]
                points[at] = regret.measured(c.point, times, errors[at], ok, c.kernel.resources())
        return [failed(q, fail[at]) if at in fail else q for at, q in enumerate(points)]


# ------------------------------------------------------------------------------------------------------- the products
class Products:
    """The part ``products`` on a GPU, with torch's arrays."""

    def __init__(self, lab: Lab, seed: int, seconds: float) -> None:
        from sparsegen.bench import bitmap_run

        self.lab, self.seconds = lab, seconds
        self.bench = bitmap_run.Products(lab, seed, seconds)
        self.known: dict[str, Any] = {}

    def product(self, p: ProductProblem) -> Any:
        """The product, its matrix new at the first call and kept."""
        from sparsegen.bench.bitmaps import Weights
        from sparsegen.formats import sparse
        from sparsegen.products.product import spmm

        if p.name not in self.known:
            w = self.bench.weights(Weights((p.m, p.k), p.sparsity, p.dtype), self.bench.seed + len(self.known))
            self.known[p.name] = spmm(sparse(w, format="auto"), p.n)
        return self.known[p.name]

    def candidates(self, p: ProductProblem, draw: random.Random) -> list[Candidate]:
        """The points of a problem, to be compiled and measured; the dense product may be one of them."""
        import sparsegen as sg

        product = self.product(p)
        picked = regret.candidates(sg.schedules(product), lambda c: c.time, draw)
        zeros = product.w.sparsity
        return [
            Candidate(
                Point("products", p.name, (p.m, p.k, p.n), p.dtype, COLUMNS, 0, zeros, how, str(c.schedule), seconds,
                      c.binds),
                None,
            )
            for c, seconds, how in picked
        ]  # fmt: skip

    def build(self, p: ProductProblem, candidate: Candidate) -> SpmmKernel:
        """The kernel of a candidate, compiled for x and y packed by columns."""
        import sparsegen as sg
        from sparsegen.bench.bitmap_run import program

        kernel = sg.compile(self.product(p), backend="cuda", schedule=candidate.point.schedule)
        if candidate.point.schedule != "dense":
            kernel._builds.get(program(kernel, COLUMNS)).compiled()
        return kernel

    def measure(self, p: ProductProblem, group: Sequence[Candidate]) -> list[Point]:
        """The points of a problem."""
        from sparsegen.bench.bitmap_run import TOLERANCE as ALLOWED
        from sparsegen.bench.bitmap_run import packed, program
        from sparsegen.inspection import resources

        torch, w, kind = self.bench.torch, self.product(p).w, self.bench.dtype(p.dtype)
        dense = w.to_dense()
        x = (2 * torch.rand((p.k, p.n), generator=self.bench.random(p.m + p.k), device="cuda") - 1).to(kind)
        exact = torch.cat([rows.double() @ x.double() for rows in dense.split(_BAND)])
        u, y = (packed(a, COLUMNS) for a in (x, torch.empty_like(exact, dtype=kind)))
        points = [failed(c.point, c.kernel) if isinstance(c.kernel, Exception) else c.point for c in group]
        errors, fail = dict[int, float](), dict[int, Exception]()

        def call(c: Candidate) -> Callable[[], object]:
            if c.point.schedule == "dense":
                return lambda: torch.mm(dense, u, out=y)
            return lambda: c.kernel(u, out=y)

        for at, c in finished(group, fail):
            y.fill_(float("nan"))
            try:
                call(c)()
                error = float((y.double() - exact).norm() / exact.norm())
                errors[at] = error if math.isfinite(error) else math.inf
            except Exception as error:
                fail[at] = error
        ready = list(finished(group, fail))
        for (at, c), times in zip(ready, timed(self.lab, [call(c) for _, c in ready], self.seconds, True), strict=True):
            made = None
            if c.point.schedule != "dense":
                made = resources(c.kernel._builds.get(program(c.kernel, COLUMNS)), c.kernel.device.arch)
            points[at] = regret.measured(c.point, times, errors[at], errors[at] <= ALLOWED[p.dtype], made)
        return [failed(q, fail[at]) if at in fail else q for at, q in enumerate(points)]


# -------------------------------------------------------------------------------------------------------- the suite
def run(
    parts: Sequence[str],
    seed: int,
    seconds: float,
    say: Callable[[str], None] = lambda _: None,
    keep: Callable[[Sequence[Point]], None] = lambda _: None,
    problems: int | None = None,
) -> list[Point]:
    """Measure the problems of a seed, ``problems`` of each part (default: PROBLEMS).

    ``say`` gets lines of progress, ``keep`` after each problem all points so far.
    """
    lab = Lab(seed=seed)
    points: list[Point] = []
    for part in parts:
        count = problems or regret.PROBLEMS[part]
        if part == "stencils":
            _part(Stencils(lab, seconds), regret.stencil_problems(seed, count), seed, points, say, keep)
        else:
            _part(Products(lab, seed, seconds), regret.product_problems(seed, count), seed, points, say, keep)
    return points


def _part(bench: Any, problems: Sequence[Any], seed: int, points: list[Point], say: Any, keep: Any) -> None:
    """Measure a part's problems into ``points``; which candidates are random follows from the seed and the name."""
    with clock() as elapsed:
        groups = [bench.candidates(p, random.Random(f"candidates {seed} {p.name}")) for p in problems]
        pairs = [(p, c) for p, group in zip(problems, groups, strict=True) for c in group]
        owner = {id(c): p for p, c in pairs}
        say(f"{len(pairs)} candidates of {len(problems)} problems after {elapsed():.1f} s")
        compiled([c for _, c in pairs], lambda c: bench.build(owner[id(c)], c))
        say(f"compiled after {elapsed():.1f} s")
        for p, group in zip(problems, groups, strict=True):
            found = bench.measure(p, group)
            for candidate in group:
                candidate.kernel = None  # its workspace would stay on the GPU
            points += found
            keep(points)
            say(line(p.name, found))
        say(f"measured after {elapsed():.1f} s")


@contextmanager
def clock() -> Iterator[Callable[[], float]]:
    """Seconds since it began."""
    start = time.perf_counter()
    yield lambda: time.perf_counter() - start


def line(name: str, points: Sequence[Point]) -> str:
    """A problem as a line of progress."""
    bad = sum(not q.ok for q in points)
    found = regret.findings([q.as_json() for q in points])
    head = f"{name} {'x'.join(map(str, points[0].shape))} {points[0].dtype}, {points[0].schedule}"
    if not found:
        return f"{head}: {points[0].failed}"
    errors = sorted(map(abs, found[0].errors))
    wrong = f", {bad} FAILED" if bad else ""
    return (
        f"{head}: regret {found[0].regret:.3f}, off by {errors[len(errors) // 2]:.1%}, "
        f"rank {found[0].correlation:.2f}{wrong}"
    )

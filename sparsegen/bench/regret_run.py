"""How the candidates of suite ``regret`` are measured: those of a few problems are compiled, then measured one problem
after the other.

Each result is compared with that of a naive kernel, or of f64, before anything is timed.  Then the candidates of a
problem are timed in ROUNDS over all of them.  Each timed call comes after a read that empties L2: stencils after one
more call, as in a loop; products at once, as the weights of a layer are read.  Of stencils and updates it is the GPU's
own time that the model predicts: where a call is so brief that the host may take longer to enqueue it, a CUDA graph of
several, back to back, is timed in its place (``Lab.undisturbed``); a point says of how many ``calls``.
"""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import sparsegen as sg
from sparsegen.bench import drawn, products, regret, stencil_run, update_run
from sparsegen.bench.bitmap_run import Bitmaps
from sparsegen.bench.bitmaps import Weights
from sparsegen.bench.harness import TOLERANCE, compiled, nothing, reason
from sparsegen.bench.integers import Drawer, Given, OfAttention, OfProduct, OfSampled
from sparsegen.bench.lab import Lab, Timing
from sparsegen.bench.regret import PatternProblem, Point, StencilProblem, VectorProblem
from sparsegen.compiler import described
from sparsegen.formats import sparse
from sparsegen.inspection import Resources, resources
from sparsegen.ir.boundary import describe
from sparsegen.memo import Memo
from sparsegen.pruning import prune

if TYPE_CHECKING:
    from sparsegen.formats import SparseMatrix
    from sparsegen.products.product import Product

#: Rounds over a problem's candidates, so that neither a drift of the clock nor what the host does for a while favours
#: one of them; fewest and most timed calls of a candidate in a round.
ROUNDS, LEAST, MOST = 4, 3, 20
#: Times of a round whose 90th percentile is so many times the 10th tell of the host: they are taken again, so often.
NOISY, AGAIN = 1.25, 3
#: Reads that empty L2 before a timed call: some 65 us each on an H200, in all more than two calls take on the host.
READS: Final = 6
#: Problems whose candidates are compiled together: a call that is cut off keeps what was measured of those before.
TOGETHER: Final = 8
CHECKED: Final = 50  #: steps of an update that are compared, of more: what is rounded otherwise grows apart
COLUMNS: Final = "columns"  #: how x and y of a product are packed

Call = Callable[[], object]
#: From a kernel its call; the error of a call's result.
Staged = tuple[Callable[[Any], Call], Callable[[Call], float]]


def timed(lab: Lab, calls: Sequence[Call], seconds: float, cold: bool) -> list[Timing]:
    """Device times of each of ``calls``, about ``seconds`` of it in all, in ROUNDS over all of them.

    Reads of far more than L2 come before each timed call; they take so long that the host's own time is hidden, which
    is up to some 100 us where a call has several launches and workspaces.  Unless ``cold``, a call that is not timed
    then fills L2 as in a loop, and brief calls go into a graph.  Of a round that the host has disturbed the quietest of
    a few is kept.
    """
    ways = [(call, 1) if cold else lab.undisturbed(call) for call in calls]
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for (call, _), times in zip(ways, found, strict=True):

            def before(call: Call = call) -> None:
                for _ in range(READS):
                    lab.flush()
                if not cold:
                    call()

            times += quietest(partial(lab.times, call, seconds / ROUNDS, before, least=LEAST, most=MOST))
    return [Timing.of(times, many) for times, (_, many) in zip(found, ways, strict=True)]


def quietest(round_of: Callable[[], list[float]]) -> list[float]:
    """The times of a round, or of the one of a few that spreads least where the first is ``NOISY``."""

    def spread(times: Sequence[float]) -> float:
        timing = Timing.of(times)
        return timing.p90 / timing.p10

    best = round_of()
    for _ in range(AGAIN):
        if spread(best) <= NOISY:
            break
        best = min(best, round_of(), key=spread)
    return best


class Stencils:
    """The part ``stencils``."""

    cold = False  #: whether a call comes right after the read that empties L2
    part, most = "stencils", regret.MOST  #: and how many of its candidates are the cheapest

    def __init__(self, lab: Lab, seed: int, seconds: float) -> None:
        self.lab, self.seed = lab, seed

    def problems(self, count: int) -> list[Any]:
        """The problems of the seed."""
        return regret.stencil_problems(self.seed, count)

    def candidates(self, p: StencilProblem, draw: random.Random) -> list[Point]:
        """The points of a problem, to be compiled and measured."""
        costs = sg.schedules(p.stencil, p.shape, p.steps)
        about = {"part": self.part, "case": p.name, "shape": p.shape, "dtype": p.stencil.dtype,
                 "boundary": describe(p.stencil.sides), "steps": p.steps, "stencil": p.stencil.name}  # fmt: skip
        whole, _ = described(p.stencil, p.shape, p.steps, "any")
        return regret.points(about, costs, lambda c: whole.seconds(c, p.steps), draw, self.most)

    def build(self, p: StencilProblem, schedule: str) -> Any:
        """The compiled kernel of a candidate."""
        return stencil_run.ready(p.stencil, p.shape, schedule, p.steps)

    @contextmanager
    def staged(self, p: StencilProblem) -> Iterator[Staged]:
        """What calls the kernels of a problem, and compares the result of a call."""
        lab, dtype = self.lab, p.stencil.dtype
        with lab.fields(4, p.shape, np.dtype(f"f{int(dtype[1:]) // 8}")) as (u, out, expected, spare):
            lab.fresh(u, dtype)
            lab.naive.run(p.stencil, p.shape, p.steps, u.pointer, expected.pointer, spare.pointer)

            def error(call: Call) -> float:
                lab.naive.poison(out.pointer, out.count, dtype)
                call()
                return lab.naive.error(out.pointer, expected.pointer, out.count, dtype)

            yield lambda kernel: partial(kernel, u, out=out), error

    def uses(self, p: StencilProblem, kernel: Any) -> Resources | None:
        """What nvcc made of a kernel; None for the library's dense product."""
        made: Resources = kernel.resources()
        return made


class Updates(Stencils):
    """A part with updates; of ``small`` some problems are stencils."""

    most = regret.FEW

    def __init__(self, part: str, lab: Lab, seed: int, seconds: float) -> None:
        super().__init__(lab, seed, seconds)
        self.part = part
        self.plain = Memo(lambda p: stencil_run.ready(p.update, p.shape, "direct", 1))

    def problems(self, count: int) -> list[Any]:
        return list(drawn.problems(self.part, self.seed, count))

    def candidates(self, p: Any, draw: random.Random) -> list[Point]:
        if isinstance(p, StencilProblem):
            return super().candidates(p, draw)
        about = {"part": self.part, "case": p.name, "shape": p.shape, "dtype": p.update.dtype,
                 "boundary": describe(p.update.sides[0]), "steps": p.steps, "stencil": p.told}  # fmt: skip
        whole, _ = described(p.update, p.shape, p.steps, "any")
        costs = sg.schedules(p.update, p.shape, p.steps)
        return regret.points(about, costs, lambda c: whole.seconds(c, p.steps), draw, self.most)

    def build(self, p: Any, schedule: str) -> Any:
        if isinstance(p, StencilProblem):
            return super().build(p, schedule)
        self.plain.get(p)
        return stencil_run.ready(p.update, p.shape, schedule, p.steps)

    @contextmanager
    def staged(self, p: Any) -> Iterator[Staged]:
        """As for stencils; an update is compared with steps of ``direct``, after fewer steps of a long run."""
        if isinstance(p, StencilProblem):
            with super().staged(p) as found:
                yield found
            return
        lab, plain, dtype = self.lab, self.plain.get(p), p.update.dtype
        with update_run.arrays(lab, p.update, p.shape, plain.dtype, self.seed) as (given, out, other):

            def error(call: Any) -> float:
                steps = checked(p.steps, call.func.schedule.levels)
                update_run.poison(lab, out, dtype)
                call(steps=steps)
                plain(**given, out=other, steps=steps)
                return update_run.apart(lab, out, other, dtype)

            yield lambda kernel: partial(kernel, **given, out=out), error


def checked(steps: int, levels: int) -> int:
    """Steps after which a run of so many is compared: about CHECKED, with the same rest after passes of ``levels``."""
    return steps - max(0, steps - CHECKED) // levels * levels


class Products:
    """The part ``products``, with torch's arrays."""

    cold = True

    def __init__(self, lab: Lab, seed: int, seconds: float) -> None:
        self.lab, self.seed = lab, seed
        self.bench = Bitmaps(lab, seed, seconds)
        self.known: dict[str, Product] = {}

    def problems(self, count: int) -> list[Any]:
        found: list[Any] = regret.product_problems(self.seed, count)
        for at, p in enumerate(found):
            w = self.bench.weights(Weights((p.m, p.k), p.sparsity, p.dtype), self.seed + at)
            self.known[p.name] = self.product(sparse(w, format="auto"), p)
        return found

    def product(self, matrix: SparseMatrix, p: Any) -> Product:
        """The product of a problem, chosen for the order in which its x and y come."""
        return replace(sg.spmm(matrix, p.n), columns=p.order == COLUMNS)

    def candidates(self, p: Any, draw: random.Random) -> list[Point]:
        product = self.known[p.name]
        about = {"part": "products", "case": p.name, "shape": (p.m, p.k, p.n), "dtype": p.dtype, "boundary": p.order,
                 "sparsity": product.w.sparsity}  # fmt: skip
        return regret.points(about, sg.schedules(product), lambda c: c.time, draw, regret.FEW)

    def build(self, p: Any, schedule: str) -> Any:
        kernel = sg.compile(self.known[p.name], backend="cuda", schedule=schedule)
        if schedule != "dense":
            kernel._builds.get(products.program(kernel, p.order)).compiled()
        return kernel

    @staticmethod
    def dense(kernel: Any) -> bool:
        """Whether it is the dense product, which is timed as the library's."""
        return bool(kernel.schedule.family == "dense")

    @contextmanager
    def staged(self, p: Any) -> Iterator[Staged]:
        torch, dense = self.bench.torch, self.known[p.name].w.to_dense()
        x = self.bench.uniform((p.k, p.n), p.dtype, p.m + p.k)
        exact = self.bench.exact(dense, x)
        u, y = (products.packed(a, p.order) for a in (x, torch.empty_like(exact, dtype=x.dtype)))

        def call(kernel: Any) -> Call:
            return partial(torch.mm, dense, u, out=y) if self.dense(kernel) else partial(kernel, u, out=y)

        yield call, lambda call: self.bench.off(call, y, exact)

    def uses(self, p: Any, kernel: Any) -> Resources | None:
        if self.dense(kernel):
            return None
        return resources(kernel._builds.get(products.program(kernel, p.order)), kernel.device)


class Patterns(Products):
    """The part ``patterns``."""

    def problems(self, count: int) -> list[Any]:
        found: list[Any] = regret.pattern_problems(self.seed, count)
        for at, p in enumerate(found):
            w = self.bench.weights(Weights((p.m, p.k), 0.0, p.dtype), self.seed + at)
            w = prune(w, "nm", n=p.kept, m=p.window, vector=p.vector)
            matrix = sparse(w, format="auto", n=p.kept, m=p.window, vector=p.vector)
            self.known[p.name] = self.product(matrix, p)
        return found

    def candidates(self, p: PatternProblem, draw: random.Random) -> list[Point]:
        about = {"part": "patterns", "case": p.name, "shape": (p.m, p.k, p.n), "dtype": p.dtype, "boundary": p.order,
                 "pattern": p.pattern, "sparsity": 1 - p.kept / p.window}  # fmt: skip
        return regret.points(about, sg.schedules(self.known[p.name]), lambda c: c.time, draw, regret.FEW)


class Vectors:
    """A part with vectors of integers."""

    cold = True

    def __init__(
        self, part: str, lab: Lab, seed: int, seconds: float, device: str = "cuda", backend: str = "cuda"
    ) -> None:
        self.part, self.lab, self.seed, self.device, self.backend = part, lab, seed, device, backend
        self.known: dict[str, Given] = {}

    def problems(self, count: int) -> list[VectorProblem]:
        """The problems of the seed, and their arrays."""
        found = regret.vector_problems(self.part, self.seed, count)
        draw = Drawer(importlib.import_module("torch"), self.device)
        self.known = {p.name: given(draw, p, self.seed + 10 * at) for at, p in enumerate(found)}
        return found

    def candidates(self, p: VectorProblem, draw: random.Random) -> list[Point]:
        """The points of a problem, to be compiled and measured."""
        about = {"part": p.part, "case": p.name, "shape": p.shape, "dtype": p.types, "boundary": p.order,
                 "pattern": p.pattern, "sparsity": p.sparsity}  # fmt: skip
        return regret.points(about, sg.schedules(self.known[p.name].what), lambda c: c.time, draw, regret.FEW)

    def build(self, p: VectorProblem, schedule: str) -> Any:
        """The compiled kernel of a candidate."""
        kernel = sg.compile(self.known[p.name].what, backend=self.backend, schedule=schedule)
        self.uses(p, kernel)
        return kernel

    @contextmanager
    def staged(self, p: VectorProblem) -> Iterator[Staged]:
        """What calls the kernels of a problem, and compares the result of a call; its arrays go at the end."""
        problem = self.known.pop(p.name)
        yield problem.call, problem.off

    def uses(self, p: VectorProblem, kernel: Any) -> Resources | None:
        """What nvcc made of a kernel; None for the library's dense product."""
        own: Resources | None = None
        if self.backend == "cuda" and not kernel.schedule.rules.library:
            own = kernel.resources()
        return own


def given(draw: Drawer, p: VectorProblem, seed: int) -> Given:
    """A problem with vectors of integers and its arrays."""
    rows, columns = p.shape[1:3] if p.part == "attention" else (p.shape[0], p.shape[2 if p.part == "sampled" else 1])
    mask = draw.mask((rows, columns), p.sparsity, p.height, seed, p.sigma)
    if p.part == "attention":
        return OfAttention(draw, mask, p.shape[0], p.shape[3], seed + 1, p.quantized, p.bits)
    if p.part == "sampled":
        return OfSampled(draw, mask, p.kinds[0], p.shape[1], seed + 1)
    return OfProduct(draw, mask, p.kinds, p.height, p.shape[2], seed + 1, p.order)


_STUDIES: Final[dict[str, Callable[[Lab, int, float], Any]]] = {
    "stencils": Stencils, "products": Products, "patterns": Patterns,
    **{part: partial(Updates, part) for part in regret.UPDATES},
    **{part: partial(Vectors, part) for part in regret.VECTORS},
}  # fmt: skip


def measured(study: Any, p: Any, points: Sequence[Point], kernels: Sequence[Any], seconds: float) -> list[Point]:
    """The points of a problem with what was measured, or why nothing was."""
    fail = {at: kernel for at, kernel in enumerate(kernels) if isinstance(kernel, Exception)}
    errors = dict[int, float]()
    with study.staged(p) as (call, error):
        for at in (at for at in range(len(kernels)) if at not in fail):
            try:
                errors[at] = error(call(kernels[at]))
            except Exception as fault:
                fail[at] = fault
        times = timed(study.lab, [call(kernels[at]) for at in errors], seconds, study.cold)
    found = [replace(point, failed=reason(fail[at])) if at in fail else point for at, point in enumerate(points)]
    for (at, off), t in zip(errors.items(), times, strict=True):
        uses = study.uses(p, kernels[at])
        registers, spills = (uses.registers, uses.spills) if uses else (None, None)
        found[at] = replace(
            points[at], measured_s=t.median, p10=t.p10, p90=t.p90, repeats=t.repeats, calls=t.calls, error=off,
            ok=off <= TOLERANCE[points[at].dtype], regs=registers, spills=spills,
        )  # fmt: skip
    return found


def run(
    parts: Sequence[str],
    seed: int,
    seconds: float,
    say: Callable[[str], None] = nothing,
    keep: Callable[[Sequence[Point]], None] = nothing,
    problems: int | None = None,
) -> list[Point]:
    """Measure the problems of a seed, ``problems`` of each part (default: PROBLEMS).

    ``say`` gets lines of progress, ``keep`` after each problem all points so far.  Which candidates are random follows
    from the seed and the problem's name.
    """
    lab, points = Lab(seed=seed), list[Point]()
    for part in parts:
        start = time.perf_counter()
        study = _STUDIES[part](lab, seed, seconds)
        asked = study.problems(problems or regret.PROBLEMS[part])
        for first in range(0, len(asked), TOGETHER):
            some = asked[first : first + TOGETHER]
            groups, built = candidates(study, some, seed)
            say(f"{len(built)} candidates of {len(some)} problems compiled after {time.perf_counter() - start:.1f} s")
            for p, group in zip(some, groups, strict=True):
                kernels, built = built[: len(group)], built[len(group) :]  # their workspaces would stay on the GPU
                found = measured(study, p, group, kernels, seconds)
                points += found
                keep(points)
                say(line(p.name, found))
        say(f"measured after {time.perf_counter() - start:.1f} s")
    return points


def candidates(study: Any, asked: Sequence[Any], seed: int) -> tuple[list[list[Point]], list[Any]]:
    """The points of each problem, and the kernel of each point in one list: they are compiled while the points of the
    next problem are found."""
    groups = list[list[Point]]()

    def tasks() -> Iterator[Callable[[], Any]]:
        for p in asked:
            groups.append(study.candidates(p, random.Random(f"candidates {seed} {p.name}")))
            yield from (partial(study.build, p, q.schedule) for q in groups[-1])

    return groups, compiled(tasks(), lambda build: build())


def line(name: str, points: Sequence[Point]) -> str:
    """A problem as a line of progress."""
    bad = sum(not q.ok for q in points)
    found = regret.findings([q.as_json() for q in points])
    head = f"{name} {'x'.join(map(str, points[0].shape))} {points[0].dtype}, {points[0].schedule}"
    if not found:
        return f"{head}: {points[0].failed}"
    error, wrong = float(np.median(np.abs(found[0].errors))), f", {bad} FAILED" if bad else ""
    rank = found[0].correlation
    return f"{head}: regret {found[0].regret:.3f}, off by {error:.1%}, rank {rank:.2f}{wrong}"

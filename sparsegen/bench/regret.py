"""Suite ``regret``: random problems, and how well the cost model chooses and predicts there.

A seed gives the problems, their weights and which candidates are tried; with the sources that the JSON names it gives
them again.  The candidates of a problem are the MOST cheapest schedules by the model, of which the first is what
``schedule="auto"`` takes, and MOST drawn uniformly from the other legal ones.  *Regret* is the chosen one's time over
that of the fastest candidate, so 1 is the best that there is: of the 10th percentiles of their calls.  What disturbs a
call, the host above all, makes it longer and never shorter, so that a low percentile is the kernel's own time, and the
median is not where half of the calls were disturbed.  Brief calls of stencils and updates are timed several at once, as
a CUDA graph, which the host begins once (see ``regret_run``).  All candidates are timed alike, in rounds that take
turns, and a percentile that is low by luck is as likely among the others, where it makes the regret larger.  Errors are
of medians.

The parts, ``stencils``, ``updates`` and ``small`` (of small fields, stencils among them), ``products``, ``patterns``
(products with N:M patterns), and with vectors of integers ``integers`` (products), ``sampled`` (products) and
``attention``, stand in one JSON and can be measured one at a time.  This module has what needs no GPU; ``regret_run``
measures.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sparsegen.bench.harness import AnyRow
from sparsegen.bench.magicube import types
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil

if TYPE_CHECKING:
    from sparsegen.cost.cost import Cost

#: Parts with vectors of integers.
VECTORS: Final = ("integers", "sampled", "attention")
#: Parts with updates (see ``drawn``): of usual sizes, and of small fields, stencils' among them.
UPDATES: Final = ("updates", "small")
PARTS: Final = ("stencils", *UPDATES, "products", "patterns", *VECTORS)
#: Problems of each part.
PROBLEMS: Final = {
    "stencils": 28, "updates": 40, "small": 20, "products": 40, "patterns": 40, "integers": 20, "sampled": 10,
    "attention": 10,
}  # fmt: skip
#: Cheapest candidates by the model, and as many random ones; of parts whose problems are many, fewer.
MOST, FEW = 12, 5
#: What problems are drawn from.  Of stencils: cells, before STRETCH changes each axis of several; time steps.
CELLS, STRETCH, STEPS = (1 << 20, 1 << 27), (0.5, 2.0), (1, 50)
#: Of products: M and K; N; the share of zeros.
SIZES, COLUMNS, ZEROS = (1024, 16384), (1, 512), (0.4, 0.9)
#: Of patterns: M and K; N; columns of a window; the share that is kept; rows and columns of a block.
PATTERN_SIZES, PATTERN_COLUMNS, WINDOWS, KEPT = (1024, 8192), (1, 2048), (4, 8, 16, 32, 32, 64), (0.1, 0.6)
BLOCKS: Final = ((1, 1), (1, 1), (16, 1), (32, 1), (64, 1), (128, 1), (4, 4))
#: Of vectors of integers: their rows; the share that is kept; of lognormal loads of vector rows sigma.
HEIGHTS, LEFT, SIGMAS = (8, 8, 8, 4, 2), (0.01, 0.5), (0.0, 0.0, 1.0)
#: Of their products: M and K; N; types of W and x.
VECTOR_SIZES, VECTOR_COLUMNS = (256, 8192), (1, 1024)
PAIRS: Final = (
    ("i8", "i8"), ("i8", "i8"), ("i16", "i8"), ("i8", "i4"), ("i4", "i4"), ("i16", "i4"), ("i12", "i4"), ("i16", "i16"),
)  # fmt: skip
#: Of sampled ones: k; the type of a and b.  Of attention: heads; queries and keys; d; bits of exponentials.
DEPTHS, KINDS = (32, 2048), ("i8", "i8", "i8", "i4", "i16")
#: The share of keys that a query sees: of more the exponentials, in 8 bits below the largest, are 1 % off.
ATTENTION_HEADS, SEQUENCES, WIDTHS, SOFTMAX_BITS = (1, 16), (512, 8192), (32, 64, 64, 128), (8, 8, 16)
SEEN: Final = (0.01, 0.2)
#: Of stencils: the radius, by the number of axes; a radius that stands there twice is twice as likely.
RADII: Final = {1: (1, 2, 3, 4), 2: (1, 1, 2, 3), 3: (1, 1, 2)}
CHOSEN, TOP, RANDOM = "chosen", "top", "random"


@dataclass(frozen=True)
class StencilProblem:
    """``steps`` time steps of a stencil with random weights."""

    name: str
    stencil: Stencil
    shape: tuple[int, ...]
    steps: int


@dataclass(frozen=True)
class ProductProblem:
    """A product of a random matrix [m, k] with x of ``n`` columns, x and y packed by ``order`` (rows or columns)."""

    name: str
    m: int
    k: int
    n: int
    sparsity: float
    dtype: str
    order: str


@dataclass(frozen=True)
class PatternProblem:
    """A product of a random matrix [m, k] that keeps ``kept`` of every ``window`` columns, alike in blocks of
    ``vector`` (rows, columns), with x of ``n`` columns; x and y packed by ``order`` (rows or columns)."""

    name: str
    m: int
    k: int
    n: int
    kept: int
    window: int
    vector: tuple[int, int]
    dtype: str
    order: str

    @property
    def pattern(self) -> str:
        """The pattern in words, such as ``8:32, 64x1``."""
        return f"{self.kept}:{self.window}, {self.vector[0]}x{self.vector[1]}"


@dataclass(frozen=True)
class VectorProblem:
    """A problem of a part of VECTORS with vectors of ``height`` rows, of which a share ``sparsity`` is left out.

    ``shape``: M, K, N; heads, queries, keys, d of attention.  ``kinds``: the types of both operands; ``sigma``: of the
    vector rows' lognormal loads; ``order``: how x and y are packed; ``bits``: of attention's exponentials;
    ``quantized``: beforehand.
    """

    name: str
    part: str
    shape: tuple[int, ...]
    sparsity: float
    height: int
    sigma: float
    kinds: tuple[str, str] = ("i8", "i8")
    order: str = "rows"
    bits: int = 8
    quantized: bool = True

    @property
    def pattern(self) -> str:
        """The pattern in words, such as ``8x1, 90.0%, lognormal``."""
        return f"{self.height}x1, {self.sparsity:.1%}{', lognormal' * (self.sigma > 0)}"

    @property
    def types(self) -> str:
        """The types of the operands as the paper writes them, such as L16-R8 and 8b-8b."""
        if self.part != "attention":
            return types(self.kinds)
        return f"{'' if self.quantized else 'f16 '}{self.bits}b-8b"


@dataclass(frozen=True, kw_only=True)
class Point(AnyRow):
    """One schedule of one problem; times are seconds of a call, with all its time steps.

    ``shape``: of the field, (M, K, N), or attention's heads, queries, keys and d; ``boundary``: a field's, or how x
    and y of a product are packed; ``steps`` and ``stencil`` (kind, axes and radius, such as ``box_2d_r1``, and what
    else an update has) are a field's, ``sparsity`` is a product's, ``pattern`` that of an N:M matrix or of vectors.
    ``picked``: chosen, top or random; ``binds``: the model's binding term; ``measured_s``: the median, of times that
    each are the mean of ``calls`` in a CUDA graph, or of one call where that is 1.  ``error``:
    max|a - b| / max|b| of fields, |y - exact| / |exact| of a product, or the share of wrong integers.
    """

    boundary: str
    steps: int = 0
    sparsity: float | None = None
    stencil: str = ""
    pattern: str = ""
    picked: str
    predicted_s: float
    binds: str
    measured_s: float | None = None
    calls: int = 1


# ------------------------------------------------------------------------------------------------------ the problems
def between(draw: random.Random, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return math.exp(draw.uniform(math.log(low), math.log(high)))


def weights(draw: random.Random, kind: str, axes: int, radius: int) -> Any:
    """A box, a star, or a product of one row for each axis, random and with the sum 1."""
    edge = 2 * radius + 1
    if kind == "product":
        w = np.ones(())
        for _ in range(axes):
            w = np.multiply.outer(w, np.array([draw.uniform(0.1, 1.0) for _ in range(edge)]))
    else:
        w = np.array([draw.uniform(0.1, 1.0) for _ in range(edge**axes)]).reshape((edge,) * axes)
    if kind == "star":
        w[np.count_nonzero(np.indices(w.shape) - radius, axis=0) > 1] = 0.0
    return w / w.sum()


def _shape(draw: random.Random, axes: int) -> tuple[int, ...]:
    """The size of each axis, none more than four times another; all multiples of 32 in half of the cases."""
    edge = between(draw, *CELLS) ** (1 / axes)
    sizes = [edge * between(draw, *STRETCH) ** (axes > 1) for _ in range(axes)]
    whole = draw.random() < 0.5
    return tuple(max(32, round(n / 32) * 32) if whole else round(n) for n in sizes)


def drawn_stencil(draw: random.Random, axes: int) -> Stencil:
    """A stencil of random weights on so many axes."""
    radius = draw.choice(RADII[axes])
    kind = draw.choice(("box", "star", "product")) if axes > 1 else "box"
    w = weights(draw, kind, axes, radius)
    dtype = draw.choice(("float64", "float64", "float64", "float32"))
    sides: tuple[BoundarySpec, ...] = (periodic, periodic, periodic, frozen, neumann, dirichlet(0.5))
    return Stencil.from_weights(w.astype(dtype), draw.choice(sides), f"{kind}_{axes}d_r{radius}")


def stencil_problem(draw: random.Random, name: str) -> StencilProblem:
    """A stencil on one to three axes."""
    axes = draw.choice((1, 2, 3))
    return StencilProblem(name, drawn_stencil(draw, axes), _shape(draw, axes), round(between(draw, *STEPS)))


def product_problem(draw: random.Random, name: str) -> ProductProblem:
    """A pruned weight matrix."""
    m, k = (round(between(draw, *SIZES)) for _ in range(2))
    n, zeros = round(between(draw, *COLUMNS)), round(draw.uniform(*ZEROS), 2)
    return ProductProblem(name, m, k, n, zeros, draw.choice(("f16", "f16", "bf16")), draw.choice(("rows", "columns")))


def pattern_problem(draw: random.Random, name: str) -> PatternProblem:
    """A weight matrix that is pruned N:M; half have sizes that 64 divides."""
    whole = draw.choice((1, 64))
    m, k = (max(whole, round(between(draw, *PATTERN_SIZES) / whole) * whole) for _ in range(2))
    rows, cols = draw.choice(BLOCKS)
    window = draw.choice([w for w in WINDOWS if w > cols])
    kept = min(max(round(window * draw.uniform(*KEPT) / cols), 1) * cols, window - cols)
    return PatternProblem(
        name, m, k, round(between(draw, *PATTERN_COLUMNS)), kept, window, (rows, cols),
        draw.choice(("f16", "f16", "bf16", "f32")), draw.choice(("rows", "columns")),
    )  # fmt: skip


def vector_problem(draw: random.Random, part: str, name: str) -> VectorProblem:
    """A problem with vectors of integers; half have sizes that 64 divides."""
    whole = draw.choice((1, 64))

    def size(low: int, high: int) -> int:
        return max(whole, round(between(draw, low, high) / whole) * whole)

    left = between(draw, *(SEEN if part == "attention" else LEFT))
    some = (round(1 - left, 3), draw.choice(HEIGHTS), draw.choice(SIGMAS))
    if part == "attention":
        heads, d = round(between(draw, *ATTENTION_HEADS)), draw.choice(WIDTHS)
        rows, keys, bits = size(*SEQUENCES), size(*SEQUENCES), draw.choice(SOFTMAX_BITS)
        quantized = bits > 8 or draw.random() < 0.7
        return VectorProblem(name, part, (heads, rows, keys, d), *some, bits=bits, quantized=quantized)
    m, k = size(*VECTOR_SIZES), size(*VECTOR_SIZES)
    if part == "sampled":
        kind = draw.choice(KINDS)
        depth = max(2, round(between(draw, *DEPTHS) / 2) * 2)  # a byte holds two integers of 4 bits along k
        return VectorProblem(name, part, (m, depth, k), *some, (kind, kind))
    n, kinds = round(between(draw, *VECTOR_COLUMNS)), draw.choice(PAIRS)
    n += n % 2 * (kinds[1] == "i4")  # the same
    return VectorProblem(name, part, (m, k, n), *some, kinds, draw.choice(("rows", "columns")))


def vector_problems(part: str, seed: int, count: int) -> list[VectorProblem]:
    """The problems of a part of VECTORS of a seed."""
    draw = random.Random(f"{part} {seed}")
    return [vector_problem(draw, part, f"{part[:2]}{i + 1}") for i in range(count)]


def pattern_problems(seed: int, count: int) -> list[PatternProblem]:
    """The N:M matrices of a seed."""
    draw = random.Random(f"patterns {seed}")
    return [pattern_problem(draw, f"n{i + 1}") for i in range(count)]


def stencil_problems(seed: int, count: int) -> list[StencilProblem]:
    """The stencils of a seed."""
    draw = random.Random(f"stencils {seed}")
    return [stencil_problem(draw, f"s{i + 1}") for i in range(count)]


def product_problems(seed: int, count: int) -> list[ProductProblem]:
    """The products of a seed."""
    draw = random.Random(f"products {seed}")
    return [product_problem(draw, f"p{i + 1}") for i in range(count)]


# ---------------------------------------------------------------------------------------------------- the candidates
def candidates(
    costs: Sequence[Cost], seconds: Callable[[Cost], float], draw: random.Random, most: int = MOST
) -> list[tuple[Cost, float, str]]:
    """(cost, predicted seconds, picked) of the ``most`` cheapest, and of as many drawn uniformly from the others.

    A schedule with infinite seconds cannot do the steps that are left over after whole passes: it is no candidate.
    """
    timed = sorted((t, i) for i, c in enumerate(costs) if (t := seconds(c)) < math.inf)
    top = [(costs[i], t, TOP if at else CHOSEN) for at, (t, i) in enumerate(timed[:most])]
    rest = draw.sample(timed[most:], min(most, max(0, len(timed) - most)))
    return top + [(costs[i], t, RANDOM) for t, i in rest]


def points(
    about: Mapping[str, Any], costs: Sequence[Cost], seconds: Callable[[Cost], float], draw: random.Random,
    most: int = MOST,
) -> list[Point]:  # fmt: skip
    """The candidates of a problem with what a row says ``about`` it."""
    return [
        Point(**about, picked=how, schedule=str(c.schedule), predicted_s=time, binds=c.binds)
        for c, time, how in candidates(costs, seconds, draw, most)
    ]


# ------------------------------------------------------------------------------------------------------- the findings
@dataclass(frozen=True)
class Finding:
    """What a problem's points say; ratios are of seconds.

    ``regret``: the chosen one over the fastest of all, by their 10th percentiles; ``errors``: predicted / measured - 1
    of each point; ``correlation``: Spearman's, of predicted and measured seconds.
    """

    case: str
    regret: float
    errors: tuple[float, ...]
    correlation: float


def own(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The points without the library's dense product: the cheapest of the others by the model is the chosen one."""
    best: dict[tuple[str, str], Mapping[str, Any]] = {}
    left = [row for row in rows if row["schedule"] != "dense"]
    for row in left:
        other = best.setdefault((row["part"], row["case"]), row)
        if row["predicted_s"] < other["predicted_s"]:
            best[row["part"], row["case"]] = row
    return [{**row, "picked": CHOSEN if best[row["part"], row["case"]] is row else TOP} for row in left]


def findings(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Those of every problem whose chosen schedule has a time; points without one are left out."""
    cases: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["measured_s"] is not None:
            cases.setdefault((row["part"], row["case"]), []).append(row)
    out = []
    for (_, case), points in cases.items():
        measured = [p["measured_s"] for p in points]
        chosen = [p["p10"] for p in points if p["picked"] == CHOSEN]
        if not chosen:
            continue
        predicted = [p["predicted_s"] for p in points]
        errors = tuple(a / b - 1 for a, b in zip(predicted, measured, strict=True))
        out.append(
            Finding(case, chosen[0] / min(p["p10"] for p in points), errors, rank_correlation(predicted, measured))
        )
    return out


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's coefficient; equal values share the mean of their ranks.  1 for fewer than three points."""
    if len(a) < 3:
        return 1.0
    ranks = [_ranks(np.asarray(x)) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1]) if all(r.std() for r in ranks) else 0.0


def _ranks(x: Any) -> Any:
    """Ranks from 1; of n equal values, which end at rank e, each has e - (n - 1) / 2."""
    _, at, counts = np.unique(x, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[at]

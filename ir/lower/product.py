"""Products on tensor cores: which mma runs over how many slices, and ``tile.product``, fragments through layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .. import tile as t
from ..expr import Expr, ExprLike, Value
from ..fragments import SHAPES
from .context import Context, rule


@rule(t.Product)
def product(cx: Context, op: t.Product) -> None:
    """Row by row of the warp in the innermost loop, so that a warp has several independent accumulators."""
    b, spread, base = cx.b, op.spread, SHAPES[op.spread.base]
    cx.alloc(op.new)
    per_warp, regs = spread.products // spread.warps, len(base.c.elements)
    g, lane_t = cx.coordinates()
    first = b.let("first", cx.warp * per_warp)
    if op.new is not None:
        cx.clear(op.new)
    offset, nbytes = cx.resolve(op.src_offset), op.src.dtype.nbytes
    lanes = [(0, lane // 4, lane % 4) for lane in range(32)]
    degree = max(m.conflict_degree(lanes, nbytes) for m in op.a) if op.src.space == "shared" else 1

    def load(i: Expr, row: int, slice_: ExprLike, segment: int, q: Expr) -> Value:
        """Element q of a slice (counted through all the segments) of product i, fragment row g + ``row``."""
        local = (slice_ - segment * (op.depth // 4)) * 4 + q
        return b.ld(op.src, offset + op.a[segment](first + i, g + row, local), hint="a", degree=degree)

    if op.shape == "fma":
        _on_cuda_cores(cx, op, load, lane_t)
        return
    total = len(op.a) * op.depth // 4
    for run in _runs(op.shape, op.depth // 4, total):
        shape = SHAPES[run.shape]
        step = shape.k // 4
        with b.for_("s", 0, run.count, unroll=0) as s, b.for_("i", 0, per_warp, unroll=0) as i:
            slices = [s * step + (run.first + j) for j in range(step)]
            places = [at(0, 0) for at in shape.a.elements]
            av = [load(i, row, slices[col // 4], run.segments[col // 4], lane_t) for row, col in places]
            for n in range(spread.blocks):
                bv = [b.ld(op.weights, q + (op.first + n * total), hint="w") for q in slices]
                cx.multiply(run.shape, av, bv, op.acc, (i * spread.blocks + n) * regs)


@dataclass(frozen=True)
class _Run:
    """``count`` mma of one shape, one after the other, from slice ``first`` on; the segment of each slice of an mma."""

    shape: str
    first: int
    count: int
    segments: tuple[int, ...]


def _runs(shape: str, per: int, total: int) -> list[_Run]:
    """The mma of a sum of ``total`` slices in segments of ``per``: as wide as they come, also across a joint."""
    out: list[_Run] = []
    done = 0
    for s in narrowing(shape):
        step = SHAPES[s].k // 4
        while done + step <= total:
            segments = tuple((done + j) // per for j in range(step))
            last = out[-1] if out else None
            if last and last.shape == s and last.segments == segments and len(set(segments)) == 1:
                out[-1] = replace(last, count=last.count + 1)
            else:
                out.append(_Run(s, done, 1, segments))
            done += step
    return out


def narrowing(name: str) -> list[str]:
    """The shape and, for what is left of the sum, the narrower ones of the same rows and type."""
    s = SHAPES[name]
    kin = [n for n, x in SHAPES.items() if (x.m, x.a.dtype, x.c.dtype) == (s.m, s.a.dtype, s.c.dtype) and x.k <= s.k]
    return sorted(kin, key=lambda n: -SHAPES[n].k)


def accumulate(
    cx: Context, name: str, slices: int, a: Callable[[int], Sequence[Value]], b: Callable[[int], Value],
    c: Sequence[Value],
) -> Sequence[Value]:  # fmt: skip
    """``c`` and the products of ``slices`` slices of four: mma as wide as they come, the rest narrower.

    ``a`` and ``b`` give a slice's registers, ``a`` those of all its halves of 8 rows.
    """
    done = 0
    for shape in narrowing(name):
        step = SHAPES[shape].k // 4
        while done + step <= slices:
            now = range(done, done + step)
            av, bv = [v for s in now for v in a(s)], [b(s) for s in now]
            c = cx.b.mma(shape, av, bv, c)
            done = now.stop
    return c


def _on_cuda_cores(cx: Context, op: t.Product, load: Callable[..., Value], lane_t: Expr) -> None:
    """The same sums by FMA, each lane making the outputs that the tensor core would have given it."""
    b, spread, width = cx.b, op.spread, 8 * op.spread.blocks
    places = [place(0, 0) for place in SHAPES[spread.base].c.elements]
    for seg in range(len(op.a)):
        with b.for_("q", 0, op.depth, unroll=4) as q, b.for_("i", 0, spread.products // spread.warps, unroll=0) as i:
            slice_ = q // 4 + seg * (op.depth // 4)
            av = {row: load(i, row, slice_, seg, q % 4) for row in sorted({row for row, _ in places})}
            for n in range(spread.blocks):
                row_at = (q + seg * op.depth) * width + (op.first + 8 * n)
                wv = b.ldv(op.weights, row_at + lane_t * 2, 2, cache="nc", hint="w")
                for e, (row, col) in enumerate(places):
                    at = (i * spread.blocks + n) * len(places) + e
                    b.st(op.acc, at, b.fma(av[row], wv[col], b.ld(op.acc, at, hint="c")))

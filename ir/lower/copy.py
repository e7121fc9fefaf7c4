"""``tile.copy``: windows of data through layouts, with the domain's border folded into the addresses."""

from __future__ import annotations

from .. import tile as t
from ..boundary_map import Mapped, map_index, touches
from ..expr import TRUE, Expr, Value, all_of, any_of, binary, select
from ..types import Buffer
from .context import Context, rule
from .store import row_of

#: Loads in flight before the first store of a synchronous copy: global memory is far away; out of shared memory more
#: than two only costs registers that the products' accumulators need.
_IN_FLIGHT = {"global": 4, "shared": 2}


@rule(t.Copy)
def copy(cx: Context, op: t.Copy) -> None:
    if op.src.space == "shared":
        _elements(cx, op, edge=False)
        return
    size = (1,) * len(op.lead) + (op.rows, op.cols)
    corner = [cx.resolve(e) for e in (*op.lead, op.y, op.x)]
    edge = any_of(*(touches(at, at + m - 1, n) for at, m, n in zip(corner, size, op.extent, strict=True)))
    fast = _vectors if op.mode == "async" else lambda cx, op: _elements(cx, op, edge=False)
    cx.branch(cx.b.let("edge", edge), lambda: _elements(cx, op, edge=True), lambda: fast(cx, op))


def _vectors(cx: Context, op: t.Copy) -> None:
    """The inside of the domain: adjacent elements, ``vector`` at a time, asynchronously."""
    b, per_row = cx.b, op.cols // op.vector
    base = cx.slot_base(op.dst, op.slot)
    start = b.let("start", _first_row(cx, op) * op.pitch + cx.resolve(op.x))
    with b.for_("e", cx.tid, op.rows * per_row, cx.func.threads) as e:
        r, c = b.let("r", e // per_row), e % per_row * op.vector
        b.cp_async(op.dst, base + op.maps[0](r, c), op.src, start + r * op.pitch + c, op.vector)


def _elements(cx: Context, op: t.Copy, *, edge: bool) -> None:
    """One element at a time: across a border, through several maps, or out of a shared tile."""
    b = cx.b
    base, total = cx.slot_base(op.dst, op.slot), op.rows * op.cols
    in_shared = op.dst.space == "shared"
    unroll = None if op.mode == "async" else _IN_FLIGHT[op.src.space]
    with b.for_("e", cx.tid, total, cx.func.threads, unroll=unroll) as e:
        r, c, targets = _targets(cx, op, e)
        if op.mode == "async":
            _async_element(cx, op, r, c, base + targets[0][0])
            return
        value = cx.convert(_load(cx, op, r, c, edge=edge), op.dst.dtype)
        for (index, where), m in zip(targets, op.maps, strict=True):
            degree = m.walk_degree(op.dst.dtype.nbytes, -1 if op.dirty is None else op.dirty) if in_shared else 1
            b.st(op.dst, base + index, value, where=None if where == TRUE else where, degree=degree)


def _targets(cx: Context, op: t.Copy, e: Expr) -> tuple[Expr, Expr, list[tuple[Expr, Expr]]]:
    """Row and column of element ``e`` of the window, and (index, predicate) of each place it goes to."""
    b = cx.b
    if op.table is not None:
        slot_size = op.dst.size // cx.slots.get(op.dst, 1)
        packed, at = b.ldv(op.table, e * 2, 2, cache="nc", hint="lut")
        r, c = b.let("r", at >> 16, hi=op.rows - 1), b.let("c", at & 0xFFFF, hi=op.cols - 1)  # the table's promise
        top = t.NOWHERE if op.dirty is None else slot_size - 1
        places = [b.let("to", packed & 0xFFFF, hi=top), b.let("to", packed >> 16, hi=top)]
        return r, c, [(i, TRUE if op.dirty is not None else i.ne(t.NOWHERE)) for i in places]
    r, c = b.let("r", e // op.cols), b.let("c", e % op.cols)
    out: list[tuple[Expr, Expr]] = []
    for m in op.maps:
        index, where = m(r, c), m.defined(r, c)
        if where != TRUE and op.dirty is not None:
            index, where = select(where, index, op.dirty), TRUE
        out.append((b.let("to", index), where))
    return r, c, out


def _first_row(cx: Context, op: t.Copy) -> Expr:
    """The row of a field that the window starts in."""
    return row_of([cx.resolve(e) for e in (*op.lead, op.y)], op.extent)


def _mapped(cx: Context, op: t.Copy, r: Expr, c: Expr) -> tuple[Expr, tuple[Mapped, ...]]:
    """(element, its axes) that cell (r, c) of a window across a border is read from."""
    at = (*map(cx.resolve, op.lead), cx.resolve(op.y) + r, cx.resolve(op.x) + c)
    axes = tuple(map_index(i, n, pair) for i, n, pair in zip(at, op.extent, op.sides, strict=True))
    return row_of([m.index for m in axes[:-1]], op.extent) * op.pitch + axes[-1].index, axes


def _load(cx: Context, op: t.Copy, r: Expr, c: Expr, *, edge: bool) -> Value:
    b = cx.b
    if op.src.space == "shared":
        assert op.src_map is not None
        degree = op.src_map.walk_degree(op.src.dtype.nbytes)
        return b.ld(op.src, cx.slot_base(op.src, op.src_slot) + op.src_map(r, c), degree=degree)
    if not edge:
        return b.ld(op.src, (_first_row(cx, op) + r) * op.pitch + cx.resolve(op.x) + c)
    return read_mapped(cx, op.src, *_mapped(cx, op, r, c))


def read_mapped(cx: Context, src: Buffer, index: Expr, axes: tuple[Mapped, ...], degree: int = 1) -> Value:
    """The value of a cell whose axes have been mapped: the loaded one, or a dirichlet side's constant."""
    value, inside = cx.b.ld(src, index, degree=degree), all_of(*(m.inside for m in axes))
    return value if inside == TRUE else cx.b.select(inside, value, constant(cx, src, axes))


def constant(cx: Context, src: Buffer, axes: tuple[Mapped, ...]) -> Value:
    """What a cell outside holds: outside on several axes, the lowest axis' value."""
    b, value = cx.b, None
    outside = [m for m in axes if m.inside != TRUE]
    if len({v for m in outside for v in (m.low, m.high)}) == 1:
        return b.const(src.dtype, outside[0].low, hint="outside")
    for m in reversed(outside):
        low = b.const(src.dtype, m.low, hint="outside")
        fill = low if m.low == m.high else b.select(m.below, low, b.const(src.dtype, m.high, hint="outside"))
        value = fill if value is None else b.select(m.inside, value, fill)
    assert value is not None
    return value


def _async_element(cx: Context, op: t.Copy, r: Expr, c: Expr, to: Expr) -> None:
    """An element across the border: copied asynchronously, or stored where a constant stands in for it."""
    b = cx.b
    src, axes = _mapped(cx, op, r, c)
    inside = all_of(*(m.inside for m in axes))
    if op.src.dtype.nbytes < 4:  # too narrow for cp.async
        b.st(op.dst, to, read_mapped(cx, op.src, src, axes))
        return
    b.cp_async(op.dst, to, op.src, src, 1, where=None if inside == TRUE else inside)
    if inside != TRUE:
        b.st(op.dst, to, constant(cx, op.src, axes), where=binary("==", inside, 0))

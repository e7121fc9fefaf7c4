"""``tile.copy``: windows of data through layouts, with the domain's border folded into the addresses."""

from __future__ import annotations

from .. import tile as t
from ..boundary_map import Mapped
from ..expr import TRUE, Expr, Value, all_of, any_of, binary, select
from ..types import Buffer
from .context import Context, rule

#: Loads in flight before the first store of a synchronous copy: global memory is far away; out of shared memory more
#: than two only costs registers that the products' accumulators need.
_IN_FLIGHT = {"global": 4, "shared": 2}


@rule(t.Copy)
def copy(cx: Context, op: t.Copy) -> None:
    if op.end:
        _to_cells(cx, op)
    elif op.src.space == "shared":
        _elements(cx, op, edge=False)
    else:
        size = (*(1,) * (len(op.at) - 2), op.rows, op.cols)
        corner = map(cx.resolve, op.at)
        ends = zip(corner, size, op.grid.extent, strict=True)
        edge = any_of(*(any_of(at.lt(0), (at + m - 1).ge(n)) for at, m, n in ends))
        fast = _vectors if op.mode == "async" else lambda cx, op: _elements(cx, op, edge=False)
        cx.branch(cx.b.let("edge", edge), lambda: _elements(cx, op, edge=True), lambda: fast(cx, op))


def _vectors(cx: Context, op: t.Copy) -> None:
    """The inside of the domain: adjacent elements, ``vector`` at a time, asynchronously."""
    b, per_row = cx.b, op.cols // op.vector
    base = cx.slot_base(op.dst, op.slot)
    start = b.let("start", op.grid.element([*map(cx.resolve, op.at)]))
    with b.for_("e", cx.tid, op.rows * per_row, cx.func.threads) as e:
        r, c = b.let("r", e // per_row), e % per_row * op.vector
        b.cp_async(op.dst, base + op.maps[0](r, c), op.src, start + r * op.grid.pitch + c, op.vector)


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


def _cell(cx: Context, op: t.Copy, r: Expr, c: Expr) -> tuple[Expr, ...]:
    """The cell of the field that element (r, c) of the window is."""
    *lead, y, x = map(cx.resolve, op.at)
    return (*lead, y + r, x + c)


def _load(cx: Context, op: t.Copy, r: Expr, c: Expr, *, edge: bool) -> Value:
    b = cx.b
    if op.src.space == "shared":
        assert op.src_map is not None
        degree = op.src_map.walk_degree(op.src.dtype.nbytes)
        return b.ld(op.src, cx.slot_base(op.src, op.src_slot) + op.src_map(r, c), degree=degree)
    if not edge:
        *rows, x = map(cx.resolve, op.at)
        return b.ld(op.src, (op.grid.row(rows) + r) * op.grid.pitch + x + c)
    return read_mapped(cx, op.src, *op.grid.mapped(_cell(cx, op, r, c)))


def bring(
    cx: Context, dst: Buffer, to: Expr, src: Buffer, at: Expr, count: int, where: Expr | None = None, degree: int = 1,
) -> None:  # fmt: skip
    """Copies adjacent elements asynchronously, or at once where ``cp.async`` takes no so few: less than 4 bytes."""
    b = cx.b
    if count * src.dtype.nbytes >= 4:
        b.cp_async(dst, to, src, at, count, where)
    else:
        b.st(dst, to, *b.ldv(src, at, count, where=where), where=where, degree=degree)


def read_mapped(cx: Context, src: Buffer, index: Expr, axes: tuple[Mapped, ...], degree: int = 1) -> Value:
    """The value of a cell whose axes have been mapped: the loaded one, or a dirichlet side's constant."""
    value, inside = cx.b.ld(src, index, degree=degree), all_of(*(m.inside for m in axes))
    return value if inside == TRUE else cx.b.select(inside, value, constant(cx, src, axes))


def constant(cx: Context, src: Buffer, axes: tuple[Mapped, ...]) -> Value:
    """What a cell outside holds: outside on several axes, the lowest axis' value."""
    b, value = cx.b, None
    outside = [m for m in axes if m.inside != TRUE]
    if len({v for m in outside for v in (m.low, m.high)}) == 1:
        return cx.literal(src.dtype, outside[0].low, hint="outside")
    for m in reversed(outside):
        low = cx.literal(src.dtype, m.low, hint="outside")
        fill = low if m.low == m.high else b.select(m.below, low, cx.literal(src.dtype, m.high, hint="outside"))
        value = fill if value is None else b.select(m.inside, value, fill)
    assert value is not None
    return value


def _async_element(cx: Context, op: t.Copy, r: Expr, c: Expr, to: Expr) -> None:
    """An element across the border: copied asynchronously, or stored where a constant stands in for it."""
    b = cx.b
    src, axes = op.grid.mapped(_cell(cx, op, r, c))
    inside = all_of(*(m.inside for m in axes))
    if op.src.dtype.nbytes < 4:  # too narrow for cp.async
        b.st(op.dst, to, read_mapped(cx, op.src, src, axes))
        return
    b.cp_async(op.dst, to, op.src, src, 1, where=None if inside == TRUE else inside)
    if inside != TRUE:
        b.st(op.dst, to, constant(cx, op.src, axes), where=binary("==", inside, 0))


def _to_cells(cx: Context, op: t.Copy) -> None:
    """A window of a shared tile to the cells of a field, up to the end."""
    b, (y, x), src_map = cx.b, map(cx.resolve, op.at), op.src_map
    assert src_map is not None
    degree = src_map.walk_degree(op.src.dtype.nbytes)
    with b.for_("e", cx.tid, op.rows * op.cols, cx.func.threads) as e:
        r, c = b.let("r", e // op.cols), b.let("c", e % op.cols)
        row, col = b.let("row", y + r), b.let("col", x + c)

        def cell() -> None:
            value = b.ld(op.src, src_map(r, c), degree=degree)
            b.st(op.dst, op.grid.element((row, col)), cx.convert(value, op.dst.dtype))

        cx.guard(b.let("in", all_of(*(i.lt(cx.resolve(end)) for i, end in zip((row, col), op.end, strict=True)))), cell)

"""Closures of the ops that the four warps of a warpgroup run together, and of what must not come between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir import warp_group as wg
from sparsegen.ir.metadata import DENSE
from sparsegen.ir.swizzle import DEPTH, Tile, atom, tile_bytes
from sparsegen.ir.types import Buffer
from sparsegen.ir.verify_group import askew, starts_well

from .clocks import MANY
from .memory import OpInfo, Shared
from .mma import found_codes
from .products import Product, registers_of
from .scalars import Step
from .values import Fn, number

if TYPE_CHECKING:
    from .compile import Scope
    from .control import Label
    from .group import Group

#: What the four warps of a warpgroup run together.
OPS = (wg.Wgmma, wg.WgmmaRs, wg.WgmmaFence, wg.WgmmaCommit, wg.WgmmaWait, wg.SetRegisters)


@dataclass
class Operand:
    """One of a product's tiles, as the program gives it."""

    buf: Buffer
    index: Fn
    count: int  # rows of a, columns of b
    tile: Tile
    major: str
    info: OpInfo
    depth: int = DEPTH

    def __post_init__(self) -> None:
        self.info = replace(self.info, buffer=self.buf.name, space="shared")

    def __call__(self, g: Group, rows: Any) -> tuple[Shared, Any]:
        """The memory, and the cells ``[n, count, depth]`` each warpgroup reads: placed, written and handed over."""
        m, buf, info, swizzle = g.m, self.buf, self.info, self.tile[0]
        first, unit = self._first(g), atom(swizzle)
        start = 2 * first
        m.find("bounds", info, lambda f: f"the tile of @{buf.name} starts at byte {f(start)}, {askew(swizzle)}",
               "align the buffer, and the tile in it, to the swizzle's pattern",
               bad=[not starts_well(s, swizzle) for s in start.tolist()], index=first, row=rows[:, 0])  # fmt: skip
        m.find("bounds", info, f"@{buf.name} is aligned to {buf.align} bytes, its swizzle's pattern to {unit}",
               f"declare align={unit}", bad=buf.align % unit != 0)  # fmt: skip
        base, inside = np.divmod(start, unit)
        tables = [_bytes(self.count, self.tile, self.major, s, self.depth) for s in inside.tolist()]
        at = (np.stack(tables) + (base * unit)[:, None, None]) // 2
        outside = (at < 0) | (at >= buf.size)
        m.find("bounds", info, lambda f: f"the tile reaches element {f(at)} of @{buf.name}, outside 0..{buf.size - 1}",
               "start it further up, or enlarge the buffer", bad=outside, index=at, row=rows[:, :1, None])  # fmt: skip
        mem: Shared = m.shared[buf.name]
        cells = mem.cells(np.where(outside, 0, at), rows[:, :1, None])
        if mem.tracked and mem.data is not None:
            self._check(mem, cells, rows)
        return mem, cells

    def _first(self, g: Group) -> Any:
        """The index that each warpgroup's lanes give: one."""
        given = np.broadcast_to(np.asarray(self.index(g.env)), (g.n, 32)).reshape(-1, 32 * wg.WARPS)
        one, what = given[:, :1], f"the place of its tile of @{self.buf.name}"
        g.m.find("collective", self.info, lambda f: f"the lanes of a warpgroup give {f(one)} and {f(given)} as {what}",
                 "give one that is the same in its four warps", bad=given != one,
                 row=g.rows.reshape(-1, wg.WARPS)[:, :1])  # fmt: skip
        return given[:, 0].astype(np.int64)

    def _check(self, mem: Shared, cells: Any, rows: Any) -> None:
        """All lanes read the tiles through the asynchronous proxy; of what one thread wrote at once, one cell tells."""
        flat = cells.reshape(len(cells), -1)
        at = np.arange(flat.size)
        if mem.at is None:
            _, at = np.unique((np.arange(len(flat))[:, None] << 32) + mem.ws.take(flat), return_index=True)
        cell = np.repeat(flat.reshape(-1)[at], wg.WARPS)
        row, lane = rows[at // flat.shape[1]].reshape(-1), np.full(len(cell), MANY)
        mem.check_read(cell, row, lane, None, self.info, later=True)
        mem.check_proxy(cell, row, lane, self.info, "wgmma reads")


@cache
def _bytes(count: int, tile: Tile, major: str, start: int, depth: int) -> Any:
    return tile_bytes(count, tile, major, start, depth)


# ------------------------------------------------------------------------------------------------ closures
def counted(op: Any) -> str:
    """The instruction class that every warp that reaches the op issues."""
    if isinstance(op, wg.WgmmaSp):
        return f"wgmma_sp.{op.a.dtype}.m64n{op.cols}k32"
    if isinstance(op, wg.WgmmaRs):
        return f"wgmma_rs.{op.b.dtype}.m64n{op.cols}k16"
    return f"wgmma.{op.a.dtype}.m64n{op.cols}k16" if isinstance(op, wg.Wgmma) else str(op.name).removeprefix("warp.")


def control(op: Any, sc: Scope, here: Label, after: Label) -> Callable[[Group], int]:
    """The control of an op that the four warps of a warpgroup run together."""
    info = sc.info(op)
    step = _wgmma(op, sc) if isinstance(op, wg.AnyWgmma) else _order(op)

    def run(g: Group) -> int:
        whole = g.m.products.meet(g, here.pc, info)
        if whole is None:
            return -1
        g.m.collective(whole, info)
        step(whole)
        return after.pc

    return run


def _order(op: wg.WgmmaFence | wg.WgmmaCommit | wg.WgmmaWait) -> Step:
    if isinstance(op, wg.WgmmaFence):
        return lambda g: g.m.products.fence(g)
    if isinstance(op, wg.WgmmaWait):
        return lambda g: g.m.products.wait(g, op.pending)

    def commit(g: Group) -> None:
        g.m.products.number[g.rows] += 1

    return commit


def read_late(op: wg.AnyWgmma) -> Buffer | None:
    """The register array that a product reads at any time until its wait, as it does its tiles."""
    return op.a if isinstance(op, wg.WgmmaRs) else op.meta if isinstance(op, wg.WgmmaSp) else None


def _wgmma(op: wg.AnyWgmma, sc: Scope) -> Step:
    slot, info, late = sc.regs[op.acc.name], sc.info(op), read_late(op)
    read = None if late is None else sc.regs[late.name]
    depth = DENSE if isinstance(op, wg.WgmmaSp) else DEPTH
    tiles = [Operand(op.b, number(op.b_index, sc.slots), op.cols, op.b_tile, op.b_major, info, depth)]
    if isinstance(op, wg.Wgmma):
        tiles.insert(0, Operand(op.a, number(op.a_index, sc.slots), wg.ROWS, op.a_tile, op.a_major, info))

    def wgmma(g: Group) -> None:
        products = g.m.products
        products.ready(g, slot, op.acc, info)
        rows = g.rows.reshape(-1, wg.WARPS)
        if late is not None and read is not None:
            products.ready(g, read, late, info, "reads")
            if isinstance(op, wg.WgmmaSp):
                found_codes(g, registers_of(g, read)[0], op.selector, info)
        found = tuple(tile(g, rows) for tile in tiles)
        products.start(Product(op, info, slot, rows, products.number[rows[:, 0]], found, read))

    return wgmma


def guarded(step: Step, op: w.Ld | w.St, sc: Scope) -> Step:
    """The closure of a load or store, if products use the register array otherwise: they must not be in flight."""
    does = sc.held[op.buf.name][1] if op.buf.name in sc.held else ""
    if not does or (does == "reads" and isinstance(op, w.Ld)):
        return step
    slot, info = sc.regs[op.buf.name], sc.info(op)
    text = f"{'write' if isinstance(op, w.St) else 'read'} of register array @{op.buf.name}"

    def access(g: Group) -> None:
        g.m.products.touch(g, slot, info, text, does)
        step(g)

    return access


def dropped(name: str, sc: Scope) -> Step:
    """The closure at the end of the region that registers live in: no product must use them later."""
    slot, (info, does) = sc.regs[name], sc.held[name]
    return lambda g: g.m.products.touch(g, slot, info, f"end of the region of register array @{name}", does)

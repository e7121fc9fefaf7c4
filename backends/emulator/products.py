"""Products of warpgroups that are under way: tiles are read, and sums written, as late as the wait allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp_group as wg
from sparsegen.ir.fragments import named
from sparsegen.ir.metadata import codes
from sparsegen.ir.swizzle import DEPTH
from sparsegen.ir.types import Buffer

from .clocks import WHOLE
from .group import Group
from .memory import OpInfo, Shared
from .mma import gather, matrix, multiplied

if TYPE_CHECKING:
    from .group import RegArray
    from .machine import Machine

WAIT = "put a wgmma_commit after the product, and before this a wgmma_wait that covers its group"


@dataclass
class Product:
    """One executed wgmma of some warpgroups: their warps ``[n, 4]``, their groups, the cells of its tiles, and the slot
    of the registers that it reads besides: a, or the words that say what a sparse a keeps."""

    op: wg.AnyWgmma
    info: OpInfo
    slot: int
    rows: Any
    number: Any
    tiles: tuple[tuple[Shared, Any], ...]
    read: int | None

    def part(self, which: Any) -> Product:
        """The product of some of its warpgroups."""
        tiles = tuple((mem, cells[which]) for mem, cells in self.tiles)
        return replace(self, rows=self.rows[which], number=self.number[which], tiles=tiles)

    @property
    def slots(self) -> tuple[int, ...]:
        """Of the registers that it uses."""
        return (self.slot,) if self.read is None else (self.slot, self.read)

    def result(self, given: Any) -> Any:
        """What is added to the sums: ``[registers, n, 4, 32]``; None if nothing is held.

        ``given``: the registers ``[elements, 4 n, 32]`` of its warps that it reads.
        """
        read = [mem.data.take(cells).astype(np.float32) for mem, cells in self.tiles if mem.data is not None]
        if len(read) < len(self.tiles):
            return None
        y, op = read[-1].transpose(0, 2, 1), self.op
        if isinstance(op, wg.WgmmaRs):
            shape = f"{op.b.dtype}.m16n8k16"
            x = matrix(named(shape).a, gather(shape, "a"), list(given)).reshape(-1, wg.ROWS, DEPTH)
        else:
            x = read[0]
        kept = codes(given[0], op.selector).reshape(*x.shape[:2], -1) if isinstance(op, wg.WgmmaSp) else None
        sums = np.matmul(x, y) if kept is None else multiplied(x, y, kept)
        row, col = _places(op.cols)
        return sums[:, row, col].transpose(1, 0, 2, 3)


@cache
def _places(cols: int) -> tuple[Any, Any]:
    """Row and column of each element of the sums: ``[registers, 4 warps, 32 lanes]``."""
    r, warp, lane = np.indices((cols // 2, wg.WARPS, 32))
    return 16 * warp + lane // 4 + 8 * (r // 2 % 2), 8 * (r // 4) + 2 * (lane % 4) + r % 2


def registers_of(g: Group, slot: int) -> Any:
    """The words of a register array, ``[elements, n, 32]``; 0 where nothing is written."""
    words = [0 if word is None else word for word in g.env[slot].elems]
    return np.stack([np.broadcast_to(np.asarray(word), (g.n, 32)) for word in words])


class Products:
    """The products of all warpgroups of a batch that are under way."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.team = m.lblk * -(-m.wpb // wg.WARPS) + m.clk.wib % m.wpb // wg.WARPS
        self.parked: dict[int, tuple[Group, OpInfo]] = {}  # by the place where warps wait for the others
        self.number = np.zeros(m.W, dtype=np.int64)
        self.flights: list[Product] = []
        self.time = 0  # counts fences
        self.fenced = np.zeros(m.W, dtype=np.int64)
        self.touched: dict[int, Any] = {}  # when each warp's registers, by slot, were read or written last
        self.busy: dict[int, Any] = {}  # how many products write them

    # -------------------------------------------------------------------------------------------- meeting
    def whole(self, g: Group) -> Any:
        """Which warps of a group have all others of their warpgroup with them."""
        team = self.team[g.rows]
        return np.bincount(team)[team] == wg.WARPS

    def meet(self, g: Group, pc: int, info: OpInfo) -> Group | None:
        """Of a group that has come to ``pc`` the whole warpgroups; others wait there until they are whole."""
        mine = self.whole(g)
        if mine.all():
            return g
        rest = g.split(mine) if mine.any() else g
        if pc in self.parked:
            rest = Group.merge([self.parked.pop(pc)[0], rest], self.m.prog.segments[pc].live)
            full = self.whole(rest)
            if full.any():
                go, rest = rest, rest.split(full)
                self.m.push(go, pc)
        rest.pc = pc
        if rest.n:
            self.parked[pc] = rest, info
        return g if mine.any() else None

    # -------------------------------------------------------------------------------------------- registers
    def touch(self, g: Group, slot: int, info: OpInfo, text: str, does: str = "writes") -> None:
        """Other instructions access registers, which a product in flight must not use so."""
        rows = g.active_rows()
        if slot in self.busy:
            self.m.find("async", info, f"{text} while a wgmma in flight {does} it", WAIT,
                        bad=self.busy[slot][rows] > 0, row=rows)  # fmt: skip
        self.touched.setdefault(slot, np.zeros(self.m.W, dtype=np.int64))[rows] = self.time

    def fence(self, g: Group) -> None:
        self.time += 1
        self.fenced[g.rows] = self.time

    def ready(self, g: Group, slot: int, acc: Buffer, info: OpInfo, does: str = "adds to") -> None:
        """The registers of sums, or of words, must have been written, and then fenced."""
        array: RegArray = g.env[slot]
        bad = np.full((g.n, 32), any(v is None for v in array.elems))
        for some in array.some.values():
            bad |= ~some
        self.m.find("uninit", info, f"{does} registers @{acc.name} that nothing has written",
                    "initialise the register array before the product", bad=bad & g.full(), row=g.col)  # fmt: skip
        since = self.touched.get(slot, np.zeros(self.m.W, dtype=np.int64))[g.rows]
        self.m.find("async", info, f"{does} registers @{acc.name} without a wgmma_fence after other instructions' "
                    "accesses to them", "put a wgmma_fence after the last access and before the first product",
                    bad=since >= self.fenced[g.rows], row=g.rows)  # fmt: skip

    # -------------------------------------------------------------------------------------------- products
    def start(self, p: Product) -> None:
        self.flights.append(p)
        for slot in p.slots:
            self.busy.setdefault(slot, np.zeros(self.m.W, dtype=np.int64))[p.rows] += 1
        for mem, cells in p.tiles:
            mem.lend(cells, 1)

    def wait(self, g: Group, pending: int) -> None:
        """Warpgroups wait for all but their latest ``pending`` groups: tiles are read now, and sums written."""
        upto = np.full(self.m.W, -1, dtype=np.int64)
        upto[g.rows] = self.number[g.rows] - pending
        place = np.zeros(self.m.W, dtype=np.intp)
        place[g.rows] = np.arange(g.n)
        sums: dict[int, Any] = {}
        for p in self._taken(lambda p: p.number < upto[p.rows[:, 0]]):
            for mem, cells in p.tiles:
                if mem.tracked and self.m.race:
                    self._record(mem, cells, p.rows)
            if any(g.env[slot] is None for slot in p.slots):  # the end of their region was found
                continue
            add = p.result(None if p.read is None else registers_of(g, p.read)[:, place[p.rows].reshape(-1)])
            if add is None:
                continue
            if p.slot not in sums:
                held = [np.float32(0) if v is None else v for v in g.env[p.slot].elems]
                sums[p.slot] = np.stack([np.broadcast_to(np.asarray(v, np.float32), (g.n, 32)) for v in held])
            sums[p.slot][:, place[p.rows]] += add
        for slot, values in sums.items():
            g.env[slot].elems, g.env[slot].some = list(values), {}

    def left(self, rows: Any) -> None:
        """These warps end: their products must have been waited for."""
        gone = np.zeros(self.m.W, dtype=bool)
        gone[rows] = True
        for p in self._taken(lambda p: gone[p.rows[:, 0]]):
            self.m.find("async", p.info, f"the kernel ends while a wgmma that writes @{p.op.acc.name} is in flight",
                        "put a wgmma_wait 0 before the end (and commit every product)", row=p.rows[0, 0])  # fmt: skip

    def _taken(self, done: Callable[[Product], Any]) -> list[Product]:
        """The products in flight, by warpgroup, for which ``done`` holds: they are so no longer."""
        out: list[Product] = []
        keep: list[Product] = []
        for p in self.flights:
            ended = done(p)
            out += [p.part(ended)] if ended.any() else []
            keep += [p.part(~ended)] if not ended.all() else []
        self.flights = keep
        for p in out:
            for slot in p.slots:
                self.busy[slot][p.rows] -= 1
            for mem, cells in p.tiles:
                mem.lend(cells, -1)
        return out

    @staticmethod
    def _record(mem: Shared, cells: Any, rows: Any) -> None:
        flat = cells.reshape(len(cells), 1, -1)
        shape = (len(cells), wg.WARPS, flat.shape[2])
        cell, row = (np.broadcast_to(x, shape).reshape(-1) for x in (flat, rows[:, :, None]))
        mem.record_read(cell, row, np.full(len(cell), WHOLE))

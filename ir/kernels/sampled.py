"""What kernels of sampled products share: a and b along k, launches that add up, a warp's rows of a, the stores."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .. import op_sddmm as o
from .. import tile as t
from .. import tile_groups as tg
from .. import tile_sampled as ts
from .. import tile_strips as tb
from .. import tile_tasks as tt
from ..errors import IRError
from ..expr import Expr, Value
from ..module import Module
from ..node import Op
from ..numbers.groups import SIDE, row_pitch, side_pitch
from ..numbers.resident import ALIGN
from ..numbers.sampled import CHUNK, GROUP, PIECE, Cut, chunks, cut, own, sums
from ..tile_tasks import RECORD
from ..types import Buffer, s32, u32, widths
from .common import each, replace_kernel

#: Warps of a block that writes a or b anew.
TURNERS = 8


@dataclass(frozen=True)
class Part:
    """A launch: the product of part ``number`` of k, by ``blocks`` blocks of ``warps`` warps for each of a batch.

    ``launched``: a block's number.  ``params``: its parameters by role; ``a`` and ``b``: rows along k, whole pieces of
    16 bytes.  With ``overlap`` it begins while the launch before ends.
    """

    op: o.Sddmm
    params: dict[str, Buffer]
    a: Buffer
    b: Buffer
    cut: Cut
    number: int
    blocks: int
    warps: int
    overlap: bool
    launched: Value

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return self.op.held.nbytes

    @property
    def mine(self) -> Expr:
        """The number of a block among those of its product."""
        return self.launched % self.blocks

    @property
    def which(self) -> Expr:
        """Its product of the batch."""
        return self.launched // self.blocks

    @property
    def groups(self) -> int:
        """Groups of 8 rows of the result."""
        return -(-self.op.m // GROUP)

    @property
    def column(self) -> int:
        """The first element of a row that counts."""
        return self.number * self.cut.nbytes // self.item

    @property
    def used(self) -> int:
        """Bytes of a row that count."""
        return min(self.cut.nbytes, self.op.cols * self.item - self.number * self.cut.nbytes)

    @property
    def share(self) -> dict[str, Any]:
        """The fields of all ops of rows."""
        return {"width": self.cut.width, "slices": self.cut.slices, "nbytes": self.used}

    @cached_property
    def buffers(self) -> Buffer:
        """The rows of a of all warps."""
        return Buffer("rows", self.op.held, self.warps * GROUP * self.cut.nbytes // self.item, "shared", ALIGN)

    @cached_property
    def own(self) -> Buffer:
        """A warp's rows of a in registers."""
        return Buffer("own", u32, own(self.cut.nbytes, self.op.dtype.bits), "reg")

    @cached_property
    def acc(self) -> Buffer:
        """The sums of a tile."""
        return Buffer("acc", s32, sums(self.op.dtype.bits), "reg")

    @cached_property
    def place(self) -> Buffer:
        """The vectors of a tile."""
        return Buffer("place", s32, 2, "reg")

    @property
    def vectors(self) -> int:
        """Vectors of the result, those that fill it up among them."""
        return self.op.stored // self.op.height

    @cached_property
    def task(self) -> dict[str, Any]:
        """The values of a task."""
        steps = self.params["tasks"].size  # no task has so many
        tops = {"row": self.groups, "begin": steps, "end": steps, "word": self.groups}
        return {name: Value({"word": "later"}.get(name, name), s32, 0, top) for name, top in tops.items()}

    def fetch(self, row: Expr, *, alone: bool = True) -> ts.FetchRows:
        """Starts the copies of 8 rows of a."""
        return ts.FetchRows(
            buffers=self.buffers, src=self.a, row=row, column=self.column, m=self.op.m,
            n=self.a.size // (self.op.batch * self.op.m), alone=alone, which=self.which, **self.share,
        )  # fmt: skip

    def take(self, *, waits: bool = True, again: bool = True) -> ts.TakeRows:
        """Takes them to registers."""
        return ts.TakeRows(
            own=self.own, buffers=self.buffers, dtype=self.op.dtype, waits=waits, again=again, **self.share
        )

    def multiplied(self, multiply: Op) -> tuple[Op, ...]:
        """What is done to each tile: products, and the store of their sums; of later parts to what is there."""
        places: dict[str, Any] = {"place": self.place, "height": self.op.height, "stride": self.op.stride}
        out, old = self.params["out"], Buffer("old", s32, 4, "reg") if self.number else None
        store = ts.StoreSampled(out=out, acc=self.acc, old=old, dtype=self.op.dtype, **places)
        return (*(() if old is None else (ts.LoadSampled(old=old, out=out, **places),)), multiply, store)

    def block(
        self, tables: tuple[Buffer, ...], ahead: tuple[Op, ...], tasks: tt.EachTask,
        after: tuple[Op, ...] = (),
    ) -> Op:  # fmt: skip
        """What a block does: ``ahead``, tasks, ``after``; ``tables``: its shared memory besides, the widest first."""
        copied, op = -(-self.used // PIECE) * PIECE, self.op
        rest: tuple[Op, ...] = ()
        if copied < chunks(self.used, op.dtype.bits) * CHUNK:
            rest = (ts.ClearRest(buffers=self.buffers, dtype=op.dtype, copied=copied, **self.share),)
        up: tuple[Op, ...] = ()
        if op.stride and self.number == 0:
            up = (
                ts.FillUp(
                    out=self.params["out"], ptr=self.params["ptr"], block=self.mine, blocks=self.blocks,
                    height=op.height, stride=op.stride, which=self.which,
                ),
            )  # fmt: skip
        allocs = (t.Alloc(buf=buf) for buf in (*tables[:1], self.buffers, *tables[1:], self.own, self.acc))
        wait = tuple(t.Overlap(launch=which) for which in ("next", "last") if self.overlap)
        return tb.EachBlock(block=self.launched, body=(*allocs, *rest, *wait, *ahead, tasks, *up, *after))


@dataclass(frozen=True)
class Sampling:
    """Base of passes.  Roles of the launches: ``a``, ``b``, ``out``, the lists of the pattern, and ``ptr`` of a result
    in blocks.  An a or b that does not lie along k in whole pieces of 16 bytes is first written anew, to ``ws.a`` or
    ``ws.b``.  Where k is long, several launches add up, ``parts`` or more.  ``overlap``: they begin while the ones
    before end (Hopper)."""

    warps: int = 16
    parts: int = 1
    overlap: bool = False
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Sddmm, self._kernels, batched=True)

    @abstractmethod
    def blocks(self, op: o.Sddmm) -> int:
        """How many blocks a launch has."""

    @abstractmethod
    def length(self, op: o.Sddmm) -> int:
        """Tasks of a warp."""

    @abstractmethod
    def lists(self, op: o.Sddmm) -> dict[str, Buffer]:
        """What says where the vectors are, besides the tasks."""

    @abstractmethod
    def body(self, part: Part, lists: dict[str, Any]) -> Op:
        """What a block does; ``lists``: the fields of ops that read its tasks."""

    def _kernels(self, module: Module, op: o.Sddmm) -> Module:
        module, a, a_role = _along(module, op, "a", op.batch * op.m)
        module, b, b_role = _along(module, op, "b", op.batch * op.n)
        c, blocks = cut(op.cols * op.held.nbytes, op.dtype.bits, self.parts), self.blocks(op)
        tasks = Buffer("tasks", s32, blocks * self.length(op) * self.warps * RECORD, "global")
        for number in range(c.parts):
            name = op.symbol if c.parts == 1 else f"{op.symbol}_{number}"
            params = {a_role: a, b_role: b, "tasks": tasks, **self.lists(op)}
            if op.stride:
                params["ptr"] = Buffer("ptr", s32, 2 * -(-op.m // op.height), "global")
            params["out"] = Buffer("c", s32, op.batch * op.stored, "global")
            block = Value("block", s32, 0, op.batch * blocks - 1)
            part = Part(op, params, a, b, c, number, blocks, self.warps, self.overlap, block)
            lists = {"tasks": tasks, "list": part.mine, "length": self.length(op), "rows": part.groups}
            func = t.Func(
                symbol=name, params=tuple(params.values()), blocks=op.batch * blocks, threads=32 * self.warps,
                body=(self.body(part, lists),), min_blocks=self.min_blocks,
            )  # fmt: skip
            module = replace_kernel(module, op, func, params, keep_op=number < c.parts - 1)
        return module


def _along(module: Module, op: o.Sddmm, name: str, rows: int) -> tuple[Module, Buffer, str]:
    """a, or b's columns, as ``rows`` rows along k of whole pieces, and the role: as it is, or as a kernel before the
    op's own, in the module, writes it.  IRError for a batch of what does not lie along k."""
    order, vec = (op.a_order, op.a_vec) if name == "a" else (op.b_order, op.b_vec)
    item, along = op.held.nbytes, (order == "row") == (name == "a")
    if op.batch > 1 and not along:
        raise IRError(f"a batch of {name} must lie along k", hint="turn each before, or run one product after another")
    src = Buffer(name, op.held, rows * op.cols, "global")
    if along and vec == PIECE:
        return module, src, name
    pitch = row_pitch(op.cols, item)
    dst = Buffer(name, op.held, rows * pitch, "global")
    turn: Op
    if along:
        blocks = -(-rows * pitch // (32 * TURNERS * PIECE // item))
        at_once = max(n for n in widths(op.held) if vec % (n * item) == 0)
        turn = tg.PadRows(dst=replace(dst, name="turned"), src=src, k=rows, n=op.cols, pitch=pitch, vec=at_once)
    else:
        blocks = -(-rows // SIDE) * -(-pitch // SIDE)
        tile = Buffer("tile", op.held, SIDE * side_pitch(item), "shared", 16)
        turn = tg.TurnColumns(dst=replace(dst, name="turned"), src=src, tile=tile, k=rows, n=op.cols, pitch=pitch)
    func = t.Func(
        symbol=f"{op.symbol}_turn_{name}", params=(src, turn.dst), blocks=blocks, threads=32 * TURNERS, body=(turn,)
    )  # fmt: skip
    role = f"ws.{name}"
    return replace_kernel(module, op, func, (name, role), keep_op=True), dst, role

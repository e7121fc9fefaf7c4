"""``attention``: sparse attention fused, after Magicube's kernels for the three products of it (SC'22, section 4).

A block has a head, a part of the keys, whose k and v stay in shared memory, and a group of the rows of queries, dealt
to its warps beforehand, the longest first.  What the warps of all parts leave of a row, a second kernel joins; that
begins while the first one ends (Hopper).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .. import op_attention as o
from .. import tile as t
from .. import tile_attention as ta
from .. import tile_resident as tr
from .. import tile_strips as ts
from .. import tile_tasks as tt
from ..expr import Value
from ..module import Module
from ..node import Op
from ..numbers.attention import JOINERS, ROWS, STEP, length, part_keys
from ..numbers.resident import ALIGN
from ..passes.manager import register
from ..types import Buffer, DType, f16, f32, s8, s32, u32, u64
from .common import each, replace_kernel
from .quantise import quantised


@register("attention")
@dataclass(frozen=True)
class AttentionKernel:
    """Blocks of ``warps`` warps: a head, one of ``parts`` parts of the keys, one of ``groups`` groups of rows.

    ``steps`` steps of 32 keys are worked on at once; ``blocks`` such blocks have the tasks of all rows and parts.
    ``via``: k and v come by ``tensor`` copies, and the kernels overlap, or by ``cp.async``.  Roles of the launch:
    ``in.q``, ``in.k``, ``in.v``, ``in.q_scale``, ..., ``out``; ``tasks`` (records) and ``places`` of the mask.
    """

    parts: int = 4
    groups: int = 8
    warps: int = 16
    steps: int = 4
    blocks: int = 1
    via: str = "tensor"
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Attention, self._kernels)

    def _kernels(self, module: Module, op: o.Attention) -> Module:
        roles = self._roles(op)
        if not op.quantized:
            sizes = {"q": op.queries, "k": op.keys, "v": op.keys}
            sizes = {name: op.heads * op.d * rows for name, rows in sizes.items()}
            module = quantised(module, op, sizes, 2 ** (op.bits - 1) - 1, overlap=self.via == "tensor")
        module = replace_kernel(module, op, self._attend(op, roles), roles, keep_op=self.parts > 1)
        return module if self.parts == 1 else replace_kernel(module, op, *self._join(op, roles))

    def _roles(self, op: o.Attention) -> dict[str, Buffer]:
        """The parameters of the first kernel by their roles."""
        own, other = op.heads * op.queries * op.d, op.heads * op.keys * op.d
        tasks = self.parts * self.groups * self.warps * length(op.rows, self.groups, self.warps)
        given = {"q": ("q", s32, own // 4), "k": ("k", s8, other), "v": ("v", s8, other)}
        given |= {f"{name}_scale": (f"{name}_scale", f32, 1) for name in ("q", "k", *("v",) * (self.parts == 1))}
        made: dict[str, tuple[str, DType, int]] = {
            **{self._role(op, name): what for name, what in given.items()},
            "tasks": ("tasks", s32, tasks * tt.RECORD),
            "places": ("places", u32, self.blocks * self.steps * STEP),
        }  # fmt: skip
        if self.parts == 1:
            made["out"] = ("out", f16, own)
        else:
            count = op.heads * op.rows * self.parts * ROWS
            made |= {"ws.partial": ("partial", f16, count * op.d), "ws.stats": ("stats", f32, 2 * count)}
        return {role: Buffer(name, dtype, size, "global") for role, (name, dtype, size) in made.items()}

    def _role(self, op: o.Attention, name: str) -> str:
        """What an array of integers, or a scale, is called: given, or made first."""
        return f"in.{name}" if op.quantized else f"ws.{name}"

    def _overlaps(self, which: str) -> tuple[Op, ...]:
        """On Hopper launches overlap."""
        return (t.Overlap(launch=which),) if self.via == "tensor" else ()

    def _attend(self, op: o.Attention, roles: dict[str, Buffer]) -> t.Func:
        """The kernel that has all tasks."""
        blocks, tensor = op.heads * self.parts * self.groups, self.via == "tensor"
        block = Value("block", s32, 0, blocks - 1)
        part, head = block // self.groups % self.parts, block // (self.groups * self.parts)
        mine = part * self.groups + block % self.groups
        rows = part_keys(op.keys, self.parts)
        given = {name: buf for role, buf in roles.items() for _, _, name in (role.partition("."),) if name}
        tiles = {name: Buffer(f"{name}_part", s8, rows * op.d, "shared", ALIGN) for name in ("k", "v")}
        bars = {name: Buffer(f"{name}_bar", u64, 1, "shared", 8) if tensor else None for name in tiles}
        fills = tuple(
            tr.FillResident(
                dst=tile, src=given[name], bars=bars[name], row=head * op.keys + part * rows, column=0 * part,
                rows=rows, cols=op.d, m=op.heads * op.keys, n=op.d, via=self.via,
                meets=name == "v",
            )
            for name, tile in tiles.items()
        )  # fmt: skip
        waits = tuple(tr.AwaitResident(bars=bar, part=0, parts=1) for bar in bars.values() if bar is not None)
        row, after_row = (Value(name, s32, 0, op.rows) for name in ("row", "after_row"))
        begin, end, after = (Value(name, s32, 0, self.blocks) for name in ("begin", "end", "after"))
        regs = {name: Buffer(name, f32, size, "reg") for name, size in (("sums", op.d // 4), ("top", 1), ("total", 1))}
        own: dict[str, Any] = {**regs, "d": op.d, "fresh": not op.quantized}
        scored: dict[str, Any] = {**own, "q_scale": given["q_scale"], "k_scale": given["k_scale"]}
        ahead = {"query": Buffer("query", s32, op.d // 16, "reg"), "coming": Buffer("coming", u32, self.steps, "reg")}
        block_of: dict[str, Any] = {**ahead, "places": roles["places"], "steps": self.steps}
        load = ta.LoadTask(
            **block_of, q=given["q"], head=head, row=row, begin=begin, queries=op.queries, height=op.height, d=op.d,
            fresh=not op.quantized,
        )  # fmt: skip
        attend = ta.Attend(
            **scored, **block_of, k=tiles["k"], v=tiles["v"], begin=begin, end=end, bits=op.softmax_bits, ready=waits,
            then=(replace(load, row=after_row, begin=after),),
        )  # fmt: skip
        store: Op
        if self.parts == 1:
            store = ta.StoreAttention(
                **own, out=roles["out"], v_scale=given["v_scale"], head=head, row=row, queries=op.queries,
                height=op.height,
            )  # fmt: skip
        else:
            store = ta.StorePart(
                **scored, partial=given["partial"], stats=given["stats"],
                number=(head * op.rows + row) * self.parts + part,
            )  # fmt: skip
        tasks = tt.EachTask(
            tasks=roles["tasks"], row=row, begin=begin, end=end, word=Value("word", s32, 0, 0), after=after,
            after_row=after_row, ahead=(load,),
            list=mine, length=length(op.rows, self.groups, self.warps),
            rows=op.rows, steps=self.blocks, body=(attend, store),
        )  # fmt: skip
        registers = (*regs.values(), *ahead.values())
        held = (*tiles.values(), *(bar for bar in bars.values() if bar is not None), *registers)
        ops = (*(t.Alloc(buf=buf) for buf in held), *fills, tasks)
        body = (
            *(self._overlaps("next") if self.parts > 1 else ()),
            *(() if op.quantized else self._overlaps("last")),
            ts.EachBlock(block=block, body=ops),
        )
        return t.Func(
            symbol=op.symbol,
            params=tuple(roles.values()),
            blocks=blocks,
            threads=32 * self.warps,
            body=body,
            min_blocks=self.min_blocks,
        )

    def _join(self, op: o.Attention, roles: dict[str, Buffer]) -> tuple[t.Func, tuple[str, ...]]:
        """The kernel that joins the parts, and its roles."""
        own = {name: roles[name] for name in ("ws.partial", "ws.stats")}
        own[self._role(op, "v_scale")] = Buffer("v_scale", f32, 1, "global")
        own["out"] = Buffer("out", f16, op.heads * op.queries * op.d, "global")
        join = ta.JoinParts(
            out=own["out"], partial=own["ws.partial"], stats=own["ws.stats"], v_scale=own[self._role(op, "v_scale")],
            parts=self.parts, heads=op.heads, queries=op.queries, height=op.height, d=op.d,
        )  # fmt: skip
        func = t.Func(
            symbol=f"{op.symbol}_join", params=tuple(own.values()), blocks=-(-op.heads * op.rows // JOINERS),
            threads=32 * JOINERS, body=(*self._overlaps("last"), join),
        )  # fmt: skip
        return func, tuple(own)

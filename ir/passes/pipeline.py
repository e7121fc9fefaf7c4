"""``pipeline``: fetches the data of later tiles while this one is computed, in a ring of ``stages`` stages.

In a loop over tiles the asynchronous copies become prefetches.  Who reads the fetched tile decides the ring: if only
copies do (a layout transform that soon lets go of it), the ring has ``stages - 1`` slots and is refilled after them;
if the computation itself reads it, the ring has ``stages`` slots and is refilled at once.

Where each warp has a ring of its own (``tile.walk_slabs``), that gets its stages, and its copies run as far ahead.

With one stage nothing is fetched ahead: a tile's copies are plain, through registers, or (``asynchronous``) all under
way together, in 16-byte pieces past the registers, and waited for at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from .. import tile as t
from .. import tile_bitmap as tb
from ..dataflow import dataflow, events, readers
from ..expr import Expr, as_expr
from ..module import Module
from ..node import Op, fields, rewrite, walk, with_buffers
from ..types import Buffer
from .manager import register


@register("pipeline")
@dataclass(frozen=True)
class Pipeline:
    """Software pipelining of loops over tiles whose blocks stay; with ``stages`` 1 every copy waits for its data.

    ``asynchronous``: what that copy is with one stage.
    """

    stages: int = 2
    asynchronous: bool = False

    def run(self, module: Module) -> Module:
        rule = self._func if self.stages > 1 else _in_place if self.asynchronous else _plain
        return replace(module, funcs=tuple(rule(f) if isinstance(f, t.Func) else f for f in module.funcs))

    def _func(self, func: t.Func) -> t.Func:
        func = self._walk(func)
        rings: dict[Buffer, Buffer] = {}
        body = [self._loop(op, rings) if isinstance(op, t.ForTiles) and op.stride else op for op in func.body]
        slots = {new: new.size // old.size for old, new in rings.items()}
        body = [replace(op, buf=rings[op.buf], slots=slots[rings[op.buf]])
                if isinstance(op, t.Alloc) and op.buf in rings else op for op in body]  # fmt: skip
        return replace(func, body=tuple(body))

    def _walk(self, func: t.Func) -> t.Func:
        """The rings of single warps with all their stages; whoever uses them later uses the larger ones."""
        wider: dict[Buffer, Buffer] = {}
        for op in walk(func.body):
            if isinstance(op, tb.WalkSlabs):
                slots = self.stages * op.row_warps * op.slab_warps
                wider[op.ring] = replace(op.ring, size=max(slots * op.slot_words, op.least))
                if op.bars is not None:
                    wider[op.bars] = replace(op.bars, size=slots)

        def rename(op: Op) -> Op:
            renamed = with_buffers(op, wider)
            return replace(renamed, stages=self.stages) if isinstance(renamed, tb.WalkSlabs) else renamed

        return replace(func, body=rewrite(func.body, rename)) if wider else func

    def _loop(self, loop: t.ForTiles, rings: dict[Buffer, Buffer]) -> t.ForTiles:
        fetches = [op for op in loop.body if _fetches(op)]
        if not fetches:
            return loop
        fetched = {op.dst for op in fetches}
        uses = readers(dataflow(events(loop.body)), [i for i, op in enumerate(loop.body) if _fetches(op)])
        early = all(isinstance(loop.body[i], t.Copy) for i in uses)
        ahead, slots = self.stages - 1, self.stages - 1 if early else self.stages
        for b in fetched:
            rings[b] = replace(b, size=b.size * slots)
        now = loop.turn % slots if slots > 1 else as_expr(0)
        ring = {b: (rings[b], now) for b in fetched}
        prefetch = t.Prefetch(distance=ahead, body=tuple(_in_ring(op, ring) for op in fetches), loc=loop.loc)
        last = max(uses, default=-1) + 1 if early else 0
        before, after = (
            [_in_ring(op, ring) for op in part if not _fetches(op)] for part in (loop.body[:last], loop.body[last:])
        )
        return replace(loop, body=(t.Wait(pending=ahead - 1, loc=loop.loc), *before, prefetch, *after))


def _plain(func: t.Func) -> t.Func:
    """The kernel with plain copies: nothing is fetched ahead, so nothing would wait for an asynchronous one."""

    def plain(op: Op) -> Op:
        return replace(op, mode="plain") if isinstance(op, t.Copy) else op

    return replace(func, body=rewrite(func.body, plain))


def _in_place(func: t.Func) -> t.Func:
    """The kernel with its asynchronous copies where they are: a group of the tile itself, and a wait for it."""

    def grouped(loop: t.ForTiles) -> t.ForTiles:
        at = [i for i, op in enumerate(loop.body) if _fetches(op)]
        if not at:
            return loop
        before, own, after = loop.body[: at[0]], loop.body[at[0] : at[-1] + 1], loop.body[at[-1] + 1 :]
        group = t.Prefetch(distance=0, body=own, loc=loop.loc)
        return replace(loop, body=(*before, group, t.Wait(pending=0, loc=loop.loc), *after))

    return replace(func, body=tuple(grouped(op) if isinstance(op, t.ForTiles) else op for op in func.body))


def _fetches(op: Op) -> TypeGuard[t.Copy]:
    return isinstance(op, t.Copy) and op.mode == "async"


def _in_ring(op: Op, ring: dict[Buffer, tuple[Buffer, Expr]]) -> Op:
    """The op with its tiles replaced by the turn's slot of their rings."""
    changed: dict[str, Any] = {}
    for name, kind, _ in fields(op):
        b = getattr(op, name)
        if kind == "buffer" and b in ring:
            changed[name], slot = ring[b]
            changed["src_slot" if name == "src" and isinstance(op, t.Copy) else "slot"] = slot
    return replace(op, **changed) if changed else op

"""Programs with one thing less that orders them: each must fail, or the thing was not needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from sparsegen.backends import emulator
from sparsegen.ir import warp as w
from sparsegen.ir import warp_cluster as wc
from sparsegen.ir import warp_group as wg
from sparsegen.ir.expr import binary
from sparsegen.ir.node import Op, of_kind, walk
from sparsegen.ir.text import head

from .case import Case

ORDER = (w.Barrier, w.SyncWarp, w.CpCommit, w.CpWait, w.Fence, w.MbarInit, w.MbarArrive, w.CpArrive,
         wc.ClusterBarrier, wc.ClusterArrive, wg.WgmmaFence, wg.WgmmaCommit, wg.WgmmaWait)  # fmt: skip


def is_wait(op: Op) -> bool:
    """Whether an op is a loop that does nothing but wait for an mbarrier."""
    return isinstance(op, w.Loop) and all(isinstance(o, (w.MbarTryWait, w.BreakIf)) for o in op.body)


def replace(func: w.Func, target: Op, by: tuple[Op, ...]) -> w.Func:
    """The function with the op ``target`` (that very object) replaced."""

    def region(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        out: list[Op] = []
        for op in ops:
            if op is target:
                out += by
                continue
            changed: dict[str, Any] = {}
            for f in dataclasses.fields(op):
                v = getattr(op, f.name)
                if isinstance(v, tuple) and v and any(v is r for r in of_kind(op, "region")):
                    changed[f.name] = region(v)
            out.append(dataclasses.replace(op, **changed) if changed else op)
        return tuple(out)

    return dataclasses.replace(func, body=region(func.body))


def deletions(func: w.Func) -> Iterator[tuple[str, w.Func]]:
    """Each op that orders, left out: (a name for it, the rest)."""
    found = [op for op in walk(func.body) if isinstance(op, ORDER) or is_wait(op)]
    for n, op in enumerate(found):
        what = head(next(iter(op.body))) if isinstance(op, w.Loop) else head(op)
        yield f"{n} without {what.split(' = ')[-1].removesuffix(' {')}", replace(func, op, ())


def weaker(func: w.Func) -> Iterator[tuple[str, w.Func]]:
    """Waits that end one group, or one phase, too early; arrivals that wait for nothing."""
    for op in walk(func.body):
        if isinstance(op, (w.CpWait, wg.WgmmaWait)):
            sooner = dataclasses.replace(op, pending=op.pending + 1)
            yield f"{op.name} {sooner.pending}", replace(func, op, (sooner,))
        elif isinstance(op, w.MbarTryWait):
            other = binary("-", 1, op.parity)
            yield f"other phase of @{op.bars.name}", replace(func, op, (dataclasses.replace(op, parity=other),))
            if op.cluster:
                yield f"@{op.bars.name} of the block", replace(func, op, (dataclasses.replace(op, cluster=False),))
        elif isinstance(op, w.MbarInit):
            more = dataclasses.replace(op, count=op.count + 1)
            yield f"@{op.bars.name} expects one more", replace(func, op, (more,))
        elif isinstance(op, w.CpArrive):
            yield f"@{op.bars.name} told at once", replace(func, op, (w.MbarArrive(op.bars, op.index),))
        elif isinstance(op, w.MbarArrive) and op.expect is not None:
            less = dataclasses.replace(op, expect=op.expect - 16)
            yield f"@{op.bars.name} expects 16 bytes less", replace(func, op, (less,))


def symptoms(case: Case, func: w.Func, seeds: tuple[int, ...] = (0, 1, 2, 3)) -> set[str]:
    """What the emulator finds first in a run of ``func`` in place of the case's: a kind of error, or ``wrong``."""
    for seed in seeds:
        args = case.fresh()
        found = emulator.run(func, args, seed=seed, uninit=case.poison, first=True).kinds()
        if found:
            return found
        if case.wrong(args):
            return {"wrong"}
    return set()

"""From a problem and a schedule to a program at all three levels."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.module import Module
from sparsegen.ir.op_update import ALL_SCALARS
from sparsegen.ir.passes import Manager
from sparsegen.ir.passes.batch import Batch
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.ends_first import EndsFirst, told_by
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.problem import Problem


@dataclass(frozen=True, eq=False)
class Program:
    """One pass over the data: ``steps`` time steps at once, at each of the three levels.

    Two are equal if they are the same object.
    """

    steps: int
    op: Module
    tile: Module
    warp: Module


def lower(problem: Problem, schedule: Any, device: DeviceProfile, steps: int = 1, variant: Hashable = None) -> Program:
    """One pass of ``steps`` time steps for arrays of a variant, lowered and verified.

    The problem describes it, the schedule's family says the passes down to the tile level, of a batch for what an item
    has of the device; the rest is the same for all.
    """
    op, items = problem.describe(variant), problem.items
    batch = (Batch(items, " ".join((*problem.shared, ALL_SCALARS))),) if items > 1 else ()  # all have the same scalars
    passes = (*problem.passes(schedule, device.share(items), steps), ToWarp(), *batch, Simplify(), Dce())
    manager = Manager(passes, shared_limit=device.smem_block)
    warp = manager.run(op)
    return Program(steps, op, manager.levels["tile"], warp)


def ends_first(program: Program, cells: int, device: DeviceProfile) -> tuple[Program, int]:
    """The program whose blocks at both ends of the first axis, with so many ``cells`` each, come first and are counted,
    and how many they are; the program as it is, and 0, where it has no such order (see :class:`EndsFirst`)."""
    manager = Manager((EndsFirst(cells), ToWarp(), Simplify(), Dce()), shared_limit=device.smem_block)
    warp = manager.run(program.tile)
    tile = manager.levels["tile"]
    count = told_by(tile)
    return (Program(program.steps, program.op, tile, warp), count) if count else (program, 0)

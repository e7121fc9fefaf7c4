"""From a general update to its kernel: the op level, and the passes that lower it."""

from __future__ import annotations

from sparsegen.dsl.update import Update
from sparsegen.ir import op_update as o
from sparsegen.ir.boundary import Sides
from sparsegen.ir.module import Module
from sparsegen.ir.op import Sides as SideSpecs
from sparsegen.ir.passes import Manager
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.pointwise import Pointwise
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import DTYPES
from sparsegen.pipelines import Program
from sparsegen.updates.schedule import UpdateSchedule


def describe(update: Update, shape: tuple[int, ...], pitch: tuple[int, ...] | None = None) -> Module:
    """The op level of one time step.

    ``pitch``: elements from row to row of each array that it reads (each field's levels, newest first, then the
    coefficients), then of each field's new level; dense rows if not given.
    """
    arrays = len(o.parameters(update.fields, update.coefs)) + len(update.fields)
    op = o.Update(
        symbol(update.name), shape, DTYPES[update.dtype], update.fields, update.coefs, update.code, update.results,
        update.radius, tuple(map(_specs, update.sides)), _specs(update.coef_sides),
        pitch or (shape[-1],) * arrays, loc=update.loc,
    )  # fmt: skip
    return Module(update.name, (op,))


def _specs(sides: Sides) -> SideSpecs:
    return tuple(((low.kind, low.value), (high.kind, high.value)) for low, high in sides)


def lower(
    update: Update, shape: tuple[int, ...], schedule: UpdateSchedule, pitch: tuple[int, ...] | None = None
) -> Program:
    """One time step, lowered and verified; ``pitch`` as for :func:`describe`."""
    op = describe(update, shape, pitch)
    tile = Manager((Pointwise(1, schedule.block[1], schedule.block[0], schedule.column),)).run(op)
    return Program(1, op, tile, Manager((ToWarp(), Simplify(), Dce())).run(tile))

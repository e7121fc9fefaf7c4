"""From a schedule to passes: the one place that says which passes make which schedule, in which order."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.stencil import blocks_per_sm, filled
from sparsegen.dsl.stencil import Stencil
from sparsegen.geometry import geometry, legalise, with_steps
from sparsegen.ir import op as o
from sparsegen.ir.module import Module
from sparsegen.ir.passes import Manager, Pass
from sparsegen.ir.passes.barriers import Barriers
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.direct import Direct
from sparsegen.ir.passes.fuse_time import FuseTime
from sparsegen.ir.passes.pipeline import Pipeline
from sparsegen.ir.passes.rim import Rim
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.stencil2row import Stencil2Row
from sparsegen.ir.passes.stream import Stream
from sparsegen.ir.passes.tiled import Tiled
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.types import DTYPES
from sparsegen.schedule import StencilSchedule


@dataclass(frozen=True)
class Program:
    """One pass over the data: ``steps`` time steps at once, at each of the three levels."""

    steps: int
    op: Module
    tile: Module
    warp: Module


def describe(stencil: Stencil, shape: tuple[int, ...], pitch: tuple[int, int] | None = None) -> Module:
    """The op level of one time step: the taps in row-major order, exactly as the weights have them.

    ``pitch``: elements from row to row of the input and of the output (dense rows if not given).
    """
    taps = tuple(
        (tuple(int(i) - r for i, r in zip(at, stencil.radius, strict=True)), float(stencil.weights[tuple(at)]))
        for at in np.argwhere(stencil.weights != 0.0)
    )
    sides = tuple(((low.kind, low.value), (high.kind, high.value)) for low, high in stencil.sides)
    box = tuple((0, n) for n in shape)
    op = o.Stencil(stencil.name, shape, DTYPES[stencil.dtype], taps, stencil.radius, sides, box,
                   pitch or (shape[-1], shape[-1]), loc=stencil.loc)  # fmt: skip
    return Module(stencil.name, (op,))


def passes(
    schedule: StencilSchedule, k: int, device: DeviceProfile, itemsize: int = 8, full: bool | None = None,
    flat: bool = False,
) -> tuple[list[Pass], list[Pass]]:  # fmt: skip
    """The passes to the tile level and those from there to the warp level, for a stencil of edge ``k``.

    ``full``: whether none of its weights is zero (None: not known); ``flat``: it has one row only.
    """
    s = legalise(schedule, k)
    g = geometry(s, k, itemsize, flat)
    per_sm = blocks_per_sm(s, g, device, full)
    back: list[Pass] = [ToWarp(), Simplify(), Dce()]
    if s.family == "stream":
        rim = Rim(1, 256) if flat else Rim()
        stream = Stream(s.cols, g.rows, s.warps, s.stages, s.unroll, per_sm)
        return [FuseTime(s.fuse, s.levels, rim_all=True), stream, rim, Barriers()], back
    resident = per_sm * device.sms if s.stages > 1 else 0  # blocks that stay and take one tile after the other
    front: list[Pass] = [FuseTime(s.fuse)]
    if s.family == "direct":
        front += [Direct(s.block[1], s.block[0])]
    elif s.family == "tiled":
        assert s.tile is not None
        front += [Tiled(*s.tile, s.warps, resident, per_sm)]
    else:
        assert s.tile is not None
        front += [
            Stencil2Row(
                *s.tile, "fma" if s.mma == "none" else s.mma, s.warps, s.stages, s.lut, s.dirty, s.pad,
                s.transform == "explicit", resident, per_sm,
            )
        ]  # fmt: skip
    front += [
        Rim(),  # what time fusion left over
        Pipeline(s.stages),  # fetch ahead
        Barriers(),  # order what threads share
    ]
    return front, back


def lower(
    stencil: Stencil,
    shape: tuple[int, ...],
    schedule: StencilSchedule,
    device: DeviceProfile,
    steps: int,
    pitch: tuple[int, int] | None = None,
) -> Program:
    """One pass of ``steps`` time steps (see ``with_steps``), lowered and verified; ``rows=auto`` is resolved here.

    ``pitch``: elements from row to row of the pass's input and output; dense rows if not given.
    """
    op = describe(stencil, shape, pitch)
    itemsize, k = DTYPES[stencil.dtype].nbytes, max(stencil.weights.shape)
    full, flat = bool((stencil.weights != 0.0).all()), len(stencil.weights) == 1
    if schedule.family == "stream":
        s = filled(with_steps(schedule, steps, k), k, (shape[0], shape[1]), device, itemsize, full, flat)
    else:
        s = dataclasses.replace(schedule, fuse=steps)
    to_tile, to_warp = passes(s, k, device, itemsize, full, flat)
    tile = Manager(tuple(to_tile)).run(op)
    return Program(steps, op, tile, Manager(tuple(to_warp), shared_limit=device.smem_block).run(tile))

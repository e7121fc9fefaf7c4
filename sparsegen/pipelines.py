"""From a schedule to passes: the one place that says which passes make which schedule, in which order."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.stencil import blocks_per_sm, filled
from sparsegen.cost.terms import RIM_ROW, RIM_ROW_THREADS
from sparsegen.dsl.stencil import Stencil, round_to
from sparsegen.families import tiled
from sparsegen.footprint import MAX_RANK, Footprint
from sparsegen.geometry import geometry, legalise, with_steps
from sparsegen.ir import op as o
from sparsegen.ir.boundary import Side
from sparsegen.ir.module import Module
from sparsegen.ir.passes import Manager, Pass
from sparsegen.ir.passes.barriers import Barriers
from sparsegen.ir.passes.column import Column
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.direct import Direct
from sparsegen.ir.passes.fuse_time import FuseTime
from sparsegen.ir.passes.lowrank import LowRank
from sparsegen.ir.passes.patches import Patches
from sparsegen.ir.passes.pipeline import Pipeline
from sparsegen.ir.passes.rim import Rim
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.stencil2row import Stencil2Row
from sparsegen.ir.passes.stream import Stream
from sparsegen.ir.passes.tiled import Tiled
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.passes.toeplitz import Toeplitz
from sparsegen.ir.symbols import symbol
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

    def spec(side: Side) -> o.SideSpec:  # what a cell outside holds is a number of the field's type
        return side.kind, float(round_to(np.array([side.value]), stencil.dtype)[0])

    sides = tuple((spec(low), spec(high)) for low, high in stencil.sides)
    box = tuple((0, n) for n in shape)
    op = o.Stencil(symbol(stencil.name), shape, DTYPES[stencil.dtype], taps, stencil.radius, sides, box,
                   pitch or (shape[-1], shape[-1]), loc=stencil.loc)  # fmt: skip
    return Module(stencil.name, (op,))


def passes(schedule: StencilSchedule, fp: Footprint, device: DeviceProfile) -> tuple[list[Pass], list[Pass]]:
    """The passes to the tile level and those from there to the warp level, for a stencil."""
    s = legalise(schedule, fp.k, fp.axes)
    g = geometry(s, fp)
    per_sm = blocks_per_sm(s, g, device, fp)
    back: list[Pass] = [ToWarp(), Simplify(), Dce()]
    if s.family == "stream":
        rim = Rim(1, RIM_ROW, RIM_ROW_THREADS) if fp.flat else Rim()
        stream = Stream(s.cols, g.rows, s.warps, s.stages, s.unroll, per_sm)
        return [FuseTime(s.fuse, s.levels, rim="all"), stream, rim, Barriers()], back
    if s.family == "patches":
        patches = Patches(s.mma, s.strips, g.rows, s.warps, s.stages, per_sm)
        return [FuseTime(s.fuse, s.levels, rim="all"), patches, Rim(), Barriers()], back
    if s.family == "column":
        return [
            FuseTime(s.fuse, s.levels, rim="none"),
            Column(s.lines, g.planes, s.warps, s.stages, per_sm),
            Barriers(),
        ], back
    resident = per_sm * device.sms if s.stages > 1 else 0  # blocks that stay and take one tile after the other
    if s.family == "toeplitz":
        toeplitz = Toeplitz(s.mma, s.products, s.warps, resident, per_sm)
        rim = Rim(1, RIM_ROW, RIM_ROW_THREADS)
        return [FuseTime(s.fuse, rim="all"), toeplitz, rim, Pipeline(s.stages), Barriers()], back
    together = s.family == "lowrank" or (s.family == "tiled" and tiled.at_once(s, g, device))
    front: list[Pass] = [FuseTime(s.fuse, rim="none" if fp.axes == 3 else "fused")]  # rims are strips of a plane
    if s.family == "direct":
        front += [Direct(s.block[1], s.block[0])]
    elif s.family == "tiled":
        assert s.tile is not None
        front += [Tiled(*s.tile, s.warps, resident, per_sm)]
    elif s.family == "lowrank":
        assert s.tile is not None
        front += [LowRank(*s.tile, s.mma, s.warps, MAX_RANK, resident, per_sm)]
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
        Pipeline(s.stages, asynchronous=together),  # fetch ahead
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
    """One pass of ``steps`` time steps (see ``with_steps``), lowered and verified; what is ``auto`` is resolved here.

    ``pitch``: elements from row to row of the pass's input and output; dense rows if not given.
    """
    op, fp = describe(stencil, shape, pitch), Footprint.of(stencil)
    s = with_steps(schedule, steps, fp.k) if schedule.levelled else dataclasses.replace(schedule, fuse=steps)
    s = filled(legalise(s, fp.k, fp.axes), fp, shape, device)
    to_tile, to_warp = passes(s, fp, device)
    tile = Manager(tuple(to_tile)).run(op)
    return Program(steps, op, tile, Manager(tuple(to_warp), shared_limit=device.smem_block).run(tile))

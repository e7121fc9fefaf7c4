"""``layers``: one time step a pass on three axes; a block walks down a column of the field, planes come through a ring.

What is read above and below stays in registers, and no corners are loaded that no point needs: for stars that are too
wide to be worked on level by level.  It is the kernel of general updates (``ir/kernels/column_update.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.layers import AGAIN, FETCH, SAVED, STATIC, TURN, loads, window
from sparsegen.cost.layers import registers as held
from sparsegen.families.base import Geometry, Num, StencilFamily, Work, number
from sparsegen.families.stream import chunk_planes
from sparsegen.footprint import Footprint
from sparsegen.ir.numbers.layers import Layers
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, integer

#: Planes of a block where neither the schedule nor a field says how many.
PLANES = 64
#: 32-bit registers of an SM.
REGISTER_FILE = 1 << 16
#: The array that a stencil reads.
_FIELD = "u", 0


@lru_cache(maxsize=1 << 12)
def layers(s: StencilSchedule, fp: Footprint) -> Layers:
    """What a schedule keeps of the field, in elements."""
    at = np.argwhere(fp.support(1)) - fp.k // 2
    found = [(*_FIELD, (int(dz), int(dy), int(dx))) for dz, dy, dx in at] + [(*_FIELD, (0, 0, 0))]
    return Layers(
        reads=found, fields={"u": 1}, nbytes=fp.itemsize, lines=s.lines, planes=s.planes or PLANES, warps=s.warps,
        stages=s.stages,
    )  # fmt: skip


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """A tile of ``warps`` x ``lines`` rows and 32 lanes of 16 bytes, with its halo in the ring."""
    n = layers(s, fp)
    rows, columns = n.window(_FIELD) if _FIELD in n.rings else n.tile[1:]
    return Geometry(
        fp.k, *n.tile[1:], rows, columns, s.threads, n.elements * fp.itemsize, per_x=n.piece, per_y=s.lines,
        words=max(1, fp.itemsize // 4), planes=n.tile[0], halo_planes=n.turns,
    )  # fmt: skip


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """Planes that a thread keeps, its rows, pieces beside a cell; nvcc saves a few where a large block asks for it."""
    wanted, most = held(layers(s, fp), fp.boundary != "periodic"), REGISTER_FILE // s.threads
    return most if most < wanted <= SAVED * most else wanted


def filled(s: StencilSchedule, fp: Footprint, shape: tuple[int, ...], slots: int) -> StencilSchedule:
    """``planes=auto``: chunks of planes such that the blocks keep the GPU busy."""
    return s if s.planes is not None else s.but(planes=chunk_planes(shape, geometry(s, fp), slots))


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Tiles of a few heights; of 16 bits none, until a GPU has said what that costs."""
    if fp.itemsize < 4:
        return
    for lines, warps in ((1, 8), (1, 16), (2, 4), (2, 8), (2, 16), (4, 4), (4, 8)):
        for stages in (2, 3):
            yield StencilSchedule("layers", lines=lines, warps=warps, stages=stages)


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """What a block fetches and loads of a plane."""
    n = layers(s, fp)
    fetched = window(n, _FIELD) if _FIELD in n.rings else g.rows * g.cols
    halo = (fetched / (g.rows * g.cols) - 1) / 2  # of what is read and written
    return {
        "half": 1, "waits": 0.0, "warps": s.warps, "loads": loads(n) / n.piece, "moves": n.kept, "piece": n.piece,
        "window": fetched, "static": STATIC * (1 + AGAIN * halo) if even else 1.2 * STATIC, "turn": TURN,
        "fetch": FETCH,
    }  # fmt: skip


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A plane a turn: pieces of it come in, pieces around each cell are loaded, and what is kept moves on."""
    turns, cells, threads = v.P + v.reach_z, v.R * v.C, v.warps * 32
    instructions = (
        (v.p + v.moves * v.word / 4 + v.loads + 2 * v.cvt + 1 / v.vector) * cells / threads
        + v.turn + v.window / v.vector / threads * v.fetch
    )  # fmt: skip
    use = {
        "fma": v.P * cells * v.p / v.fma_rate,
        "shared": turns * (cells * v.loads * v.piece + 2 * v.window) * v.item / v.bw_S,
        "issue": turns * v.warps * instructions / v.sub,
    }
    return Work((use,), turns * v.lat_barrier + v.lat_dram, turns * v.window, turns / v.P, turns=turns)


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """That of general updates."""
    from sparsegen.ir.kernels.column_update import ColumnUpdate

    return ColumnUpdate(s.lines, g.planes, s.warps, s.stages, 1, per_sm)


FAMILY = register(StencilFamily(
    name="layers",
    words=(
        number("lines", 2, 1, 8), Word("planes", integer, auto=True), number("warps", 8, 1, 32),
        number("stages", 3, 2, 8),
    ),
    axes=(3,), rim="none", geometry=geometry, registers=registers, space=space, values=values,
    work=work, kernel=kernel, filled=filled,
))  # fmt: skip

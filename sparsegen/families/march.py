"""``march``: one time step a pass on three axes; threads go down a column of the field, planes stay in their registers.

Nothing goes through shared memory, so that blocks are small and many: it is the family of fields that are read and
written once, at the memory's rate.  It is a kernel of general updates (``ir/kernels/march.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.base import Geometry, Num, StencilFamily, Work, number
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.march import March
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, integer, pair

#: Planes of a block, where the field has enough for all blocks that the GPU runs at a time, so many times over.
PLANES, LEAST, WAVES = 32, 4, 2
#: Turns of the loop that nvcc unrolls: with one it moves what a thread keeps from register to register.
UNROLL = 2
#: Share of the field that is read again because blocks drift apart, besides a plane of each block; clocks of a turn and
#: of each point of it, which what is asked for a turn ahead takes.  Fitted to 53 kernels on one H200.
AGAIN, TURN, POINT = 0.05, 208.0, 26.7
#: 32-bit registers of a thread besides what it keeps and one for each of its columns: addresses, and of each row; the
#: same where a border is met.
ADDRESSES, ROW = 18, 3.0
BORDER_ADDRESSES, BORDER_ROW = 26, 6.0


@lru_cache(maxsize=1 << 12)
def numbers(s: StencilSchedule, fp: Footprint) -> March:
    """What a thread keeps of the field, in elements."""
    at = np.argwhere(fp.support(1)) - fp.k // 2
    found = [("u", 0, (int(dz), int(dy), int(dx))) for dz, dy, dx in at] + [("u", 0, (0, 0, 0))]
    return March(reads=found, nbytes=fp.itemsize, lines=s.lines)


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """A tile of a few rows of each thread, and 16 bytes of each of them."""
    n, (across, down) = numbers(s, fp), s.block
    rows, columns = down * s.lines, across * n.piece
    return Geometry(
        fp.k, rows, columns, rows + fp.k - 1, columns + fp.k - 1, s.threads, per_x=n.piece, per_y=s.lines,
        words=max(1, fp.itemsize // 4), planes=s.planes or PLANES, halo_planes=(s.planes or PLANES) + fp.k - 1,
    )  # fmt: skip


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """What a thread keeps and what comes in for the next plane, and addresses of its rows."""
    n = numbers(s, fp)
    rows = sum(len(held.rows) for held in n.held.values())
    fixed, row = (ADDRESSES, ROW) if fp.boundary == "periodic" else (BORDER_ADDRESSES, BORDER_ROW)
    return int(fixed + g.per_x + row * rows + n.kept * g.words)


def check(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile) -> None:
    """Columns beside a thread's come from the lane beside; cells of 16 bits have not been measured."""
    if fp.itemsize < 4:
        raise ScheduleError(f"{s.family} keeps planes of 4 bytes a cell or more, the stencil is {fp.dtype}",
                            hint="choose direct")  # fmt: skip
    if g.radius > g.per_x:
        raise ScheduleError(
            f"radius {g.radius} reaches beyond the neighbouring lane, which has {g.per_x} columns",
            hint="choose layers or column",
        )


def even_planes(shape: tuple[int, ...], g: Geometry, slots: int, most: int) -> int:
    """Planes of a block: chunks as equal as can be, of ``most`` if these are enough for ``slots`` blocks at a time."""
    across = -(-shape[1] // g.rows) * -(-shape[2] // g.cols)
    most = max(LEAST, min(most, shape[0] * across // (WAVES * slots)))
    return -(-shape[0] // -(-shape[0] // most))


def filled(s: StencilSchedule, fp: Footprint, shape: tuple[int, ...], slots: int) -> StencilSchedule:
    """``planes=auto``: chunks of planes, as equal as can be, fewer where the blocks would not keep the GPU busy."""
    if s.planes is not None:
        return s
    return s.but(planes=even_planes(shape, geometry(s, fp), slots, PLANES))


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Blocks of a few shapes, with threads of a few rows; of 16 bits none."""
    if fp.itemsize < 4:
        return
    for block in ((384, 1), (128, 1), (64, 2), (32, 4), (32, 8)):
        for lines in (4, 2, 6, 1):
            yield StencilSchedule("march", block=block, lines=lines)


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """What a thread loads of a plane, in pieces."""
    n = numbers(s, fp)
    held = n.held["u", 0]
    return {
        "half": 1, "ilp": 1.0, "edge": 0.0,
        "loads": (len(held.rows) + len(held.edges) * held.reach / n.piece) / s.lines,
        "moves": n.kept / (s.lines * n.piece), "piece": n.piece,
    }  # fmt: skip


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A plane a turn: pieces come through L1, and what is kept moves on."""
    turns = v.P + v.reach_z
    cells = v.R * v.C
    use = {
        "fma": v.P * cells * v.p / v.fma_rate,
        "shared": turns * cells * (v.loads + 1) * v.item / v.bw_S,
        "issue": turns * cells / 32 * (v.p + v.moves * v.word / 4 + (2 * v.loads + 2) / v.piece) / v.sub,
    }
    return Work(
        (use,), v.lat_dram, turns * cells, 1 + AGAIN + 1 / v.P, paced=turns * (TURN + POINT * v.p),
        through_l1=False, waits=False,
    )  # fmt: skip


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """That of general updates."""
    from sparsegen.ir.kernels.march import March as Kernel

    return Kernel(s.block[1], s.block[0], s.lines, g.planes, UNROLL, per_sm)


def contradictions(s: StencilSchedule) -> None:
    """A block's rows are whole warps, and it has no more threads than a GPU takes."""
    if s.threads > 1024 or s.block[0] % 32:
        raise ScheduleError(
            f"block={s.block[0]}x{s.block[1]}: threads of a row are whole warps, of a block 1024 at most",
            hint="choose a multiple of 32 across, as in block=32x4",
        )


FAMILY = register(StencilFamily(
    name="march",
    words=(Word("block", pair, (32, 4)), number("lines", 4, 1, 8), Word("planes", integer, auto=True)),
    axes=(3,), rim="none", geometry=geometry, registers=registers, check=check, space=space, values=values,
    work=work, kernel=kernel, filled=filled, contradictions=contradictions,
))  # fmt: skip

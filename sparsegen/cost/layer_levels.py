"""What blocks need that make several time steps of planes: registers, loads, values from other lanes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.cost.update import bordered, units
from sparsegen.dsl.update import Update
from sparsegen.ir import formula
from sparsegen.ir.numbers.layer_levels import LayerLevels
from sparsegen.ir.numbers.layers import Read
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE

#: 32-bit registers of a thread in two steps a pass, and in each step more; where a border may be near, and around
#: divisions, roots and functions; what of the cells that it keeps, makes and loads in a step takes one, and how many
#: each four columns take of them (nvcc 13 on sm_90: 165 kernels of random updates within 10 in the root mean square; of
#: 16 bits some share one).
REGISTERS, AGAIN, BORDER, BRANCH, KEPT, MADE, LOADED, SHARED = 4.4, 6.2, 13, 6.9, 1.01, 2.45, 1.26, 0.62
#: How many times its share of an SM's registers a thread may be estimated at: of these kernels that spill more than 8
#: bytes none of 15 is let in, of the others 17 in 150 are not.
SAVED: Final = 1.03


@lru_cache(maxsize=1 << 12)
def numbers(update: Update, s: UpdateSchedule, planes: int) -> LayerLevels:
    """What a schedule keeps of an update, in elements."""
    return LayerLevels(
        reads=reads_of(update), fields=dict(update.fields), levels=s.levels, nbytes=ITEMSIZE[update.dtype],
        lines=s.lines, planes=planes, warps=s.warps, stages=s.stages,
    )  # fmt: skip


def reads_of(update: Update) -> list[Read]:
    """The reads of a formula on three axes, and those that keep fields at a frozen side."""
    found = [(name, level, (o[0], o[1], o[2])) for name, level, o in formula.reads(update.code)]
    return [*found, *((name, 0, (0, 0, 0)) for name, _ in update.fields)]


def loads(n: LayerLevels, step: int) -> int:
    """Pieces of 16 bytes that a thread loads from shared memory in a step."""
    return len({
        key for name, level, (dz, dy, _) in n.reads for line in range(n.lines)
        if not n.at_hand(*(key := (source := n.source((name, level), step), n.back(source, step, dz), line + dy)))
    })  # fmt: skip


def moved(n: LayerLevels) -> int:
    """Pieces that a thread loads from shared memory and writes to it in a turn."""
    steps = range(1, n.levels + 1)
    return sum(loads(n, step) for step in steps) + n.lines * (len(n.fields) + len(n.made))


def shuffles(n: LayerLevels) -> int:
    """Values from other lanes that a thread takes in a turn."""
    found = set[tuple[object, ...]]()
    for step in range(1, n.levels + 1):
        for name, level, (dz, dy, dx) in n.reads:
            ends = [c + dx for c in range(n.piece) if not 0 <= c + dx < n.piece]
            found |= {(step, name, level, dz, line + dy, bool(dy), c) for line in range(n.lines) for c in ends}
    return len(found)


def registers(update: Update, n: LayerLevels) -> int:
    """Estimated 32-bit registers of a thread."""
    cells = 4 if n.piece <= 4 else SHARED * n.piece  # registers of a piece
    kept, made = sum(n.kept.values()) * n.lines, len(update.fields) * n.lines
    most = max(loads(n, step) for step in range(1, n.levels + 1))
    around = AGAIN * (n.levels - 2) + BORDER * bordered(update) + BRANCH * (units(update)["MUFU"] > 0)
    return int(REGISTERS + around + cells * (KEPT * kept + MADE * made + LOADED * most))


def resident(update: Update, n: LayerLevels, device: DeviceProfile) -> int:
    """Blocks that an SM has room for, as estimated; at least one."""
    held = min(255, registers(update, n))
    return max(1, occupancy(held, n.elements * ITEMSIZE[update.dtype], 32 * n.warps, device).blocks)

"""What blocks that walk through planes need, of stencils and of updates: registers, fetches, loads, fitted figures."""

from __future__ import annotations

from typing import Final

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.layers import Layers

#: Warp instructions of a turn besides its cells, and of each piece that is fetched.
TURN, FETCH = 40.0, 6.0
#: Fitted: time of the memory over what it takes in one stream, share of the tiles' halos that it is asked for again,
#: and of the latency of a plane that is waited for.
STATIC, AGAIN, WAITED = 1.1, 0.2, 0.5
#: 32-bit registers of a thread; of each plane that a read reaches beyond its own; of each array, half of it where no
#: plane is kept; of each of a thread's rows that a border may be near; of each word of cells that it keeps, and more
#: where divisions, roots and functions branch; of each word of a row with its corners (nvcc 13 on sm_90: 444 kernels of
#: random updates within 9 in the root mean square, those of seven linear stencils within 20 %).
REGISTERS, HALO, ARRAY, BORDER, WORD, BRANCH, CORNERS = 21, 2.5, 12, 5.8, 1.32, 0.61, 3.2
#: How many times its share of an SM's registers a thread may be estimated at: nvcc does with fewer, without spills.
SAVED: Final = 1.15


def registers(n: Layers, near: bool, branches: bool = False) -> int:
    """Estimated 32-bit registers of a thread: ``near`` a border that is none of a periodic field; ``branches`` in the
    formula, around which nvcc keeps more alive."""
    halo = max([0, *(planes.halo[0] for planes in n.rings.values())])
    words = max(4, n.piece)  # of a piece: cells of 16 bits have one each
    corners = words * sum(planes.corners for planes in n.rings.values())
    row = BORDER * near + (WORD + BRANCH * branches) * words * n.kept + CORNERS * (0.3 + branches) * corners
    return int(REGISTERS + HALO * halo + ARRAY * (len(n.rings) + len(n.owns) / 2) + n.lines * row)


def window(n: Layers, array: tuple[str, int]) -> int:
    """Cells that a block fetches of a plane of an array."""
    rows, columns = n.window(array)
    halo, lead = n.rings[array].halo
    return rows * columns - (0 if n.rings[array].corners else 4 * halo * lead)


def loads(n: Layers) -> float:
    """Loads of 16 bytes from shared memory for each piece of cells: what rows of a thread have in common once."""
    found = set[tuple[str, int, int, int, int]]()
    for name, level, (dz, dy, dx) in n.reads:
        planes = n.rings.get((name, level))
        for line in range(n.lines):
            if planes is None or (planes.kept and not (dy or dx)):
                found.add((name, level, 0, line, 0))
                continue
            for c in range(n.piece):
                found.add((name, level, dz, line + dy, (c + dx) // n.piece))
    return len(found) / n.lines


def resident(n: Layers, needed: int, itemsize: int, device: DeviceProfile) -> int:
    """Blocks that an SM has room for where a thread needs so many registers; at least one."""
    return max(1, occupancy(min(255, needed), n.elements * itemsize, 32 * n.warps, device).blocks)

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
#: 32-bit registers of a thread, and of each of its rows, besides planes that it keeps (nvcc 13 on sm_90, 18 kernels).
REGISTERS, LINE = 30, 18
#: How many times its share of an SM's registers a thread may be estimated at: nvcc does with fewer, without spills.
SAVED: Final = 1.25


def registers(n: Layers, wide: bool) -> int:
    """Estimated 32-bit registers of a thread: planes that it keeps, rows, pieces beside a cell; ``wide``: f64."""
    halo = max([0, *(planes.halo[0] for planes in n.rings.values())])
    copies = sum(-(-window(n, array) // n.piece // (32 * n.warps)) for array in n.rings)
    piece = max(4, n.piece)  # registers of one: cells of 16 bits have one each
    return int(REGISTERS + 8 * wide + 3 * copies + 4 * halo + n.lines * (LINE + piece * n.kept))


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


def resident(n: Layers, itemsize: int, device: DeviceProfile) -> int:
    """Blocks that an SM has room for, as estimated; at least one."""
    held = min(255, registers(n, itemsize == 8))
    return max(1, occupancy(held, n.elements * itemsize, 32 * n.warps, device).blocks)

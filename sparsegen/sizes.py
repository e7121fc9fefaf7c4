"""Numbers that schedules, costs and calls share: elements and mma shapes, fields in memory, loops of passes."""

from __future__ import annotations

import math

from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.memory import LINE, lead
from sparsegen.ir.types import DTYPES

#: Bytes of an element, by its type's name.
ITEMSIZE: dict[str, int] = {name: DTYPES[name].nbytes for name in ("f64", "f32", "f16", "bf16", "u8")}
#: mma shape -> (M, N, K, lowest compute capability); ``none`` multiplies the same matrices on the CUDA cores.
MMA: dict[str, tuple[int, int, int, tuple[int, int]]] = {
    "f64.m8n8k4": (8, 8, 4, (8, 0)),
    "f64.m16n8k4": (16, 8, 4, (9, 0)),
    "f64.m16n8k8": (16, 8, 8, (9, 0)),
    "f64.m16n8k16": (16, 8, 16, (9, 0)),
    "none": (8, 8, 4, (0, 0)),
}
#: Most time steps that one application of fused weights stands for, where a family has no limit of its own.
MAX_FUSE = 3

#: Cells of a field that 32-bit index arithmetic reaches.
MAX_CELLS = 2**31 - 2**20
#: Bytes: the widest copy of a thread; the least that memory moves; what padded rows are a multiple of.
VECTOR, SECTOR, ROW = 16, 32, LINE
PADDED_FROM = 3  #: passes: with fewer, no pass would both read and write padded rows

#: A CUDA graph pays from this many passes on, for passes that are predicted to take at most this many seconds.
GRAPH_PASSES, GRAPH_SECONDS = 8, 20e-6
#: Passes in a graph at most: what is left over is launched one by one.
GRAPH_CHUNK = 64


def padded_pitch(shape: tuple[int, ...], itemsize: int, out: int, passes: int, ghosts: int = 0) -> int:
    """Elements from row to row of the two fields that keep the levels between passes; 0 where ``out`` keeps them too.

    ``ghosts``: cells that these rows have again at both ends.  ``out``: elements from row to row of the output.  Rows
    of ``out`` that lie far apart (a block of columns of a wide array) are no model for a workspace either: those levels
    are padded from two passes on.
    """
    cells = ROW // itemsize
    pitch = up(lead(ghosts, itemsize) + shape[-1] + ghosts, cells)
    many = passes >= PADDED_FROM and out * itemsize % VECTOR != 0
    wide = passes > 1 and out > pitch
    fits = pitch * math.prod(shape[:-1]) <= MAX_CELLS
    return pitch if (many or wide) and fits else 0

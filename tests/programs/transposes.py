"""Rows of bytes that lie k by k, gathered and turned into an mma's a on the way into registers (Magicube's "online
transpose"): ``ldmatrix`` transposes pairs of bytes, of which ``prmt`` takes those of even and of odd columns.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Const
from sparsegen.ir.fragments import SHAPES
from sparsegen.ir.types import Buffer, s32, u32

from .case import Case
from .fragments import words

ROWS, COLS, DEEP = 50, 16, 32  #: of x; and how many rows are gathered, the k of the mma
#: The k that the mma has at place p: lane t has rows 2 t, 2 t + 1 of one matrix of ``ldmatrix``, then of the next.
ORDER: Final = [p // 16 * 16 + p % 4 // 2 * 8 + p % 16 // 4 * 2 + p % 2 for p in range(DEEP)]
EVEN, ODD = 0x6420, 0x7531
TYPES: Final = ("s8", "u8", "u8.s8", "s8.u8")  #: of a and b


def build(types: str) -> w.Func:
    """``sums = x[rows].T @ values``: [16, 8] of x [50, 16] and 32 ``rows``, b's elements as words, in :data:`ORDER`."""
    shape = f"{types}.m16n8k32"
    x = Buffer("x", SHAPES[shape].a.dtype, ROWS * COLS, "global")
    arrays = (("rows", s32, DEEP), ("values", u32, 64), ("sums", s32, 128))
    rows, values, sums = (Buffer(name, dtype, size, "global") for name, dtype, size in arrays)
    tile = Buffer("tile", x.dtype, DEEP * COLS, "shared", 128)
    params = (x, rows, values, sums)
    shell = w.Func("transposed_" + types.replace(".", "_"), params, (tile,), (1, 1, 1), 32, ())
    lane = shell.builtins()["lane"]
    b = Builder()
    b.reserve(*shell.builtins(), *(p.name for p in params), tile.name)
    g, t = b.let("g", lane // 4), b.let("t", lane % 4)
    row = b.ld(rows, lane, lo=0, hi=ROWS - 1)
    b.cp_async(tile, lane * COLS, x, row * COLS, COLS)
    b.commit()
    b.wait(0)
    b.sync()
    pairs = tuple(b.fresh("pairs", u32) for _ in range(4))
    b.emit(w.LdMatrix(pairs, tile, lane * COLS, True))
    a = [b.prmt(pairs[i], pairs[i + 1], which) for i in (0, 2) for which in (EVEN, ODD)]
    acc = b.alloc("acc", s32, 4)
    for i in range(4):
        b.st(acc, i, Const(0))
    made = b.mma(shape, a, [b.ld(values, g * 8 + run * 4 + t) for run in (0, 1)], [b.ld(acc, i) for i in range(4)])
    for i, d in enumerate(made):  # rows g of the product are even columns of x, rows g + 8 odd ones
        b.st(sums, (2 * g + i // 2) * 8 + 2 * t + i % 2, d)
    return w.Func(shell.symbol, params, (tile,), shell.grid, shell.threads, b.ops())


def case(types: str, seed: int = 0) -> Case:
    """Numbers of the whole range, some rows gathered twice."""
    s, rng = SHAPES[f"{types}.m16n8k32"], np.random.default_rng(seed)
    drawn = ((s.a.dtype.range, (ROWS, COLS)), (s.b.dtype.range, (DEEP, 8)), ((0, ROWS - 1), DEEP))
    x, values, rows = (rng.integers(low, high + 1, shape) for (low, high), shape in drawn)
    args = {"x": x.astype(s.a.dtype.numpy()), "rows": rows.astype("i4"), "values": words(values[ORDER].T, s.b),
            "sums": np.full(128, -1, "i4")}  # fmt: skip
    return Case(build(types), args, {"sums": x[rows].T @ values}, poison=("sums",))

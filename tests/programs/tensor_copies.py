"""Boxes of a matrix copied into a ring of two slots, partly outside the matrix, and read out as they lie there.

On the GPU the hardware judges where :class:`sparsegen.ir.tensor_copy.TensorMap` says that elements lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Const, Value
from sparsegen.ir.tensor_copy import TensorCopy, TensorMap
from sparsegen.ir.types import Buffer, DType, bf16, f16, f32, f64, u8, u64

from .case import Case

THREADS, SLOTS = 64, 2


@dataclass(frozen=True)
class Boxes:
    """``out[block, turn]`` is the box of a turn, byte for byte: block bx takes those of column ``col + bx * right``,
    in pieces of 16 bytes.

    In turn t the box begins at row ``row + t * down``.  ``without``: parts that are left out.  ``gap``: elements of the
    matrix's buffer between its rows.
    """

    map: TensorMap
    dtype: DType = f16
    row: int = -5
    down: int = 13
    col: int = -1
    right: int = 3
    turns: int = 5
    grid: int = 3
    without: frozenset[str] = frozenset()

    @property
    def piece(self) -> int:
        """Elements of 16 bytes."""
        return 16 // self.dtype.nbytes

    def func(self) -> w.Func:
        m, size = self.map, self.map.size
        slot = -(-size * self.dtype.nbytes // m.align) * m.align // self.dtype.nbytes
        src = Buffer("x", self.dtype, m.rows * m.pitch, "global")
        out = Buffer("out", self.dtype, self.grid * self.turns * size, "global")
        ring = Buffer("ring", self.dtype, SLOTS * slot, "shared", m.align)
        full = Buffer("full", u64, SLOTS, "shared", 8)
        shell = w.Func("boxes", (src, out), (ring, full), (self.grid, 1, 1), THREADS, ())
        b, at = Builder(), shell.builtins()
        b.reserve(*at, *(x.name for x in (src, out, ring, full)))
        self._body(b, at, (src, out, ring, full), slot)
        return w.Func(shell.symbol, shell.params, shell.shared, shell.grid, THREADS, b.ops())

    def _body(self, b: Builder, at: dict[str, Value], buffers: tuple[Buffer, ...], slot: int) -> None:
        src, out, ring, full = buffers
        m, size, tid = self.map, self.map.size, at["tid"]

        def step(name: str, emit: Any, *args: Any) -> None:
            if name not in self.without:
                emit(*args)

        def fill(turn: Any) -> None:
            with b.if_(tid.eq(0)):
                b.emit(w.MbarArrive(full, turn % SLOTS, Const(size * self.dtype.nbytes)))
                place = b.let("place", turn % SLOTS * slot)
                row = b.let("row", turn * self.down + self.row)
                col = b.let("col", (at["bx"] * self.right + self.col) * self.piece)
                b.emit(TensorCopy(ring, place, src, row, col, full, turn % SLOTS, m))

        with b.if_(tid.eq(0)):
            for i in range(SLOTS):
                b.emit(w.MbarInit(full, Const(i), 1))
            step("init", b.fence, "mbar_init")
        b.barrier()
        fill(Const(0))
        with b.for_("turn", 0, self.turns, unroll=1) as turn:
            with b.if_(turn.lt(self.turns - 1)):
                with b.if_(tid.eq(0)):
                    step("landed", b.fence, "async")
                fill(b.let("next", turn + 1))
            step("wait", b.mbar_wait, full, turn % SLOTS, turn // SLOTS % 2)
            with b.for_("i", tid, size, THREADS) as i:
                b.st(out, (at["bx"] * self.turns + turn) * size + i, b.ld(ring, turn % SLOTS * slot + i))
            step("barrier", b.barrier)

    def case(self, seed: int = 0) -> Case:
        m, rng = self.map, np.random.default_rng(seed)
        x = rng.integers(1, 100, (m.rows, m.pitch)).astype(self.dtype.numpy())
        (places,) = m.layout(self.dtype.nbytes).tables()
        want = np.zeros((self.grid, self.turns, m.size), x.dtype)
        for block, turn in np.ndindex(self.grid, self.turns):
            r, c = np.indices(m.box)
            r, c = r + self.row + turn * self.down, c + (self.col + block * self.right) * self.piece
            there = (r >= 0) & (r < m.rows) & (c >= 0) & (c < m.cols)
            want[block, turn, places] = np.where(there, x[np.clip(r, 0, m.rows - 1), np.clip(c, 0, m.cols - 1)], 0)
        return Case(self.func(), {"x": x, "out": np.full_like(want, 101)}, {"out": want}, 0.0, ("out",))


def _named() -> dict[str, Boxes]:
    """All swizzles of 16 and of 32 bits, boxes partly outside on all sides, rows that end within a piece."""
    out: dict[str, Boxes] = {}
    for dtype in (f16, f32):
        for swizzle in (0, 32, 64, 128):
            wide = (swizzle or 128) // dtype.nbytes
            out[f"{dtype}_{swizzle}"] = Boxes(TensorMap(53, 45, 48, (16, wide), swizzle), dtype)
    return out | {
        "bf16_128_tall": Boxes(TensorMap(300, 80, 80, (256, 64), 128), bf16, row=-100, down=64),
        "f16_64_few_rows": Boxes(TensorMap(53, 45, 48, (5, 32), 64), f16),
        "f16_0_wide": Boxes(TensorMap(21, 300, 304, (3, 256), 0), f16, row=-2, down=5, right=12),
        "f64_32": Boxes(TensorMap(53, 45, 46, (8, 4), 32), f64),
        "u8_0": Boxes(TensorMap(53, 45, 48, (8, 48), 0), u8),
        "f16_128_one_row": Boxes(TensorMap(1, 45, 48, (8, 64), 128), f16, down=3),
        "f16_128_outside": Boxes(TensorMap(9, 45, 48, (8, 64), 128), f16, row=-40, down=90, col=7),
    }  # fmt: skip


PROGRAMS: Final = _named()

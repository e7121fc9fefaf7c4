"""Which lane holds which element of an mma's operands: the tables that the emulator runs and the docs print.

Source: PTX ISA, "Matrix fragments for mma".  With ``g = lane // 4`` and ``t = lane % 4`` every table here is affine
in g and t for each element, so a fragment is a short list of (row, column) formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .types import DType, bf16, f16, f32, f64, u32

Place = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Fragment:
    """One operand: its matrix shape, element type, the register type, and where each element of a lane lies.

    ``elements[e](g, t)`` is the (row, column) of the lane's e-th element; ``packed`` elements share a register, the
    first in the low bits.
    """

    rows: int
    cols: int
    dtype: DType
    reg: DType
    elements: tuple[Place, ...]

    @property
    def packed(self) -> int:
        """Elements a register."""
        return self.reg.bits // self.dtype.bits

    @property
    def regs(self) -> int:
        """Registers a lane."""
        return len(self.elements) // self.packed

    def table(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(rows, columns), each of shape [elements, 32 lanes]."""
        return _table(self)


@cache
def _table(f: Fragment) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    at = np.array([[place(lane // 4, lane % 4) for lane in range(32)] for place in f.elements], dtype=np.intp)
    return at[..., 0], at[..., 1]


@dataclass(frozen=True)
class MmaShape:
    """An mma instruction: its PTX name and its three fragments (d is laid out as c)."""

    m: int
    n: int
    k: int
    ptx: str
    a: Fragment
    b: Fragment
    c: Fragment
    cc: int  # first compute capability, times ten


def _f64(m: int, k: int, cc: int) -> MmaShape:
    halves = range(m // 8)

    def a_at(s: int, h: int) -> Place:
        return lambda g, t: (g + 8 * h, 4 * s + t)

    def b_at(s: int) -> Place:
        return lambda g, t: (4 * s + t, g)

    def c_at(h: int, e: int) -> Place:
        return lambda g, t: (g + 8 * h, 2 * t + e)

    return MmaShape(
        m, 8, k, f"mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64",
        Fragment(m, k, f64, f64, tuple(a_at(s, h) for s in range(k // 4) for h in halves)),
        Fragment(k, 8, f64, f64, tuple(b_at(s) for s in range(k // 4))),
        Fragment(m, 8, f64, f64, tuple(c_at(h, e) for h in halves for e in (0, 1))),
        cc,
    )  # fmt: skip


def _f16(k: int, dtype: DType = f16) -> MmaShape:
    def a_at(s: int, h: int, e: int) -> Place:
        return lambda g, t: (g + 8 * h, 8 * s + 2 * t + e)

    def b_at(s: int, e: int) -> Place:
        return lambda g, t: (8 * s + 2 * t + e, g)

    def c_at(h: int, e: int) -> Place:
        return lambda g, t: (g + 8 * h, 2 * t + e)

    return MmaShape(
        16, 8, k, f"mma.sync.aligned.m16n8k{k}.row.col.f32.{dtype}.{dtype}.f32",
        Fragment(16, k, dtype, u32, tuple(a_at(s, h, e) for s in range(k // 8) for h in (0, 1) for e in (0, 1))),
        Fragment(k, 8, dtype, u32, tuple(b_at(s, e) for s in range(k // 8) for e in (0, 1))),
        Fragment(16, 8, f32, f32, tuple(c_at(h, e) for h in (0, 1) for e in (0, 1))),
        80,
    )  # fmt: skip


SHAPES: Final[dict[str, MmaShape]] = {
    "f64.m8n8k4": _f64(8, 4, 80),
    "f64.m16n8k4": _f64(16, 4, 90),
    "f64.m16n8k8": _f64(16, 8, 90),
    "f64.m16n8k16": _f64(16, 16, 90),
    "f16.m16n8k8": _f16(8),
    "f16.m16n8k16": _f16(16),
    "bf16.m16n8k16": _f16(16, bf16),
}

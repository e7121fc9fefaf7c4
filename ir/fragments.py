"""Which lane holds which element of an mma's operands: the tables that the emulator runs and the docs print.

Source: PTX ISA, "Matrix fragments for mma".  With ``g = lane // 4`` and ``t = lane % 4`` every table here is affine
in g and t for each element, so a fragment is a short list of (row, column) formulas.

Integers sum in s32, which wraps; A and B are signed or unsigned each for itself, and lie the same either way.
tf32 lies in f32 registers, of which the tensor core ignores the low 13 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .types import DType, bf16, f16, f32, f64, s4, s8, s32, tf32, u4, u8, u32

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

    @property
    def end(self) -> int | None:
        """The first compute capability, times ten, for which it is refused: 10.0 for 4-bit integers.

        The tensor cores of 9.0 lack them too: nvcc puts a function of 8-bit products in their place, which takes longer
        than to unpack them.
        """
        return 100 if self.a.dtype.bits == 4 else None

    def on(self, capability: tuple[int, int]) -> bool:
        """Whether GPUs of this compute capability have it."""
        cc = 10 * capability[0] + capability[1]
        return self.cc <= cc and (self.end is None or cc < self.end)


def _shape(dtype: DType, m: int, k: int, cc: int = 80) -> MmaShape:
    """All shapes follow one plan: a lane holds, of each run of ``4 * packed`` columns of A (rows of B), one register.

    Rows g and g + 8 of A follow one another, then comes the next run of columns.
    """
    reg = dtype if dtype is f64 else f32 if dtype is tf32 else u32
    acc = s32 if dtype.is_int else f64 if dtype is f64 else f32
    packed = reg.bits // dtype.bits
    runs, halves, places = range(k // (4 * packed)), range(m // 8), range(packed)

    def a_at(s: int, h: int, e: int) -> Place:
        return lambda g, t: (g + 8 * h, packed * t + (4 * packed * s + e))

    def b_at(s: int, e: int) -> Place:
        return lambda g, t: (packed * t + (4 * packed * s + e), g)

    def c_at(h: int, e: int) -> Place:
        return lambda g, t: (g + 8 * h, 2 * t + e)

    return MmaShape(
        m, 8, k, f"mma.sync.aligned.m{m}n8k{k}.row.col.{acc}.{dtype}.{dtype}.{acc}",
        Fragment(m, k, dtype, reg, tuple(a_at(s, h, e) for s in runs for h in halves for e in places)),
        Fragment(k, 8, dtype, reg, tuple(b_at(s, e) for s in runs for e in places)),
        Fragment(m, 8, acc, acc, tuple(c_at(h, e) for h in halves for e in (0, 1))),
        cc,
    )  # fmt: skip


_OF_ONE_TYPE: Final[dict[str, MmaShape]] = {
    f"{dtype}.m{m}n8k{k}": _shape(dtype, m, k, cc)
    for dtype, m, k, cc in (
        (f64, 8, 4, 80), (f64, 16, 4, 90), (f64, 16, 8, 90), (f64, 16, 16, 90),
        (f16, 16, 8, 80), (f16, 16, 16, 80), (bf16, 16, 8, 80), (bf16, 16, 16, 80),
        (tf32, 16, 4, 80), (tf32, 16, 8, 80),
        (s8, 8, 16, 80), (s8, 16, 16, 80), (s8, 16, 32, 80), (s4, 8, 32, 80), (s4, 16, 64, 80),
    )
}  # fmt: skip
#: Of integers, what holds as many bits without a sign.
_UNSIGNED: Final[dict[DType, DType]] = {s8: u8, s4: u4}


def _unsigned(s: MmaShape) -> dict[str, MmaShape]:
    """The shapes that differ from one of signed integers in that A, B or both are unsigned.

    They are named by both types, ``u8.s8.m16n8k32`` (A's first), or by one if it is both's.
    """
    out, own = {}, s.a.dtype
    for a, b in list(product((own, _UNSIGNED[own]), repeat=2))[1:]:
        types = f"{a}" if a is b else f"{a}.{b}"
        ptx = s.ptx.replace(f"{own}.{own}", f"{a}.{b}")
        out[f"{types}.m{s.m}n8k{s.k}"] = replace(s, ptx=ptx, a=replace(s.a, dtype=a), b=replace(s.b, dtype=b))
    return out


SHAPES: Final[dict[str, MmaShape]] = {
    **_OF_ONE_TYPE,
    **{name: s for one in _OF_ONE_TYPE.values() if one.a.dtype in _UNSIGNED for name, s in _unsigned(one).items()},
}
#: Shapes whose a keeps 2 of every 4 columns (:mod:`sparsegen.ir.metadata`): its fragment is that of what it keeps.
SPARSE: Final[dict[str, MmaShape]] = {
    f"{dtype}.m16n8k32.sp": replace(
        _shape(dtype, 16, 32), a=SHAPES[f"{dtype}.m16n8k16"].a,
        ptx=f"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.{dtype}.{dtype}.f32",
    )
    for dtype in (f16, bf16)
}  # fmt: skip


def named(shape: str) -> MmaShape:
    """The shape of a name, of either table."""
    return SHAPES.get(shape) or SPARSE[shape]


def signed(shape: str) -> str:
    """The shape itself, or of integers that of signed ones: the same fragments, and as many cycles of a tensor core."""
    s = SHAPES[shape]
    return f"s{s.a.dtype.bits}.m{s.m}n8k{s.k}" if s.a.dtype.is_int else shape


def shapes_of(capability: tuple[int, int]) -> list[str]:
    """The shapes that a GPU of this compute capability has."""
    return [name for name, s in SHAPES.items() if s.on(capability)]


@dataclass(frozen=True)
class Signature:
    """Types of an mma's registers: (dtype, how many a lane) for a, b, c and d."""

    a: tuple[DType, int]
    b: tuple[DType, int]
    c: tuple[DType, int]


def signature(shape: str) -> Signature:
    """The register types of an mma shape."""
    s = named(shape)
    return Signature((s.a.reg, s.a.regs), (s.b.reg, s.b.regs), (s.c.reg, s.c.regs))

"""Scalar types, buffers and memory spaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["float", "int", "uint", "pred"]
Space = Literal["global", "shared", "reg", "param"]


@dataclass(frozen=True)
class DType:
    """A scalar type: name, width in bits, kind, and the C++ type that holds it in a register."""

    name: str
    bits: int
    kind: Kind
    c: str

    def __str__(self) -> str:
        return self.name

    @property
    def nbytes(self) -> int:
        """Bytes in memory; packed sub-byte types (s4, u4) are held in words and have none of their own."""
        if self.bits % 8:
            raise ValueError(f"{self.name} is packed: it has no size in bytes")
        return self.bits // 8

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer or predicate type."""
        if self.kind == "pred":
            return 0, 1
        if self.kind == "uint":
            return 0, 2**self.bits - 1
        if self.kind == "int":
            return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
        raise ValueError(f"{self.name} is no integer type")

    def numpy(self) -> Any:
        """The NumPy dtype that stores this type (ml_dtypes for bf16 and 8-bit floats); tf32 is stored as f32."""
        import numpy as np

        if self.name in _ML_DTYPES:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.name]))
        return np.dtype(_NUMPY[self.name])


_NUMPY = {
    "f64": "float64", "f32": "float32", "tf32": "float32", "f16": "float16", "s64": "int64", "u64": "uint64",
    "s32": "int32", "u32": "uint32", "s16": "int16", "u16": "uint16", "s8": "int8", "u8": "uint8", "pred": "bool",
}  # fmt: skip
_ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}

f64 = DType("f64", 64, "float", "double")
f32 = DType("f32", 32, "float", "float")
tf32 = DType("tf32", 32, "float", "float")
f16 = DType("f16", 16, "float", "__half")
bf16 = DType("bf16", 16, "float", "__nv_bfloat16")
s64 = DType("s64", 64, "int", "long long")
u64 = DType("u64", 64, "uint", "unsigned long long")
s32 = DType("s32", 32, "int", "int")
u32 = DType("u32", 32, "uint", "unsigned")
s16 = DType("s16", 16, "int", "short")
u16 = DType("u16", 16, "uint", "unsigned short")
s8 = DType("s8", 8, "int", "signed char")
u8 = DType("u8", 8, "uint", "unsigned char")
s4 = DType("s4", 4, "int", "unsigned")
u4 = DType("u4", 4, "uint", "unsigned")
pred = DType("pred", 1, "pred", "bool")
#: 12 bits, held in 16: of stored elements only, as programs multiply their digits; so it is none of ``DTYPES``.
s12 = DType("s12", 12, "int", "short")
#: 8-bit floats of OCP's specification (OFP8, 2023), also of stored elements only: programs widen them to f16.  e4m3 has
#: no infinities, its only NaN are 0x7f and 0xff; e5m2 is the high byte of an f16.
e4m3 = DType("e4m3", 8, "float", "unsigned char")
e5m2 = DType("e5m2", 8, "float", "unsigned char")

DTYPES: dict[str, DType] = {
    t.name: t for t in (f64, f32, tf32, f16, bf16, s64, u64, s32, u32, s16, u16, s8, u8, s4, u4, pred)
}
#: The types that an attribute of an op may name: those of values, and 8-bit floats, which only matrices hold.
ELEMENTS: dict[str, DType] = {**DTYPES, e4m3.name: e4m3, e5m2.name: e5m2}


def sum_type(dtype: DType) -> DType:
    """The type in which values are multiplied and summed: f32 for floats of 16 bits or fewer, else their own."""
    return f32 if dtype.kind == "float" and dtype.bits <= 16 else dtype


def cell_type(dtype: DType) -> DType:
    """The type in which cells of fields are worked out: f32 for bytes, which are then rounded; else that of sums."""
    return f32 if dtype is u8 else sum_type(dtype)


def widths(dtype: DType) -> tuple[int, ...]:
    """How many adjacent elements one load or store can move: 1, 2 or 4, of 16 bits also 8; 16 bytes at most."""
    return tuple(n for n in (1, 2, 4, 8) if n * dtype.nbytes <= 16 and (n <= 4 or dtype.bits == 16))


@dataclass(frozen=True)
class Buffer:
    """A flat array of ``size`` elements of ``dtype`` in one memory space, named once in a function.

    ``global``: a pointer argument; ``param``: a struct passed by value (constant bank); ``shared``: of the block;
    ``reg``: of each lane (indices must become constants when its loops are unrolled).  ``align`` is in bytes.
    """

    name: str
    dtype: DType
    size: int
    space: Space
    align: int = 16

    def __str__(self) -> str:
        return f"@{self.name}"

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.nbytes

"""Sizes that stencil schedules speak of: of elements, and of the mma shapes that multiply them."""

from __future__ import annotations

from sparsegen.ir.types import DTYPES

#: Bytes of an element, by its type's name.
ITEMSIZE: dict[str, int] = {name: DTYPES[name].nbytes for name in ("f64", "f32", "f16", "bf16")}
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

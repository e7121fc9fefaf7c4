"""What the formats' tests share: random weights bit by bit."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sparsegen.ir.types import DTYPES

FORMATS = ("bitmap", "tca_bme")
KINDS = ("f16", "bf16")
SPECIAL = {
    "f16": [0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF, 0x0001, 0x8001],
    "bf16": [0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF, 0x0001, 0x8001],
}
"""Bits of -0.0, the infinities, NaNs quiet and signalling, the smallest numbers."""


def weights(shape: tuple[int, int], sparsity: float, kind: str = "f16", seed: int = 0) -> Any:
    """A matrix of any bits at all, zeros with the given probability."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(1, 1 << 16, shape).astype(np.uint16)
    bits[rng.random(shape) < sparsity] = 0
    return bits.view(DTYPES[kind].numpy())


def bits(w: Any) -> Any:
    """A matrix's bits, which compare NaN and -0.0 as they are."""
    return np.ascontiguousarray(w).view(np.uint16)


@st.composite
def matrices(draw: st.DrawFn, rows: int = 150, cols: int = 200) -> Any:
    """Matrices of both types, of any small shape and any sparsity, some with empty rows."""
    shape = draw(st.integers(1, rows)), draw(st.integers(1, cols))
    sparsity = draw(st.sampled_from([0.0, 0.3, 0.6, 0.99, 1.0]) | st.floats(0, 1))
    w = weights(shape, sparsity, draw(st.sampled_from(KINDS)), draw(st.integers(0, 1 << 32)))
    if draw(st.booleans()):
        w[:: draw(st.integers(1, 20))] = 0
    return w


def tensor(w: Any) -> Any:
    """The same in torch, on the same memory."""
    torch: Any = import_module("torch")
    if w.dtype.name == "bfloat16":
        return torch.from_numpy(w.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(w)

"""What the tests of ``sparsegen.torch`` share: layers, and what a result may differ by."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen.torch as st
from tests.products_kit import ROUNDING

torch: Any = pytest.importorskip("torch")
KINDS = {"f16": torch.float16, "bf16": torch.bfloat16}


def dense(m: int, k: int, kind: str = "f16", bias: bool = True, device: str = "cpu") -> Any:
    """A random dense layer."""
    torch.manual_seed(m * k)
    return torch.nn.Linear(k, m, bias, device=device, dtype=KINDS[kind])


def pair(m: int, k: int, kind: str = "f16", bias: bool = True, device: str = "cpu", **more: Any) -> tuple[Any, Any]:
    """A sparse layer, 60 % of it pruned and never decoded by default, and the dense one with the same zeros."""
    layer = dense(m, k, kind, bias, device)
    more = {"sparsity": 0.6, "dense_above": None, **more}
    made = st.SparseLinear.from_linear(layer, **more)
    keep = more.get("mask")
    with torch.no_grad():
        layer.weight.mul_(st.magnitude_mask(layer.weight, more["sparsity"]) if keep is None else keep)
    return made, layer


def tokens(*shape: int, kind: str = "f16", device: str = "cpu", seed: int = 0) -> Any:
    """Random numbers from -1 to 1."""
    torch.manual_seed(seed)
    return (2 * torch.rand(*shape, device=device) - 1).to(KINDS[kind])


def agrees(y: Any, x: Any, layer: Any) -> None:
    """AssertionError unless ``y`` is what the dense layer makes of x, but for rounding: sums in f32, then once."""
    w = layer.weight.detach().double()
    flat = x.detach().double().reshape(-1, w.shape[1])
    exact, terms = flat @ w.T, flat.abs() @ w.T.abs()
    if layer.bias is not None:
        exact += layer.bias.detach().double()
    assert y.dtype == layer.weight.dtype and y.shape == (*x.shape[:-1], w.shape[0]) and y.is_contiguous()
    rounding = ROUNDING["f16" if y.dtype == torch.float16 else "bf16"]
    slack = 1.01 * rounding * exact.abs() + terms * 2.0**-24 * (w.shape[1] + 8) + 2.0**-20
    off = (y.detach().double().reshape(exact.shape) - exact).abs()
    assert bool((off <= slack).all()), f"off by {off.max()}, by {(off - slack).max()} more than rounding explains"

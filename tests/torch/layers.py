"""What the tests of ``sparsegen.torch`` share: layers, and what a result may differ by."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
import sparsegen.torch as st
from tests.products_kit import ROUNDING

torch: Any = pytest.importorskip("torch")
KINDS = {"f16": torch.float16, "bf16": torch.bfloat16}
ALL_KINDS = {**KINDS, "f32": torch.float32}
#: Weights anywhere, and a pattern: what ``pair`` takes for layers in each format.
PATTERNS: dict[str, dict[str, Any]] = {
    "bitmap": {"sparsity": 0.6},
    "nm": {"pattern": "nm", "n": 3, "m": 10, "vector": 8},
}


def dense(m: int, k: int, kind: str = "f16", bias: bool = True, device: str = "cpu") -> Any:
    """A random dense layer."""
    torch.manual_seed(m * k)
    return torch.nn.Linear(k, m, bias, device=device, dtype=ALL_KINDS[kind])


def pair(m: int, k: int, /, kind: str = "f16", bias: bool = True, device: str = "cpu", **more: Any) -> tuple[Any, Any]:
    """A sparse layer, never decoded by default, and the dense one with the same zeros: 60 % of all by default."""
    layer = dense(m, k, kind, bias, device)
    more = {**({} if "pattern" in more else PATTERNS["bitmap"]), "dense_above": None, **more}
    made = st.SparseLinear.from_linear(layer, **more)
    keep = more.get("mask")
    with torch.no_grad():
        if keep is None and "pattern" in more:
            words = {word: more[word] for word in ("n", "m", "vector") if word in more}
            keep = sg.prune(layer.weight, more["pattern"], **words) != 0
        layer.weight.mul_(st.magnitude_mask(layer.weight, more["sparsity"]) if keep is None else keep)
    return made, layer


def words_of(format: str) -> dict[str, Any]:
    """What the constructor is told for a layer of ``PATTERNS``."""
    return {name: word for name, word in PATTERNS[format].items() if name != "sparsity"}


def arrays(sparse: Any) -> tuple[Any, Any, Any]:
    """The tensors of a sparse layer's weights as the operator takes them."""
    return tuple(name and getattr(sparse, name) for name in sparse._parts)


def tokens(*shape: int, kind: str = "f16", device: str = "cpu", seed: int = 0) -> Any:
    """Random numbers from -1 to 1."""
    torch.manual_seed(seed)
    return (2 * torch.rand(*shape, device=device) - 1).to(ALL_KINDS[kind])


def agrees(y: Any, x: Any, layer: Any) -> None:
    """AssertionError unless ``y`` is what the dense layer makes of x, but for rounding: sums in f32, then once."""
    w = layer.weight.detach().double()
    flat = x.detach().double().reshape(-1, w.shape[1])
    exact, terms = flat @ w.T, flat.abs() @ w.T.abs()
    if layer.bias is not None:
        exact += layer.bias.detach().double()
    assert y.dtype == layer.weight.dtype and y.shape == (*x.shape[:-1], w.shape[0]) and y.is_contiguous()
    rounding = ROUNDING[next(kind for kind, dtype in ALL_KINDS.items() if dtype == y.dtype)]
    slack = 1.01 * rounding * exact.abs() + terms * 2.0**-24 * (w.shape[1] + 8) + 2.0**-20
    off = (y.detach().double().reshape(exact.shape) - exact).abs()
    assert bool((off <= slack).all()), f"off by {off.max()}, by {(off - slack).max()} more than rounding explains"

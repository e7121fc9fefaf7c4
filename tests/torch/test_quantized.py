"""``QuantizedLinear``: exact integers, scales, what it is made of, moved, copied and loaded; what it refuses."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

import sparsegen as sg
import sparsegen.torch as st
from sparsegen.ir.errors import ArrayError, FormatError, ProductError
from tests.torch.layers import ALL_KINDS, dense, tokens, torch


def made(m: int = 40, k: int = 70, kind: str = "f16", **how: Any) -> tuple[Any, Any]:
    """A quantised layer, and the dense one that it was made of."""
    layer = dense(m, k, kind)
    return st.SparseLinear.from_linear(layer, how.pop("sparsity", 0.6), bits=8, **how), layer


def wanted(layer: Any, x: Any, scale: Any = None) -> Any:
    """The result in f64: of integers of x, by the largest |x| of all or by a scale."""
    whole = x.detach().double()
    if scale is None:
        scale = (whole.abs().amax().float() / 127).clamp_min(2.0**-126) if whole.any() else torch.tensor(1.0)
    q = (whole.float() / scale).round().clamp(-127, 127).double()
    y = q @ layer.to_dense().double().T * float(scale)
    return y if layer.bias is None else y + layer.bias.detach().double()


def agrees(layer: Any, x: Any, scale: Any = None) -> None:
    y, want = layer(x), wanted(layer, x, scale)
    rounding = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-20}[str(x.dtype).removeprefix("torch.")]
    assert y.dtype == x.dtype and y.shape == (*x.shape[:-1], layer.out_features) and not y.requires_grad
    assert bool(((y.double() - want).abs() <= rounding * (want.abs() + 1e-2)).all())


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_what_it_computes(kind: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the emulator the programs of the GPU, with the tensors as they are passed there."""
    from sparsegen.torch import plan

    monkeypatch.setitem(plan.BACKENDS, "cpu", backend)
    layer, _ = made(kind=kind)
    for shape in ((70,), (1, 70), (2, 3, 70), (0, 70), (67, 70)):
        agrees(layer, tokens(*shape, kind=kind))
    agrees(layer, torch.zeros(2, 70, dtype=ALL_KINDS[kind]))
    agrees(layer, tokens(70, 5, kind=kind).t())


def test_it_is_near_the_dense_layer() -> None:
    """Of the weights that stay: half a step of 127 a weight and a number of x."""
    layer, of = made(256, 512, vector=4)
    x = tokens(9, 512)
    with torch.no_grad():
        of.weight.mul_(layer.to_dense() != 0)
        want = of(x)
    assert layer.height == 4 and 0.55 < 1 - layer.nnz / (256 * 512) < 0.65
    assert float((layer(x) - want).norm() / want.norm()) < 0.02


def test_masks_become_whole_vectors() -> None:
    keep = torch.rand(40, 70) < 0.05
    layer, of = made(mask=keep, sparsity=None)
    vectors = sg.pattern.vectors(keep, 8)
    assert torch.equal(layer.to_dense() != 0, vectors & (layer.to_dense() != 0)) and layer.nnz > keep.sum()
    assert (
        float((layer.to_dense() - of.weight.detach().float() * vectors).abs().max())
        <= float(layer.scale.max()) / 2 * 1.01
    )


def test_a_given_scale_of_x() -> None:
    """Numbers beyond 127 steps are cut off."""
    layer = st.QuantizedLinear.from_linear(dense(24, 32), 0.5, x_scale=1 / 256)
    x = tokens(5, 32)
    agrees(layer, x, torch.tensor(1 / 256))
    assert float(layer.x_scale) == 1 / 256 and "x_scale" in layer.state_dict()


def copies() -> dict[str, Any]:
    def loaded(layer: Any) -> Any:
        file = io.BytesIO()
        torch.save(layer.state_dict(), file)
        file.seek(0)
        empty = st.QuantizedLinear(layer.in_features, layer.out_features, height=layer.height)
        assert empty.load_state_dict(torch.load(file, weights_only=True)).missing_keys == []
        return empty

    return {"deepcopy": copy.deepcopy, "pickle": lambda s: pickle.loads(pickle.dumps(s)), "state_dict": loaded}


@pytest.mark.parametrize("way", copies())
def test_copies(way: str) -> None:
    layer, _ = made()
    x = tokens(3, 70)
    y = layer(x)
    other = copies()[way](layer)
    assert other.plan is not layer.plan and other.nnz == layer.nnz
    assert other.values.data_ptr() != layer.values.data_ptr()
    del layer
    assert torch.equal(other(x), y)


def test_conversions_leave_the_scales() -> None:
    layer, _ = made(kind="f32")
    scale = layer.scale.clone()
    x = tokens(3, 70, kind="f32")
    y = layer(x)
    half = layer.half()
    assert half.scale.dtype == torch.float32 and torch.equal(half.scale, scale) and half.bias.dtype == torch.float16
    assert half(x).dtype == torch.float32 and float((half(x) - y).abs().max()) < 1e-3


def test_a_number_that_is_none_reaches_everything() -> None:
    layer, _ = made()
    x = tokens(3, 70)
    x[1, 5] = float("nan")
    assert bool(layer(x).isnan().all())


def test_torch_traces_it() -> None:
    layer, _ = made()
    x = tokens(3, 70)
    q = (x.float() * 100).to(torch.int8)
    given = (q, layer.plan, layer.values, layer.idx, layer.ptr, layer.scale, None, torch.float16, 70, 40)
    torch.library.opcheck(
        torch.ops.sparsegen.spmm_quantized.default, given, test_utils=("test_schema", "test_faketensor")
    )


def test_what_is_refused() -> None:
    layer, of = made()
    for attempt, kind, says in (
        (lambda: layer(tokens(3, 69)), ArrayError, "its last axis must have in_features=70"),
        (lambda: layer(torch.zeros(3, 70, dtype=torch.int8)), ArrayError, "x is torch.int8"),
        (lambda: layer([1.0]), ArrayError, "x is list"),
        (lambda: st.SparseLinear.from_linear(of, bits=4), ProductError, "bits=4"),
        (lambda: st.SparseLinear.from_linear(of, bits=8, pattern="nm"), ProductError, "quantised to 8 bits"),
        (lambda: st.SparseLinear.from_linear(of, bits=8, vector=3), FormatError, "height=3"),
        (lambda: st.QuantizedLinear.from_linear(of.weight), ProductError, "needs a torch.nn.Linear"),
        (lambda: st.QuantizedLinear(70, 40, height=4).load_state_dict(layer.state_dict()), FormatError, "height"),
        (lambda: st.QuantizedLinear(70, 40, height=5), FormatError, "height=5"),
    ):
        with pytest.raises(kind) as e:
            attempt()
        assert says in str(e.value) and e.value.hint

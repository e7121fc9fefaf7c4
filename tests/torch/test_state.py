"""state_dict: there and back, into empty modules and over other weights, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
import sparsegen.torch as st
from tests.torch.layers import KINDS, PATTERNS, agrees, pair, tokens, torch, words_of


def same(a: Any, b: Any) -> bool:
    state, other = a.state_dict(), b.state_dict()
    return set(state) == set(other) and all(torch.equal(state[name], other[name]) for name in state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("format", PATTERNS)
def test_into_an_empty_module(kind: str, assign: bool, format: str) -> None:
    """Through a file that holds nothing but tensors."""
    sparse, layer = pair(40, 70, kind, **PATTERNS[format])
    file = io.BytesIO()
    torch.save(sparse.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    numbers = [1, 40, 70, int((layer.weight != 0).sum()), list(KINDS).index(kind)]  # those of bitmap are in old files
    assert state["_extra_state"].tolist() == numbers + ([3, 10, 8, 1] if format == "nm" else [])
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    other = st.SparseLinear(70, 40, dtype=KINDS[kind], **words_of(format))
    assert other.load_state_dict(state, assign=assign).missing_keys == []
    assert same(other, sparse) and other.nnz == sparse.nnz
    agrees(other(tokens(3, 70, kind=kind)), tokens(3, 70, kind=kind), layer)
    assert (other.values.data_ptr() == state["values"].data_ptr()) == assign


def test_over_other_weights() -> None:
    """More or fewer elements; what was computed before is not computed again; old tensors are not written to."""
    full, layer = pair(40, 70, sparsity=0.2, dense_above=50)
    thin, thin_layer = pair(40, 70, sparsity=0.9, dense_above=50)
    masks, before = thin.masks, thin.masks.clone()
    few, many = tokens(3, 70), tokens(60, 70)
    agrees(thin(few), few, thin_layer)
    plan = thin.plan
    thin.load_state_dict(full.state_dict())
    assert thin.plan is not plan and torch.equal(masks, before) and same(thin, full)
    agrees(thin(few), few, layer)
    agrees(thin(many), many, layer)
    with torch.no_grad():
        full.values.zero_()
    agrees(thin(few), few, layer)


def test_in_a_model() -> None:
    def model() -> Any:
        return torch.nn.ModuleDict({"up": st.SparseLinear(70, 40, bias=False), "down": st.SparseLinear(40, 70)})

    made = model()
    made["up"] = pair(40, 70, bias=False)[0]
    made["down"] = pair(70, 40)[0]
    other = model()
    other.load_state_dict(made.state_dict())
    assert same(other, made)
    assert set(made.state_dict()) == {
        *(f"up.{name}" for name in ("values", "masks", "index", "_extra_state")),
        *(f"down.{name}" for name in ("values", "masks", "index", "bias", "_extra_state")),
    }


@pytest.mark.filterwarnings("ignore:for bias")  # torch: nothing is copied to the meta device
def test_by_way_of_the_meta_device() -> None:
    sparse, layer = pair(40, 70)
    x = tokens(3, 70)
    for assign in (True, False):
        blank = st.SparseLinear(70, 40, device="meta", dense_above=20)
        assert blank(x.to("meta")).shape == (3, 40)
        if not assign:
            with pytest.raises(RuntimeError, match="assign=True"):
                blank.load_state_dict(sparse.state_dict())
            blank.to_empty(device="cpu")
        blank.load_state_dict(sparse.state_dict(), assign=assign)
        agrees(blank(x), x, layer)
        many = tokens(30, 70)
        agrees(blank(many), many, layer)


def test_tensors_that_hold_nothing_yet_are_not_read_astray() -> None:
    """``to_empty`` leaves what was in memory: no kernel runs on that."""
    module = st.SparseLinear(70, 40, device="meta").to_empty(device="cpu")
    module.index.fill_(123456)
    with pytest.raises(sg.FormatError):
        module(tokens(3, 70))


@pytest.mark.parametrize("format", PATTERNS)
def test_an_empty_module_is_a_matrix_of_zeros(format: str) -> None:
    for m, k in ((1, 1), (40, 70), (16, 64)):
        module = st.SparseLinear(k, m, **words_of(format))
        encoded = sg.sparse(np.zeros((m, k), np.float16), module.format, **module.options)
        for name, array in encoded.arrays.items():
            held = getattr(module, name).numpy()
            assert held.shape == array.shape and np.array_equal(held.view(array.dtype), array)
        assert not module(tokens(3, k)).any() and not module.to_dense().any()


def altered(**changes: Callable[[Any], Any]) -> dict[str, Any]:
    state = pair(40, 70)[0].state_dict()
    for name, change in changes.items():
        state[name] = change(state[name])
    return {name: value for name, value in state.items() if value is not None}


def flipped(masks: Any) -> Any:
    masks = masks.clone()
    masks[0, 0, 0] ^= 1
    return masks


VERSION, _, _, NNZ, _ = torch.eye(5, dtype=torch.int64)  # to be added to the extra state
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "shape": (lambda: pair(70, 40)[0].state_dict(), "holds weights 70x40, this layer's are 40x70"),
    "dtype": (lambda: pair(40, 70, "bf16")[0].state_dict(), "are torch.bfloat16, this layer's torch.float16"),
    "a mask's bit": (lambda: altered(masks=flipped), "by the masks there are|index contradicts|masks keep"),
    "nnz": (lambda: altered(_extra_state=lambda e: e + NNZ), "masks keep 1120 elements, not 1121"),
    "version": (lambda: altered(_extra_state=lambda e: e + VERSION), "version 2, this is 1"),
    "extra state": (lambda: altered(_extra_state=lambda e: {"shape": (40, 70)}), "extra state is"),
    "cut values": (lambda: altered(values=lambda v: v[:-1]), "values has shape"),
    "dtype of masks": (lambda: altered(masks=lambda t: t.long()), "masks is a tensor of torch.int64"),
    "shape of masks": (lambda: altered(masks=lambda t: t.reshape(-1)), "masks has shape"),
    "no index": (lambda: altered(index=lambda t: None), "index missing"),
    "a dense layer": (lambda: torch.nn.Linear(70, 40).half().state_dict(), 'Missing(.|\n)*"values"(.|\n)*"weight"'),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused(what: str) -> None:
    """By name, and the weights stay what they were."""
    make, says = WRONG[what]
    module, layer = pair(40, 70, sparsity=0.3)
    with pytest.raises(RuntimeError, match=says):
        module.load_state_dict(make())
    layer.bias = module.bias  # its own key, which torch loads all the same
    agrees(module(tokens(3, 70)), tokens(3, 70), layer)


def test_no_bias() -> None:
    with pytest.raises(RuntimeError, match=r'Missing key.*"bias"'):
        pair(40, 70)[0].load_state_dict(pair(40, 70, bias=False)[0].state_dict())
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"bias"'):
        pair(40, 70, bias=False)[0].load_state_dict(pair(40, 70)[0].state_dict())


def test_not_strict() -> None:
    """What is absent altogether stays; half of the weights is an error all the same."""
    module, layer = pair(40, 70)
    found = module.load_state_dict({"bias": tokens(40)}, strict=False)
    assert set(found.missing_keys) == {"values", "masks", "index", "_extra_state"} and not found.unexpected_keys
    assert torch.equal(module.bias, tokens(40))
    layer.bias = module.bias
    agrees(module(tokens(3, 70)), tokens(3, 70), layer)
    with pytest.raises(RuntimeError, match="index missing"):
        module.load_state_dict(altered(index=lambda t: None), strict=False)

"""``SparseAttention``: as the compiled kernel, in batches and compiled graphs; copies; what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import sparsegen.torch as st
from sparsegen.ir.errors import ArrayError, DeviceError, ProductError
from tests.attention_kit import agrees, inputs, mask, off

torch: Any = pytest.importorskip("torch")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def made(device: str, batch: int = 1, **how: Any) -> tuple[Any, list[Any], Any, dict[str, Any]]:
    """A module, its tensors, and what they are as arrays."""
    import sparsegen as sg

    what = sg.attention(mask(61, 130), heads=2, d=32, batch=batch, **how)
    given = inputs(what)
    return (
        st.SparseAttention(mask(61, 130), 2, 32, **how),
        [torch.from_numpy(given[n]).to(device) for n in "qkv"],
        what,
        given,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch", [1, 3])
def test_as_the_kernel(device: str, batch: int) -> None:
    module, tensors, what, given = made(device, batch)
    agrees(module(*tensors).cpu().numpy(), what, given)
    alone = [x if batch == 1 else x[1] for x in tensors]
    axis = module(*(x[None] for x in alone))
    assert axis.shape == (1, 2, 61, 32) and torch.equal(axis[0], module(*alone))


@pytest.mark.parametrize("device", DEVICES)
def test_heads_that_are_a_view(device: str) -> None:
    """Projections have rows before heads; what has no elements gives none."""
    module, tensors, _, _ = made(device, 2)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors]
    assert not turned[0].is_contiguous() and torch.equal(module(*turned), module(*tensors))
    assert module(*(x[:0] for x in tensors)).shape == (0, 2, 61, 32)


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device: str) -> None:
    module, tensors, _, _ = made(device)
    torch.library.opcheck(torch.ops.sparsegen.sparse_attention.default, (*tensors, module.plan))


def test_a_plan_is_that_of_a_pattern() -> None:
    module, tensors, _, _ = made("cpu", softmax_bits=16)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.plan == module.plan and torch.equal(other(*tensors), module(*tensors))
    keep, other = mask(61, 130), mask(61, 130)
    other[:8, 0] ^= True
    plans = {st.SparseAttention(pattern, heads, 32, bits=bits, softmax_bits=soft)._plan
             for pattern in (keep, other) for heads in (1, 2) for bits in (4, 8) for soft in (8, 16)}  # fmt: skip
    assert len({plan.handle for plan in plans}) == 16
    assert "softmax" in repr(module) and not list(module.parameters())


def test_what_does_not_fit() -> None:
    module, (q, k, v), _, _ = made("cpu")
    for bad, words in (((q.float(), k, v), "q has dtype"), ((q, k[:1], v), r"k has shape \(1, 130, 32\)"),
                       ((q[None], k, v), "the same of q, k and v")):  # fmt: skip
        with pytest.raises(ArrayError, match=words):
            module(*bad)
    with pytest.raises(ProductError, match="there is no plan 77"):
        torch.ops.sparsegen.sparse_attention(q, k, v, 77)
    with pytest.raises(ProductError, match="d=33"):
        st.SparseAttention(mask(8, 8), 1, 33)


@pytest.mark.gpu
def test_captured_and_compiled() -> None:
    """A graph is captured of a size that has been seen; torch.compile keeps the call whole."""
    module, tensors, _, _ = made("cuda", 2)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(DeviceError, match="not built yet"), torch.cuda.graph(graph):
        module(*tensors)
    torch.cuda.synchronize()
    wanted = module(*tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module(*tensors)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, wanted)
    assert off(torch.compile(module, fullgraph=True)(*tensors).cpu().numpy(), wanted.double().cpu().numpy()) == 0

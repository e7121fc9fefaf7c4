"""Layers of one kind share a graph of ``torch.compile``, however their weights and patterns differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sparsegen.torch as st
from tests.attention_kit import mask
from tests.torch.layers import dense, tokens, torch

LAYERS = 12


class Block(torch.nn.Module):
    """A sparse layer with other work before and after it."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return x + 0.5 * self.inner(x).sin()


class Fused(torch.nn.Module):
    """Three layers of one input, and attention to itself."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.fused = st.FusedLinear([linear(at + 0.1 * part) for part in range(3)])
        self.attend = st.SparseAttention(mask(16, 16), 2, 32)

    def forward(self, x: Any) -> Any:
        q, k, v = (part.view(-1, 2, 32).transpose(0, 1) for part in self.fused(x))
        return self.attend(q, k, v).transpose(0, 1).flatten(1)


def linear(at: float, **words: Any) -> Any:
    """A layer whose share of zeros is its own, so that no two have as many elements."""
    layer = dense(64, 64)
    with torch.no_grad():
        layer.weight.mul_(1 + 0.01 * at)
    return st.SparseLinear.from_linear(layer, **(words or {"sparsity": 0.4 + 0.03 * at}))


KINDS: dict[str, Callable[[int], Any]] = {
    "anywhere": linear,
    "nm": lambda at: linear(at, pattern="nm", n=3, m=8, vector=8),
    "quantized": lambda at: linear(at, bits=8, sparsity=0.4 + 0.03 * at),
    "fused": Fused,
}


def decoder(kind: str) -> Any:
    """Layer after layer, each of which is compiled by itself."""
    return torch.nn.Sequential(*(Block(KINDS[kind](at)) for at in range(LAYERS))).requires_grad_(False)


class Counted:
    """A backend that counts the graphs that it is given."""

    def __init__(self, backend: str) -> None:
        self.graphs, self.backend = 0, torch._dynamo.lookup_backend(backend)

    def __call__(self, graph: Any, given: Any) -> Any:
        self.graphs += 1
        return self.backend(graph, given)


def compiled(model: Any, backend: str) -> Counted:
    """Layer by layer, none left out."""
    torch._dynamo.reset()
    counted = Counted(backend)
    for layer in model:
        layer.compile(backend=counted, fullgraph=True)
    return counted


@pytest.mark.parametrize("kind, backend", [("anywhere", "inductor"), *((kind, "aot_eager") for kind in KINDS)])
def test_layers_share_a_graph(kind: str, backend: str) -> None:
    model, x = decoder(kind), tokens(16, 64)
    with torch.no_grad():
        want = model(x)
        counted = compiled(model, backend)
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            got = model(x)
    assert counted.graphs == 1
    off = float((got.float() - want.float()).norm() / want.float().norm())
    assert off <= (2e-3 if backend == "inductor" else 0), "inductor rounds less often between the layers"
    assert kind != "anywhere" or len({layer.inner.nnz for layer in model}) == LAYERS


def test_with_gradients() -> None:
    """Of x, through all layers, and of each bias."""
    model = torch.nn.Sequential(*(Block(linear(at)) for at in range(LAYERS)))
    x = tokens(4, 64).requires_grad_()
    given = [x, *model.parameters()]
    want = torch.autograd.grad(model(x).sum(), given)
    counted = compiled(model, "aot_eager")
    got = torch.autograd.grad(model(x).sum(), given)
    assert counted.graphs == 1
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_new_weights_under_an_old_graph() -> None:
    """There and back, as memory for the first weights may be taken again: none of the handles is."""
    model, x = decoder("anywhere"), tokens(4, 64)
    counted = compiled(model, "aot_eager")
    handles = []
    with torch.no_grad():
        for at in range(4):
            inner = model[3].inner
            inner.load_state_dict(linear(at, sparsity=0.1 * at).state_dict())
            handles.append(inner.plan.data_ptr())
            y = x
            for layer in model:
                y = y + 0.5 * layer.inner(y).sin()
            assert torch.equal(model(x), y)
    assert counted.graphs == 1 and len({*handles}) == 4


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["anywhere", "nm", "quantized"])
def test_cuda_graphs_of_a_shared_graph(kind: str) -> None:
    """torch records each layer's launches and replays them with that layer's weights; new weights are recorded."""
    model, x = decoder(kind).cuda(), tokens(16, 64, device="cuda")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        want = model(x)
        for layer in model:
            layer.compile(mode="reduce-overhead", fullgraph=True)
        for step in range(6):
            if step == 4:
                model[3].inner.load_state_dict(KINDS[kind](7).state_dict())
                model[3].inner(x)  # builds its kernel
                eager = x
                for layer in model:
                    eager = layer.forward(eager)
                want = eager
            torch.compiler.cudagraph_mark_step_begin()
            got = model(x).clone()
            assert float((got.float() - want.float()).norm() / want.float().norm()) < 4e-3  # of f16, after 12 layers
    counted = torch._dynamo.utils.counters
    assert counted["stats"]["unique_graphs"] == 1 and not counted["inductor"]["cudagraph_skips"]

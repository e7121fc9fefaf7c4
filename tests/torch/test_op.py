"""The operator as torch sees it: its schema, its fake, its derivatives, and what the compiler makes of it."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import sparsegen.torch as st
from sparsegen.ir.errors import ProductError
from tests.torch.layers import KINDS, PATTERNS, agrees, arrays, dense, pair, tokens, torch

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape, format", [((3, 70), "bitmap"), ((2, 5, 70), "bitmap"), ((2, 5, 70), "nm")])
def test_opcheck(device: str, biased: bool, shape: tuple[int, ...], format: str) -> None:
    sparse, _ = pair(40, 70, device=device, **PATTERNS[format])
    x = tokens(*shape, device=device).requires_grad_()
    weights = arrays(sparse)
    bias = sparse.bias if biased else None
    grad = tokens(*shape[:-1], 40, device=device).requires_grad_()
    for given in (weights, (None, None, None)):
        torch.library.opcheck(torch.ops.sparsegen.spmm_linear.default, (x, sparse.plan, *given, bias, 70, 40))
        torch.library.opcheck(torch.ops.sparsegen.spmm_linear_grad.default, (grad, sparse.plan, *given, 70))


def gradients(layer: Any, x: Any, grad: Any) -> list[Any]:
    inputs = [x] if layer.bias is None else [x, layer.bias]
    return list(torch.autograd.grad(layer(x), inputs, grad))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("format", PATTERNS)
def test_gradients(kind: str, bias: bool, format: str) -> None:
    """Against the dense layer in f64."""
    sparse, layer = pair(40, 70, kind, bias, **PATTERNS[format])
    x, grad = tokens(2, 5, 70, kind=kind).requires_grad_(), tokens(2, 5, 40, kind=kind, seed=1)
    got, want = (
        gradients(sparse, x, grad),
        gradients(layer.double(), x.detach().double().requires_grad_(), grad.double()),
    )
    for a, b in zip(got, want, strict=True):
        assert a.dtype == KINDS[kind] and a.shape == b.shape
        assert (a - b).norm() <= (1e-3 if kind == "f16" else 8e-3) * b.norm()


def test_only_what_is_asked_for() -> None:
    sparse, _ = pair(40, 70)
    sparse.bias.requires_grad_(False)
    assert not sparse(tokens(2, 70)).requires_grad
    x = tokens(2, 70).requires_grad_()
    sparse(x).sum().backward()
    assert x.grad is not None and sparse.bias.grad is None


@pytest.mark.parametrize("format", PATTERNS)
def test_the_gradient_of_the_gradient(format: str) -> None:
    sparse, layer = pair(40, 70, **PATTERNS[format])
    x, grad = tokens(3, 70).requires_grad_(), tokens(3, 40).requires_grad_()
    (of_x,) = torch.autograd.grad(sparse(x), x, grad, create_graph=True)
    direction = tokens(3, 70, seed=2)
    (again,) = torch.autograd.grad(of_x, grad, direction)
    layer.bias = None
    agrees(again, direction, layer)


@pytest.mark.parametrize("backend, format", [("eager", "bitmap"), ("aot_eager", "bitmap"), ("aot_eager", "nm")])
def test_compiled(backend: str, format: str) -> None:
    """One graph, no breaks; forward and backward; another number of tokens; then other weights under the same graph."""
    first, _ = pair(40, 70, **PATTERNS[format])
    second, _ = pair(24, 40, **PATTERNS[format])
    model = torch.nn.Sequential(first, torch.nn.ReLU(), second)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
    for n in (3, 3, 5):
        x = tokens(n, 70).requires_grad_()
        y = compiled(x)
        assert torch.equal(y, model(x))
        (got,), (want,) = torch.autograd.grad(y.sum(), x), torch.autograd.grad(model(x).sum(), x)
        assert torch.equal(got, want)
    other = dense(40, 70)
    with torch.no_grad():
        other.weight.mul_(-1)
    more = {**PATTERNS[format], **({} if format == "nm" else {"sparsity": 0.2})}
    first.load_state_dict(st.SparseLinear.from_linear(other, **more).state_dict())
    x = tokens(3, 70)
    assert torch.equal(compiled(x), model(x))


def test_wrong_calls_while_compiling() -> None:
    sparse, _ = pair(40, 70)
    torch._dynamo.reset()
    compiled = torch.compile(sparse, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="in_features=70"):
        compiled(tokens(3, 71))


@pytest.mark.parametrize("format", PATTERNS)
def test_weights_at_another_address(format: str) -> None:
    """Copies of the tensors, as torch makes them: right, and not kept for ever."""
    sparse, layer = pair(40, 70, **PATTERNS[format])
    layer.bias = None
    x = tokens(3, 70)
    for _ in range(5):
        copied = [t if t is None else t.clone() for t in arrays(sparse)]
        agrees(torch.ops.sparsegen.spmm_linear(x, sparse.plan.clone(), *copied, None, 70, 40), x, layer)
        assert len(sparse._plan._bound) <= 2


def test_what_is_no_plan_of_these_features() -> None:
    """Another tensor, a part of a plan, one of other features; without weights a plan has its own."""
    sparse, layer = pair(40, 70)
    x, layer.bias, nothing = tokens(3, 70), None, (None, None, None, None)
    agrees(torch.ops.sparsegen.spmm_linear(x, sparse.plan.clone(), *nothing, 70, 40), x, layer)
    for plan in (torch.zeros_like(sparse.plan), sparse.plan[1:], sparse.plan.new_zeros(())):
        with pytest.raises(ProductError, match="there is no such plan"):
            torch.ops.sparsegen.spmm_linear(x, plan, *nothing, 70, 40)
    for features in ((70, 41), (71, 40), (40, 70)):
        with pytest.raises(ProductError, match=f"of weights 40x70, not {features[1]}x{features[0]}"):
            torch.ops.sparsegen.spmm_linear(x, sparse.plan, *nothing, *features)


@pytest.mark.parametrize("format", PATTERNS)
def test_exported(format: str) -> None:
    """By ``torch.export``, with the weights as the graph's own."""
    sparse, layer = pair(40, 70, **PATTERNS[format])
    exported = torch.export.export(sparse, (tokens(3, 70),))
    assert {name for name in exported.state_dict if name != "bias"} == set(sparse.state_dict()) - {
        "bias",
        "_extra_state",
    }
    agrees(exported.module()(tokens(3, 70, seed=4)), tokens(3, 70, seed=4), layer)


def test_functional_call() -> None:
    sparse, _ = pair(40, 70)
    bias = tokens(40, seed=5)
    x = tokens(3, 70)
    got = torch.func.functional_call(sparse, {"bias": bias}, (x,))
    sparse.bias = torch.nn.Parameter(bias)
    assert torch.equal(got, sparse(x))


@pytest.mark.parametrize("format", PATTERNS)
def test_a_plan_ends_with_its_module(format: str) -> None:
    """At once, with its tensors and kernels: nothing goes round in circles, and no error that is kept holds them."""
    from sparsegen.torch.plan import _places, _plans

    sparse, _ = pair(40, 70, **PATTERNS[format])
    sparse(tokens(2, 70))
    number, place = sparse._plan.number, sparse.plan.data_ptr()
    assert number in _plans and place in _places
    values = weakref.ref(sparse.values.untyped_storage())
    del sparse
    assert number not in _plans and place not in _places and values() is None

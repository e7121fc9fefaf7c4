"""Modules with a plan: it is known as long as the module is, copies have one; those without a gradient say so."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import sparsegen.torch as st
from sparsegen.ir.errors import ArrayError, ProductError
from tests.attention_kit import mask
from tests.torch.layers import dense, tokens, torch

if TYPE_CHECKING:
    from sparsegen.torch.planned import Planned

MODULES: dict[str, Callable[[], Planned]] = {
    "linear": lambda: st.SparseLinear.from_linear(dense(40, 70), 0.5),
    "patterned": lambda: st.SparseLinear.from_linear(dense(40, 70), pattern="nm", n=2, m=10),
    "quantized": lambda: st.SparseLinear.from_linear(dense(40, 70), 0.5, bits=8),
    "attention": lambda: st.SparseAttention(mask(61, 130), 2, 32),
}


def arguments(module: Any) -> list[Any]:
    """What it is called with, always the same."""
    if isinstance(module, st.SparseAttention):
        return [tokens(2, rows, 32, seed=at) for at, rows in enumerate((61, 130, 130))]
    return [tokens(3, 70)]


def result(module: Any) -> Any:
    """Of these arguments."""
    return module(*arguments(module))


def saved(module: Any) -> Any:
    """By torch, as a whole."""
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


#: Ways to copy a module.
COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy, "pickle": lambda module: pickle.loads(pickle.dumps(module)), "save": saved
}  # fmt: skip


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("name", MODULES)
def test_copies_have_plans(name: str, way: str) -> None:
    """Those with weights one of their own, attention that of its pattern."""
    module = MODULES[name]()
    with torch.no_grad():
        want = result(module)
        other = COPIES[way](module)
        plan, shape = module.plan, () if name == "attention" else (module._plan.shape,)
        assert (other.plan is plan or other.plan == plan) if name == "attention" else other.plan is not plan
        del module
        gc.collect()
        assert torch.equal(result(other), want)
        kind = type(other._plan)
        if name == "attention":
            del other
            gc.collect()
    with pytest.raises(ProductError, match=r"there is no (such )?plan"):
        kind.of(plan, *shape)


@pytest.mark.parametrize("name", MODULES)
def test_a_plan_is_no_state(name: str) -> None:
    module = MODULES[name]()
    assert not {"plan", "_plan"} & {*module.__getstate__()}
    assert not [key for key in module.state_dict() if "plan" in key]


@pytest.mark.parametrize("name", MODULES)
def test_a_gradient_comes_back_or_is_refused(name: str) -> None:
    """Never is it silently none; where none is wanted the result is as ever."""
    module: Any = MODULES[name]()
    names = ("q", "k", "v") if name == "attention" else ("x",)
    given, want = arguments(module), result(module).detach()
    for at, word in enumerate(names):
        x = given[at].clone().requires_grad_()
        args = [*given[:at], x, *given[at + 1 :]]
        if name in ("linear", "patterned"):
            module(*args).sum().backward()
            assert x.grad is not None and bool(x.grad.any()) and module.bias.grad is not None
            continue
        with pytest.raises(ArrayError, match=f"{word} requires grad, and {type(module).__name__} has no gradient") as e:
            module(*args)
        assert "torch.no_grad()" in (e.value.hint or "") and f"{word}.detach()" in (e.value.hint or "")
        for quietly in (torch.no_grad, torch.inference_mode):
            with quietly():
                assert torch.equal(module(*args), want)
        assert torch.equal(module(*[one.detach() for one in args]), want) and not module(*given).requires_grad


def test_operators_without_a_gradient_say_so() -> None:
    """That of attention where it is asked for one, that of quantised layers at the call."""
    attention, layer, ops = MODULES["attention"](), MODULES["quantized"](), torch.ops.sparsegen
    given = [tokens(2, rows, 32).requires_grad_() for rows in (61, 130, 130)]
    y = ops.sparse_attention(*given, attention.plan)
    with pytest.raises(ArrayError, match="sparsegen::sparse_attention has no gradient"):
        y.sum().backward()
    x, scale = torch.ones(3, 70, dtype=torch.int8), layer.scale.clone().requires_grad_()
    with pytest.raises(ArrayError, match="scale is a torch tensor that requires grad"):
        ops.spmm_quantized(x, layer.plan, layer.values, layer.idx, layer.ptr, scale, None, torch.float32, 70, 40)


@pytest.mark.parametrize("name", ["quantized", "attention"])
def test_in_a_compiled_graph(name: str) -> None:
    """The check costs no break of the graph, and its words come through."""
    module = MODULES[name]()
    given = arguments(module)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), result(module))
    first = given[0].clone().requires_grad_()
    with torch.no_grad():
        assert torch.equal(compiled(first, *given[1:]), result(module))
    with pytest.raises(Exception, match=f"requires grad, and {type(module).__name__} has no gradient"):
        compiled(first, *given[1:])

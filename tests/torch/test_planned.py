"""Modules with a plan: each has one of its own, which is known as long as the module is."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import sparsegen.torch as st
from sparsegen.ir.errors import ProductError
from sparsegen.torch.planned import Planned
from tests.attention_kit import mask
from tests.torch.layers import dense, tokens, torch

MODULES: dict[str, Callable[[], Planned]] = {
    "linear": lambda: st.SparseLinear.from_linear(dense(40, 70), 0.5),
    "patterned": lambda: st.SparseLinear.from_linear(dense(40, 70), pattern="nm", n=2, m=10),
    "quantized": lambda: st.SparseLinear.from_linear(dense(40, 70), 0.5, bits=8),
    "attention": lambda: st.SparseAttention(mask(61, 130), 2, 32),
}


def result(module: Any) -> Any:
    """Of arguments that are always the same."""
    if isinstance(module, st.SparseAttention):
        return module(*(tokens(2, rows, 32, seed=at) for at, rows in enumerate((61, 130, 130))))
    return module(tokens(3, 70))


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
def test_copies_have_plans_of_their_own(name: str, way: str) -> None:
    module = MODULES[name]()
    with torch.no_grad():
        want = result(module)
        other = COPIES[way](module)
        assert other.plan != module.plan and other.plan == other._plan.number
        number = module.plan
        del module
        gc.collect()
        assert torch.equal(result(other), want)
    with pytest.raises(ProductError, match=f"there is no plan {number}"):
        type(other._plan).of(number)


@pytest.mark.parametrize("name", MODULES)
def test_a_plan_is_no_state(name: str) -> None:
    module = MODULES[name]()
    assert not {"plan", "_plan"} & {*module.__getstate__()}
    assert not [key for key in module.state_dict() if "plan" in key]

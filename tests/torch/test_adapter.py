"""Adapters of low rank on top of sparse layers have the gradients that they have on dense ones, under autocast too."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.torch.layers import PATTERNS, pair, tokens, torch

RANK = 4


class Adapted(torch.nn.Module):
    """base(x) + up(down(x)); up is not zero, so that all gradients are there from the start."""

    def __init__(self, base: Any, dtype: Any) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.base = base
        self.down = torch.nn.Linear(base.in_features, RANK, False, dtype=dtype)
        self.up = torch.nn.Linear(RANK, base.out_features, False, dtype=dtype)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x))


def gradients(model: Any, x: Any, autocast: bool) -> dict[str, Any]:
    """Of x and of all parameters, for the sum of squares of what two layers make of x."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        model(x).float().square().sum().backward()
    return {"x": x.grad} | {name: p.grad for name, p in model.named_parameters() if not name.endswith("base.weight")}


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("format", PATTERNS)
def test_gradients_are_those_of_dense_layers(format: str, autocast: bool) -> None:
    """Through two layers; with autocast adapters and x are f32, and the layers bf16."""
    pairs = [pair(48, 64, "bf16", **PATTERNS[format]), pair(64, 48, "bf16", **PATTERNS[format])]
    kind = torch.float32 if autocast else torch.bfloat16
    sparse = torch.nn.Sequential(*(Adapted(base, kind) for base, _ in pairs))
    exact = torch.nn.Sequential(*(Adapted(copy.deepcopy(base).double(), torch.float64) for _, base in pairs))
    for model, wide in zip(sparse, exact, strict=True):
        for name in ("down", "up"):
            getattr(wide, name).weight.data.copy_(getattr(model, name).weight.data)
    x = tokens(5, 64, kind="bf16").to(kind)
    got, want = gradients(sparse, x, autocast), gradients(exact, x.double(), False)
    assert {*got} == {*want} and {"0.base.bias", "1.up.weight"} <= {*got}
    for name, grad in want.items():
        assert got[name].dtype == (torch.bfloat16 if name.endswith("bias") else kind)
        assert (got[name].double() - grad).norm() <= 0.03 * grad.norm(), name

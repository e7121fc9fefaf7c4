"""Pruning by magnitude: how many stay, and which."""

from __future__ import annotations

import pytest

import sparsegen.torch as st
from sparsegen.ir.errors import ArrayError, ProductError
from tests.torch.layers import KINDS, torch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparsity", [0, 0.1, 0.6, 0.999, 1])
def test_the_largest_stay(kind: str, sparsity: float) -> None:
    torch.manual_seed(0)
    w = torch.randn(37, 53).to(KINDS[kind])
    keep = st.magnitude_mask(w, sparsity)
    assert keep.dtype == torch.bool and keep.shape == w.shape
    assert int(keep.sum()) == w.numel() - round(sparsity * w.numel())
    if keep.any() and not keep.all():
        assert w[keep].abs().min() >= w[~keep].abs().max()


def test_ties_go_by_their_place() -> None:
    w = torch.full((4, 8), -0.5, dtype=torch.float16)
    w[3, 7] = 1
    keep = st.magnitude_mask(w, 0.75)
    assert keep.reshape(-1).nonzero()[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 31]
    assert torch.equal(st.magnitude_mask(w.t(), 0.75)[7], torch.tensor([False, False, False, True]))


def test_infinities_and_nan_are_large() -> None:
    w = torch.tensor([[1, float("nan"), 65504, -float("inf"), 0, -0.0]]).half()
    assert st.magnitude_mask(w, 0.5).tolist() == [[False, True, True, True, False, False]]


def test_refusals() -> None:
    w = torch.ones(4, 4).half()
    for sparsity in (-0.1, 1.1, float("nan"), True, "half", None):
        with pytest.raises(ProductError, match="sparsity="):
            st.magnitude_mask(w, sparsity)  # type: ignore[arg-type]
    for bad in (w.float(), w.to_sparse(), w[0], w[:0], w.to("meta")):
        with pytest.raises(ArrayError, match="weight"):
            st.magnitude_mask(bad, 0.5)

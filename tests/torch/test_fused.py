"""``FusedLinear``: the parts of one launch are what each layer gives."""

from __future__ import annotations

import io

import pytest

import sparsegen.torch as st
from sparsegen.ir.errors import ProductError
from tests.torch.layers import agrees, dense, pair, tokens, torch


@pytest.mark.parametrize("format", [{"sparsity": 0.6}, {"pattern": "nm", "n": 2, "m": 4}])
@pytest.mark.parametrize("rows", [(48, 16, 16), (40, 24, 7)])
def test_each_part_is_what_a_layer_gives(rows: tuple[int, ...], format: dict[str, object]) -> None:
    pairs = [pair(m, 100, "bf16", i != 1, **format) for i, m in enumerate(rows)]
    fused = st.FusedLinear([sparse for sparse, _ in pairs])
    for shape in ((100,), (3, 100), (2, 40, 100)):
        x = tokens(*shape, kind="bf16")
        parts = fused(x)
        assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
        for part, (_, layer) in zip(parts, pairs, strict=True):
            agrees(part.contiguous(), x, layer)


def test_a_checkpoint_of_it() -> None:
    pairs = [pair(m, 64) for m in (32, 16)]
    fused, file = st.FusedLinear([sparse for sparse, _ in pairs]), io.BytesIO()
    torch.save(fused.state_dict(), file)
    file.seek(0)
    again = st.FusedLinear([st.SparseLinear(64, m) for m in (32, 16)])
    again.load_state_dict(torch.load(file))
    x = tokens(5, 64)
    assert all(torch.equal(a, b) for a, b in zip(again(x), fused(x), strict=True))


def test_layers_that_do_not_go_together() -> None:
    sparse, _ = pair(32, 64)
    other, _ = pair(32, 96)
    with pytest.raises(ProductError, match="matrix 1 of the product has K 96, matrix 0 64"):
        st.FusedLinear([sparse, other])
    with pytest.raises(ProductError, match=r"Linear is no SparseLinear(?s:.*)from_linear"):
        st.FusedLinear([sparse, dense(16, 64)])
    with pytest.raises(ProductError, match="of no matrices"):
        st.FusedLinear([])

"""``QuantizedLinear`` on a GPU: what the reference makes of the same integers, in graphs, compiled, of many tokens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.torch_kit import ready

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def made(torch: Any, dtype: Any) -> tuple[Any, Any]:
    """A layer on the GPU, and a copy on the CPU."""
    import sparsegen.torch as st

    torch.manual_seed(0)
    layer = st.SparseLinear.from_linear(torch.nn.Linear(300, 520, device="cuda", dtype=dtype), 0.8, bits=8)
    host = st.QuantizedLinear(300, 520, dtype=dtype)
    host.load_state_dict(layer.state_dict())
    return layer, host


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_as_on_the_cpu(torch: Any, kind: str) -> None:
    dtype = getattr(torch, kind)
    layer, host = made(torch, dtype)
    for tokens in (1, 7, 64, 150, 512):
        x = torch.randn(tokens, 300, device="cuda").to(dtype)
        y, want = layer(x), host(x.cpu())
        slack = {"float16": 2**-9, "bfloat16": 2**-6, "float32": 2**-18}[kind]
        assert y.dtype == dtype and float((y.cpu().float() - want.float()).abs().max()) <= slack * float(
            want.abs().max()
        )


def test_in_a_graph_and_compiled(torch: Any) -> None:
    layer, _ = made(torch, torch.float16)
    x = torch.randn(16, 300, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        y = layer(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            again = layer(x)
        for _ in range(2):
            x.copy_(torch.randn_like(x))
            graph.replay()
            assert torch.equal(again, layer(x))
        compiled = torch.compile(layer, fullgraph=True)
        assert float((compiled(x) - layer(x)).abs().max()) <= 2**-6 * float(y.abs().max())

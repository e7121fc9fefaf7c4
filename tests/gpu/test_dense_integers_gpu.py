"""The library's product of integers on a GPU: every integer as NumPy has it, in any order, on streams and in graphs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.gpu.torch_kit import by, ready
from tests.vectors_kit import exact, integers, quantized

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def dense(what: Any) -> Any:
    return sg.compile(what, backend="cuda", schedule="dense")


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("kind", ["i8", "i4"])
def test_integers_are_exact(torch: Any, kind: str, columns: bool) -> None:
    """Also extreme ones, and after the call has learnt the short way."""
    for (m, k, n), extreme in (((72, 200, 40), True), ((1000, 2048, 128), False), ((17 * 8, 4608, 24), True)):
        w, x = quantized((m, k), kind, extreme=extreme), integers(np.random.default_rng(n), "i8", (k, n), extreme)
        run, want = dense(replace(sg.spmm(w, n=n), columns=columns)), torch.from_numpy(exact(w, x)).cuda()
        for orders in product(("row", "column"), repeat=2):
            u = by(torch.from_numpy(x).cuda(), orders[0])
            for _ in range(3):
                y = by(torch.full((m, n), -77, dtype=torch.int32, device="cuda"), orders[1])
                assert run(u, out=y) is y and torch.equal(y, want)
            assert torch.equal(run(u), want)


def test_as_the_kernels_of_vectors(torch: Any) -> None:
    """With an epilogue: both work it out in f32 and round once."""
    rng, w = np.random.default_rng(2), quantized((264, 512), kept=4.0)
    x = torch.from_numpy(integers(rng, "i8", (512, 64))).cuda()
    scale, bias = (torch.from_numpy(rng.uniform(0.5, 1, 264).astype("f4")).cuda() for _ in range(2))
    residual = torch.from_numpy(rng.uniform(-1, 1, (264, 64)).astype("f2")).cuda()
    for activation in (None, "relu", "gelu", "silu"):
        what = sg.spmm(w, n=64, y_dtype="f16", scale=True, bias=True, residual=True, activation=activation)  # type: ignore[arg-type]
        both = [
            sg.compile(what, backend="cuda", schedule=line)(x, scale=scale / (1 << 16), bias=bias, residual=residual)
            for line in ("dense", "auto")
        ]
        assert both[0].dtype == torch.float16 and torch.allclose(*(y.float() for y in both), rtol=2**-9, atol=2**-12)


def test_streams_and_graphs(torch: Any) -> None:
    w = quantized((264, 512))
    first, second = (torch.from_numpy(integers(np.random.default_rng(s), "i8", (512, 64))).cuda() for s in (1, 2))
    run, x = dense(sg.spmm(w, n=64)), first.clone()
    want = [torch.from_numpy(exact(w, u.cpu().numpy())).cuda() for u in (first, second)]
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(run(first), want[0])
    torch.cuda.synchronize()
    graph, y = torch.cuda.CUDAGraph(), torch.empty_like(want[0])
    with torch.cuda.graph(graph):
        run(x, out=y)
    for at, u in enumerate((second, first)):
        x.copy_(u)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, want[1 - at])


def test_auto_calls_it_on_tensors(torch: Any) -> None:
    """Few zeros: the model has it as the faster one where W leaves it open."""
    w = quantized((2048, 2304), kept=4.0)
    what = replace(sg.spmm(sg.sparse(w.to_dense(), format="auto", height=8), n=512), columns=True)
    run, x = sg.compile(what, backend="cuda", device="h200"), integers(np.random.default_rng(5), "i8", (2304, 512))
    assert str(run.schedule) == "dense"
    assert np.array_equal(run(by(torch.from_numpy(x).cuda(), "column")).cpu().numpy(), exact(w, x))
    with pytest.raises(sg.ArrayError, match="the product of torch where W holds integers"):
        run(x)

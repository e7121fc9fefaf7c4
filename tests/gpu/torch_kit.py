"""What the GPU's tests of products share: when they are skipped; calls on torch tensors, against f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.ir.errors import ToolchainError
from sparsegen.target import open_gpu
from tests.products_kit import DTYPES

#: Orders of x and y.
ORDERS = (("row", "row"), ("column", "row"), ("row", "column"), ("column", "column"))
#: Rounding of a result, and of sums in f32, and f64, in another order, all relative.
ROUNDING = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-21, "f64": 2.0**-50}
SUMS = (2.0**-20, 2.0**-48)


def ready(at_least: tuple[int, int] = (0, 0), at_most: tuple[int, int] = (99, 9)) -> Any:
    """torch; the test is skipped without it, without nvcc, and on a GPU of another compute capability."""
    torch = pytest.importorskip("torch")
    try:
        find_nvcc()
    except ToolchainError as e:
        pytest.skip(str(e))
    info = open_gpu(0).info()
    if not at_least <= info.capability <= at_most:
        pytest.skip(f"the {info.name} is of compute capability {info.capability}")
    return torch


def kind(torch: Any, dtype: str) -> Any:
    """torch's type."""
    return {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}[dtype]


def by(a: Any, order: str) -> Any:
    """The matrix packed by rows or by columns."""
    return a if order == "row" else a.t().contiguous().t()


def agrees(torch: Any, k: Any, x_order: str = "row", y_order: str = "row", seed: int = 0) -> Any:
    """The result; AssertionError unless it is right against f64, and the same bits when done again."""
    p, generator = k.product, torch.Generator("cuda").manual_seed(seed)
    (m, cols), n, of = p.w.shape, p.n, kind(torch, p.w.dtype)

    def random(*shape: int) -> Any:
        return (2 * torch.rand(shape, generator=generator, device="cuda") - 1).to(of)

    x = by(random(cols, n), x_order)
    made = {"bias": random(m), "scale": random(m), "residual": by(random(m, n), y_order)}
    extra = {name: made[name] for name in p.epilogue.operands}
    results = []
    for _ in range(2):
        y = by(torch.full((m, n), float("nan"), device="cuda", dtype=of), y_order)
        assert k(x, out=y, **extra) is y
        results.append(y.clone())
    dense = torch.from_numpy(p.w.to_host().to_dense().astype(np.float64)).cuda()
    wide = {name: a.double() for name, a in extra.items()}
    exact = (dense @ x.double()) * wide.get("scale", torch.ones(m, device="cuda"))[:, None]
    exact = exact + wide.get("bias", torch.zeros(m, device="cuda"))[:, None]
    if p.epilogue.activation:
        functions = {"relu": torch.relu, "silu": torch.nn.functional.silu}
        gelu = torch.nn.functional.gelu(exact, approximate="tanh")
        exact = gelu if p.epilogue.activation == "gelu" else functions[p.epilogue.activation](exact)
    exact = exact + wide.get("residual", 0)
    slack = ROUNDING[p.w.dtype] * exact.abs() + SUMS[p.w.dtype == "f64"] * (1 + dense.abs() @ x.double().abs())
    assert bool(((results[0].double() - exact).abs() <= slack).all())
    assert torch.equal(*(a.contiguous().view(torch.uint8) for a in results))
    return results[0]


def agrees_by(torch: Any, k: Any) -> None:
    """The same for every order of x and y."""
    for orders in ORDERS:
        agrees(torch, k, *orders)


def agrees_with_epilogues(torch: Any, compiled: Callable[..., Any], w: Any, activation: Any) -> None:
    """The same with and without a residual, and for columns that are no whole pieces."""
    for n, residual in ((136, True), (136, False), (17, True)):
        agrees_by(torch, compiled(w, n, bias=True, scale=True, residual=residual, activation=activation))


def as_on_the_emulator(w: Any, n: int, line: str) -> None:
    """AssertionError unless the GPU gives what the emulator does, also where two rows of x are not finite."""
    x = np.random.default_rng(0).uniform(-1, 1, (w.shape[1], n)).astype(DTYPES[w.dtype])
    x[70, 0], x[146, 1] = np.nan, np.inf
    want, got = (
        sg.compile(sg.spmm(w, n=n), device=device, backend=backend, schedule=line)(x)
        for device, backend in (("h200", "emulator"), ("auto", "cuda"))
    )
    slack = {"f16": 2e-3, "f32": 1e-5}[w.dtype]
    assert np.allclose(got.astype("f4"), want.astype("f4"), rtol=slack, atol=slack, equal_nan=True)


def biased_same_on_streams(torch: Any, k: Any) -> None:
    """``same_on_streams`` for a product with a bias, of random x and bias."""
    (m, cols), of = k.product.w.shape, kind(torch, k.product.w.dtype)
    x, bias = torch.rand(cols, k.product.n, device="cuda").to(of), torch.rand(m, device="cuda").to(of)
    same_on_streams(torch, k, x, bias=bias)


def same_on_streams(torch: Any, k: Any, x: Any, **extra: Any) -> None:
    """AssertionError unless calls on streams at once and replays of a captured call give the bits of a plain call."""
    want = k(x, **extra).clone()
    streams = [torch.cuda.Stream() for _ in range(3)]
    outs = []
    torch.cuda.synchronize()
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                outs.append(k(x, **extra))
    torch.cuda.synchronize()
    assert all(torch.equal(want, y) for y in outs)
    graph, y = torch.cuda.CUDAGraph(), torch.empty_like(want)
    with torch.cuda.graph(graph):
        k(x, out=y, **extra)
    for _ in range(5):
        y.fill_(float("nan"))
        x.copy_(torch.rand(x.shape, device="cuda").to(x.dtype))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(k(x, **extra), y)

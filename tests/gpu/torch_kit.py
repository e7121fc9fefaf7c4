"""What the GPU's tests of products share: calls on torch tensors, against f64."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Rounding of a result, and of sums in f32 in another order, both relative.
ROUNDING = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-21}


def kind(torch: Any, dtype: str) -> Any:
    """torch's type."""
    return {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]


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
    slack = ROUNDING[p.w.dtype] * exact.abs() + 2.0**-20 * (1 + dense.abs() @ x.double().abs())
    assert bool(((results[0].double() - exact).abs() <= slack).all())
    assert torch.equal(*(a.view(torch.int32 if p.w.dtype == "f32" else torch.int16) for a in results))
    return results[0]


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

"""Sparse products on the GPU: sizes, orders, epilogues, kinds of arrays, streams, graphs, the cost of a call, dense."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.products_kit import agrees, matrix, operands, weights

LINES = ["auto", "bitmap warps=2x4 rows=2 stages=2 splits=1", "bitmap warps=1x4 splits=3", "bitmap cols=8 warps=4x2"]


def call(k: Any, given: dict[str, Any], **more: Any) -> Any:
    return k(given["x"], **{n: a for n, a in given.items() if n not in ("x", "out")}, **more)


def tensor(a: Any, torch: Any) -> Any:
    """The array as a tensor on the GPU, by columns if the array is."""
    if a.ndim == 2 and not a.flags.c_contiguous:
        return tensor(a.T, torch).t()
    kind = torch.float16 if a.dtype == np.float16 else torch.bfloat16
    return torch.from_numpy(np.ascontiguousarray(a).view(np.int16)).view(kind).cuda()


def host(t: Any, like: Any) -> Any:
    torch = pytest.importorskip("torch")
    return t.contiguous().view(torch.int16).cpu().numpy().view(like.dtype)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("n", [1, 4, 8, 12, 16, 32, 64])
def test_sizes(n: int, line: str) -> None:
    for shape, dtype in (((512, 512), "f16"), ((1003, 777), "bf16")):
        product = sg.spmm(matrix(*shape, 0.6, dtype), n=n, bias=True)
        k = sg.compile(product, backend="cuda", schedule=line)
        for x_order, y_order in (("row", "row"), ("column", "column")):
            given = operands(product, x_order, y_order)
            call(k, given, out=given["out"])
            agrees(given["out"], product, given)
        assert k.resources().spills == 0


def test_one_column_on_the_cuda_cores() -> None:
    product = sg.spmm(matrix(1003, 777), n=1, scale=True)
    for line in ("bitmap mma=none", "bitmap mma=none splits=2 warps=2x3"):
        k, given = sg.compile(product, backend="cuda", schedule=line), operands(product)
        agrees(call(k, given), product, given)


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues(launcher: str, activation: Any) -> None:
    product = sg.spmm(matrix(300, 500), n=12, bias=True, scale=True, residual=True, activation=activation)
    k = sg.compile(product, backend="cuda")
    for orders in (("row", "row"), ("column", "row"), ("row", "column")):
        given = operands(product, *orders)
        call(k, given, out=given["out"])
        agrees(given["out"], product, given)


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize("where", ["host", "device"])
def test_device_arrays(library: str, where: str) -> None:
    xp = pytest.importorskip(library)
    w = weights(300, 500, 0.6)

    def put(a: Any) -> Any:
        return tensor(a, xp) if library == "torch" else xp.asarray(a)

    def get(a: Any, like: Any) -> Any:
        return host(a, like) if library == "torch" else a.get()

    product = sg.spmm(sg.sparse(put(w) if where == "device" else w), n=16, bias=True)
    k = sg.compile(product, backend="cuda")
    plain = sg.spmm(sg.sparse(w), n=16, bias=True)
    for order in ("row", "column"):
        given = operands(plain, order, order)
        there = {n: put(a) for n, a in given.items() if n != "out"}
        for _ in range(3):
            got = call(k, there)
            assert type(got) is type(there["x"])
            agrees(get(got, given["x"]), plain, given)
        out = put(given["out"])
        assert call(k, there, out=out) is out
        agrees(get(out, given["x"]), plain, given)


@pytest.mark.parametrize("line", ["bitmap splits=1", "bitmap splits=3"])
def test_the_same_bits_every_time(line: str) -> None:
    product = sg.spmm(matrix(2000, 3000), n=16)
    k, given = sg.compile(product, backend="cuda", schedule=line), operands(product)
    first = k(given["x"])
    assert all(np.array_equal(k(given["x"]).view(np.int16), first.view(np.int16)) for _ in range(20))


@pytest.mark.parametrize("line", ["bitmap splits=1", "bitmap splits=3"])
def test_streams(line: str) -> None:
    torch = pytest.importorskip("torch")
    product = sg.spmm(matrix(1000, 1500), n=16)
    k, given = sg.compile(product, backend="cuda", schedule=line), operands(product)
    x = tensor(given["x"], torch)
    late, want = torch.zeros_like(x), k(x)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    got = []
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            late.copy_(x)
            got.append(k(late))
    out = torch.empty_like(want)
    streams[0].synchronize()
    k(x, out, stream=streams[0])
    torch.cuda.synchronize()
    assert all(torch.equal(y, want) for y in (*got, out))


@pytest.mark.parametrize("line", ["bitmap splits=1", "bitmap splits=3", "dense"])
def test_graphs(line: str) -> None:
    """Captured by torch, twice in one graph; replayed with other numbers, beside calls outside of it."""
    torch = pytest.importorskip("torch")
    product = sg.spmm(matrix(1000, 1000, format="auto"), n=16, bias=True)
    k, given = sg.compile(product, backend="cuda", schedule=line), operands(product)
    x, bias = tensor(given["x"], torch), tensor(given["bias"], torch)
    first, second = torch.empty((1000, 16), dtype=torch.float16, device="cuda"), None
    k(x, first, bias=bias)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k(x, first, bias=bias)
        second = k(first, bias=bias)
    for seed in (3, 4):
        new = operands(product, seed=seed)
        x.copy_(tensor(new["x"], torch))
        graph.replay()
        once = k(x, bias=bias)
        twice = k(once, bias=bias)
        torch.cuda.synchronize()
        assert torch.equal(first, once) and torch.equal(second, twice)


def test_wrong_calls_after_good_ones() -> None:
    torch = pytest.importorskip("torch")
    product = sg.spmm(matrix(300, 512), n=16, bias=True)
    k, given = sg.compile(product, backend="cuda"), operands(product)
    x, bias = tensor(given["x"], torch), tensor(given["bias"], torch)
    out = torch.empty((300, 16), dtype=torch.float16, device="cuda")
    for _ in range(3):
        k(x, out, bias=bias)
    assert k._fast is not None
    agrees(host(out, given["x"]), product, given)
    for bad, says in ((x.float(), "float32"), (x.cpu(), "x is on the host and bias on cuda:0"), (x[:, :8], "n=8"),
                      (x.t(), "pass x.T"), (torch.cat([x, x], 1)[:, ::2], "strides")):  # fmt: skip
        with pytest.raises(sg.ArrayError, match=says):
            k(bad, bias=bias)
    with pytest.raises(sg.ArrayError, match="shares memory"):
        k(x, x[:300], bias=bias)
    with pytest.raises(sg.ArrayError, match="bias is missing"):
        k(x, out)
    shifted = torch.empty(512 * 16 + 1, dtype=torch.float16, device="cuda")[1:].view(512, 16)
    shifted.copy_(x)
    agrees(host(k(shifted, bias=bias), given["x"]), product, given)  # another program: no wide loads


@pytest.mark.parametrize(("line", "most"), [("bitmap splits=1", 30), ("bitmap splits=2", 30), ("dense", 30)])
def test_a_call_is_cheap(line: str, most: int) -> None:
    """k(x, out=y, bias=b) and k(x, bias=b) on torch tensors: so many calls of functions, which are most of its time.

    How long they take is measured by ``sparsegen bench --suite auto``.
    """
    torch = pytest.importorskip("torch")
    product = sg.spmm(matrix(256, 256), n=16, bias=True)
    k, given = sg.compile(product, backend="cuda", schedule=line), operands(product)
    x, bias = tensor(given["x"], torch), tensor(given["bias"], torch)
    out = k(x, bias=bias)
    for target in (out, None):
        for _ in range(3):
            k(x, target, bias=bias)
        called: list[str] = []

        def note(_: object, event: str, what: Any, called: list[str] = called) -> None:
            if event in ("call", "c_call"):
                called.append(event)

        sys.setprofile(note)
        try:
            k(x, target, bias=bias)
        finally:
            sys.setprofile(None)
        print(f"{line}, out {'given' if target is not None else 'made'}: {len(called)} calls")
        assert 0 < len(called) <= most


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_the_dense_product(library: str) -> None:
    xp = pytest.importorskip(library)
    product = sg.spmm(matrix(300, 500), n=16, bias=True, scale=True, residual=True, activation="gelu")
    k = sg.compile(product, backend="cuda", schedule="dense")
    for order in ("row", "column"):
        given = operands(product, order, order)
        there = {n: tensor(a, xp) if library == "torch" else xp.asarray(a) for n, a in given.items() if n != "out"}
        got = call(k, there)
        got = host(got, given["x"]) if library == "torch" else got.get()
        want = call(sg.compile(product, backend="reference"), given)
        off = np.linalg.norm((got - want).astype(float)) / np.linalg.norm(want.astype(float))
        assert off <= 2e-3  # the library rounds before the epilogue
    with pytest.raises(sg.ArrayError, match="the product of torch or CuPy"):
        call(k, operands(product))


def test_a_large_product_and_its_rate() -> None:
    product = sg.spmm(matrix(8192, 8192), n=16)
    k, given = sg.compile(product, backend="cuda"), operands(product)
    got = k(given["x"]).astype(float)
    want = product.w.to_dense().astype(np.float32) @ given["x"].astype(np.float32)
    assert np.linalg.norm(got - want) <= 1e-3 * np.linalg.norm(want)
    result = k.bench(repeats=5)
    print(result)
    assert result.fraction is not None and k.resources().spills == 0

"""Products of integers in vectors on a GPU from Ampere on: exact for all types, sizes, orders and schedules."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.formats.format import held
from sparsegen.formats.matrix import KINDS
from sparsegen.products.vectors import numbers, places, tasks, values
from tests.gpu.torch_kit import by, kind, ready
from tests.vectors_kit import integers, quantized

pytestmark = pytest.mark.gpu
#: Where tensors live, and what multiplies.
WHERE, BACKEND = "cuda", "cuda"
W_KINDS, X_KINDS = ("i4", "u4", "i8", "u8", "i12", "i16", "u16"), ("i4", "u4", "i8", "u8", "i16", "u16")
#: Rounding of a result, relative.
ROUNDING = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-20}


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def there(torch: Any, a: Any) -> Any:
    """An array of the host as a tensor; unsigned 16 bits as int32, which only references take."""
    return torch.from_numpy(np.ascontiguousarray(a.astype("i4") if a.dtype == np.uint16 else a)).to(WHERE)


def sums(torch: Any, w: Any, x: Any) -> Any:
    """The exact product of arrays of the host in f64, which holds every sum of these sizes."""
    return there(torch, w.to_host().to_dense()).double() @ there(torch, x).double()


def wrapped(torch: Any, exact: Any) -> Any:
    """Sums modulo 2^32."""
    return ((exact.long() + (1 << 31)) % (1 << 32) - (1 << 31)).to(torch.int32)


def compiled(w: Any, n: int, line: str = "auto", **how: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **how), backend=BACKEND, schedule=line)


def exact(torch: Any, w: Any, x_kind: str, n: int, line: str = "auto", orders: tuple[str, str] = ("row", "row")) -> Any:
    """The kernel; AssertionError unless two calls give every integer, of an x that is given in NumPy if torch has no
    such type."""
    extreme = w.dtype[1:] == x_kind[1:] == "16"
    x = integers(np.random.default_rng(n), x_kind, (w.shape[1], n), extreme)
    kernel, want = compiled(w, n, line, x_dtype=x_kind), wrapped(torch, sums(torch, w, x))
    if x.dtype == np.uint16:
        assert np.array_equal(kernel(x), want.cpu().numpy())
        return kernel
    u = by(there(torch, x), orders[0])
    for _ in range(2):
        y = by(torch.full((w.shape[0], n), -77, dtype=torch.int32, device=WHERE), orders[1])
        assert kernel(u, out=y) is y
        assert torch.equal(y, want), f"{w!r} x {x_kind} n={n}: {kernel.schedule}"
    return kernel


@pytest.mark.parametrize("w_kind", W_KINDS)
def test_types_and_heights(torch: Any, w_kind: str) -> None:
    """Every pair of types, with extreme numbers where sums of 32 bits wrap."""
    for at, x_kind in enumerate(X_KINDS):
        w = quantized((521, 1030), w_kind, (8, 4, 2)[at % 3], seed=at, extreme=w_kind[1:] == x_kind[1:] == "16")
        exact(torch, w, x_kind, 72)


@pytest.mark.parametrize("n", [1, 7, 16, 100, 513])
def test_sizes(torch: Any, n: int) -> None:
    for shape, kept in (((1, 1), 8), ((8, 32), 0.3), ((70, 90), 0.7), ((1001, 777), 0.05), ((4096, 1500), 0.5)):
        exact(torch, quantized(shape, kept=kept, seed=n), "i8", n)
    exact(torch, quantized((263, 517), "i16", 4, seed=n), "i4", n)


@pytest.mark.parametrize("kept", [0.0, 100.0])
def test_no_vector_and_all_of_them(torch: Any, kept: float) -> None:
    w = quantized((264, 900), kept=kept, seed=5, extreme=True)
    assert (w.nnz == 0) == (kept == 0)
    exact(torch, w, "i8", 64)


def test_long_rows_beside_empty_ones(torch: Any) -> None:
    """One vector row has everything, most have nothing, and the others have loads of all sizes."""
    w = integers(np.random.default_rng(1), "i8", (1600, 2000))
    loads = np.random.default_rng(2).random((200, 1)) ** 8
    loads[0], loads[1:100] = 1, 0
    w[(np.random.default_rng(3).random((200, 2000)) >= loads).repeat(8, 0)] = 0
    matrix = sg.sparse(w, format="sr_bcrs", height=8)
    for x_kind in ("i8", "i16"):
        exact(torch, matrix, x_kind, 200)


#: Words of schedules: parts of a strip that come one after the other, warps without tasks, rings, rows that are cut.
STRIPS = ("lists=1 warps=32 unroll=1 parts=4", "lists=5 warps=16 unroll=2 parts=3", "lists=9 warps=8 unroll=4 parts=2",
          "lists=2 warps=1 unroll=3 parts=1", "lists=3 warps=8 unroll=2 parts=4 cut=2")  # fmt: skip
GATHERS = ("warps=1x1 stages=8", "warps=4x2 stages=4", "warps=1x4 stages=2", "warps=8x1 stages=2 cut=2",
           "warps=2x2 stages=4 cut=1")  # fmt: skip


#: Words of the paper's own product.
PAPER = ("prefetch=on pad=on", "prefetch=off pad=on", "prefetch=on pad=off", "prefetch=on shuffle=off")


@pytest.mark.parametrize("wide", [32, 64, 128])
@pytest.mark.parametrize(("w_kind", "x_kind"), [("i8", "i8"), ("i16", "i16"), ("i12", "i4"), ("i4", "i4")])
@pytest.mark.parametrize("height", [8, 2])
def test_the_paper_s_own_product(torch: Any, height: int, w_kind: str, x_kind: str, wide: int) -> None:
    for at, words in enumerate(PAPER):
        n = (64, 200)[at % 2]
        exact(torch, quantized((777, 1000), w_kind, height, seed=n), x_kind, n, f"vector_block wide={wide} {words}")
    for x_kind in ("i8", "u4"):
        exact(torch, quantized((333, 500), "u16", 2, seed=wide), x_kind, 64, f"vector_block wide={wide} stack=on")


@pytest.mark.parametrize("wide", [32, 64, 128])
@pytest.mark.parametrize(("w_kind", "x_kind"), [("i8", "i8"), ("i16", "i4"), ("i4", "i16")])
@pytest.mark.parametrize("family", ["vector_strip", "vector_gather"])
def test_schedules(torch: Any, family: str, w_kind: str, x_kind: str, wide: int) -> None:
    for at, words in enumerate(STRIPS if family == "vector_strip" else GATHERS):
        n = (48, 200)[at % 2]
        w = quantized((777, 1000), w_kind, seed=n)
        try:
            exact(torch, w, x_kind, n, f"{family} wide={wide} {words}")
        except sg.ScheduleError as e:  # many warps of many registers, or columns of 16 bits in few bytes
            assert "fit" in str(e) or "columns" in str(e)


def test_more_columns_than_a_strip_has_rows(torch: Any) -> None:
    """Also more than 16 bits number."""
    for k in (20000, 70000):
        for x_kind in ("i8", "i4"):
            exact(torch, quantized((200, k), kept=0.05, seed=k), x_kind, 40)


@pytest.mark.parametrize("orders", list(product(("row", "column"), repeat=2)))
@pytest.mark.parametrize(("w_kind", "x_kind"), [("i8", "i8"), ("i8", "i4"), ("i16", "i16")])
def test_orders(torch: Any, w_kind: str, x_kind: str, orders: tuple[str, str]) -> None:
    for n in (64, 37):
        exact(torch, quantized((300, 410), w_kind, seed=n), x_kind, n, orders=orders)


@pytest.mark.parametrize("x_kind", ["i4", "u4"])
@pytest.mark.parametrize("order", ["row", "column"])
def test_two_elements_a_byte(torch: Any, x_kind: str, order: str) -> None:
    """As sg.pack4 makes them, on the GPU."""
    for n in (256, 34, 2):
        w, x = quantized((264, 500), seed=n), integers(np.random.default_rng(n), x_kind, (500, n))
        u = there(torch, (x[:, ::2] & 15) | (x[:, 1::2] & 15) << 4).view(torch.uint8)
        if x_kind == "i4":
            assert torch.equal(u, sg.pack4(there(torch, x)))
        y = compiled(w, n, x_dtype=x_kind)(by(u, order))
        assert torch.equal(y, wrapped(torch, sums(torch, w, x)))


@pytest.mark.parametrize(("y_kind", "activation"), [("f16", None), ("f16", "gelu"), ("bf16", "silu"), ("f32", "relu")])
def test_epilogues_make_floats(torch: Any, y_kind: str, activation: Any) -> None:
    """Scale and bias in f32; each result is rounded once, and digits that are added in f32 never wrap."""
    generator = torch.Generator().manual_seed(3)
    pairs = (("i8", "i8"), ("i16", "i8"), ("i16", "i16"))
    for (w_kind, x_kind), (n, residual) in product(pairs, ((136, True), (17, False))):
        w = quantized((391, 600), w_kind, seed=n)
        x = integers(np.random.default_rng(n), x_kind, (600, n))
        most = float(KINDS[w_kind].range[1]) * float(KINDS[x_kind].range[1])
        scale = ((0.5 + torch.rand(391, generator=generator)) / most / 8).to(WHERE)
        bias, more = (torch.rand(shape, generator=generator).to(WHERE) for shape in ((391,), (391, n)))
        given = {"scale": scale, "bias": bias, **({"residual": more.to(kind(torch, y_kind))} if residual else {})}
        kernel = compiled(w, n, x_dtype=x_kind, y_dtype=y_kind, activation=activation, **dict.fromkeys(given, True))
        want = sums(torch, w, x) * scale.double()[:, None] + bias.double()[:, None]
        functions = {"relu": torch.relu, "silu": torch.nn.functional.silu}
        if activation == "gelu":
            want = torch.nn.functional.gelu(want, approximate="tanh")
        elif activation:
            want = functions[activation](want)
        want = want + (given["residual"].double() if residual else 0)
        y = kernel(there(torch, x), **given)
        assert y.dtype == kind(torch, y_kind)
        slack = ROUNDING[y_kind] * want.abs() + 2.0**-16 * (1 + want.abs())
        assert bool(((y.double() - want).abs() <= slack).all()), f"{w_kind} {x_kind}: {kernel.schedule}"


@pytest.mark.parametrize(("w_kind", "height"), [("i8", 8), ("i8", 2), ("i4", 4), ("i16", 8), ("i12", 8)])
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, w_kind: str, height: int) -> None:
    """The same bytes as on the host, and the same result; nothing comes back to the host."""
    host = quantized((333, 1100), w_kind, height, seed=height)
    dense = there(torch, host.to_dense())
    made = sg.sparse(dense, format="sr_bcrs", height=height, dtype=w_kind)
    assert made.library.name == "torch" and made.nnz == host.nnz
    for pack in (values, numbers, lambda w: places(w, 64)):
        mine, theirs = pack(made), np.asarray(pack(host))
        assert str(mine.device).startswith(WHERE)
        assert np.array_equal(mine.cpu().numpy().view(theirs.dtype), theirs)
    records = [tasks(w, 5, 8, 4, 2) for w in (made, host)]
    assert all(np.array_equal(a, b) for a, b in zip(*records, strict=True))
    exact(torch, made, "i8", 96)


def test_quantized_weights(torch: Any) -> None:
    """From f16 weights to an f16 result: integers of the weights and of x, scales in the epilogue."""
    generator = torch.Generator().manual_seed(4)
    w, x = (torch.randn(shape, generator=generator).half().to(WHERE) for shape in ((512, 768), (768, 128)))
    seen = sg.pattern.vectors(torch.rand((512, 768), generator=generator).to(WHERE) < 0.05, 8)
    want, u = (w * seen).double() @ x.double(), sg.quantize(x)
    for rows in (True, False):  # a scale a row, or one
        q = sg.quantize(w * seen, rows=rows)
        matrix = sg.sparse(q.values, format="sr_bcrs", height=8)
        y = compiled(matrix, 128, y_dtype="f16", scale=True)(u.values, scale=q.scale * u.scale)
        assert float((y.double() - want).norm() / want.norm()) < 0.02


@pytest.mark.parametrize("n", [64, 37])
def test_streams_and_graphs(torch: Any, n: int) -> None:
    """Calls on any streams and captured calls give the same bits; one writes x anew in its stream's workspace."""
    w = quantized((1024, 1500), "i16", seed=n)
    first, second = (there(torch, integers(np.random.default_rng(s), "i8", (1500, n))) for s in (1, 2))
    kernel, x = compiled(w, n), first.clone()
    want = [kernel(u).clone() for u in (first, second)]
    streams, results = [torch.cuda.Stream() for _ in range(3)], []
    torch.cuda.synchronize()
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(kernel(x))
    torch.cuda.synchronize()
    assert all(torch.equal(want[0], y) for y in results)
    graph, y = torch.cuda.CUDAGraph(), torch.empty_like(want[0])
    with torch.cuda.graph(graph):
        kernel(x, out=y)
    for at, u in enumerate((second, first, second)):
        x.copy_(u)
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, want[(at + 1) % 2])


def test_as_on_the_emulator() -> None:
    for w_kind, x_kind in (("i8", "i8"), ("i16", "i16"), ("i4", "i8")):
        w, x = quantized((100, 140), w_kind, seed=6), integers(np.random.default_rng(7), x_kind, (140, 40))
        both = [
            sg.compile(sg.spmm(w, n=40, x_dtype=x_kind), device=device, backend=backend)(x)
            for device, backend in (("h200", "emulator"), ("auto", BACKEND))
        ]
        assert np.array_equal(*both) and both[0].dtype == held(KINDS["i32"]).numpy()

"""Several matrices in a launch on the GPU: parts of one y, gated pairs, experts; orders, graphs, the short way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
import sparsegen.torch as st
from tests.gpu.test_products_gpu import host, tensor
from tests.products import test_experts as kit
from tests.products_kit import ORDERS, agrees, operands, pair, weights
from tests.torch.layers import agrees as layer_agrees
from tests.torch.layers import pair as layers
from tests.torch.layers import tokens

torch: Any = pytest.importorskip("torch")


def given_there(given: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a call on the GPU."""
    return {name: tensor(a, torch) for name, a in given.items()}


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("rows", [(1024, 256, 256), (333, 64, 70)])
def test_parts_of_one_y(rows: tuple[int, ...], order: str) -> None:
    """On matrices of the host and of the GPU; a tuple of operands, one array, and the short way."""
    dense = [weights(m, 520, 0.6, seed=m) for m in rows]
    for parts in ([sg.sparse(w) for w in dense], [sg.sparse(tensor(w, torch)) for w in dense]):
        product = sg.spmm(parts, n=16, bias=True, activation="silu")
        k = sg.compile(product, backend="cuda")
        given = operands(product, order, order)
        there = given_there(given)
        plain = sg.spmm([sg.sparse(w) for w in dense], n=16, bias=True, activation="silu")
        each = list(there["bias"].split(rows))
        for bias in (there["bias"], there["bias"], each):
            there["out"].fill_(float("nan"))
            found = k(there["x"], out=there["out"], bias=bias)
            agrees(host(there["out"], given["x"]), plain, given)
            assert all(a.data_ptr() == b.data_ptr() for a, b in zip(found, there["out"].split(rows), strict=True))
        assert k._fast is not None and [part.shape[0] for part in k(there["x"], bias=there["bias"])] == list(rows)
        with pytest.raises(sg.ArrayError, match="bias is made one array on the current stream"):
            k(there["x"], bias=each, stream=torch.cuda.Stream())


@pytest.mark.parametrize("line", ["auto", "bitmap warps=2x4 rows=2 splits=3", "bitmap cols=16 splits=1"])
@pytest.mark.parametrize(*ORDERS)
def test_gated_pairs(x_order: str, y_order: str, line: str) -> None:
    for (m, k_), n, dtype in (((1024, 512), 16, "f16"), ((501, 777), 13, "bf16"), ((501, 777), 1, "f16")):
        product = sg.spmm(pair(m, k_, dtype), n=n, bias=True, scale=True, residual=True, activation="silu")
        schedule = line if n > 1 else "auto"
        k, given = sg.compile(product, backend="cuda", schedule=schedule), operands(product, x_order, y_order)
        there = given_there(given)
        for _ in range(3):
            there["out"].fill_(float("nan"))
            k(**there)
            agrees(host(there["out"], given["x"]), product, given)
        k(**given)
        agrees(given["out"], product, given)
        assert k.resources().spills == 0


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize(
    "line", ["auto", "bitmap cols=8 warps=2x4 splits=2", "bitmap cols=32 warps=1x4 rows=3 splits=1"]
)
def test_experts(line: str, order: str, gated: bool) -> None:
    """Counts, offsets on the GPU of the same, then of others and of fewer columns, by the short way."""
    one = kit.experts(9, 200, 333, "bf16", gated)
    product = sg.spmm(one, n=100, ragged=True, bias=True, residual=True, activation="gelu")
    k, given = sg.compile(product, backend="cuda", schedule=line), kit.operands(product, order)
    there = given_there(given)
    first = [40, 0, 1, 9, 0, 0, 33, 17, 0]
    for counts in (first, first, [0] * 8 + [100], [11] * 9, [0] * 9):
        offsets = np.cumsum([0, *counts]).astype("i4")
        told = {"offsets": torch.from_numpy(offsets).cuda()}
        for how in (told, *([{"counts": counts}] if sum(counts) == 100 else [])):
            there["out"].fill_(float("nan"))
            k(**there, **how)
            kit.agrees(product, given, host(there["out"], given["x"]), offsets.tolist(), one)
    assert k._fast is not None and k.resources().spills == 0
    with pytest.raises(sg.ArrayError, match="counts is on"):
        k(**there, counts=torch.tensor(first).cuda())


def test_experts_in_a_graph() -> None:
    """Replayed with other offsets; what is wrong in them stays inside of x and y."""
    one = kit.experts(4, 128, 256)
    product = sg.spmm(one, n=64, ragged=True)
    k, given = sg.compile(product, backend="cuda"), kit.operands(product, "column")
    there = given_there(given)
    offsets = torch.tensor([0, 16, 32, 48, 64], dtype=torch.int32, device="cuda")
    k(**there, offsets=offsets)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k(**there, offsets=offsets)
    for sums in ([0, 1, 1, 60, 64], [0, 64, 64, 64, 64], [0, 0, 5, 7, 30]):
        offsets.copy_(torch.tensor(sums, dtype=torch.int32))
        there["out"].fill_(float("nan"))
        graph.replay()
        kit.agrees(product, given, host(there["out"], given["x"]), sums, one)
    offsets.copy_(torch.tensor([-9, 20, 10, 70, 1 << 30], dtype=torch.int32))
    graph.replay()
    torch.cuda.synchronize()


def test_many_experts() -> None:
    """More than a warp looks at at once, in the sizes of a layer: each as it is alone."""
    generator = torch.Generator("cuda").manual_seed(0)
    one = []
    for _ in range(40):
        w = torch.randn(704, 1024, generator=generator, device="cuda", dtype=torch.float16)
        one.append(sg.sparse(w.masked_fill(torch.rand(w.shape, generator=generator, device="cuda") < 0.6, 0)))
    x = torch.randn(256, 1024, generator=generator, device="cuda", dtype=torch.float16) / 32
    counts = np.bincount(np.random.default_rng(0).integers(0, 40, 256), minlength=40).tolist()
    y = sg.compile(sg.spmm(one, n=256, ragged=True), backend="cuda")(x.t(), counts=counts)
    at = 0
    for w, count in zip(one, counts, strict=True):
        want = w.to_dense().float() @ x[at : at + count].t().float()
        assert torch.allclose(y[:, at : at + count].float(), want, rtol=2e-3, atol=2e-3)
        at += count


def test_a_fused_layer() -> None:
    pairs = [layers(m, 512, "bf16", i != 1, "cuda") for i, m in enumerate((512, 128, 128))]
    fused = st.FusedLinear([sparse for sparse, _ in pairs])
    fused.whole.prepare((1, 8))
    for n in (1, 8, 100):
        x = tokens(n, 512, kind="bf16", device="cuda")
        for _ in range(2):
            for part, (_, layer) in zip(fused(x), pairs, strict=True):
                layer_agrees(part.contiguous(), x, layer)

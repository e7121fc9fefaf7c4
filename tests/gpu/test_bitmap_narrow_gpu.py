"""8-bit elements in bitmap tiles on a GPU: every code, sizes, scales, torch's tensors, and how much faster they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench.lab import Lab
from tests.gpu.torch_kit import ready, same_on_streams
from tests.products_kit import DTYPES, agrees, matrix, operands, weights

pytestmark = pytest.mark.gpu
KINDS = ("i8", "e4m3", "e5m2")
LINES = ["auto", "bitmap warps=2x4 rows=2 stages=2 splits=1", "bitmap warps=1x4 splits=3", "bitmap cols=8 warps=4x2"]
#: How much faster than f16 with as many zeros integers are at least, after L2 was overwritten.
FASTER = 1.15


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 9))


def compiled(w: Any, n: int, line: str = "auto", **how: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **how), backend="cuda", schedule=line)


@pytest.mark.parametrize("line", ["bitmap cols=8", "bitmap mma=none"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_is_multiplied_exactly(kind: str, line: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    w = np.zeros((256, 64), np.uint8)
    w[codes, codes * 37 % 64] = codes
    n = 1 if "none" in line else 8
    y = compiled(sg.sparse(w.view(DTYPES[kind])), n, line)(np.ones((64, n), np.float16))
    expected = codes.view(DTYPES[kind]).astype(np.float16)
    np.testing.assert_array_equal(y, np.repeat(expected[:, None], n, 1))


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("n", [1, 4, 8, 12, 16, 32, 64])
def test_sizes(n: int, line: str) -> None:
    for shape, kind in (((512, 512), "i8"), ((1003, 777), "e4m3"), ((300, 1000), "e5m2")):
        product = sg.spmm(matrix(*shape, 0.6, kind), n=n, bias=True)
        k = sg.compile(product, backend="cuda", schedule=line)
        for x_order, y_order in (("row", "row"), ("column", "column")):
            given = operands(product, x_order, y_order)
            k(given["x"], bias=given["bias"], out=given["out"])
            agrees(given["out"], product, given)
        assert k.resources().spills == 0


@pytest.mark.parametrize("kind", KINDS)
def test_epilogues_with_a_scale_of_its_own(kind: str) -> None:
    scale = np.random.default_rng(3).uniform(0.001, 2, 300).astype(np.float32)
    w = sg.sparse(weights(300, 500, 0.6, kind), scale=scale)
    for activation in (None, "gelu"):
        product: Any = sg.spmm(w, n=12, bias=True, residual=True, activation=activation)
        given = operands(product)
        y = sg.compile(product, backend="cuda")(given["x"], bias=given["bias"], residual=given["residual"])
        agrees(y, product, given)


@pytest.mark.parametrize("dtype", [None, "e4m3", "e5m2"])
def test_weights_that_are_on_the_gpu(torch: Any, dtype: str | None) -> None:
    """Quantised, encoded, checked, decoded and multiplied there."""
    w = torch.randn((1000, 700), device="cuda")
    w[torch.rand(w.shape, device="cuda") < 0.6] = 0
    q = sg.quantize(w, rows=True, dtype=dtype)
    sparse = sg.sparse(q.values, scale=q.scale)
    sparse.check()
    assert torch.equal(sparse.to_dense().view(torch.uint8), q.values.view(torch.uint8)) and sparse.scale.is_cuda
    k, x = compiled(sparse, 24), torch.randn((700, 24), device="cuda").half()
    exact = (q.values.double() * q.scale.double()[:, None]) @ x.double()
    y = k(x)
    assert y.dtype == torch.float16 and float((y.double() - exact).abs().max()) < 2e-3 * float(exact.abs().max())
    same_on_streams(torch, k, x)
    for bad in (0.0, -1.0, float("nan")):
        q.scale[999] = bad
        with pytest.raises(sg.ArrayError, match="the scale of row 999 is"):
            sg.sparse(q.values, scale=q.scale)


@pytest.mark.alone
@pytest.mark.parametrize("n", [1, 8, 16])
def test_integers_are_faster_than_f16(torch: Any, n: int) -> None:
    """28672 x 8192 with 60 % zeros, x by columns, each schedule that the model chooses; said for all types."""
    lab, generator = Lab(), torch.Generator("cuda").manual_seed(1)
    w = torch.randn((28672, 8192), generator=generator, device="cuda", dtype=torch.float16)
    w[torch.rand(w.shape, generator=generator, device="cuda") < 0.6] = 0
    x = torch.randn((n, 8192), generator=generator, device="cuda", dtype=torch.float16).t()
    times = {}
    for name in ("f16", *KINDS):
        q = None if name == "f16" else sg.quantize(w, rows=True, dtype=None if name == "i8" else name)
        k = compiled(sg.sparse(w) if q is None else sg.sparse(q.values, scale=q.scale), n)
        y = torch.empty((n, 28672), device="cuda", dtype=torch.float16).t()
        series = lab.times(lambda k=k, y=y: k(x, out=y), 0.3, lab.overwrite)
        times[name] = float(np.median(series))
        print(f"n={n} {name}: {times[name] * 1e6:.1f} us, {times['f16'] / times[name]:.2f}x; {k.schedule}")
    assert times["f16"] / times["i8"] >= FASTER

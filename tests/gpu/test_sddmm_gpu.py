"""Sampled products on a GPU from Ampere on: exact for all dtypes, heights, orders and sizes; torch, graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.gpu.torch_kit import ready
from tests.sddmm_kit import Case, agrees, case

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def right(made: Case, line: str = "auto") -> Any:
    """The kernel; AssertionError unless a call of it on host arrays is right."""
    kernel = sg.compile(made.product, backend="cuda", schedule=line)
    agrees(kernel(**made.given), made)
    return kernel


@pytest.mark.parametrize("height", (8, 4, 2))
@pytest.mark.parametrize("dtype", ("i8", "i4", "i16"))
def test_dtypes_heights_and_sizes(dtype: str, height: int) -> None:
    for m, n, k in ((512, 512, 512), (1001, 777, 90), (64, 3000, 1500)):
        for out in ("bcrs", "sr_bcrs"):
            right(case(m, n, k, height, 0.8, dtype, out=out))


@pytest.mark.parametrize("prefetch", ("on", "off"))
@pytest.mark.parametrize("rows", (32, 64, 128))
def test_schedules(rows: int, prefetch: str) -> None:
    for warps, groups in ((1, 3), (8, 4), (16, 1)):
        for dtype in ("i8", "i16"):
            for parts in (1, 2):
                line = f"strips rows={rows} warps={warps} groups={groups} prefetch={prefetch} parts={parts}"
                right(case(700, 500, 256, 8, 0.7, dtype), line)


@pytest.mark.parametrize("stages", (2, 3, 4))
@pytest.mark.parametrize("dtype", ("i8", "i4", "i16"))
def test_gathered_columns(dtype: str, stages: int) -> None:
    for height in (8, 2):
        for warps, most in ((1, 8), (4, 2), (2, 1)):
            right(case(700, 500, 256, height, 0.9, dtype), f"gather warps={warps} most={most} stages={stages}")


def test_orders() -> None:
    for orders in ("CC", "CF", "FC", "FF"):
        for dtype in ("i8", "i4", "i16"):
            right(case(300, 400, 96, 8, 0.6, dtype, orders=orders))


def test_torch_on_the_device(torch: Any) -> None:
    """Mask and arrays are there, and so are the values of the result; the same bits again, in a graph and ``out``."""
    made = case(640, 900, 512, 8, 0.9)
    product = sg.sddmm(torch.from_numpy(made.mask).cuda(), k=512)
    kernel = sg.compile(product, backend="cuda")
    a, b = torch.from_numpy(made.a).cuda(), torch.from_numpy(np.ascontiguousarray(made.b.T)).cuda().t()
    found = kernel(a, b)
    assert found.values.is_cuda and found.values.dtype == torch.int32
    agrees(found.to_host(), made)
    want = found.values.clone()
    assert kernel._fast is not None  # the calls from here on take the short way
    again = kernel(a, b)
    assert again is not found and torch.equal(again.values, want)
    again.values.zero_()
    assert kernel(a, b, out=again) is again and torch.equal(again.values, want)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kernel(a, b, out=found)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kernel(a, b, out=found)
    found.values.zero_()
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found.values, want)


def test_deep_products(torch: Any) -> None:
    for dtype, k in (("i8", 4096), ("i16", 2000), ("i4", 6000)):
        for family in ("strips", "gather"):
            right(case(256, 256, k, 8, 0.8, dtype), family)

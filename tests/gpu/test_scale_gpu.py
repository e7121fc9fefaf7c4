"""A scale of one number on a GPU: a number, or a tensor of one element there, with x on the host, in torch and CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.gpu.torch_kit import ready
from tests.vectors_kit import integers, quantized

pytestmark = pytest.mark.gpu
M, K, N = 200, 320, 48


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def made() -> tuple[Any, Any, Any]:
    """A kernel, x on the host, and the result for a scale of 3 / 1024."""
    w, x = quantized((M, K)), integers(np.random.default_rng(1), "i8", (K, N))
    want = (w.to_dense().astype("f8") @ x.astype("f8") * 3 / 1024).astype("f4")
    return sg.compile(sg.spmm(w, n=N, y_dtype="f32", scale=True), backend="cuda"), x, want


def test_numbers(torch: Any) -> None:
    k, host, want = made()
    x = torch.from_numpy(host).cuda()
    assert np.array_equal(k(host, scale=3 / 1024), want)
    for scale in (3 / 1024, np.float32(3 / 1024), torch.tensor(3 / 1024), torch.tensor([3 / 1024], device="cuda")):
        assert np.array_equal(k(x, scale=scale).cpu().numpy(), want)


def test_arrays_take_the_short_way_all_the_same(torch: Any) -> None:
    k, host, want = made()
    x, each = torch.from_numpy(host).cuda(), torch.full((M,), 3 / 1024, device="cuda")
    assert np.array_equal(k(x, scale=each).cpu().numpy(), want) and k._fast is not None
    known = k._fast
    for _ in range(3):
        assert np.array_equal(k(x, scale=3 / 1024).cpu().numpy(), want)
    assert k._fast is known and np.array_equal(k(x, scale=each).cpu().numpy(), want)


def test_a_stream_of_the_call(torch: Any) -> None:
    """The number is written on the library's current stream."""
    k, host, want = made()
    x, other = torch.from_numpy(host).cuda(), torch.cuda.Stream()
    with pytest.raises(sg.ArrayError, match="the call has a stream of its own"):
        k(x, scale=3 / 1024, stream=other)
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        y = k(x, scale=3 / 1024)
    other.synchronize()
    assert np.array_equal(y.cpu().numpy(), want)


def test_cupy() -> None:
    cupy: Any = pytest.importorskip("cupy")
    k, host, want = made()
    x = cupy.asarray(host)
    for scale in (3 / 1024, cupy.asarray(3 / 1024, "f4")):
        assert np.array_equal(cupy.asnumpy(k(x, scale=scale)), want)

"""Sparse attention on a GPU from Ampere on: widths, vectors, parts, large scores, streams and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.attention_kit import agrees, inputs, mask, off
from tests.gpu.torch_kit import ready

pytestmark = pytest.mark.gpu
FAMILIES = ("fused", "unfused")


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def tried(torch: Any, what: Any, line: str = "auto", extreme: bool = False) -> Any:
    """A call on the GPU; AssertionError unless it is right, and gives the same bits again and from the host."""
    kernel, given = sg.compile(what, backend="cuda", schedule=line), inputs(what, extreme=extreme)
    there = {name: torch.from_numpy(a).cuda() for name, a in given.items()}
    first = kernel(**there)
    agrees(first.cpu().numpy(), what, given)
    out = torch.full_like(first, float("nan"))
    assert kernel(**there, out=out) is out and torch.equal(out, first)
    assert (kernel(**given) == first.cpu().numpy()).all()
    return kernel


@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("height", [2, 4, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_widths_and_vectors(torch: Any, d: int, height: int, family: str) -> None:
    for m, n in ((333, 1111), (1024, 2048)):
        tried(torch, sg.attention(mask(m, n, height, 0.1), heads=3, d=d, quantized=True), family)


@pytest.mark.parametrize("keys", [32, 64, 128])
@pytest.mark.parametrize("warps", [4, 8, 16])
def test_schedules(torch: Any, keys: int, warps: int) -> None:
    what = sg.attention(mask(512, 1500, 8, 0.1), heads=4, d=64, quantized=True)
    for parts, groups in ((1, 3), (3, 8)):
        try:
            tried(torch, what, f"fused parts={parts} groups={groups} warps={warps} keys={keys}")
        except sg.ScheduleError as e:  # a small shared memory, or many warps of many registers
            assert "fit" in str(e)


@pytest.mark.parametrize("most", [1, 8])
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("wide", [32, 64, 128])
def test_unfused_schedules(torch: Any, most: int, stages: int, wide: int) -> None:
    """Queries that no vector divides, so that heads lie anywhere."""
    what = sg.attention(mask(509, 1500, 8, 0.1), heads=4, d=128, quantized=True)
    tried(torch, what, f"unfused most={most} stages={stages} wide={wide}")


@pytest.mark.parametrize("softmax_bits", [8, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_bits_batches_and_large_scores(torch: Any, softmax_bits: int, family: str) -> None:
    what = sg.attention(mask(256, 700), heads=2, d=64, batch=3, softmax_bits=softmax_bits, quantized=True)
    tried(torch, what, family)
    tried(torch, what, family, extreme=True)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_floats_are_quantised_on_the_way(torch: Any, bits: int, family: str) -> None:
    """As the emulator has it, but for a few elements between two integers, as a multiply-add is rounded once here.

    Of other numbers in the same arrays the scale is another.
    """
    near = {8: 2e-3, 4: 2e-2}[bits]
    what = sg.attention(mask(300, 1100, 8, 0.1), heads=2, d=64, bits=bits)
    kernel, given = sg.compile(what, backend="cuda", schedule=family), inputs(what)
    emulated = sg.compile(what, backend="emulator", device="h200", schedule=family)(**given).astype(float)
    there = {name: torch.from_numpy(a).cuda() for name, a in given.items()}
    for _ in range(2):
        assert off(kernel(**there).cpu().numpy(), emulated) < near
    if bits == 8:
        agrees(kernel(**there).cpu().numpy(), what, given)
    there["v"].mul_(2)  # exact in f16, so that the integers stay what they are
    assert off(kernel(**there).cpu().numpy(), 2 * emulated) < near
    there["k"][1, 3, 5] = float("inf")
    assert kernel(**there).isnan().all()


def test_scales_are_numbers_too(torch: Any) -> None:
    what = sg.attention(mask(64, 64), heads=1, d=64, quantized=True)
    kernel, given = sg.compile(what, backend="cuda"), inputs(what)
    there = {name: torch.from_numpy(a).cuda() for name, a in given.items()}
    plain = {name: float(a[0]) if name.endswith("scale") else there[name] for name, a in given.items()}
    assert torch.equal(kernel(**there), kernel(**plain))


@pytest.mark.parametrize("family", FAMILIES)
def test_streams_and_graphs(torch: Any, family: str) -> None:
    """A captured call gives the same bits, again and again, for other numbers too."""
    what = sg.attention(mask(512, 3000, 8, 0.1), heads=4, d=64, quantized=True)
    kernel = sg.compile(what, backend="cuda", schedule=family)
    there = {name: torch.from_numpy(a).cuda() for name, a in inputs(what).items()}
    wanted, out = kernel(**there), None
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert torch.equal(kernel(**there), wanted)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel(**there)
    there["v"].neg_()
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, -wanted)
    assert np.isfinite(wanted.float().cpu().numpy()).all()

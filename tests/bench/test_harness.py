"""How results are judged, on a stand-in for a GPU: memory of the host, and NumPy for the harness's kernels."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparsegen.arrays import describe, launch_stream
from sparsegen.backends.reference.stencil import run as reference
from sparsegen.bench import harness, suites
from sparsegen.bench.harness import Case, DeviceField, Lab
from sparsegen.ir.errors import DeviceError


def view(pointer: int, count: int) -> np.ndarray[Any, Any]:
    return np.ctypeslib.as_array((ctypes.c_double * count).from_address(pointer))


@dataclass
class Gpu:
    """A Runtime, as far as the harness needs one; every call between two events takes ``seconds``."""

    seconds: float = 1e-3
    held: dict[int, Any] = field(default_factory=dict)
    flushes: int = 0

    def alloc(self, nbytes: int) -> int:
        memory = np.zeros(nbytes // 8)
        self.held[memory.ctypes.data] = memory
        return memory.ctypes.data

    def free(self, pointer: int) -> None:
        del self.held[pointer]

    def zero(self, pointer: int, nbytes: int) -> None:
        view(pointer, nbytes // 8)[:] = 0

    def synchronize(self) -> None: ...

    def timer(self) -> Any:
        return SimpleNamespace(start=lambda: None, stop=lambda: None, seconds=lambda: self.seconds)

    # ------------------------------------------------------------------ what ``Naive`` does
    def random(self, pointer: int, count: int, dtype: str, seed: int) -> None:
        view(pointer, count)[:] = np.random.default_rng(seed).random(count)

    def poison(self, pointer: int, count: int, dtype: str) -> None:
        view(pointer, count)[:] = np.nan

    def read(self, pointer: int, nbytes: int) -> None:
        self.flushes += 1

    def run(self, stencil: Any, shape: tuple[int, ...], steps: int, u: int, out: int, spare: int) -> None:
        n = shape[0] * shape[1]
        view(out, n)[:] = reference(view(u, n).reshape(shape), stencil.weights, stencil.sides, steps).ravel()

    def error(self, a: int, b: int, count: int, dtype: str) -> float:
        x, y = view(a, count), view(b, count)
        return float(np.abs(x - y).max() / np.abs(y).max()) if np.isfinite(x).all() else np.inf


class Compiled:
    """A kernel that is right, or wrong in one of the ways that a kernel can be."""

    def __init__(self, case: Case, fault: str = "") -> None:
        self.stencil, self.shape, self.steps, self.dtype = case.stencil, case.shape, case.steps, np.dtype(np.float64)
        self.schedule, self.fault = case.schedule, fault
        self.cost = SimpleNamespace(rate=100.0, binds="hbm")

    def resources(self) -> Any:
        return SimpleNamespace(registers=40, spills=0, shared=1024)

    def __call__(self, u: DeviceField, out: DeviceField) -> None:
        if self.fault == "launch":
            raise DeviceError("the launch failed")
        target = view(out.pointer, out.count)
        result = reference(
            view(u.pointer, u.count).reshape(u.shape), self.stencil.weights, self.stencil.sides, self.steps
        )
        result[-1, -1] += 1e-9 if self.fault == "inexact" else 0.0
        kept = u.count - 1 if self.fault == "incomplete" else u.count
        target[:kept] = result.ravel()[:kept]


CASE = Case("Heat-2D", suites.stencil("Heat-2D"), (20, 30), 2, "direct", target=0.001)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()

    def start(self: Lab, device: int = 0, seed: int = 0) -> None:
        self.runtime = self.naive = gpu  # type: ignore[assignment]
        self._seed, self._cold = seed, None

    monkeypatch.setattr(Lab, "__init__", start)
    return gpu


@pytest.mark.parametrize(("fault", "ok"), [("", True), ("inexact", False), ("incomplete", False)])
def test_a_wrong_result_is_not_ok(fault: str, ok: bool, gpu: Gpu) -> None:
    row = Lab().measure(CASE, Compiled(CASE, fault))  # type: ignore[arg-type]
    assert row.ok == ok and row.error is not None and (row.error <= 1e-12) == ok
    assert row.repeats == 100 and row.gs_per_s == pytest.approx(20 * 30 * 2 / 1e-3 / 1e9)
    assert (row.regs, row.spills, row.smem, row.bound) == (40, 0, 1024, "hbm")
    assert not gpu.held and not gpu.flushes


def test_targets_and_limits(gpu: Gpu) -> None:
    for target, limit, ok in ((1e9, None, False), (None, 1e-4, False), (None, 1e-2, True), (None, None, True)):
        case = Case(CASE.name, CASE.stencil, CASE.shape, CASE.steps, CASE.schedule, target, limit)
        assert Lab().measure(case, Compiled(case)).ok == ok  # type: ignore[arg-type]


def test_a_cold_cache_is_made_for_every_call(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "COLD_BYTES", 1 << 16)
    row = Lab().measure(CASE, Compiled(CASE), seconds=0.01, cold=True)  # type: ignore[arg-type]
    assert row.repeats == 10 and gpu.flushes == 11


def test_one_failure_does_not_end_a_suite(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Case("Box-2D9P", suites.stencil("Box-2D9P"), CASE.shape, 2, "direct")
    cases = [CASE, other, CASE, Case("x", CASE.stencil, CASE.shape, 2, "bad")]
    built = [Compiled(CASE), Compiled(other, "launch"), Compiled(CASE), DeviceError("nothing")]
    monkeypatch.setattr(harness, "build", lambda _: built)
    lines = list[str]()
    rows = harness.run(cases, say=lines.append)
    assert [row.failed for row in rows] == [None, "DeviceError: the launch failed", "DeviceError: nothing"]
    assert [row.ok for row in rows] == [True, False, False] and len(lines) == 5


def test_a_device_field_is_an_array_for_every_kernel() -> None:
    memory = np.zeros((4, 6))
    seen = describe(DeviceField(memory.ctypes.data, (4, 6), memory.dtype))
    assert seen.pointer == memory.ctypes.data and seen.layout.shape == (4, 6) and seen.layout.device_index == 0
    assert seen.layout.contiguous and not launch_stream(seen)

"""What decides whether a call is timed in a CUDA graph, on a stand-in for a GPU whose clock a slow host delays."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sparsegen.bench import lab as labs
from sparsegen.bench import regret_run
from sparsegen.bench.lab import BRIEF, CALLS, GRAPH, Lab, Timing, together
from sparsegen.ir.errors import DeviceError
from tests.harness_kit import Gpu

HOST = 2e-4  #: seconds that the host needs for a call or a replay


class Clocked(Gpu):
    """A GPU with a clock: a call takes ``device`` seconds, and never less than HOST, but from a graph."""

    def __init__(self, device: float) -> None:
        super().__init__()
        self.now, self.device, self.captured, self.streams = 0.0, device, -1, list[int | None]()

    def timer(self) -> Any:
        began = list[float]()
        return SimpleNamespace(
            start=lambda _: began.append(self.now), stop=lambda _: None, seconds=lambda: self.now - began[-1]
        )

    def call(self, stream: int | None = None) -> None:
        self.streams.append(stream)
        if self.captured < 0:
            self.now += max(HOST, self.device)
        else:
            self.captured += 1

    def recorded(self, work: Callable[[int], object]) -> Callable[[], None] | None:
        work(7)
        self.captured = 0
        work(7)
        made, self.captured = self.captured, -1

        def replay() -> None:
            self.now += max(HOST if made == 1 else 0.0, made * self.device)

        return replay


class Graphless(Clocked):
    def recorded(self, work: Callable[[int], object]) -> None:
        return None


class Refusing(Clocked):
    """Whose kernels no graph takes."""

    def recorded(self, work: Callable[[int], object]) -> None:
        raise DeviceError("cuStreamEndCapture failed", hint="")


def lab_of(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Lab:
    def start(self: Lab) -> None:
        self.runtime = self.naive = gpu  # type: ignore[assignment]
        self._seed, self._cold = 3, None

    monkeypatch.setattr(Lab, "__init__", start)
    monkeypatch.setattr(labs, "COLD_BYTES", 1 << 16)
    return Lab()


def test_how_many_calls_are_timed_together() -> None:
    assert together(BRIEF) == together(1.0) == 0
    assert together(0.9 * BRIEF) == 1 and together(GRAPH) == 1 and together(GRAPH / 2.5) == 3
    assert together(1e-6) == together(0.0) == CALLS


@pytest.mark.parametrize("device", [1e-5, 6e-5, 1.5e-4, 4e-4])
def test_a_brief_call_is_timed_without_the_host(device: float, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Clocked(device)
    lab = lab_of(gpu, monkeypatch)
    plain = Timing.of(lab.times(gpu.call, 0.001))
    (timing,) = regret_run.timed(lab, [gpu.call], 0.001, cold=False)
    assert plain.median == pytest.approx(max(HOST, device)) and timing.median == pytest.approx(device)
    assert timing.calls == together(max(HOST, device)) and {*gpu.streams} == {None, 7}


@pytest.mark.parametrize("kind", [Clocked, Graphless, Refusing])
def test_other_calls_are_timed_one_by_one(kind: type[Clocked], monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = kind(2 * BRIEF if kind is Clocked else BRIEF / 2)
    (timing,) = regret_run.timed(lab_of(gpu, monkeypatch), [gpu.call], 0.001, cold=False)
    assert timing.calls == 1 and timing.median == pytest.approx(gpu.device) and {*gpu.streams} == {None}


def test_a_call_on_a_cold_cache_is_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several only the first would find it cold."""
    gpu = Clocked(1e-5)
    (timing,) = regret_run.timed(lab_of(gpu, monkeypatch), [gpu.call], 0.001, cold=True)
    assert timing.calls == 1 and timing.median == pytest.approx(HOST) and math.isfinite(timing.p90)

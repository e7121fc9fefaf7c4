"""How results are judged, on a stand-in for a GPU: memory of the host, and NumPy for the harness's kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparsegen import cli, interop
from sparsegen.arrays import describe, launch_stream
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.backends.reference.stencil import run as reference
from sparsegen.bench import command, harness, lab, report, stencils
from sparsegen.bench.lab import DeviceField, Lab
from sparsegen.bench.stencil_run import COPIES, Case, Row, Share, Stencils
from sparsegen.ir.errors import DeviceError
from tests.harness_kit import Gpu, view


class Compiled:
    """A kernel that is right, or wrong in one of the ways that a kernel can be."""

    def __init__(self, case: Case, fault: str = "") -> None:
        self.stencil, self.shape, self.steps, self.dtype = case.stencil, case.shape, case.steps, np.dtype(np.float64)
        self.schedule, self.fault = case.schedule, fault
        self.cost = SimpleNamespace(rate=100.0, binds="hbm")
        self.called = list[int]()

    def resources(self) -> Any:
        return SimpleNamespace(registers=40, spills=0, shared=1024)

    def __call__(self, u: DeviceField, out: DeviceField, steps: int | None = None) -> None:
        self.called.append(steps or self.steps)
        if self.fault == "launch":
            raise DeviceError("the launch failed")
        target = view(out.pointer, out.count)
        result = reference(
            view(u.pointer, u.count).reshape(u.shape), self.stencil.weights, self.stencil.sides, self.called[-1]
        )
        result[-1, -1] += 1e-9 if self.fault == "inexact" else 0.0
        kept = u.count - 1 if self.fault == "incomplete" else u.count
        target[:kept] = result.ravel()[:kept]


CASE = Case("Heat-2D", stencils.stencil("Heat-2D"), (20, 30), 2, "direct", target=0.001)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()

    def start(self: Lab, seed: int = 0) -> None:
        self.runtime = self.naive = gpu  # type: ignore[assignment]
        self._seed, self._cold = seed, None

    monkeypatch.setattr(Lab, "__init__", start)
    return gpu


def measured(case: Case, kernel: Any, seconds: float = 0.1, cold: bool = False) -> Row:
    return Stencils(Lab(), seconds, cold).measure(case, kernel)


@pytest.mark.parametrize(("fault", "ok"), [("", True), ("inexact", False), ("incomplete", False)])
def test_a_wrong_result_is_not_ok(fault: str, ok: bool, gpu: Gpu) -> None:
    row = measured(CASE, Compiled(CASE, fault))
    assert row.ok == ok and row.error is not None and (row.error <= 1e-12) == ok
    assert row.repeats == 100 and row.gs_per_s == pytest.approx(20 * 30 * 2 / 1e-3 / 1e9)
    assert (row.regs, row.spills, row.smem, row.bound) == (40, 0, 1024, "hbm")
    assert not gpu.held and not gpu.flushes


def test_targets_and_limits(gpu: Gpu) -> None:
    for target, limit, ok in ((1e9, None, False), (None, 1e-4, False), (None, 1e-2, True), (None, None, True)):
        case = Case(CASE.name, CASE.stencil, CASE.shape, CASE.steps, CASE.schedule, target, limit)
        assert measured(case, Compiled(case)).ok == ok


def test_a_cold_cache_is_made_for_every_call(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "COLD_BYTES", 1 << 16)
    row = measured(CASE, Compiled(CASE), 0.01, cold=True)
    assert row.repeats == 10 and gpu.flushes == 12


def test_one_failure_does_not_end_a_suite(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Case("Box-2D9P", stencils.stencil("Box-2D9P"), CASE.shape, 2, "direct")
    cases = [CASE, other, Case("x", CASE.stencil, CASE.shape, 2, "bad")]
    built = [Compiled(CASE), Compiled(other, "launch"), DeviceError("nothing")]
    monkeypatch.setattr(harness, "compiled", lambda *_: built)
    lines = list[str]()
    kept = list[int]()
    rows = Stencils(Lab()).run(cases, say=lines.append, keep=lambda rows: kept.append(len(rows)))
    assert [row.failed for row in rows] == [None, "DeviceError: the launch failed", "DeviceError: nothing"]
    assert [row.ok for row in rows] == [True, False, False] and len(lines) == 5
    assert kept == [1, 2, 3]


def test_the_result_is_compared_after_as_many_steps_as_the_case_says(gpu: Gpu) -> None:
    case = replace(CASE, check=5)
    kernel = Compiled(case)
    row = measured(case, kernel, 0.001)
    assert kernel.called[0] == 5 and set(kernel.called[1:]) == {2} and row.ok and (row.check, row.steps) == (5, 2)


def test_a_share_is_one_of_the_fastest_row_of_the_same_run(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls take a millisecond, so rates are as the numbers of cells."""
    plain = replace(CASE, target=None)
    small, large, broken = (replace(plain, shape=shape) for shape in ((20, 20), (20, 40), (9, 9)))
    rate = 20 * 40 * 2 / 1e-3 / 1e9
    of = Share(0.5, "other sizes", (small, large))
    cases = [small, large, broken, replace(plain, shape=(20, 21), share=of), replace(plain, shape=(20, 19), share=of),
             replace(plain, shape=(30, 30), share=Share(0.5, "a failed row", (broken,)))]  # fmt: skip
    built = [Compiled(case, "launch" if case is broken else "") for case in cases]
    monkeypatch.setattr(harness, "compiled", lambda *_: built)
    rows = Stencils(Lab()).run(cases)
    assert [row.target for row in rows[:3]] == [None] * 3 and rows[5].target is None
    assert [row.target for row in rows[3:5]] == pytest.approx([rate / 2] * 2)
    assert [row.ok for row in rows] == [True, True, False, True, False, False]
    assert (rows[3].share, rows[3].of) == (0.5, "other sizes")


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_measured_like_a_kernel(how: str, gpu: Gpu) -> None:
    from sparsegen.dsl.stencil import Stencil

    case = Case("copy", Stencil.from_weights(np.ones((1, 1))), (20, 30), 1, how)
    kernel = Stencils(Lab()).build(case)
    row = measured(case, kernel)
    assert row.ok and row.error == 0 and row.schedule == how and row.predicted_gs is None
    assert row.gs_per_s == pytest.approx(20 * 30 / 1e-3 / 1e9)


def test_floors_stand_in_the_rows_of_their_names(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "by_hand"
    program.write_text("#!/bin/sh\necho BEST Heat-2D 1308.2 warp2d_T10\necho BEST Heat-2D 1200 $1\n")
    program.chmod(0o755)
    cases = [replace(CASE, floor="Heat-2D"), replace(CASE, steps=3, floor="1D5P"), replace(CASE, steps=4)]
    monkeypatch.setattr(harness, "compiled", lambda *_: [Compiled(case) for case in cases])
    lines = list[str]()
    rows = Stencils(Lab()).run(cases, say=lines.append, beside=[f"{program} quick", str(tmp_path / "absent.cu")])
    assert [(row.floor, row.floor_by) for row in rows] == [(1308.2, "by_hand warp2d_T10"), (None, None), (None, None)]
    assert any("there is no floor" in line for line in lines)


def test_a_device_field_is_an_array_for_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interop, "_pointer_device", lambda *_: 0)  # a GPU's driver would ask whose this address is
    memory = np.zeros((4, 6))
    seen = describe(DeviceField(memory.ctypes.data, (4, 6), memory.dtype))
    assert seen.pointer == memory.ctypes.data and seen.layout.shape == (4, 6) and seen.layout.device_index == 0
    assert seen.layout.contiguous and not launch_stream(seen)


@pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
def test_a_suite_in_parts_from_the_command_line(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each part goes into the same file; what fails, misses its target or is not this suite's decides the status."""
    plain = replace(CASE, target=None, part="odd")
    parts = {"odd": [plain, replace(plain, shape=(9, 9), share=Share(0.9, "20×30", (plain,)))],
             "f32": [replace(plain, part="f32")]}  # fmt: skip
    for part, cases in parts.items():
        monkeypatch.setitem(stencils._CASES, part, lambda cases=cases: cases)
    monkeypatch.setattr(harness, "compiled", lambda cases, _: [Compiled(case) for case in cases])
    monkeypatch.setattr(command, "gpu_info", lambda: SimpleNamespace())
    out = tmp_path / "stencil.json"
    bench = [
        "bench",
        "--suite",
        "stencil",
        "--seconds",
        "0.001",
        "--seed",
        "3",
        "--commit",
        "f" * 40,
        "--out",
        str(out),
    ]
    assert cli.main([*bench, "--part", "odd"]) == 1 and "NOT OK" in capsys.readouterr().err
    assert cli.main([*bench, "--part", "f32"]) == 0
    said = capsys.readouterr()
    assert "f32" in said.out and "0.9 of" not in said.out and "1 kernels compiled" in said.err
    found = report.load(out)
    assert [(row["part"], row["ok"]) for row in found["rows"]] == [("odd", True), ("odd", False), ("f32", True)]
    assert cli.main([*bench, "--part", "odd"]) == 1 and len(report.load(out)["rows"]) == 3
    assert cli.main(["bench", "--suite", "spine", "--part", "odd"]) == 2 and "no parts" in capsys.readouterr().err
    out.write_text("{}")
    assert cli.main([*bench, "--part", "odd"]) == 2 and out.read_text() == "{}"

"""Every way to compile or call wrongly: what is said, that it names the user's line, and what to do instead."""

# ruff: noqa: E731

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import target

HEAT = np.array([[0.0, 0.125, 0.0], [0.125, 0.5, 0.125], [0.0, 0.125, 0.0]])
heat = sg.Stencil.from_weights(HEAT, name="heat")
box7 = sg.Stencil.from_weights(np.full((7, 7), 1 / 49), name="box7")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same refusals on a machine with a GPU and on one without."""
    monkeypatch.setattr(target, "gpu_info", lambda index=0: sg.DeviceError("no CUDA device is visible"))


def refusal(kind: type[sg.SparsegenError], attempt: Callable[[], object], *says: str) -> sg.SparsegenError:
    """The error that ``attempt`` raises; its text has all of ``says`` and the line of this file marked ``# here``."""
    with pytest.raises(sg.SparsegenError) as caught:
        attempt()
    error, text = caught.value, str(caught.value)
    assert type(error) is kind, text
    for part in says:
        assert part in text, f"{part!r} is not in:\n{text}"
    assert error.loc is not None and error.loc.file == __file__, text
    assert "# here" in linecache.getline(__file__, error.loc.line), text
    assert error.hint and text.endswith(f"remedy: {error.hint}")
    return error


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((64,), ("shape 64 has 1 axes, heat has 2", "pass 2 sizes")),
        ((4, 4, 4), ("shape 4x4x4 has 3 axes",)),
        ((64, 2), ("2 cells on axis 1, but heat is 3 cells wide", "at least 3 cells")),
        ((0, 64), ("shape[0]=0",)),
        ((-3, 64), ("shape[0]=-3",)),
        ((64.0, 64), ("shape[0]=64.0 is not a whole number",)),
        ((True, 64), ("shape[0]=True is not a whole number",)),
        (64, ("shape=64 is no shape",)),
        ((1 << 16, 1 << 16), ("4294967296 cells; indices are 32 bits",)),
    ],
)
def test_shape(shape: Any, says: tuple[str, ...]) -> None:
    refusal(sg.StencilError, lambda: sg.compile(heat, shape), *says)  # here
    refusal(sg.StencilError, lambda: sg.schedules(heat, shape), *says)  # here


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (0, "steps=0: there is nothing to do"),
        (-1, "steps=-1: there is nothing to do"),
        (1.5, "steps=1.5 is not a whole number"),
        ("3", "steps='3' is not a whole number"),
        (True, "steps=True is not a whole number"),
        (None, "steps=None is not a whole number"),
    ],
)
def test_steps(steps: Any, says: str) -> None:
    refusal(sg.StencilError, lambda: sg.compile(heat, (64, 64), steps=steps), says)  # here


def test_not_a_stencil() -> None:
    refusal(sg.StencilError, lambda: sg.compile(HEAT, (64, 64)), "cannot compile ndarray", "from_weights")  # type: ignore[arg-type] # here


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("line", "weights"),
    [
        ("stencil2row mma=none", HEAT),
        ("lowrank", np.full((3, 3), 1 / 9)),
        ("patches", np.full((3, 3), 1 / 9)),
        ("toeplitz", np.full(3, 1 / 3)),
        ("column levels=1", np.full((3, 3, 3), 1 / 27)),
    ],
)
def test_families_that_do_not_sum_in_another_type(line: str, weights: Any, dtype: str) -> None:
    st = sg.Stencil.from_weights(weights, dtype=dtype)
    attempt = lambda: sg.compile(st, (64,) * weights.ndim, schedule=line)  # here
    error = refusal(sg.ScheduleError, attempt, line.split()[0], dtype, "choose")
    assert "direct" in str(error.hint) or "tiled" in str(error.hint)


@pytest.mark.parametrize("backend", ["gpu", "CUDA", None, 3])
def test_unknown_backend(backend: Any) -> None:
    attempt = lambda: sg.compile(heat, (64, 64), backend=backend)  # here
    refusal(sg.DeviceError, attempt, f"unknown backend {backend!r}", "one of 'auto', 'cuda', 'emulator', 'reference'")


def test_unknown_device() -> None:
    attempt = lambda: sg.compile(heat, (64, 64), device="h20")  # here
    refusal(sg.DeviceError, attempt, "no profile of a device called 'h20'", "did you mean 'h200'?")
    attempt = lambda: sg.compile(heat, (64, 64), device=90)  # type: ignore[arg-type] # here
    refusal(sg.DeviceError, attempt, "device=90 is no device", "h200")


def test_profile_file_that_is_not_there(tmp_path: Path) -> None:
    attempt = lambda: sg.compile(heat, (64, 64), device=tmp_path / "mine.toml")  # here
    refusal(sg.DeviceError, attempt, "cannot read the device profile", "mine.toml")


def test_cuda_without_a_gpu() -> None:
    attempt = lambda: sg.compile(heat, (64, 64), backend="cuda")  # here
    refusal(sg.DeviceError, attempt, "no GPU to run on: no CUDA device is visible", "backend='emulator'")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", ("an empty schedule", "start with a family")),
        ("tilde fuse=2", ("unknown schedule 'tilde'", "did you mean 'tiled'?")),
        ("tiled fuse=4", ("fuse=4 is out of range", "from 1 to 3")),
        ("tiled lut=on", ("'lut=on' means nothing to a tiled schedule",)),
        ("tiled tile=32x64 tile=16x64", ("tile is given twice",)),
        ("stencil2row mma=f64.m8n8k8", ("unknown mma shape 'f64.m8n8k8'", "did you mean")),
        ("stencil2row transform=explicit stages=2", ("transform=explicit contradicts stages=2",)),
        ("stencil2row tile=32x33", ("33 columns are no multiple",)),
        ("direct block=64x32", ("2048 threads in a block",)),
        (
            "tiled tile=64x128 stages=4 warps=16",
            ("bytes of shared memory a block; NVIDIA H200 has 232448", "lower stages"),
        ),
    ],
)
def test_schedule_text(line: str, says: tuple[str, ...]) -> None:
    refusal(sg.ScheduleError, lambda: sg.compile(heat, (64, 64), steps=4, schedule=line), *says)  # here


def test_schedule_of_a_wrong_type() -> None:
    attempt = lambda: sg.compile(heat, (64, 64), schedule=3)  # type: ignore[arg-type] # here
    refusal(sg.ScheduleError, attempt, "schedule=3 is no schedule", "StencilSchedule")


@pytest.mark.parametrize(
    ("device", "line", "says"),
    [
        ("a100", "stencil2row mma=f64.m16n8k4", ("mma=f64.m16n8k4 needs sm_90; NVIDIA A100", "set mma=f64.m8n8k4")),
        ("v100", "tiled stages=2", ("stages=2 copies with cp.async, which needs sm_80", "set stages=1")),
        ("v100", "stencil2row", ("mma=f64.m8n8k4 needs sm_80", "set mma=none")),
    ],
)
def test_schedule_and_device_that_do_not_fit(device: str, line: str, says: tuple[str, ...]) -> None:
    refusal(sg.ScheduleError, lambda: sg.compile(heat, (64, 64), device=device, schedule=line), *says)  # here


def test_registers() -> None:
    attempt = lambda: sg.compile(box7, (256, 256), steps=3, schedule="stencil2row fuse=3 warps=16")  # here
    refusal(sg.ScheduleError, attempt, "doubles of weights in each lane's registers", "lower fuse")
    attempt = lambda: sg.compile(heat, (256, 256), schedule="stencil2row tile=64x64 warps=4")  # here
    refusal(sg.ScheduleError, attempt, "a warp keeps 32 products", "raise warps")
    attempt = lambda: sg.compile(heat, (256, 256), steps=16, schedule="stream levels=16")  # here
    refusal(sg.ScheduleError, attempt, "registers", "levels")


def test_fusion_wider_than_the_field() -> None:
    attempt = lambda: sg.compile(heat, (64, 5), steps=3, schedule="tiled fuse=3")  # here
    refusal(sg.ScheduleError, attempt, "7 cells wide on axis 1, which has 5", "lower fuse")


def test_fusion_of_more_steps_than_there_are() -> None:
    attempt = lambda: sg.compile(heat, (64, 64), steps=2, schedule="tiled fuse=3")  # here
    refusal(sg.ScheduleError, attempt, "fuse=3 does 3 time steps at once, but steps=2", "do 2 at once")


def test_f32_has_no_f64_mma() -> None:
    st = sg.Stencil.from_weights(HEAT.astype("f4"))
    attempt = lambda: sg.compile(st, (64, 64), schedule="stencil2row")  # here
    words = "stencil2row multiplies f64 on tensor cores, not f32 with mma=f64.m8n8k4"
    refusal(sg.ScheduleError, attempt, words, "mma=none")


def test_nonfinite() -> None:
    attempt = lambda: sg.compile(heat, (64, 64), nonfinite="some")  # type: ignore[arg-type] # here
    refusal(sg.ScheduleError, attempt, "unknown nonfinite 'some'")
    attempt = lambda: sg.compile(heat, (64, 64), nonfinite="exact", schedule="stencil2row")  # here
    refusal(sg.ScheduleError, attempt, "may spread a NaN or Inf", "direct or tiled")


# ------------------------------------------------------------------------------------------------ calls
@pytest.fixture(params=["emulator", "reference"])
def kernel(request: pytest.FixtureRequest) -> sg.Kernel:
    return sg.compile(heat, (8, 16), backend=request.param, schedule="direct")


def refused_call(kernel: sg.Kernel, make: Callable[[], tuple[Any, dict[str, Any]]], *says: str) -> None:
    """A call that is refused before anything is written to ``out``."""
    u, given = make()
    out = given.get("out")
    before = out.copy() if isinstance(out, np.ndarray) else None
    refusal(sg.ArrayError, lambda: kernel(u, **given), *says)  # here
    if before is not None and isinstance(out, np.ndarray):
        assert np.array_equal(out, before)


U = np.arange(128.0).reshape(8, 16)


def test_wrong_inputs(kernel: sg.Kernel) -> None:
    out = np.full((8, 16), 7.0)
    refused_call(kernel, lambda: (U[:, :8], {"out": out}), "u has shape (8, 8), the kernel was compiled for (8, 16)")
    refused_call(kernel, lambda: (U[0], {"out": out}), "u has 1 axes")
    refused_call(kernel, lambda: (U.astype("f4"), {"out": out}), "u has dtype float32", "nothing is cast")
    refused_call(kernel, lambda: (U.astype(int), {"out": out}), "u has dtype int64")
    refused_call(kernel, lambda: (U.astype(">f8"), {"out": out}), "not in this machine's byte order")
    refused_call(kernel, lambda: (np.asfortranarray(U), {"out": out}), "u has strides", "ascontiguousarray")
    refused_call(kernel, lambda: (np.zeros((8, 32))[:, ::2], {"out": out}), "u has strides", "ascontiguousarray")
    shared_rows = np.lib.stride_tricks.as_strided(np.zeros(80), (8, 16), (64, 8))
    refused_call(kernel, lambda: (shared_rows, {"out": out}), "u has strides (64, 8)", "rows may have a pitch")
    refused_call(kernel, lambda: (U.tolist(), {"out": out}), "list is not an array", "np.asarray")
    refused_call(kernel, lambda: (None, {"out": out}), "NoneType is not an array")


def test_wrong_outputs(kernel: sg.Kernel) -> None:
    readonly = np.zeros((8, 16))
    readonly.flags.writeable = False
    refused_call(kernel, lambda: (U, {"out": readonly}), "out is read-only")
    refused_call(kernel, lambda: (U, {"out": U}), "out shares memory with u")
    both = np.zeros((9, 16))
    refused_call(kernel, lambda: (both[:-1], {"out": both[1:]}), "out shares memory with u")
    refused_call(kernel, lambda: (U, {"out": np.zeros((8, 15))}), "out has shape (8, 15)")
    refused_call(kernel, lambda: (U, {"out": np.zeros((8, 16), "f4")}), "out has dtype float32")


def test_wrong_steps_in_a_call(kernel: sg.Kernel) -> None:
    for steps in (0, -1, 2.0, True, "1"):
        refusal(sg.StencilError, lambda s=steps: kernel(U, steps=s), f"steps={steps!r}"[:7])  # type: ignore[misc] # here


def test_stream_without_a_gpu(kernel: sg.Kernel) -> None:
    attempt = lambda: kernel(U, stream=0)  # here
    refusal(sg.DeviceError, attempt, "stream=0, but this kernel runs on the", "backend='cuda'")


def test_looking_at_a_level_that_is_not_there() -> None:
    k = sg.compile(heat, (8, 16), schedule="direct")
    refusal(sg.IRError, lambda: k.ir("ptx"), "unknown level 'ptx'", "'op', 'tile', 'warp'")  # type: ignore[arg-type] # here


def test_export_to_a_folder_that_is_not_there(tmp_path: Path) -> None:
    k = sg.compile(heat, (8, 16), schedule="direct")
    refusal(sg.ArrayError, lambda: k.export(tmp_path / "no" / "heat.cu"), "cannot write")  # here


def test_launcher_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEGEN_LAUNCHER", "magic")
    with pytest.raises(sg.DeviceError, match="SPARSEGEN_LAUNCHER='magic'"):
        target.launcher()


def test_the_package_has_no_such_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'stencils'"):
        _ = sg.stencils  # type: ignore[attr-defined]

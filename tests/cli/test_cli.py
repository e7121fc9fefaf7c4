"""The command line, end to end: each command in a process of its own, and its errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sparsegen import cli
from sparsegen.backends.cuda.toolchain import find_tool

ROOT = Path(__file__).resolve().parents[2]
FILE = """\
import sparsegen as sg

@sg.stencil(boundary=sg.frozen)
def heat(u):
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])
"""
TWO = FILE + "other = sg.Stencil.from_weights([[0.25, 0.5, 0.25]])\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "heat.py").write_text(FILE)
    (tmp_path / "two.py").write_text(TWO)
    return tmp_path


def run(folder: Path, *args: str, status: int = 0, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SPARSEGEN_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "sparsegen", *args]
    done = subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, input=stdin)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_help_loads_nothing_heavy(folder: Path) -> None:
    code = "import sys, sparsegen.cli as c; c.parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert not {"numpy", "sympy", "networkx", "jinja2", "pycuda"} & set(done.stdout.split())
    commands = run(folder, "--help").stdout
    for name in ("explain", "gen", "run", "check", "bench", "devices", "opt", "cache"):
        assert name in commands


def test_explain_for_two_devices(folder: Path) -> None:
    out = run(folder, "explain", "heat.py", "--device", "a100", "--device", "h200", "--shape", "1024x1024").stdout
    table, a100, h200 = out.split("-" * 100)
    assert "NVIDIA A100" in table and "NVIDIA H200" in table and "terms of one pass" not in table
    assert "device     NVIDIA A100 (sm_80)" in a100 and "device     NVIDIA H200 (sm_90a)" in h200
    assert "terms of one pass" in a100 and "terms of one pass" in h200


@pytest.mark.parametrize(("axes", "shape"), [(1, "104857600"), (2, "10240x10240"), (3, "472x472x472")])
def test_the_usual_shape_has_as_many_cells_on_every_number_of_axes(folder: Path, axes: int, shape: str) -> None:
    (folder / "any.py").write_text(
        f"import numpy, sparsegen as sg\nany = sg.Stencil.from_weights(numpy.ones((3,) * {axes}))\n"
    )
    assert f"; {shape} cells" in run(folder, "explain", "any.py").stdout


def test_run_on_a_file(folder: Path) -> None:
    u = np.random.default_rng(0).random((20, 33))
    np.save(folder / "u.npy", u)
    args = ("--backend", "reference", "--steps", "2", "--in", "u.npy", "--out", "o.npy")
    out = run(folder, "run", "two.py:heat", *args).stdout
    assert "on reference" in out and "written to o.npy" in out
    result = np.load(folder / "o.npy")
    assert result.shape == u.shape and np.array_equal(result[0], u[0]) and not np.array_equal(result, u)


def test_general_updates(folder: Path) -> None:
    (folder / "wave.py").write_text(
        "import sparsegen as sg\n\n@sg.stencil\ndef wave(u: sg.Field(levels=2), c: sg.Coef):\n"
        "    return 2 * u[0, 0] - u.prev[0, 0] + 0.1 * c[0, 0] * (u[-1, 0] + u[1, 0] - 2 * u[0, 0])\n"
    )
    said = run(folder, "run", "wave.py", "--shape", "20x30", "--steps", "3", "--out", "u.npy").stdout
    assert "UpdateKernel wave 20x30 steps=3" in said and "\nc    min" in said
    assert np.load(folder / "u.npy").shape == (2, 20, 30)
    assert "general updates take CUDA-core schedules" in run(folder, "explain", "wave.py", "--shape", "64x64").stdout
    assert (
        "tile.update"
        in run(folder, "gen", "wave.py", "--shape", "64x64", "--level", "tile", "--schedule", "direct").stdout
    )
    assert "0 errors" in run(folder, "check", "wave.py", "--shape", "20x30").stdout
    refused = run(folder, "run", "wave.py", "--in", "u.npy", status=2).stderr
    assert "--in is one field" in refused


def test_batches(folder: Path) -> None:
    (folder / "shots.py").write_text(
        "import sparsegen as sg\n\n@sg.stencil\ndef wave(u: sg.Field(levels=2), c: sg.Coef):\n"
        "    return 2 * u[0, 0] - u.prev[0, 0] + c[0, 0] * (u[0, 1] + u[0, -1] - 2 * u[0, 0])\n\n"
        "shots = wave.with_sites(at=sg.Source([[3, 4.5]]), heard=sg.Receiver([[3, 9]]))\n"
    )
    how = ("--batch", "3", "--shared", "c", "--shape", "16x40", "--steps", "2")
    told = run(folder, "run", "shots.py:shots", *how, "--shared", "at", "--backend", "reference", "--out", "out.npy")
    assert "batch=3" in told.stdout and "heard min" in told.stdout
    assert np.load(folder / "out.npy").shape == (2, 3, 16, 40)  # both levels
    assert "a batch of 3, which share c" in run(folder, "explain", "shots.py:wave", *how, "--device", "h200").stdout
    assert "blockIdx.y" in run(folder, "gen", "shots.py:shots", *how, "--device", "h200").stdout
    assert "0 errors" in run(folder, "check", "heat.py", "--batch", "2", "--shape", "16x64", "--device", "h200").stdout
    np.save(folder / "u.npy", np.random.default_rng(0).random((2, 24, 32)))
    run(folder, "run", "heat.py", "--batch", "2", "--in", "u.npy", "--backend", "reference", "--out", "v.npy")
    assert np.load(folder / "v.npy").shape == (2, 24, 32)
    assert "without a batch" in run(folder, "run", "shots.py:wave", "--shared", "c", status=2).stderr


def test_gen_and_opt(folder: Path) -> None:
    common = ("heat.py", "--shape", "40x64", "--schedule", "direct", "--device", "h200")
    assert 'extern "C" __global__' in run(folder, "gen", *common).stdout
    run(folder, "gen", *common, "--level", "op", "--out", "heat.sgir")
    pipeline = "direct{rows=8,cols=32},barriers,to-warp,simplify,dce"
    by_hand = run(folder, "opt", "heat.sgir", "-p", pipeline, "--timing")
    assert "to-warp" in by_hand.stderr and "warp.func" in by_hand.stdout
    text = (folder / "heat.sgir").read_text()
    assert run(folder, "opt", stdin=text).stdout == text
    run(folder, "gen", *common, "--export", "heat.cu")
    assert "heat_run" in (folder / "heat.cu").read_text()


def test_check_of_a_good_kernel(folder: Path) -> None:
    args = ("--schedule", "tiled fuse=2", "--shape", "64x96", "--steps", "3", "--device", "h200")
    assert "0 errors" in run(folder, "check", "heat.py", *args).stdout


def test_bench_of_a_file(folder: Path) -> None:
    args = ("--shape", "64x64", "--steps", "1", "--repeats", "2", "--backend", "reference")
    out = run(folder, "bench", "heat.py", *args).stdout
    assert "GS/s" in out and "reference" in out


def test_devices_and_cache(folder: Path) -> None:
    out = run(folder, "devices").stdout
    assert "NVIDIA H200" in out and "GPU here" in out and "nvcc" in out
    assert "0 entries" in run(folder, "cache", "info").stdout
    assert "0 entries removed" in run(folder, "cache", "clear").stdout


@pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
def test_ptx_goes_through_the_cache(folder: Path) -> None:
    common = ("heat.py", "--shape", "40x64", "--schedule", "direct", "--device", "h200", "--level", "ptx")
    assert ".target sm_90a" in run(folder, "gen", *common).stdout
    assert "1 entries" in run(folder, "cache", "info").stdout


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("explain", "absent.py"), "there is no file"),
        (("explain", "heat.py:cold"), "defines no stencil 'cold'"),
        (("explain", "heat.py", "--picture", "heat.png"), "cannot draw heat.png"),
        (("gen", "two.py"), "defines 2 stencils"),
        (("gen", "heat.py", "--schedule", "titled"), "did you mean 'tiled'"),
        (("gen", "heat.py", "--device", "h2000"), "no profile of a device"),
        (("gen", "heat.py", "--shape", "2x2"), "cells on axis 0"),
        (("run", "heat.py", "--in", "absent.npy"), "cannot read absent.npy"),
        (("bench",), "say what to measure"),
        (("bench", "heat.py", "--out", "x.json"), "--out is for"),
        (("opt", "heat.py", "-p", "nothing"), "unknown pass 'nothing'"),
        (("opt", "absent.sgir"), "cannot read absent.sgir"),
        (("opt", "--load", "absent.py"), "there is no file"),
        (("run", "absent.sgir"), "cannot read absent.sgir"),
        (("run", "heat.py", "--array", "in=a.npy"), "--array is for the roles of a program"),
    ],
)
def test_errors_are_one_block(
    args: tuple[str, ...], what: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert cli.main(args) == cli.WRONG
    out, err = capsys.readouterr()
    assert what in err and "remedy:" in err and not out


def test_errors_of_the_users_file(folder: Path) -> None:
    (folder / "bad.py").write_text(FILE.replace("0.5 * u[0, 0]", "u[0, 0] % u[0, 0]"))
    err = run(folder, "explain", "bad.py", status=2).stderr
    assert "StencilError" in err and "bad.py:5" in err
    (folder / "broken.py").write_text("1 / 0\n")
    assert "ZeroDivisionError" in run(folder, "explain", "broken.py", status=2).stderr
    # A wrong option is no line of the user's, and no line of ours is shown instead.
    assert "__main__" not in run(folder, "gen", "heat.py", "--schedule", "titled", status=2).stderr


def test_debug_shows_the_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(cli.SparsegenError):
        cli.main(["gen", "heat.py", "--schedule", "titled", "--debug"])


def test_wrong_words_end_with_status_2(folder: Path) -> None:
    run(folder, "gen", "heat.py", "--shape", "big", status=2)
    run(folder, "no-command", status=2)
    assert "explain" in run(folder, status=2).stderr

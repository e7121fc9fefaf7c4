"""The whole command on a GPU that only pretends: figures, spreads, the file, who reads it, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sparsegen import cli, target
from sparsegen.calibrate import lab, profile, run, store
from sparsegen.calibrate.plan import Figure, Measured, Sample, l2_rows, plan, stream_bytes
from sparsegen.cost.devices import RANGES, WHOLE, load_profile
from sparsegen.ir.errors import DeviceError
from tests.calibrate.bench_gpu import CLOCK, FREE, GPU, TRUTH, BenchRuntime, expected, figures


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No compiler, no waiting for the clock, profiles in a folder of the test."""
    monkeypatch.setattr(lab, "compile_unit", lambda unit, arch: b" ".join(p.name.encode() for p in unit))
    monkeypatch.setattr(run, "WAKE", 0.0)
    monkeypatch.setenv("SPARSEGEN_PROFILE_DIR", str(tmp_path / "profiles"))


def install(monkeypatch: pytest.MonkeyPatch, runtime: BenchRuntime) -> BenchRuntime:
    monkeypatch.setattr(target, "open_gpu", lambda index: runtime)
    monkeypatch.setattr(target, "launcher", lambda: "driver")
    monkeypatch.setattr("sparsegen.backends.cuda.nvcc.find_nvcc", lambda: type("N", (), {"version": "13.0.88"}))
    return runtime


def figure(how: str, work: float, share: float = 1.0) -> Figure:
    probe = dataclasses.replace(figures()[0].probe, work=work)
    return Figure("x", probe, how, 0.1, "", share)


def test_arithmetic() -> None:
    s = Sample(rounds=100, cycles=50_000, seconds=1e-3, host_seconds=2e-3)
    assert figure("cycles each", 10).value(s) == 50
    assert figure("cycles each", 256, 0.25).value(s) == pytest.approx(50_000 / 6400)
    assert figure("per cycle", 2048).value(s) == pytest.approx(4.096)
    assert figure("GB/s", 1 << 20).value(s) == pytest.approx(104.8576)
    assert figure("MHz", 1).value(s) == 50
    assert figure("seconds each", 1).value(s) == pytest.approx(1e-5)
    assert figure("host seconds each", 1).value(s) == pytest.approx(2e-5)
    assert Measured.of([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]) == Measured(6, 8 / 6)


def test_the_command_measures_writes_and_is_believed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = install(monkeypatch, BenchRuntime())
    before, note = target.profile_of(GPU)
    assert "sparsegen calibrate" in note and before.name == GPU.name
    assert cli.main(["calibrate"]) == 0
    path = store.path_of(GPU.name)
    assert path.name == "nvidia-test-9000.toml" and not runtime.held
    shown = capsys.readouterr()
    assert str(path) in shown.out and path.read_text(encoding="utf-8") in shown.out
    found = load_profile(path)
    for f in figures():
        got = found.cpi[f.key[4:]] if f.key.startswith("cpi.") else getattr(found, f.key, None)
        if got is not None:
            assert got == pytest.approx(expected(f), rel=1e-3), f.key
    assert (found.sms, found.regs_sm, found.max_threads_sm, found.max_blocks_sm) == (4, 65_536, 2048, 32)
    assert (found.name, found.cc, found.arch, found.sub_cores) == (GPU.name, "9.0", "sm_90a", 4)
    again, note = target.profile_of(GPU)
    assert again == found and str(path) in note


def test_every_figure_of_the_format_is_measured_or_asked_and_every_line_says_which() -> None:
    measured = {f.key for f in figures()}
    assert not measured & WHOLE and set(RANGES) == WHOLE | {k for k in measured if k in RANGES}
    found = run.calibrate(BenchRuntime(), quiet)
    text = profile.text(GPU, found, {"date": "2026-01-01", "driver": "580", "nvcc": "13.0", "launcher": "driver"})
    for line in text.split("[measured]")[0].splitlines():
        assert not line or "#" in line, line
    data = profile.tomllib.loads(text)
    assert set(data["measured"]["spread"]) == measured
    assert {"launch_host_s", "prmt_per_clk_sm", "driver", "date", "nvcc"} <= set(data["measured"])
    assert profile.checked(text).name == GPU.name


def quiet(line: str) -> None:
    """For whom the lines of progress do not matter."""


def noisy(kernel: str, until: float = 1e9) -> Any:
    """Every other launch of a kernel takes half as long again, up to a number of launches."""
    return lambda name, nth: 1.5 if name == kernel and nth % 2 and nth <= until else 1.0


def test_a_figure_that_settles_when_measured_again_is_fine() -> None:
    runtime = BenchRuntime(noisy("chase_l2", until=8))
    assert run.calibrate(runtime, quiet).figures["lat_l2"].value == pytest.approx(TRUTH["chase_l2"] / 4)
    assert runtime.launched["chase_l2"] == 20


def test_a_busy_gpu_keeps_the_old_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, BenchRuntime(noisy("shared_read")))
    out = tmp_path / "mine.toml"
    assert cli.main(["calibrate", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "smem_bytes_per_clk_sm" in error and "(at most 2 %)" in error and "twice measured" in error, error
    assert "no profile is written" in error and "another process" in error and not out.exists()
    out.write_text("old")
    assert cli.main(["calibrate", "--out", str(out)]) == 2
    assert f"the old profile {out} is kept" in capsys.readouterr().err
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]


def test_where_nothing_can_be_written_is_said_before_measuring(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = BenchRuntime()
    install(monkeypatch, runtime)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.toml").mkdir()
    for out, what in (("file/x.toml", "cannot write"), ("folder.toml", "is no name of a profile"), ("x", "with .toml")):
        assert cli.main(["calibrate", "--out", str(tmp_path / out)]) == 2
        assert what in capsys.readouterr().err and not runtime.launched


def test_a_clock_that_falls_is_throttling() -> None:
    runtime = BenchRuntime()
    runtime.noise = lambda name, nth: 0.9 if name == "clock" and len(runtime.launched) > 20 else 1.0
    with pytest.raises(DeviceError, match="fell from 2000 to 1800 MHz") as error:
        run.calibrate(runtime, quiet)
    assert "power or temperature" in str(error.value.hint)


def test_a_figure_that_is_absurd_is_not_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = dataclasses.replace(GPU, registers_per_sm=0)
    install(monkeypatch, BenchRuntime(gpu=gpu))
    assert cli.main(["calibrate", "--out", str(tmp_path / "x.toml")]) == 2
    assert "regs_sm = 0 is absurd" in capsys.readouterr().err and not (tmp_path / "x.toml").exists()


def test_what_cannot_be_measured_is_said() -> None:
    strange = dataclasses.replace(GPU, capability=(19, 0))
    with pytest.raises(DeviceError, match=r"19\.0.*sub-cores") as error:
        plan(strange, FREE)
    assert "SUB_CORES" in str(error.value.hint)
    with pytest.raises(DeviceError, match="8 MiB of device memory are free"):
        plan(GPU, 8 << 20)
    with pytest.raises(DeviceError, match="an L2 of 0 MiB"):
        plan(dataclasses.replace(GPU, l2_bytes=0), FREE)
    assert stream_bytes(GPU, FREE) == FREE // 4 and l2_rows(GPU.l2_bytes) == 64 and l2_rows(60 << 20) == 1024


def test_a_broken_calibrated_profile_is_named(tmp_path: Path) -> None:
    path = store.path_of(GPU.name)
    assert store.calibrated(GPU) is None
    store.save("sms = 3\n", path)
    with pytest.raises(DeviceError, match=r"calibrated profile is broken.*name is missing") as error:
        target.profile_of(GPU)
    assert str(path) in str(error.value) and "sparsegen calibrate" in str(error.value.hint)
    shipped = (Path(str(store.__file__)).parents[1] / "cost/profiles/a100.toml").read_text(encoding="utf-8")
    store.save(shipped, path)
    with pytest.raises(DeviceError, match=r"is of compute capability 8\.0, but the NVIDIA Test 9000 has 9\.0"):
        target.profile_of(GPU)
    with pytest.raises(DeviceError, match="cannot write"):
        store.save("", path / "below" / "x.toml")


def test_the_options_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for bad in ("0", "x", "11"):
        with pytest.raises(SystemExit):
            cli.main(["calibrate", "--seconds", bad])
        assert f"{bad!r} is not a number of seconds" in capsys.readouterr().err


def test_every_step_is_said() -> None:
    lines: list[str] = []
    run.calibrate(BenchRuntime(), lines.append)
    total = len(lines)
    assert [line.split()[0] for line in lines] == [f"[{at + 1}/{total}]" for at in range(total)]
    assert lines[0].split()[1] == "compiled" and lines[-1].endswith("clock again")


def test_the_clock_is_that_under_load() -> None:
    assert run.calibrate(BenchRuntime(), quiet).clocks == pytest.approx((CLOCK / 1e6, CLOCK / 1e6))

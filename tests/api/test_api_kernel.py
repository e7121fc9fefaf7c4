"""A kernel from the outside: what it says of itself, how it is called, what it hands out."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import target
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.cost.devices import load_profile
from tests.nvcc_kit import library

ROOT = Path(__file__).resolve().parent.parent.parent
needs_nvcc = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")


@sg.stencil(boundary=sg.periodic)
def heat2d(u: Any) -> Any:
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "gpu_info", lambda index=0: sg.DeviceError("no CUDA device is visible"))


def test_import_is_cheap() -> None:
    """Importing sparsegen loads none of its dependencies (so it adds next to nothing to numpy), nor its own parts."""
    code = (
        "import sys, sparsegen; print([m for m in sys.modules if m.split('.')[0] in %r or m.startswith('sparsegen.')])"
    )
    code %= (("numpy", "sympy", "networkx", "jinja2", "pycuda", "cuda"),)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['sparsegen._version']"


def test_names() -> None:
    assert set(sg.__all__) <= set(dir(sg))
    for name in sg.__all__:
        assert getattr(sg, name) is getattr(sg, name)
    assert callable(sg.compile) and sg.__version__.count(".") == 2


def test_compile_stays_a_function_when_its_module_is_imported() -> None:
    code = "import sparsegen.kernel, sparsegen.compiler, sparsegen.dsl.stencil as m, sparsegen as sg; "
    code += "assert callable(sg.compile) and callable(sg.stencil) and callable(sg.schedules); print('ok')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "ok"


def test_without_a_gpu_the_emulator_runs_the_code_for_the_h200(no_gpu: None) -> None:
    k = sg.compile(heat2d, (64, 64))
    assert k.backend == "emulator" and k.device == load_profile("h200")
    text = k.explain()
    assert "no CUDA device is visible" in text and "NVIDIA H200 (sm_90a)" in text and "runs on the emulator" in text


def test_device_by_name_and_by_file(no_gpu: None, tmp_path: Path) -> None:
    shipped = ROOT / "sparsegen" / "cost" / "profiles" / "a100.toml"
    mine = tmp_path / "mine.toml"
    mine.write_text(shipped.read_text().replace("sms = 108", "sms = 54"))
    a, b = (sg.compile(heat2d, (4096, 4096), device=d) for d in ("A100", mine))
    assert a.device.arch == "sm_80" and b.device.sms == 54 and a.device.sms == 108
    assert a.backend == b.backend == "emulator"


def test_a_schedule_is_text_a_value_or_chosen() -> None:
    k = sg.compile(heat2d, (512, 512), steps=6, backend="emulator", device="h200")
    best = sg.schedules(heat2d, (512, 512), steps=6, device="h200")
    assert k.schedule in [c.schedule for c in best]
    again = sg.compile(heat2d, (512, 512), steps=6, backend="emulator", device="h200", schedule=str(k.schedule))
    value = sg.compile(heat2d, (512, 512), steps=6, backend="emulator", device="h200", schedule=k.schedule)
    assert again.schedule == value.schedule == k.schedule == sg.Schedule.parse(str(k.schedule))
    assert again.ir() == value.ir() == k.ir() and again.cost.time == k.cost.time


def test_schedules_are_legal_and_sorted() -> None:
    found = sg.schedules(heat2d, (1000, 1000), device="h200")
    times = np.array([c.time_per_step for c in found])
    assert np.all(np.diff(times) > -2e-12)  # equal ones, to a picosecond, are ordered by what would bind next
    assert {c.schedule.family for c in found} >= {"direct", "tiled", "stencil2row"}
    assert max(c.schedule.fuse for c in found) == 3
    assert {c.schedule.fuse for c in sg.schedules(heat2d, (1000, 1000), steps=1, device="h200")} == {1}
    small = [c.schedule for c in sg.schedules(heat2d, (6, 1000), device="h200")]
    assert {s.fuse for s in small if not s.levelled} == {1, 2} and max(s.steps for s in small) == 6
    exact = sg.schedules(heat2d, (1000, 1000), device="h200", nonfinite="exact")
    assert {c.schedule.family for c in exact} == {c.schedule.family for c in found} - {
        "stencil2row",
        "patches",
        "lowrank",
    }


def test_the_choice_is_the_cheapest_for_these_steps() -> None:
    from sparsegen.cost.total import total_time

    for steps in (1, 2, 3, 4, 100):
        k = sg.compile(heat2d, (2048, 2048), steps=steps, device="h200", backend="emulator")
        costs = sg.schedules(heat2d, (2048, 2048), steps=steps, device="h200")
        assert total_time(k.cost, steps) == min(total_time(c, steps) for c in costs)
        assert k.schedule.fuse <= steps


def test_cost() -> None:
    k = sg.compile(heat2d, (1024, 1024), backend="emulator", device="h200", schedule="tiled stages=2")
    assert k.cost.time > 0 and k.cost.terms["hbm"] >= 0 and k.cost.schedule == k.schedule
    assert float(k.cost.formula.xreplace(k.cost.substitution())) == pytest.approx(k.cost.time, rel=1e-9)


def test_explain_says_what_was_chosen_and_why() -> None:
    k = sg.compile(heat2d, (10240, 10240), steps=100, device="h200", backend="emulator")
    text = k.explain()
    assert f"schedule   {k.schedule}" in text and "chosen" in text and "bound by" in text
    for family in ("direct", "tiled", "stencil2row"):
        assert f"  {family} " in text
    for name, reason in k.cost.reasons().items():
        assert name in text and reason in text
    assert "refused:" in text and "bytes of shared memory a block" in text and "what would change the choice" in text
    assert "800 MiB (the second field of the time loop)" in text
    given = sg.compile(heat2d, (10240, 10240), device="h200", backend="emulator", schedule="direct").explain()
    assert "was given, not chosen" in given and "x its time" in given


def test_what_explain_says_would_change_the_choice_does_change_it() -> None:
    """Compile for a device with the doubled figure: the family and the fusion that explain names come out."""
    tried = 0
    for name, key, what, radii in (  # of a pair of radii one changes the choice
        ("h200", "f64_fma_per_clk_sm", "FP64 FMA rate", (1,)),
        ("rtx4090", "f64_fma_per_clk_sm", "FP64 FMA rate", (1, 3)),
        ("h100", "hbm_copy_gbs", "DRAM bandwidth", (2,)),
        ("a100", "hbm_copy_gbs", "DRAM bandwidth", (1, 3)),
    ):
        for r in radii:
            st = sg.Stencil.from_weights(np.full((2 * r + 1, 2 * r + 1), 1 / (2 * r + 1) ** 2))
            k = sg.compile(st, (4096, 4096), steps=6, device=name, backend="emulator")
            named = [c for c in k.explain().data["changes"] if c["what"] == f"twice the {what}" and c["changes"]]
            better = dataclasses.replace(k.device, **{key: 2 * getattr(k.device, key)})
            there = sg.compile(st, (4096, 4096), steps=6, device=better, backend="emulator").schedule
            if named:
                said = sg.Schedule.parse(named[0]["schedule"])
                assert (there.family, there.steps) == (said.family, said.steps) != (k.schedule.family, k.schedule.steps)
                tried += 1
            else:
                assert there.family == k.schedule.family and there.steps == k.schedule.steps
    assert tried, "no case in which a doubled figure changes the choice: find another"
    assert "more than 2 steps a call" in sg.compile(heat2d, (64, 64), steps=2, device="h200").explain()


def test_levels() -> None:
    k = sg.compile(heat2d, (64, 64), backend="emulator", device="h200", schedule="stencil2row")
    op, tile, warp = k.ir("op"), k.ir("tile"), k.ir("warp")
    assert "op.stencil" in op and "tile.product" in tile and "warp.mma" in warp and k.ir() == warp
    assert "f64.m8n8k4" in warp


def test_source_and_export(tmp_path: Path) -> None:
    k = sg.compile(heat2d, (64, 64), steps=4, backend="emulator", device="h200", schedule="tiled fuse=2 stages=2")
    source = k.source()
    assert source == k.source() and f"Schedule: {k.schedule}" in source and "__global__" in source
    path = k.export(tmp_path / "heat2d.cu")
    text = path.read_text()
    assert 'extern "C" int heat2d_run(' in text and "A call does 4 time steps: 2 passes of 2 steps." in text
    assert "int heat2d_run(const double* in, double* out, void* workspace," in path.with_suffix(".h").read_text()


@needs_nvcc
def test_ptx_and_resources() -> None:
    k = sg.compile(heat2d, (64, 64), backend="emulator", device="h200", schedule="stencil2row stages=2")
    assert ".target sm_90a" in k.ptx() and "mma.sync.aligned.m8n8k4" in k.ptx()
    r = k.resources()
    assert r.arch == "sm_90a" and r.registers > 0 and r.spills == 0 and 0 < r["heat2d"].occupancy.fraction <= 1
    assert r.shared >= 1000 and "registers" in str(r)
    with pytest.raises(KeyError):
        r["no such kernel"]


@needs_nvcc
def test_an_exported_file_compiles(tmp_path: Path) -> None:
    k = sg.compile(heat2d, (64, 64), 5, backend="emulator", device="a100", schedule="tiled fuse=2 stages=2")
    library(k.export(tmp_path / "heat2d.cu"), "sm_80")


@pytest.mark.skipif(
    find_tool(
        "nvdisasm",
    )
    is None
    and find_tool("cuobjdump") is None,
    reason="no disassembler",
)
@needs_nvcc
def test_sass() -> None:
    k = sg.compile(heat2d, (64, 64), backend="emulator", device="h200", schedule="stencil2row")
    assert "DMMA" in k.sass()


# ------------------------------------------------------------------------------------------------ calls
@pytest.mark.parametrize("backend", ["reference", "emulator"])
def test_calls(backend: str) -> None:
    k = sg.compile(heat2d, (16, 24), steps=3, backend=backend, schedule="tiled fuse=2")
    u = np.random.default_rng(0).random((16, 24))
    u.flags.writeable = False
    want = u
    for _ in range(3):
        want = 0.5 * want + 0.125 * sum(np.roll(want, s, a) for s in (1, -1) for a in (0, 1))
    got = k(u)
    assert got is not u and np.abs(got - want).max() < 1e-14
    out = np.empty_like(want)
    assert k(u, out=out) is out and np.array_equal(out, got)
    assert (
        np.abs(k(u, steps=1) - (0.5 * u + 0.125 * sum(np.roll(u, s, a) for s in (1, -1) for a in (0, 1)))).max() < 1e-15
    )
    assert np.abs(k(k(u, steps=np.int64(2)), steps=1) - want).max() < 1e-14


def test_nothing_is_written_beside_out() -> None:
    k = sg.compile(heat2d, (16, 24), steps=2, backend="emulator", schedule="tiled stages=2")
    around = np.full((18, 24), 7.0)
    k(np.ones((16, 24)), out=around[1:17])
    assert np.all(around[[0, 17]] == 7.0) and np.allclose(around[1:17], 1.0)


@pytest.mark.parametrize("backend", ["reference", "emulator"])
def test_rows_with_a_pitch(backend: str) -> None:
    """Blocks of columns of wider arrays, in and out; what stands between the rows stays."""
    k = sg.compile(heat2d, (16, 21), steps=3, backend=backend, schedule="tiled stages=2")
    wide, around = np.random.default_rng(0).random((16, 40)), np.full((16, 30), 7.0)
    want = k(np.ascontiguousarray(wide[:, 5:26]))
    assert k(wide[:, 5:26], out=around[:, 8:29]) is not None
    assert np.array_equal(around[:, 8:29], want) and np.all(around[:, :8] == 7.0) and np.all(around[:, 29:] == 7.0)
    side = np.concatenate([wide[:, 5:26], np.zeros((16, 21))], axis=1)  # in and out side by side in one array
    assert np.array_equal(k(side[:, :21], out=side[:, 21:]), want)


def test_a_mean_is_kept_and_a_constant_stays() -> None:
    """Properties that need no second implementation: weights that sum to 1 on a periodic field."""
    k = sg.compile(heat2d, (48, 40), steps=12, backend="emulator", device="h200")
    u = np.random.default_rng(3).random((48, 40))
    assert abs(k(u).mean() - u.mean()) < 1e-14
    assert np.abs(k(np.full((48, 40), 2.5)) - 2.5).max() < 1e-14


def test_threads_share_a_kernel() -> None:
    k = sg.compile(heat2d, (24, 24), steps=3, backend="emulator", schedule="tiled stages=2")
    fields = [np.random.default_rng(i).random((24, 24)) for i in range(6)]
    want = [k(u) for u in fields]
    got: list[Any] = [None] * len(fields)

    def work(i: int) -> None:
        for _ in range(2):
            got[i] = k(fields[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(fields))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_threads_compile_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls with a new number of steps lower the program for the rest once, whoever asks first."""
    import sparsegen.calls.stencil as pipelines

    made = []
    lower = pipelines.lower
    monkeypatch.setattr(pipelines, "lower", lambda *a: made.append(a[3]) or lower(*a))
    k = sg.compile(heat2d, (24, 24), steps=3, backend="emulator", schedule="tiled fuse=3")
    threads = [threading.Thread(target=k._plan, args=(4,)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert made == [3, 1]


# ------------------------------------------------------------------------------------------------ judging
@pytest.mark.parametrize(
    "line",
    [
        "direct",
        "tiled stages=2 fuse=2",
        "stencil2row stages=2",
        "stencil2row transform=explicit",
    ],
)
def test_check_finds_nothing(line: str) -> None:
    k = sg.compile(heat2d, (40, 72), steps=3, backend="emulator", device="h200", schedule=line)
    report = k.check(np.random.default_rng(0).random((40, 72)))
    assert report.ok and report.errors == [] and report.raise_if_errors() is report


def test_check_finds_a_missing_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that leaves out the pass that orders what threads share is caught, with the user's line."""
    import sparsegen.calls.stencil as pipelines
    from sparsegen.ir import warp
    from sparsegen.ir.module import Module
    from sparsegen.ir.node import rewrite

    lower = pipelines.lower

    def broken(*args: Any) -> Any:
        import dataclasses

        program = lower(*args)
        funcs = tuple(
            dataclasses.replace(f, body=rewrite(f.body, lambda op: None if isinstance(op, warp.Barrier) else op))
            for f in program.warp.funcs
            if isinstance(f, warp.Func)
        )
        module = Module(program.warp.name, funcs, program.warp.launches, program.warp.constants)
        return dataclasses.replace(program, warp=module)

    monkeypatch.setattr(pipelines, "lower", broken)
    k = sg.compile(heat2d, (40, 72), backend="emulator", device="h200", schedule="tiled")
    report = k.check()
    assert not report.ok and "race" in report.kinds()
    with pytest.raises(sg.KernelFault) as caught:
        report.raise_if_errors()
    assert caught.value.loc is not None and caught.value.loc.file == __file__


def test_check_finds_cells_that_no_launch_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the launch that does the rim of a fused stencil."""
    import sparsegen.calls.stencil as pipelines

    lower = pipelines.lower

    def broken(*args: Any) -> Any:
        program = lower(*args)
        assert len(program.warp.launches) == 2
        warp = dataclasses.replace(program.warp, launches=program.warp.launches[:1])
        return dataclasses.replace(program, warp=warp)

    monkeypatch.setattr(pipelines, "lower", broken)
    st = sg.Stencil.from_weights(heat2d.weights, boundary=sg.dirichlet(0.0))
    report = sg.compile(st, (40, 72), steps=2, backend="emulator", schedule="tiled fuse=2").check()
    assert report.kinds() == {"unwritten"} and "220 elements of the result" in str(
        report
    )  # 2 * 72 + 2 * 38: a rim one cell wide


def test_counts_are_exact() -> None:
    k = sg.compile(
        heat2d, (64, 64), steps=5, backend="emulator", device="h200", schedule="stencil2row fuse=3 tile=32x64"
    )
    found = k.counts()
    mma = {n: c for n, c in found.items() if "mma" in n}
    assert [launch.times for launch in found.launches] == [1, 1] and found.steps == 5
    assert mma and sum(mma.values()) == sum(
        n for launch in found.launches for name, n in launch.counts.items() if "mma" in name
    )
    assert "launched 1 time" in str(found)


def test_counts_describe_the_padded_passes() -> None:
    """Odd rows: only the last pass stores to rows that begin within a sector."""
    options = {"backend": "emulator", "device": "h200", "schedule": "tiled stages=2"}
    few, many = (sg.compile(heat2d, (64, 63), steps=n, **options).counts() for n in (2, 9))  # type: ignore[arg-type]
    assert [launch.times for launch in few.launches] == [2] and [launch.times for launch in many.launches] == [1, 7, 1]
    first, inner, last = (launch.counts["sectors.global.write"] for launch in many.launches)
    assert first == inner < 0.6 * last and few["sectors.global.write"] == 2 * last and many.steps == 9


def test_bench_is_labelled() -> None:
    k = sg.compile(heat2d, (32, 32), steps=2, backend="emulator", device="h200", schedule="direct")
    r = k.bench(repeats=3)
    assert len(r.times) == 3 and r.median > 0 and r.rate == pytest.approx(32 * 32 * 2 / r.median / 1e9)
    assert r.fraction is None and "not a GPU's" in str(r) and r.steps == 2
    assert sg.compile(heat2d, (32, 32), backend="reference").bench(np.ones((32, 32)), repeats=1).spread == 0.0


def test_repr() -> None:
    k = sg.compile(heat2d, (32, 32), steps=2, backend="emulator", schedule="direct")
    assert repr(k) == "<Kernel heat2d 32x32 steps=2 on emulator: direct block=32x8 fuse=1>"
    odd = sg.compile(heat2d, (32, 33), steps=3, backend="emulator", schedule="direct")
    assert repr(odd).endswith("direct block=32x8 fuse=1, workspace pitch 48>")
    assert "rows 48 elements apart" in odd.explain() and "pitch  " not in k.explain()
    inner = sg.compile(heat2d, (32, 33), steps=4, backend="emulator", schedule="direct").source()
    assert "Rows of the input are 48 elements apart" in inner and "elements apart" not in k.source()

"""General updates from the user's side: calls, results, time loops, inspection, on every back end there is."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.calls.update import Ring
from sparsegen.dsl.update import Update
from sparsegen.run.workspace import Rows
from sparsegen.views import ArrayLayout, ArrayView
from tests.updates import NAMED, arrays, error, made, random_update, wave

UPDATES = st.integers(0, 2**32 - 1).map(random_update)

#: Each step may differ by rounding; what the cases compute does not amplify it.
TOLERANCE = {"f64": 1e-11, "f32": 1e-4}


def flat(result: Any) -> list[Any]:
    """All arrays of a result."""
    return [a for part in result for a in flat(part)] if isinstance(result, tuple) else [result]


def damped(update: Update, shape: tuple[int, ...]) -> dict[str, Any]:
    """Arrays with which no case grows: coefficients small."""
    found = arrays(update, shape)
    return {n: a * 0.2 if n in update.coefs else a for n, a in found.items()}


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
@pytest.mark.parametrize("name", NAMED)
def test_time_loops_agree(name: str, steps: int) -> None:
    make, shape = NAMED[name]
    for boundary in (sg.periodic, sg.frozen, sg.dirichlet(0.5)):
        update = make(boundary=boundary)
        given_ = damped(update, shape)
        before = {n: [a.copy() for a in flat(x)] for n, x in given_.items()}
        want = sg.compile(update, shape, steps, backend="reference")(**given_)
        got = sg.compile(update, shape, steps, backend="emulator")(**given_)
        for a, b in zip(flat(got), flat(want), strict=True):
            assert isinstance(a, np.ndarray) and a.dtype == np.float64 and error(a, b) <= TOLERANCE["f64"]
        for n, x in given_.items():
            assert all(np.array_equal(a, b) for a, b in zip(flat(x), before[n], strict=True)), f"{n} was written"


@given(update=UPDATES, steps=st.integers(1, 9))
@settings(max_examples=10)
def test_random_updates_agree(update: Update, steps: int) -> None:
    shape = tuple(n + 4 for n in update.extents)
    given_ = arrays(update, shape)
    want = sg.compile(update, shape, steps, backend="reference")(**given_)
    got = sg.compile(update, shape, steps, device="h200", backend="emulator")(**given_)
    for a, b in zip(flat(got), flat(want), strict=True):
        assert error(a, b) <= 10 * TOLERANCE[update.dtype]


def test_results_have_the_form_of_the_fields() -> None:
    def mixed(u: sg.Field(levels=3), v: Any) -> Any:  # type: ignore[valid-type]
        return u.prev.prev[0] + 1, v[0] * 2  # type: ignore[operator]

    k = sg.compile(made(mixed), (5,), steps=2, backend="reference")
    u, v = tuple(np.full(5, float(i)) for i in range(3)), np.ones(5)
    (new, before, old), w = k((u[0], u[1], u[2]), v)
    assert [a[0] for a in (new, before, old, w)] == [2.0, 3.0, 0.0, 4.0]
    for one in (k(u, v=v), k(v=v, u=list(u))):
        assert all(np.array_equal(a, b) for a, b in zip(flat(one), (new, before, old, w), strict=True))


def test_out_is_written_and_given_back() -> None:
    update = wave(boundary=sg.periodic)
    given_ = damped(update, (9, 12))
    for backend in ("reference", "emulator"):
        k = sg.compile(update, (9, 12), steps=4, backend=backend)
        wide = np.full((2, 9, 20), np.nan)
        out = (wide[0, :, :12], np.empty((9, 12)))
        assert k(**given_, out=out) is out
        assert all(np.array_equal(a, b) for a, b in zip(out, k(**given_), strict=True))
        assert np.isnan(wide[0, :, 12:]).all() and np.isnan(wide[1]).all()
        assert all(
            error(a, b) <= 1e-11 for a, b in zip(k(**given_, steps=1), k(**given_, steps=1, out=out), strict=True)
        )


def test_coefficients_of_many_passes_lie_in_padded_rows() -> None:
    """They are copied once a call, if there are three passes of schedules that copy pieces and rows that are none."""
    update = wave(boundary={0: sg.frozen, 1: sg.periodic})
    given_ = damped(update, (21, 75))
    k = sg.compile(update, (21, 75), steps=6, backend="emulator", device="h200", schedule="stream levels=2 cols=2")
    want = sg.compile(update, (21, 75), steps=6, backend="reference")(**given_)
    assert all(error(a, b) <= 1e-11 for a, b in zip(k(**given_), want, strict=True))
    assert "1 array copied" in k.explain() and not k.check(**given_).errors
    assert "ws.c.0" in k._plan(6).workspaces and "ws.c.0" not in k._plan(4).workspaces
    wide = np.zeros((21, 80))
    wide[:, :75] = given_["c"]  # rows of which each starts at such a boundary already
    assert all(np.array_equal(a, b) for a, b in zip(k(given_["u"], wide[:, :75]), k(**given_), strict=True))
    even = sg.compile(update, (21, 76), steps=6, backend="emulator", device="h200", schedule="stream levels=2 cols=2")
    assert "ws.c.0" not in even._plan(6).workspaces


def test_arrays_with_padded_rows() -> None:
    update = wave()
    given_ = damped(update, (9, 12))
    wide = np.zeros((9, 30))
    wide[:, 4:16] = given_["c"]
    k = sg.compile(update, (9, 12), steps=3, backend="emulator")
    assert np.array_equal(k(given_["u"], wide[:, 4:16])[0], k(**given_)[0])


@given(
    levels=st.integers(1, 5), most=st.integers(1, 8), rest=st.integers(0, 7), passes=st.integers(1, 12),
    apart=st.booleans(),
)  # fmt: skip
def test_a_ring_never_overwrites_what_is_still_read(
    levels: int, most: int, rest: int, passes: int, apart: bool
) -> None:
    ring = Ring("u", levels, [rest % most] * (rest % most > 0) + [most] * passes, apart=apart)
    for i in range(passes + (rest % most > 0)):
        written = ring.written(i)
        assert not set(written) & set(ring.read(i)) and not any(a.startswith("in.") for a in written)
    assert written == [f"out.u.{k}" for k in range(min(levels, most))]


@given(update=UPDATES, steps=st.integers(1, 40), most=st.integers(1, 7))
@settings(max_examples=30)
def test_plans_run_each_step_once_on_the_levels_before_it(update: Update, steps: int, most: int) -> None:
    """Played through with numbers of time steps in place of fields."""
    shape = tuple(n + 4 * most for n in update.extents)  # rows of which many do not start at 16-byte boundaries
    line = f"stream levels={min(most, steps)} cols=4"
    try:
        k = sg.compile(update, shape, steps, backend="emulator", device="h200", schedule=line)
    except sg.SparsegenError:
        k = sg.compile(update, shape, backend="emulator", device="h200", schedule="direct")
    plan, size = k._plan(steps), k.schedule.levels
    passes = [*([steps % size] if steps % size else []), *[size] * (steps // size)]
    level, now, i = {n: -int(n.split(".")[2]) for n in k._calls.inputs}, 0, 0
    for step in plan.run():
        bound = dict(step.arrays)
        if not step.program.steps:
            ((source, target),) = [
                (s, t) for r, s in bound.items() for q, t in bound.items() if r[0] == "i" and q[0] == "o"
            ]
            level[target] = level[source]
            continue
        for name, n in update.fields:
            assert [level[bound[f"in.{name}.{k}"]] for k in range(n)] == list(range(now, now - n, -1))
        assert all(level[bound[f"in.{name}.0"]] == 0 for name in update.coefs)
        now += passes[i]
        made = {r: a for r, a in bound.items() if r.startswith("out.")}
        assert len(made) == sum(min(n, passes[i]) for _, n in update.fields) and step.program.steps == passes[i]
        level |= {a: now - int([*r.split("."), "0"][2]) for r, a in made.items()}
        i += 1
    assert all(level[n] == steps - int(n.split(".")[2]) for n in k._calls.outputs)
    copies = sum(max(0, n - steps) for _, n in update.fields)
    copies += len(update.coefs) * bool(plan.padded)
    assert sum(n for _, n in plan.programs) == plan.passes == len(passes) + copies
    assert {n for n in level if n.startswith("ws.")} == set(plan.workspaces)


def test_looking_at_a_kernel() -> None:
    update = wave(boundary=sg.neumann)
    k = sg.compile(update, (64, 96), steps=5, device="h200", backend="emulator", schedule="direct block=64x2 column=2")
    assert repr(k) == "<UpdateKernel wave 64x96 steps=5 on emulator: direct block=64x2 column=2>"
    assert k.schedule == sg.UpdateSchedule("direct", (64, 2), 2) == sg.UpdateSchedule.parse(str(k.schedule))
    assert "op.update" in k.ir("op") and "tile.update" in k.ir("tile") and "warp.fma" in k.ir()
    assert "fma(" in k.source() and "Schedule: direct block=64x2 column=2" in k.source()
    assert k.workspace_nbytes == 64 * 96 * 8
    assert sg.compile(update, (64, 96), steps=2, backend="emulator", schedule="direct").workspace_nbytes == 0
    report = k.check()
    assert report.ok and not report.notes
    assert k.counts()["bytes.global.write"] == 5 * 64 * 96 * 8
    assert k.bench(repeats=2).steps == 5


def test_explain_says_what_and_why() -> None:
    text = sg.compile(wave(), (2048, 2048), steps=50, device="h200", backend="emulator").explain()
    for part in (
        "wave: update of u (2 levels) with c",
        "general updates take CUDA-core schedules",
        "tensor cores and fused weights need a formula that is linear",
        "6 floating-point instructions (6 FMA) a cell and step",
        "3 arrays read and 2 written a pass",
        "bound by",
        "launches   ",
        "chosen",
        "workspace  64 MiB (more arrays for each field)",
    ):
        assert part in text, f"{part!r} is not in:\n{text}"
    once = sg.compile(wave(), (64, 64), device="h200", backend="emulator", schedule="direct").explain()
    assert "and 1 array copied" in once


def test_schedules_are_ranked() -> None:
    found = sg.schedules(wave(), (4096, 4096), device="h200")
    assert [c.time_per_step for c in found] == sorted(c.time_per_step for c in found)
    direct = [c.schedule.column for c in found if c.schedule.family == "direct"]
    assert {*direct} == {1, 2, 4} and {c.schedule.family for c in found} == {"direct", "stream", "tiled"}
    assert found[0].schedule.levels > 4 and sg.schedules(wave(), (4096, 4096), 1, device="h200")[0].schedule.levels == 1
    assert sg.compile(wave(), (4096, 4096), 1000, device="h200", backend="emulator").schedule.levels > 4
    small = sg.schedules(wave(), (16, 16), device="h200")
    assert {c.schedule.column for c in small if c.schedule.family == "direct"} == {1}


def test_what_cannot_be_streamed_is_refused() -> None:
    cases = (
        (wave(), (64, 64), 2, "stream levels=4", "does 4 time steps at once, but steps=2"),
        (wave(dtype="f32"), (64, 64), 8, "stream levels=4 cols=6", "no whole pieces"),
        (NAMED["heat"][0](), (8, 8, 8), 8, "stream", "1 or 2 axes"),
        (wave(), (64, 64), 99, "stream levels=24", "registers a thread"),
        (wave(), (64, 64), 99, "stream levels=16 cols=2 stages=8 warps=8", "bytes of shared memory"),
        (wave(), (5, 64), 99, "stream levels=6", "past the field"),
        (NAMED["gray_scott"][0](boundary={"u": sg.periodic, "v": sg.frozen}), (64, 64), 8, "stream", "wraps for one"),
    )
    for update, shape, steps, line, what in cases:
        with pytest.raises(sg.ScheduleError, match=what) as refused:
            sg.compile(update, shape, steps, device="rtx3080", backend="emulator", schedule=line)
        assert refused.value.hint
    with pytest.raises(sg.ScheduleError, match="needs sm_80"):
        sg.compile(wave(), (64, 64), 8, device="v100", backend="emulator", schedule="stream")


@pytest.mark.parametrize(
    ("name", "shape", "line"),
    [("gray_scott", (512, 512), "stream levels=24 cols=4"), ("heat", (64, 64, 64), "column levels=8 lines=4 warps=8")],
)
def test_too_many_steps_a_pass_are_told_how_many_fit(name: str, shape: tuple[int, ...], line: str) -> None:
    """And so many do."""

    def compiled(line: str) -> object:
        return sg.compile(NAMED[name][0](), shape, 48, device="h200", backend="emulator", schedule=line)

    with pytest.raises(sg.ScheduleError, match="registers a thread") as refused:
        compiled(line)
    told = re.fullmatch(r"levels=(\d) fits", refused.value.hint or "")
    assert told is not None
    compiled(re.sub(r"levels=\d+", f"levels={told[1]}", line))
    with pytest.raises(sg.ScheduleError):
        compiled(re.sub(r"levels=\d+", f"levels={int(told[1]) + 1}", line))


def test_check_finds_a_fault() -> None:
    import dataclasses

    from sparsegen.ir import warp
    from sparsegen.ir.node import rewrite

    k = sg.compile(wave(boundary=sg.periodic), (24, 40), device="h200", backend="emulator", schedule="direct")
    main: Any = k._main()
    (func,) = main.warp.funcs

    def guarded(op: Any) -> Any:  # the last column is left out
        return dataclasses.replace(op, where=op.index.ne(39)) if isinstance(op, warp.St) else op

    broken = dataclasses.replace(main.warp, funcs=(dataclasses.replace(func, body=rewrite(func.body, guarded)),))
    program = dataclasses.replace(main, warp=broken)
    plan = k._plan(1)
    (step,) = plan.parts[0].cycle
    part = dataclasses.replace(plan.parts[0], cycle=(dataclasses.replace(step, program=program),))
    k._plans.known[1, None] = dataclasses.replace(plan, parts=(part,))
    assert k.check().kinds() == {"unwritten"}


def test_export_names_the_levels(tmp_path: Path) -> None:
    k = sg.compile(wave(), (64, 64), device="h200", backend="emulator")
    text = k.export(tmp_path / "wave.cu").read_text()
    assert "int wave_run(const double* in_u_0, const double* in_u_1, const double* in_c_0, double* out_u_0," in text
    with pytest.raises(sg.ArrayError, match="cannot write"):
        k.export(tmp_path / "none" / "wave.cu")


# ------------------------------------------------------------------------------------------------ the CUDA executor
@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU whose memory is the host's and whose launches run on the emulator."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import fake_gpu

    return fake_gpu.install(monkeypatch)


@pytest.mark.parametrize("name", NAMED)
def test_time_loops_on_a_gpu(gpu: Any, name: str) -> None:
    make, shape = NAMED[name]
    update = make(boundary=sg.frozen)
    k = sg.compile(update, shape, steps=9, backend="cuda")
    given_ = damped(update, shape)
    for steps in (1, 2, 3, 9, 26):
        want = sg.compile(update, shape, steps=steps, backend="reference")(**given_)
        for a, b in zip(flat(k(**given_, steps=steps)), flat(want), strict=True):
            assert error(a, b) <= TOLERANCE["f64"]


def test_graphs_hold_whole_periods(gpu: Any) -> None:
    k = sg.compile(wave(), (12, 40), steps=150, backend="cuda", schedule="direct")
    given_ = damped(k.update, (12, 40))
    want = sg.compile(k.update, (12, 40), steps=150, backend="reference")(**given_)
    assert error(k(**given_)[0], want[0]) <= 1e-10
    size = k.schedule.levels  # passes that do not read the input alternate between two sets of arrays
    assert gpu.launched == -(-150 // size) and gpu.replayed >= gpu.launched - 3


@pytest.mark.parametrize("line", ["direct", "stream levels=2 cols=2"])
def test_scalars_on_a_gpu(gpu: Any, line: str) -> None:
    """Those of every step alike, which graphs repeat, and others in every step, where the host starts each pass."""

    @sg.stencil
    def heat(u: sg.Field, dt: sg.Scalar, t: sg.Time) -> sg.Value:
        return u[0, 0] + dt * (u[0, 1] + u[0, -1] - 2 * u[0, 0]) + 0.1 * dt * t

    @sg.stencil
    def plain(u: sg.Field, dt: sg.Scalar) -> sg.Value:
        return u[0, 0] + dt * (u[0, 1] + u[0, -1] - 2 * u[0, 0])

    u = np.random.default_rng(3).random((12, 72))
    steps = 61
    for update, replayed in ((plain, True), (heat, False)):
        k = sg.compile(update, u.shape, steps=steps, backend="cuda", schedule=line)
        want = sg.compile(update, u.shape, steps=steps, backend="reference")
        before = gpu.replayed
        for numbers in ({"dt": 0.1}, {"dt": 0.2}, {"dt": np.linspace(0.1, 0.3, steps)}):
            assert error(k(u, **numbers), want(u, **numbers)) <= 1e-12
        assert (gpu.replayed > before) == replayed


def test_scalars_of_one_launch_on_a_gpu(gpu: Any) -> None:
    """They lie in a table, which is written anew where a call on the stream has others."""

    @sg.stencil
    def heat(u: sg.Field, dt: sg.Scalar, t: sg.Time) -> sg.Value:
        return u[0, 0] + dt * (u[0, 1] + u[0, -1] - 2 * u[0, 0]) + 0.1 * dt * t

    u = np.random.default_rng(3).random((12, 72))
    k = sg.compile(heat, u.shape, 5, backend="cuda", schedule="resident tiles=2x2 rows=2 cols=2 warps=4 every=1")
    plain = sg.compile(heat, u.shape, backend="reference")
    uploaded = []
    for steps, numbers in ((5, {"dt": 0.1}), (5, {"dt": 0.1}), (5, {"dt": 0.1, "t": 2}), (9, {"dt": 0.1}),
                           (3, {"dt": [0.1, 0.2, 0.3]}), (5, {"dt": 0.1})):  # fmt: skip
        assert error(k(u, steps=steps, **numbers), plain(u, steps=steps, **numbers)) <= 1e-12
        uploaded.append(gpu.uploaded)
    assert uploaded == [1, 1, 2, 3, 4, 5]


def test_scalars_of_a_captured_launch(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie in a table of its own, which no later call writes."""
    rows = Rows(gpu)
    first = rows.of(np.full((4, 2), 0.5), 7)
    monkeypatch.setattr(gpu, "capturing", lambda stream: True)
    captured = rows.of(np.full((4, 2), 0.25), 7)
    assert captured != first and captured != rows.of(np.full((4, 2), 0.125), 7)
    monkeypatch.undo()
    assert rows.of(np.broadcast_to(np.full(2, 0.75), (4, 2)), 7) == first
    held = [(ctypes.c_double * 8).from_address(at)[:] for at in (first, captured)]
    assert held == [[0.75] * 8, [0.25] * 8]


def test_scalars_lie_where_c_has_them(gpu: Any) -> None:
    """Right behind three pointers: pycuda hands all arguments over as one block."""

    @sg.stencil
    def heat(u: sg.Field, a: sg.Coef, dt: sg.Scalar) -> sg.Value:
        return u[0, 0] + dt * a[0, 0] * (u[0, 1] - u[0, 0])

    u = np.ones((12, 72))
    k = sg.compile(heat, u.shape, backend="cuda", schedule="direct")
    k(u, u, dt=0.1)
    (executor,) = k._executors.values()
    (ready,) = executor.loaded(k._main())
    assert ready.args.nbytes == 3 * 8 + 8 and ready.args.numbers == 3


def test_device_arrays_with_pitches(gpu: Any) -> None:
    update = wave(boundary=sg.neumann)
    k = sg.compile(update, (9, 13), steps=6, backend="cuda")
    given_ = damped(update, (9, 13))
    want = sg.compile(update, (9, 13), steps=6, backend="reference")(**given_)
    rows = {"in.u.0": 13, "in.u.1": 20, "in.c.0": 16, "out.u.0": 17, "out.u.1": 13}
    flat_ = {"in.u.0": given_["u"][0], "in.u.1": given_["u"][1], "in.c.0": given_["c"]}
    views, memory = {}, {}
    for n, wide in rows.items():
        memory[n] = np.full((9, wide), np.nan)
        memory[n][:, :13] = flat_.get(n, np.nan)
        pointer = gpu.alloc(memory[n].nbytes)
        gpu.to_device(pointer, memory[n])
        layout = ArrayLayout("cai", (9, 13), memory[n].strides, memory[n].dtype, "cuda", 0)
        views[n] = ArrayView(pointer, layout, SimpleNamespace())
    plan = k._device_plan(views, 6)
    k._executor(0, None).run(plan, {n: v.pointer for n, v in views.items()}, None, None)
    for n, level in (("out.u.0", want[0]), ("out.u.1", want[1])):
        gpu.to_host(memory[n], views[n].pointer)
        assert error(memory[n][:, :13], level) <= 1e-11 and np.isnan(memory[n][:, 13:]).all()

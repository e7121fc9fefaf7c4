"""``k.run``: frames that equal calls, runs that go on bit for bit, and what a user is told meanwhile."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen import interop, running
from sparsegen.checkpoint import Checkpoints
from sparsegen.run import progress, slow
from sparsegen.run.emulator import estimate
from sparsegen.run.slow import SlowRunWarning
from tests.refusals import refusal
from tests.updates import wave

ROOT = Path(__file__).resolve().parents[2]
ON: dict[str, Any] = {"device": "h200", "backend": "emulator"}
SHAPE = (24, 40)
U0 = np.random.default_rng(0).random(SHAPE)


def heat(dtype: str = "f64", boundary: Any = sg.periodic) -> sg.Stencil:
    w = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8.1
    return sg.Stencil.from_weights(w, boundary, dtype=dtype, name="heat")


#: Kernels that make 3, 1, 4, 3 and all time steps at once, and one whose passes are rounded to 16 bits.
HEAT = {
    line: sg.compile(heat(), SHAPE, 12, schedule=line, **ON)
    for line in ("stencil2row fuse=3", "direct", "stream levels=4", "tiled fuse=3")
}
HEAT["16 bits"] = sg.compile(heat("bf16"), SHAPE, 12, schedule="tiled fuse=3", **ON)
HEAT["reference"] = sg.compile(heat("f16"), SHAPE, 12, backend="reference")
WAVES = {line: sg.compile(wave(), SHAPE, 9, schedule=line, **ON) for line in ("stream levels=2", "direct")}
WAVES["resident"] = sg.compile(wave(), SHAPE, 9, schedule="resident", **ON)
WAVE = {"u": (U0, 0.9 * U0), "c": 0.2 + 0.1 * U0}


def start(k: sg.Kernel) -> Any:
    return U0.astype(k.dtype)


def flat(result: Any) -> list[Any]:
    return [a for part in result for a in flat(part)] if isinstance(result, tuple) else [result]


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(flat(a), flat(b), strict=True))


def last(frames: Any) -> Any:
    *_, frame = frames
    return frame


# ------------------------------------------------------------------------------------------------ frames
@given(name=st.sampled_from(sorted(HEAT)), steps=st.integers(1, 20), every=st.integers(1, 9))
def test_frames_are_those_of_calls(name: str, steps: int, every: int) -> None:
    k = HEAT[name]
    u0 = start(k)
    frames = list(k.run(u0, steps, every=every, initial=True))
    assert [f.step for f in frames] == sorted({*range(0, steps, every), steps})
    assert frames[0].fields is u0 and frames[0].rate is None and all((f.rate or 0) > 0 for f in frames[1:])
    whole = 1 if name == "reference" else k.schedule.steps
    for f in frames[1:]:
        called = k(u0, steps=f.step)
        assert f["u"] is f.fields and f.fields.dtype == k.dtype
        if f.step % whole == 0:
            assert same(f.fields, called)
        far = abs(f.fields.astype("f8") - called.astype("f8")).max()
        assert far <= {8: 1e-14, 2: 2.0**-6}[k.dtype.itemsize]
        assert same(f.fields, last(k.run(u0, f.step)).fields)  # whatever is looked at


@given(name=st.sampled_from(sorted(WAVES)), steps=st.integers(1, 9), every=st.integers(1, 5))
def test_frames_of_several_levels(name: str, steps: int, every: int) -> None:
    k = WAVES[name]
    before = [a.copy() for a in flat(tuple(WAVE.values()))]
    for f in k.run(WAVE["u"], WAVE["c"], steps, every=every):
        assert f.names == ("u",) and f["u"] is f.fields[0] and len(f.fields) == 2
        assert same(f.fields, k(**WAVE, steps=f.step))
    assert same(last(k.run(u=list(WAVE["u"]), c=WAVE["c"], steps=steps)).fields, k(**WAVE, steps=steps))
    assert same(tuple(before), tuple(WAVE.values())), "the inputs were written"


def test_several_fields_have_names() -> None:
    @sg.stencil(dtype="f64", boundary=sg.periodic)
    def turn(a: sg.Field, b: sg.Field) -> tuple[sg.Value, sg.Value]:
        return 0.5 * a[1] + 0.25 * b[0], 0.5 * b[-1] - 0.25 * a[0]

    k = sg.compile(turn, (32,), 4, **ON)
    a, b = np.random.default_rng(1).random((2, 32))
    frame = last(k.run(a, b, every=3))  # the compiled steps
    assert frame.step == 4 and frame.names == ("a", "b") and same(frame.fields, k(a, b))
    assert frame["b"] is frame.fields[1] and "a, b after 4 steps" in repr(frame)
    with pytest.raises(KeyError, match="the fields are a, b"):
        frame["c"]


# ------------------------------------------------------------------------------------------------ checkpoints
@pytest.fixture(params=[".npz", ".zarr.zip"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == ".zarr.zip":
        pytest.importorskip("zarr")
    return tmp_path / f"run{request.param}"


@pytest.mark.parametrize("name", sorted(HEAT))
def test_a_run_goes_on_bit_for_bit(name: str, file: Path) -> None:
    """Interrupted between passes, with frames and checkpoints at other steps before and after."""
    k = HEAT[name]
    u0 = start(k)
    frames = k.run(u0, 40, every=5, checkpoint=file, checkpoint_every=4, resume=True)  # no file yet: from step 0
    assert [next(frames).step for _ in range(3)] == [5, 10, 15]
    frames.close()  # the last checkpoint is of step 12
    went_on = list(k.run(np.zeros_like(u0), 23, every=5, checkpoint=str(file), resume=True))
    assert [f.step for f in went_on] == [15, 20, 23]
    for f in went_on:
        assert same(f.fields, last(k.run(u0, f.step)).fields)
    again = list(k.run(u0, 23, checkpoint=file, resume=True))
    assert [f.step for f in again] == [23] and again[0].rate != 0 and same(again[0].fields, went_on[-1].fields)
    assert [f.step for f in k.run(u0, 25, every=2, checkpoint=file, resume=True)] == [24, 25]
    assert same(last(k.run(u0, 31, checkpoint=file, resume=True)).fields, last(k.run(u0, 31, every=2)).fields)


def test_levels_and_coefficients_are_kept(file: Path) -> None:
    k = WAVES["stream levels=2"]
    list(k.run(**WAVE, steps=5, checkpoint=file))
    frame = last(k.run(**WAVE, steps=11, checkpoint=file, resume=True))
    assert same(frame.fields, k(**WAVE, steps=11))
    other = {**WAVE, "c": WAVE["c"] * 2}
    refusal(__file__, sg.RunError, lambda: k.run(**other, checkpoint=file, resume=True), "another c")  # here


VICTIM = """
import sys
from tests.api.test_runs import HEAT, U0
list(HEAT["reference"].run(U0.astype("f2"), 10**7, every=10**6, checkpoint=sys.argv[1], checkpoint_every=3))
"""


def test_a_killed_run_goes_on_bit_for_bit(file: Path) -> None:
    """SIGKILL at moments that the run does not choose; what is there then is whole, and later each time."""
    k, done = HEAT["reference"], 0
    u0 = start(k)
    keeper = Checkpoints(file, k.problem.identity(), f"{k.schedule} on reference", {}, {"u.0": (SHAPE, k.dtype)})
    for more in (0.0, 0.0173):
        resumed = VICTIM.replace("checkpoint_every=3", f"checkpoint_every=3, resume={done > 0}")
        victim = subprocess.Popen([sys.executable, "-c", resumed, str(file)], cwd=ROOT, env={**os.environ})
        until = time.monotonic() + 100
        while time.monotonic() < until and victim.poll() is None:
            state = keeper.load()
            if state is not None and state.step >= done + 30:
                break
            time.sleep(0.01)
        time.sleep(more)
        victim.send_signal(signal.SIGKILL)
        assert victim.wait() == -signal.SIGKILL
        state = keeper.load()
        assert state is not None and state.step > done and state.step % 3 == 0
        done = state.step
        assert same(state.arrays["u.0"], k(u0, steps=done))
    frame = last(k.run(u0, done + 7, checkpoint=file, resume=True))
    assert frame.step == done + 7 and same(frame.fields, k(u0, steps=done + 7))


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_checkpoint_that_fails_leaves_the_last_one(fails: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    k = HEAT["direct"]
    list(k.run(U0, 2, checkpoint=file))
    before = file.read_bytes()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(sg.RunError, match="free some space"):
        list(k.run(U0, 4, checkpoint=file, resume=True))
    assert file.read_bytes() == before and os.listdir(file.parent) == [file.name]


def test_broken_files_are_refused(file: Path) -> None:
    k = HEAT["direct"]
    list(k.run(U0, 2, checkpoint=file))
    data = file.read_bytes()
    rng = np.random.default_rng(3)
    for at in (*rng.integers(1, len(data), 40), len(data) - 1, 0):
        file.write_bytes(data[:at])
        refusal(
            __file__, sg.RunError, lambda: k.run(U0, 4, checkpoint=file, resume=True), "no whole checkpoint"  # here
        )  # fmt: skip
    for at in rng.integers(0, len(data), 80):  # a bit that turns is noticed, or changes nothing
        turned = bytearray(data)
        turned[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(turned)
        try:
            frame = last(k.run(U0, 4, checkpoint=file, resume=True))
        except sg.RunError:
            continue
        assert same(frame.fields, k(U0, steps=4))
    other = file.parent / "other.npz"
    np.savez(other, a=U0)
    refusal(__file__, sg.RunError, lambda: k.run(U0, checkpoint=other, resume=True), "no whole checkpoint")  # here


OTHERS = {
    "another formula": (sg.Stencil.from_weights(np.ones((3, 3)) / 9, sg.periodic), SHAPE),
    "another boundary: periodic": (heat(boundary=sg.neumann), SHAPE),
    "another shape: [24, 40] there, [24, 32] here": (heat(), (24, 32)),
    "another dtype: f64 there, f32 here": (heat("f32"), SHAPE),
    "kernel of another formula": (wave(), SHAPE),
}


@pytest.mark.parametrize("says", OTHERS)
def test_checkpoints_of_other_kernels_are_refused(says: str, tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    list(HEAT["direct"].run(U0, 2, checkpoint=file))
    k = sg.compile(*OTHERS[says], backend="reference")
    refusal(__file__, sg.RunError, lambda: k.run(**k.random(), steps=9, checkpoint=file, resume=True), says)  # here


def test_another_schedule_goes_on_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    list(HEAT["stencil2row fuse=3"].run(U0, 7, checkpoint=file))
    with pytest.warns(RuntimeWarning, match="round otherwise") as caught:
        frame = last(HEAT["stream levels=4"].run(U0, 12, checkpoint=file, resume=True))
    assert caught[0].filename == __file__
    np.testing.assert_allclose(frame.fields, HEAT["direct"](U0, steps=12), rtol=1e-13)


def test_wrong_runs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    k, file = HEAT["direct"], tmp_path / "run.npz"
    list(k.run(U0, 9, checkpoint=file))
    for attempt, says in (
        (lambda: k.run(U0, 8, checkpoint=file, resume=True), "has done 9 time steps, and steps=8"),  # here
        (lambda: k.run(U0, 8, resume=True), "resume=True without a checkpoint"),  # here
        (lambda: k.run(U0, 8, checkpoint_every=2), "checkpoint_every=2 without a checkpoint"),  # here
        (lambda: k.run(U0, 8, checkpoint=tmp_path / "run.hdf"), "ends with .npz or .zarr.zip"),  # here
    ):
        refusal(__file__, sg.RunError, attempt, says)
    for every in (0, -1, 2.5):
        refusal(__file__, sg.StencilError, lambda every=every: k.run(U0, 8, every=every), f"every={every}")  # type: ignore[misc]  # here
    refusal(__file__, sg.ArrayError, lambda: k.run(U0[:8], 8), "has shape")  # here
    refusal(__file__, sg.ArrayError, lambda: k.run(U0, 8, out=U0.copy()), "out means nothing to a run")  # here
    refusal(__file__, sg.ArrayError, lambda: k.run(U0, 8, U0), "3 arrays for 1")  # here
    product = sg.compile(sg.spmm(sg.sparse(np.eye(32, dtype=np.float16)), n=8), **ON)
    refusal(__file__, sg.ProductError, lambda: product.run(1), "no time steps")  # here
    monkeypatch.setitem(sys.modules, "zarr", None)
    refusal(__file__, sg.RunError, lambda: k.run(U0, 8, checkpoint="run.zarr.zip"), "needs zarr")  # here


# ------------------------------------------------------------------------------------------------ on a GPU
class OnDevice:
    """An array in the memory of the GPU that tests have, with what CuPy's arrays and pycuda's have."""

    def __init__(self, gpu: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self.gpu, self.like = gpu, np.empty(shape, dtype)
        self.pointer = gpu.alloc(self.like.nbytes)
        facts = {"data": (self.pointer, False), "typestr": self.like.dtype.str, "shape": shape, "version": 3}
        self.__cuda_array_interface__ = facts

    def get(self) -> Any:
        self.gpu.to_host(self.like, self.pointer)
        return self.like.copy()


def test_device_arrays_stay_there_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import fake_gpu

    gpu, waited = fake_gpu.install(monkeypatch), list[Any]()
    monkeypatch.setattr(fake_gpu.FakeRuntime, "synchronize", lambda self, stream=None: waited.append(stream))
    monkeypatch.setattr(interop, "empty", lambda view, shape, dtype: OnDevice(gpu, shape, dtype))
    k = sg.compile(wave(), SHAPE, 9, backend="cuda", schedule="stream levels=2")
    want = {f.step: f.fields for f in k.run(**WAVE, steps=23, every=5)}
    assert not waited
    given_ = [OnDevice(gpu, SHAPE, "f8") for _ in range(3)]
    for a, held in zip(given_, (*WAVE["u"], WAVE["c"]), strict=True):
        gpu.to_device(a.pointer, np.ascontiguousarray(held))
    u, c, file = tuple(given_[:2]), given_[2], tmp_path / "run.npz"
    frames = k.run(u, c, 23, every=5, checkpoint=file)
    seen = [next(frames), next(frames)]
    frames.close()  # the checkpoint is of step 5, the chain's state of step 4
    seen += k.run(u, c, 23, every=5, checkpoint=file, resume=True)
    assert [f.step for f in seen] == [5, 10, 10, 15, 20, 23] and len(waited) == 6
    for f in seen:
        assert all(isinstance(a, OnDevice) for a in f.fields)
        assert same(tuple(a.get() for a in f.fields), want[f.step])
    with pytest.warns(SlowRunWarning, match=r"the GPU will take about .* for 1000000000000 time steps of 24x40 cells"):
        next(k.run(**WAVE, steps=10**12, every=2))


# ------------------------------------------------------------------------------------------------ what is said
class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    k = HEAT["stencil2row fuse=3"]
    monkeypatch.setattr(running, "_PASSES", 1)  # so that it moves between the frames
    for wanted in (True, False):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        frame = last(k.run(U0, 31, every=20, progress=wanted))
        assert ("heat" in terminal.getvalue() and "31/31" in terminal.getvalue()) == wanted
        monkeypatch.undo()
        assert same(frame.fields, last(k.run(U0, 31)).fields)
    assert capsys.readouterr() == ("", "")  # no terminal, no bar


def test_a_notebook_has_tqdms(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm's, where ipywidgets is missing
        list(HEAT["direct"].run(U0, 5, every=2))
    assert "5/5" in capsys.readouterr().err
    monkeypatch.setattr(progress, "find_spec", lambda name: None)  # without tqdm none is shown
    list(HEAT["direct"].run(U0, 5, every=2))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("k", "arrays", "says"),
    [
        (HEAT["direct"], {"u": U0}, r"the emulator will take about 0 minutes for \d+ passes over 24x40"),
        (WAVES["direct"], WAVE, r"the emulator will take about 0 minutes for \d+ passes over 24x40"),
        (WAVES["resident"], WAVE, r"the emulator will take about 0 minutes for \d+ passes over 24x40"),
        (HEAT["reference"], {"u": start(HEAT["reference"])}, "the reference .* time steps of 24x40 cells; checkpoint="),
    ],
)
def test_a_long_run_says_so_once(
    k: sg.Kernel, arrays: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of stencils and of updates; each call alone is far below the limit."""
    monkeypatch.setattr(running, "estimate", lambda plan, given, cells: 1e-3 * plan.steps)
    monkeypatch.setattr(slow, "LONG", 1e-5)
    with pytest.warns(SlowRunWarning, match=says) as caught:
        list(k.run(**arrays, steps=12, every=1))
    assert len(caught) == 1 and caught[0].filename == __file__
    monkeypatch.setattr(slow, "LONG", 60.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(k.run(**arrays, steps=3, every=1))


def test_the_estimate_counts_an_updates_steps() -> None:
    """Whether they are passes or turns of a loop in one launch: twice the steps are twice the time."""
    for k in (HEAT["direct"], *WAVES.values()):
        one, two = (estimate(k._plan(n), {}, U0.size) for n in (4000, 8000))
        assert one > 0 and two == pytest.approx(2 * one, rel=0.05)


def test_plans_of_many_steps_are_made_at_once() -> None:
    before = time.process_time()
    plan = WAVES["direct"]._plan(200_000)
    assert plan.steps == plan.passes == 200_000 and time.process_time() - before < 10

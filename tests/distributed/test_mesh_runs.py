"""``d.run``: the frames of ``k.run`` on any mesh, and checkpoints that go on, bit for bit, on another one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import sparsegen as sg
from sparsegen import running
from sparsegen.distributed import group
from sparsegen.run.slow import SlowRunWarning
from tests.distributed.ranks import blocks, flat, over
from tests.refusals import refusal
from tests.updates import wave

ON: dict[str, Any] = {"device": "h200", "backend": "emulator"}
SHAPE = (24, 40)
U0 = np.random.default_rng(0).random(SHAPE)
STEPS = 23


def heat(boundary: Any = sg.periodic, dtype: str = "f64") -> sg.Stencil:
    w = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8.1
    return sg.Stencil.from_weights(w, boundary, dtype=dtype, name="heat")


#: Kernels whose passes have 4, 2 and all steps (which a mesh has none of), and one that is rounded to 16 bits.
KERNELS = {
    "levels": sg.compile(heat(), SHAPE, 12, schedule="stream levels=4", **ON),
    "wave": sg.compile(wave(), SHAPE, 9, schedule="stream levels=2", **ON),
    "resident": sg.compile(wave(), SHAPE, 9, device="h200", backend="reference", schedule="resident"),
    "f16": sg.compile(heat(sg.neumann, "f16"), SHAPE, 6, backend="reference", schedule="stream levels=3 cols=8"),
}


def given(k: sg.Kernel) -> dict[str, Any]:
    if k.problem.op == "stencil":
        return {"u": U0.astype(k.dtype)}
    return {"u": (U0, 0.9 * U0), "c": 0.2 + 0.1 * U0}


def frames(k: sg.Kernel, mesh: tuple[int, ...], wanted: dict[str, Any], many: int = 99) -> list[tuple[int, list[Any]]]:
    """Step and fields of the first frames of a run over a mesh, gathered; from zeros, where it goes on."""

    def one(d: Any) -> list[tuple[int, list[Any]]]:
        mine = blocks(d, given(k))
        if wanted.get("resume"):
            mine["u"] = tuple(map(np.zeros_like, mine["u"])) if isinstance(mine["u"], tuple) else 0 * mine["u"]
        found, made = [], d.run(**mine, steps=STEPS, every=5, **wanted)
        for frame in made:
            found.append((frame.step, [d.gather(a) for a in flat(frame.fields)]))
            if len(found) == many:
                made.close()
        return found

    first: list[tuple[int, list[Any]]] = over(k, mesh, one)[0]
    return first


def alone(k: sg.Kernel, **wanted: Any) -> list[tuple[int, list[Any]]]:
    return [(frame.step, flat(frame.fields)) for frame in k.run(**given(k), steps=STEPS, every=5, **wanted)]


def same(found: Any, want: Any) -> None:
    assert [step for step, _ in found] == [step for step, _ in want]
    for (_, some), (_, others) in zip(found, want, strict=True):
        for a, b in zip(some, others, strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.parametrize("name", KERNELS)
def test_frames_are_those_of_one_gpu(name: str) -> None:
    k = KERNELS[name]
    same(frames(k, (2,), {}), alone(k))
    same(frames(k, (1, 3), {"initial": True}), alone(k, initial=True))


@pytest.mark.parametrize(("name", "ends"), [*((name, ".npz") for name in KERNELS), ("levels", ".zarr.zip")])
def test_a_run_goes_on_on_another_mesh(name: str, ends: str, tmp_path: Path) -> None:
    """From 2 ranks to 3, to one, to one GPU without a mesh, and back to 2 x 1; the steps are not those of passes."""
    if ends == ".zarr.zip":
        pytest.importorskip("zarr")
    k, want = KERNELS[name], alone(KERNELS[name])
    keep = {"checkpoint": tmp_path / f"run{ends}", "checkpoint_every": 3}
    same(frames(k, (2,), keep, 2), want[:2])  # up to step 9, whose checkpoint is the last one
    keep["resume"] = True
    same(frames(k, (3,), keep, 1), want[1:2])
    same(frames(k, (1,), keep, 1), want[1:2])
    made = k.run(**given(k), steps=STEPS, every=5, **keep)
    assert [next(made).step for _ in range(2)] == [10, 15]  # and a checkpoint of step 12
    made.close()
    same(frames(k, (2, 1), keep), want[2:])
    same(alone(k, **keep), want[-1:])  # what a mesh has written, on one GPU


def test_checkpoints_of_others_are_refused_on_all_ranks(tmp_path: Path) -> None:
    k, file = KERNELS["levels"], tmp_path / "run.npz"
    list(k.run(U0, 9, checkpoint=file))

    def refused(other: sg.Kernel, says: str, steps: int = 12, named: Any = file, **more: Any) -> None:
        def one(d: Any) -> None:
            mine = blocks(d, {**given(other), **more})
            with pytest.raises(sg.RunError, match=says) as caught:
                d.run(**mine, steps=steps, checkpoint=named, resume=True)
            assert caught.value.hint and caught.value.loc is not None and caught.value.loc.file == __file__

        over(other, (2,), one)

    refused(KERNELS["wave"], "kernel of another formula")
    refused(sg.compile(heat(sg.frozen), SHAPE, backend="reference"), "another boundary")
    refused(k, "has done 9 time steps, and steps=8", 8)
    refused(k, "ends with .npz", named=tmp_path / "run.hdf")
    file.write_bytes(file.read_bytes()[:-9])
    refused(k, "no whole checkpoint")
    list(KERNELS["wave"].run(**given(KERNELS["wave"]), steps=2, checkpoint=file))
    refused(KERNELS["wave"], "another c", c=U0)


def test_ranks_that_want_other_runs_are_told() -> None:
    def one(d: Any) -> None:
        refusal(__file__, sg.DeviceError, lambda: d.run(U0[d.block], 4, every=2 + d._ranks.me), "another every")  # here
        refusal(__file__, sg.RunError, lambda: d.run(U0[d.block], 4, resume=True), "without a checkpoint")  # here
        refusal(__file__, sg.ArrayError, lambda: d.run(U0, 4), "has shape")  # here

    over(KERNELS["levels"], (2,), one)


def test_the_others_wait_while_the_first_one_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than anyone is patient; what fails is said by all of them."""
    beats, write = list[int](), running.Checkpoints.save
    monkeypatch.setattr(group, "BEAT", 0.05)

    def slow(self: Any, state: Any) -> None:
        threading.Event().wait(0.4)
        write(self, state)

    def one(d: Any) -> None:
        everyone = d._ranks.everyone
        d._ranks.everyone = lambda value, what: beats.append(d._ranks.me) or everyone(value, what)
        list(d.run(U0[d.block], 4, checkpoint=tmp_path / "run.npz"))

    monkeypatch.setattr(running.Checkpoints, "save", slow)
    over(KERNELS["levels"], (2,), one)
    assert beats.count(0) == beats.count(1) >= 4

    def full(self: Any, state: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(running.Checkpoints, "save", full)

    def told(d: Any) -> None:
        with pytest.raises(sg.DeviceError, match=r"rank 0 failed in the writing of a checkpoint: OSError\(28"):
            one(d)

    over(KERNELS["levels"], (2,), told)


def test_the_first_rank_says_that_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsegen.run.slow.LONG", 1e-9)
    with pytest.warns(SlowRunWarning, match="the reference will take about .* time steps of 24x40 cells") as caught:
        over(KERNELS["f16"], (2,), lambda d: list(d.run(given(KERNELS["f16"])["u"][d.block], 12, every=6)))
    assert len(caught) == 1

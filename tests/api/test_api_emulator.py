"""The emulator as a back end: how long it expects to take, what it says then, and that it shows progress."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.run import emulator
from sparsegen.run.emulator import SlowRunWarning, estimate

heat = sg.Stencil.from_weights(np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8.0, name="heat")


def kernel(line: str, shape: tuple[int, int] = (1024, 1024), steps: int = 6) -> sg.Kernel:
    return sg.compile(heat, shape, steps=steps, device="h200", backend="emulator", schedule=line)


@pytest.mark.parametrize("line", ["direct", "tiled stages=2 fuse=3", "stencil2row stages=2"])
def test_the_estimate_is_near_the_truth(line: str) -> None:
    k = kernel(line)
    u = np.zeros((1024, 1024))
    k(u, steps=3)  # warm
    start = time.process_time()  # of this process alone
    k(u)
    took = time.process_time() - start
    assert took / 20 < estimate(k._plan(6), u.size) < 20 * took  # machines differ


def test_the_estimate_grows_with_the_work() -> None:
    small, large = kernel("tiled"), kernel("tiled", shape=(4096, 4096), steps=60)
    ratio = estimate(large._plan(60), 1 << 24) / estimate(small._plan(6), 1 << 20)
    assert 100 < ratio < 250  # 16 times the cells, 10 times the steps
    assert estimate(kernel("direct", shape=(64, 64))._plan(1), 64 * 64) == 0.0
    assert estimate(kernel("direct", shape=(10240, 10240), steps=100)._plan(100), 10240**2) > 600


def test_a_long_run_says_so_first_and_shows_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the limits turned down; the message names the estimate and what would be faster, at the user's line."""
    monkeypatch.setattr(emulator, "LONG", 0.01)
    monkeypatch.setattr(emulator, "PROGRESS_EVERY", 0.0)
    k = kernel("direct", shape=(512, 512), steps=4)
    with pytest.warns(SlowRunWarning, match=r"4 passes over 512x512 cells; faster: a smaller shape") as caught:
        k(np.zeros((512, 512)))
    assert caught[0].filename == __file__ and "backend='reference'" in str(caught[0].message)
    lines = capsys.readouterr().err.splitlines()
    shares = [int(line.split("emulator ")[1].split("%")[0]) for line in lines]
    assert len(lines) >= 3 and shares == sorted(shares) and 0 < shares[0] <= shares[-1] <= 100


def test_a_short_run_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel("direct", shape=(64, 64))(np.zeros((64, 64)))
    assert capsys.readouterr().err == ""

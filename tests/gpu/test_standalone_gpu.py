"""A program in text form on a real GPU: the same numbers as on the emulator, by the command that a user types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import cli

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("schedule", ["tiled fuse=2", "stencil2row fuse=2", "stream levels=2"])
def test_run_of_a_file(schedule: str, tmp_path: Path) -> None:
    weights = np.random.default_rng(1).random((3, 3))
    k = sg.compile(sg.Stencil.from_weights(weights / 16), (60, 96), 2, schedule=schedule)
    (tmp_path / "k.sgir").write_text(k.ir("warp"))
    u = np.random.default_rng(2).random((60, 96))
    np.save(tmp_path / "u.npy", u)
    for backend in ("cuda", "emulator"):
        given = ("--array", f"in={tmp_path / 'u.npy'}", "--out", str(tmp_path / f"{backend}.npy"))
        assert cli.main(("run", str(tmp_path / "k.sgir"), "--backend", backend, *given)) == cli.OK
    here, there = (np.load(tmp_path / f"{backend}.npy") for backend in ("cuda", "emulator"))
    assert np.max(np.abs(here - there)) <= 1e-14 * np.max(np.abs(there))
    assert np.max(np.abs(here - k(u))) == 0

"""Ranks that are processes, over gloo: the same numbers, and what is said where one differs, dies or stands still."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch.distributed")

import sparsegen as sg
from sparsegen.bench import report
from sparsegen.bench.distributed import NAME, Form
from sparsegen.bench.distributed_run import Measured
from sparsegen.bench.split_run import Layer, Split
from sparsegen.distributed import group
from sparsegen.distributed.over_torch import torch_distributed
from tests.distributed import worker
from tests.distributed.processes import said, started

dist: Any = import_module("torch.distributed")
ROOT = Path(__file__).resolve().parents[2]


@sg.stencil
def heat(u: Any) -> Any:
    return 0.5 * u[0] + 0.25 * (u[-1] + u[1])


@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_make_the_numbers_of_one(tmp_path: Path, ranks: int) -> None:
    with started(tmp_path, ranks, "numbers") as processes:
        for process in processes:
            assert "equal" in (text := said(process, 120)), text
            assert process.returncode == 0


def test_ranks_of_other_shapes_are_told(tmp_path: Path) -> None:
    with started(tmp_path, 2, "differ") as processes:
        for rank, process in enumerate(processes):
            text = said(process)
            assert "DeviceError: " in text and "has another shape than rank" in text, text
            assert "remedy: give all ranks the same shape" in text
            assert ("40x61, not 41x61" if rank else "41x61, not 40x61") in text


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of one process, this one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_group_of_one() -> None:
    k = sg.compile(heat, (64,), 2, backend="reference")
    for mesh, says in (
        ((3,), r"mesh=\(3,\) has 3 ranks, and 1 processes run"), ((1, 1, 1), "no mesh of ranks"), ("two", "no mesh"),
        ((1, 1), "a mesh of 2 axes, 1x1, for fields of 1"),
    ):  # fmt: skip
        with pytest.raises(sg.ArrayError, match=says) as caught:
            sg.distribute(k, mesh)
        assert caught.value.hint and caught.value.loc is not None
    d = sg.distribute(k, (1,))
    u = np.random.default_rng(0).random(64)
    assert (d.gather(d(d.scatter(u))).numpy() == k(u)).all()
    assert isinstance(d(u), np.ndarray) and (d(u) == k(u)).all()
    with pytest.raises(sg.ArrayError, match="a field of"):
        d.scatter(u[1:])
    with pytest.raises(sg.ArrayError):
        d(u[1:])
    assert "64 of rank 0 in 1" in repr(d) and d.halo == (2,) and not d.overlapped


@pytest.mark.usefixtures("alone")
def test_the_suite_on_cpus() -> None:
    """Rows of both parts, without a GPU: what the suite compiles, compares and says."""
    forms = [Form("Heat-2D", (40, 48), 0.0), Form("acoustic, order 8", (48, 40, 44), 0.0)]
    rows = list(Measured(0.001, "cpu", "reference").run(forms, lambda line: None))
    assert [(row.case, row.part, row.overlap) for row in rows] == [
        (form.name, part, overlap) for form in forms for part in ("strong", "weak", "weak") for overlap in (False, True)
    ]
    for row in rows:
        assert row.failed is None and row.error in (0, None) and row.steps and row.speedup and row.predicted, row
        assert (row.error is None) == (row.part == "weak") and row.schedule
    head = dict.fromkeys(("device", "driver", "nvcc", "sparsegen", "commit", "dirty", "sources", "date", "cold"), "")
    assert "acoustic, order 8" in report.text(report.result(NAME, rows, head))


@pytest.mark.usefixtures("alone")
def test_split_layers_on_cpus() -> None:
    """Rows of layers that one process has whole, without a GPU: what is compared and said."""
    small = [Layer("column-parallel", 96, 64, True, 4, 0.0), Layer("row-parallel, all-reduce", 64, 96, False, 4, 0.0)]
    rows = list(Split("cpu").run(small, lambda line: None))
    assert [row.case for row in rows] == [layer.name for layer in small]
    assert all(row.ok and row.failed is None and row.error == 0 and row.alone_s and row.schedule for row in rows), rows
    head = dict.fromkeys(("device", "driver", "nvcc", "sparsegen", "commit", "dirty", "sources", "date", "cold"), "")
    assert "96×64" in report.text(report.result(NAME, rows, head))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_rank_that_is_gone(tmp_path: Path, how: signal.Signals) -> None:
    """One is killed, or stands still: the other ends soon, and says what it waited for; the checkpoint is whole."""
    with started(tmp_path, 2, "endless") as processes:
        assert processes[0].stdout is not None
        line = processes[0].stdout.readline()
        assert line == "running\n", line + said(processes[0])
        os.kill(processes[1].pid, how)
        start = time.monotonic()
        text = said(processes[0], 50)
        assert time.monotonic() - start < 50
        assert "rank 0 of mesh 2 lost another one during " in text, text
        assert processes[0].returncode == 1
    assert group.PATIENCE < 60
    k = sg.compile(worker.heat, worker.SHAPE, 2, backend="reference")
    with np.load(tmp_path / "run.npz") as held:
        step = json.loads(held["about"].tobytes())["step"]
    frames = list(k.run(np.zeros(worker.SHAPE), step + 4, checkpoint=tmp_path / "run.npz", resume=True))
    assert step >= 6 and np.array_equal(frames[-1]["u"], k(np.ones(worker.SHAPE), steps=step + 4))


def test_a_rank_that_never_comes(tmp_path: Path) -> None:
    with started(tmp_path, 2, "absent") as processes:
        text = said(processes[0], 30)
        assert "DeviceError: " in text and "rank 0 of mesh 2 lost another one during the start" in text, text


def test_without_processes_it_says_how_to_start_them() -> None:
    k = sg.compile(heat, (64,), 2, backend="reference")
    with pytest.raises(sg.DeviceError, match="no group of processes") as caught:
        sg.distribute(k, (2,))
    assert "torchrun" in str(caught.value.hint)
    product = sg.compile(sg.spmm(sg.sparse(np.eye(64, dtype="f2")), n=8), backend="reference")
    with pytest.raises(sg.ProductError, match="has no grid to split"):
        sg.distribute(product, (2,))


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    with pytest.raises(sg.DeviceError, match="torch is not installed") as caught:
        torch_distributed()
    assert caught.value.hint == "pip install 'sparsegen[torch]'"


def test_the_example(tmp_path: Path) -> None:
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *words, str(ROOT / "examples" / "heat2d_distributed.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 processes and one: equal, bit for bit" in done.stdout

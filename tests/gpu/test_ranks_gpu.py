"""Two GPUs: runs and their checkpoints, layers that are split, and a rank that dies, over NCCL."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.processes import said, started
from tests.gpu.torch_kit import ready

pytestmark = pytest.mark.gpu
SCRIPT = str(Path(__file__).parent / "ranks_worker.py")


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    torch = ready(at_least=(8, 0))
    if torch.cuda.device_count() < 2:
        pytest.skip("ranks need a GPU each, and there is one only")
    return torch


def test_runs_and_layers(tmp_path: Path) -> None:
    with started(tmp_path, 2, "numbers", SCRIPT) as processes:
        for process in processes:
            assert "equal" in (text := said(process, 280)), text
            assert process.returncode == 0


def test_sums_of_our_own(tmp_path: Path) -> None:
    with started(tmp_path, 2, "sums", SCRIPT) as processes:
        for process in processes:
            assert "equal" in (text := said(process, 200)), text
            assert process.returncode == 0


def test_a_sum_whose_other_rank_is_gone(tmp_path: Path) -> None:
    """The launch ends as failed when the group's patience is over, 20 s here."""
    with started(tmp_path, 2, "summing", SCRIPT) as processes:
        out = processes[0].stdout
        assert out is not None and any(line == "running\n" for line in out)
        os.kill(processes[1].pid, signal.SIGSTOP)
        start = time.monotonic()
        text = said(processes[0], 90)
        assert time.monotonic() - start < 60, text
        assert processes[0].returncode, text


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_rank_that_is_gone(tmp_path: Path, how: signal.Signals) -> None:
    """The other one waits in a receive on its GPU; it ends within a minute, and says why."""
    with started(tmp_path, 2, "endless", SCRIPT) as processes:
        out = processes[0].stdout
        assert out is not None and any(line == "running\n" for line in out)
        os.kill(processes[1].pid, how)
        start = time.monotonic()
        text = said(processes[0], 90)
        assert time.monotonic() - start < 60, text
        assert processes[0].returncode and ("lost another one" in text), text

"""Layers split over processes: the numbers of whole layers, gradients, files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch.distributed")

from tests.distributed.processes import said, started


def test_layers_over_two_processes(tmp_path: Path) -> None:
    """See ``parallel_worker.py``."""
    with started(tmp_path, 2, script="parallel_worker.py") as processes:
        for process in processes:
            assert "equal" in (text := said(process)), text
            assert process.returncode == 0

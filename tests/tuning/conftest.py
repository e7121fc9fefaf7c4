"""What the tests of tuning share: a GPU that counts, and a cache of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for cubins and records that nobody else uses."""
    monkeypatch.setenv("SPARSEGEN_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def gpu(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU on which every launch takes a millisecond, and computes nothing."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "api"))
    import fake_gpu

    gpu = fake_gpu.install(monkeypatch)
    gpu.seconds_of = lambda func: 1e-3

    def execute(func: Any, args: Any, pointers: Any, numbers: Any = None) -> None:
        gpu.launched += 1
        gpu.now += gpu.seconds_of(func)

    gpu.execute = execute
    return gpu

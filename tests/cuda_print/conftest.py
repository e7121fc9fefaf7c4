"""The hand-built programs of this folder, for tests that are imported without a package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def programs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cuda_print_programs", Path(__file__).parent / "programs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

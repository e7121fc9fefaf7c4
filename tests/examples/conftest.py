"""Fixtures of the tests of examples."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.examples.kit import EXAMPLES


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports an example by its name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module

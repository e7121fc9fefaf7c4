"""Golden files: ``pytest tests/golden --update-golden`` writes them anew; look at the diff before you commit it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: the text must be what stands in the file of that name in this folder."""

    def compare(name: str, text: str) -> None:
        file = Path(__file__).parent / name
        if request.config.getoption("--update-golden", default=False):
            file.write_text(text)
        assert file.is_file(), f"no golden file {name}: run pytest {Path(__file__).parent.name} --update-golden"
        assert text == file.read_text(), f"{name} differs: look, then run pytest tests/golden --update-golden"

    return compare

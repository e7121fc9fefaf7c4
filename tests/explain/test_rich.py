"""The page in colours where ``rich`` is installed, and the plain text everywhere."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparsegen.cli import explain as command
from sparsegen.explain.beside import beside
from tests.explain.kit import pages

ROOT = Path(__file__).resolve().parents[2]


def shown(what: Any) -> str:
    console = pytest.importorskip("rich.console", reason="rich is not installed")
    file = io.StringIO()
    console.Console(file=file, width=400, force_terminal=True, color_system="truecolor").print(what)
    return file.getvalue()


@pytest.mark.parametrize("name", ["stencil", "given", "v100", "product", "product, v100", "update"])
def test_rich_shows_all_that_the_text_has(name: str) -> None:
    found = pages()[name]
    colours = shown(found)
    assert "\x1b[" in colours
    data = found.data
    for part in (data["schedule"], data["prediction"]["binds"], "why it is there", "best of each family"):
        assert part in colours
    for term in data["terms"]:
        assert term["name"] in colours and term["reason"] in colours
    for c in data["changes"]:
        assert c["what"] in colours or not c["changes"]


def test_rich_shows_the_table_of_devices() -> None:
    table = beside([pages()["a100"].page, pages()["stencil"].page])
    colours = shown(table)
    assert "NVIDIA A100" in colours and "NVIDIA H200" in colours and "\x1b[" in colours


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    assert command._printer() is print  # what is captured here is no terminal
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert command._printer() is not print


def test_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console", "rich.table", "rich.text"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert command._printer() is print
    with pytest.raises(ImportError):
        pages()["stencil"].__rich__()


def test_explain_imports_no_rich() -> None:
    code = (
        "import sys; sys.modules['rich'] = None; import sparsegen as sg;"
        "e = sg.compile(sg.Stencil.from_weights([[1.0, 2.0, 1.0]]), (64, 64), device='h200').explain();"
        "print(e); e.json(); e.roofline()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert "best of each family" in done.stdout

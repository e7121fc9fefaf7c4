"""Pages of the site that are made: every public name and every op stands on one, and so does each notebook."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import sparsegen as sg
from sparsegen.ir.node import OPS
from sparsegen.ir.registry import load_all

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """The hook that MkDocs calls."""
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / ".ci/site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_a_heading(site: ModuleType) -> None:
    page = site.names().splitlines()
    assert {line.removeprefix("## ") for line in page if line.startswith("## ")} == {*sg.__all__} - {"__version__"}
    assert not any(":class:" in line or ":func:" in line for line in page)


def test_every_op_has_a_heading(site: ModuleType) -> None:
    load_all()
    assert {line.removeprefix("### ") for line in site.ops().splitlines() if line.startswith("### ")} == {*OPS}


def test_notebooks_are_tutorials(site: ModuleType) -> None:
    for file in (ROOT / "examples/notebooks").glob("*.ipynb"):
        text = site.tutorial(file)
        assert text.startswith("# ") and "```python\nimport " in text
        assert text.count('<div class="shown">') >= 3 and "```text\n" in text
        assert "Product(" not in text  # a kernel says what it computes in words
        assert f"tutorials/{file.stem}.md" in (ROOT / "mkdocs.yml").read_text()

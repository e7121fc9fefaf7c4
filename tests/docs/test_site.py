"""Pages of the site that are made: every public name and every op stands on one, and so does each notebook."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import sparsegen as sg
import sparsegen.torch
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


def test_every_name_for_torch_has_a_heading_and_a_text(site: ModuleType) -> None:
    """Also where there is no torch: what a name is called with, and what it says of itself."""
    page = site.torch_names()
    parts = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    assert {*parts} == {*sparsegen.torch.__all__}
    assert "calibration: Iterable[Any] | None = None" in parts["sparsify"] and "in place" in parts["sparsify"]
    assert 'fallback: str = "auto"' in parts["sparsify"].replace("'", '"') and "def " not in page
    assert all(part.partition("```\n\n")[2].strip() for part in parts.values())


def test_signatures_keep_the_quotes_of_texts(site: ModuleType) -> None:
    """And of a long one each parameter has a line."""
    assert "(\n    w: Any,\n    pattern: str = 'nm',\n    *,\n" in site.names()


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

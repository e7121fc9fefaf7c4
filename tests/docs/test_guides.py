"""Tutorials and how-tos do what they say: their blocks run one after the other, and print what stands below them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDES = (
    "tutorials/waves.md", "tutorials/images.md", "tutorials/derivatives.md", "tutorials/regions.md",
    "tutorials/shots.md", "tutorials/long_runs.md", "tutorials/adjoint.md", "tutorials/whole_model.md", "export.md",
    "ir_by_hand.md",
)  # fmt: skip
#: A block that runs, the library that it needs, and what it prints, where that is told.
BLOCK = re.compile(r"<!-- run(?:: (\w+))? -->\n```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
#: A program that the page says to save under the first name in backticks before it.
PROGRAM = re.compile(r"`(\w+\.sgir)`\.\n\n<!-- program -->\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert blocks and any(told for *_, told in blocks)
    monkeypatch.chdir(tmp_path)
    for file, program in PROGRAM.findall(text):
        Path(file).write_text(program)
    names: dict[str, Any] = {"__name__": "__main__"}
    for library, code, told in blocks:
        if library:
            pytest.importorskip(library)
        exec(compile(code, page, "exec"), names)
        printed = capsys.readouterr().out
        assert not told or printed == told, page


def test_the_header_is_what_the_guide_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both functions, in the header that the page's own code exports."""
    text = (DOCS / "export.md").read_text(encoding="utf-8")
    declared = re.findall(r"^(?:int|size_t) heat_\w+\(.*\);$", text, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (_, code, _), *_ = BLOCK.findall(text)
    exec(compile(code, "export.md", "exec"), {"__name__": "__main__"})
    assert len(declared) == 2 and {*declared} <= {*Path("heat.h").read_text().splitlines()}


def test_every_guide_with_code_that_runs_is_among_them() -> None:
    """But for those whose results have tests of their own, in test_docs.py."""
    found = {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md") if BLOCK.search(file.read_text("utf-8"))}
    assert found - {"schedules.md"} == {*GUIDES}

"""Each ``programs/*.sgir``: ``# passes:`` on the first line, a module, ``# =====``, the module that must come out.

``SPARSEGEN_UPDATE=1`` rewrites what is expected.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparsegen.ir.parse import parse_module
from sparsegen.ir.passes import Manager, parse_pipeline
from sparsegen.ir.text import print_module

FILES = sorted((Path(__file__).parent / "programs").glob("*.sgir"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_program(path: Path) -> None:
    before, _, after = path.read_text(encoding="utf-8").partition("# =====\n")
    assert before.startswith("# passes: "), "the first line names the passes"
    passes = parse_pipeline(before.splitlines()[0].removeprefix("# passes: "))
    got = print_module(Manager(passes, verify_each=True).run(parse_module(before, file=str(path))))
    if os.environ.get("SPARSEGEN_UPDATE"):
        path.write_text(f"{before}# =====\n{got}", encoding="utf-8")
    assert got == after

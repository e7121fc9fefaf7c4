"""In a process that has imported nothing, text may name every op and every pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparsegen.ir.node import OPS, Op, define
from sparsegen.ir.tile import Alloc

ROOT = Path(__file__).resolve().parents[2]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_pipeline_may_name_any_pass_of_the_package() -> None:
    code = "from sparsegen.ir.passes import parse_pipeline as p; print(p('column{lines=2,planes=4,warps=4,stages=2}'))"
    assert python(code).startswith("(Column(lines=2, ")
    said = python("import sparsegen.ir.passes as p; print(*p.pass_names())").split()
    written = {line for file in (ROOT / "ir").rglob("*.py") for line in file.read_text().splitlines()}
    assert set(said) == {line.split('"')[1] for line in written if line.startswith('@register("')}


def test_every_op_that_is_written_down_is_known() -> None:
    code = "from sparsegen.ir.parse import Parser; from sparsegen.ir.node import OPS; Parser(''); print(*OPS)"
    written = {line for file in (ROOT / "ir").rglob("*.py") for line in file.read_text().splitlines()}
    assert set(python(code).split()) == {line.split('"')[1] for line in written if line.startswith('@define("')}


def test_a_name_is_of_one_op() -> None:
    """Text of a second op of that name would be read as the first one."""

    class Other(Op):
        """Not the tile op."""

    with pytest.raises(TypeError, match=r"tile\.alloc is sparsegen\.ir\.tile\.Alloc already: call .*Other otherwise"):
        define("tile.alloc")(Other)
    assert OPS["tile.alloc"] is Alloc

"""Errors of the IR: what they say to somebody who edits an ``.sgir`` file or writes a pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparsegen.ir.errors import IRError, SparsegenError
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_value
from sparsegen.ir.verify import verify

TEXT = """module "m"
warp.func "k", [@u: global f64[100] align=16], [], [1, 1, 1], 32 {
  %x: f64 = warp.ld @u, %tid
  warp.st @u, %tid + 100, [%x]
}
"""


def test_verifier_points_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.sgir"
    path.write_text(TEXT, encoding="utf-8")
    with pytest.raises(SparsegenError) as e:
        verify(parse_module(TEXT, file=str(path)))
    assert (
        str(e.value)
        == f"""{path}:4: warp.st: index %tid + 100 is in 100..131: outside @u: global f64[100] align=16
  in: warp.st @u, %tid + 100, [%x]
    warp.st @u, %tid + 100, [%x]
    ^
remedy: guard the access with where="""
    )


def test_parser_points_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.sgir"
    text = TEXT.replace("%tid + 100, [%x]", "%tid + 100 [%x]")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(IRError) as e:
        parse_module(text, file=str(path))
    assert (
        str(e.value)
        == f"""{path}:4: expected ', ' and the operand 'vals' of warp.st, found '['
    warp.st @u, %tid + 100 [%x]
                           ^"""
    )


def test_quoted_without_a_file() -> None:
    with pytest.raises(IRError) as e:
        parse_module('module "m"\nwarp.fnc "k"')
    assert "expected an op, found 'warp.fnc'\n  warp.fnc" in str(e.value) and "remedy: one of warp.func" in str(e.value)


@pytest.mark.parametrize(("text", "said"), [
    ("", "expected 'module', found end of text"),
    ("module m", "the module's name in double quotes"),
    ('module "m" launch "k" in', "expected '\\['"),
    ('module "m\\q"', "cannot read the string"),
])  # fmt: skip
def test_modules(text: str, said: str) -> None:
    with pytest.raises(IRError, match=said):
        parse_module(text)


def test_unprintable_attributes() -> None:
    with pytest.raises(TypeError, match="decorate its class"):
        print_value({1: 2})

"""Warpgroups that share out a block's registers anew: who gives, who waits, and what no GPU takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, glob, kernel, zeros

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Const
from sparsegen.ir.numbers.registers import at_launch, rest
from sparsegen.ir.parse import parse_op
from sparsegen.ir.text import print_op
from sparsegen.ir.types import f32
from sparsegen.ir.verify import verify
from sparsegen.ir.warp_group import SetRegisters

OUT = glob("out", f32, 2 * 384)


def shared_out(keep: int | None = 40, more: int = 232, again: bool = False, part: bool = False) -> w.Func:
    """Of three warpgroups the last one keeps so many registers (None: all), the others take ``more``."""

    def body(b: Any, v: Any) -> None:
        with b.if_(v.warp.lt(8)):
            for _ in range(1 + again):
                b.emit(SetRegisters(more))
        with b.else_():
            if keep is not None:
                with b.if_(v.warp.ge(9) if part else Const(1)):
                    b.emit(SetRegisters(keep))
        b.st(OUT, v.bx * 384 + v.tid, b.const(f32, 2.0))

    return kernel(body, (OUT,), threads=384, grid=(2, 1, 1))


@pytest.mark.parametrize("seed", range(3))
def test_what_one_gives_the_others_take(seed: int) -> None:
    args, report = clean(shared_out(), seed=seed)
    assert np.all(args["out"] == 2) and report.counts["set_registers"] == 24


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wrong", [{"keep": None}, {"keep": 48}, {"more": 240}, {"part": True}])
def test_who_waits_for_more_than_there_is_waits_for_ever(wrong: dict[str, Any], seed: int) -> None:
    report = run(shared_out(**wrong), zeros(shared_out()), seed=seed)
    assert report.kinds() == {"deadlock"} and "waits for" in report.errors[0].message, str(report)


def test_a_warpgroup_sets_them_once() -> None:
    report = run(shared_out(again=True), zeros(shared_out()))
    assert "collective" in report.kinds() and "a second time" in str(report)


def test_numbers() -> None:
    """Of 65,536 registers, eight by eight; with what 128 threads give back 256 others have 64 more each."""
    assert [at_launch(n, 1) for n in (128, 256, 384, 512, 1024)] == [255, 255, 168, 128, 64]
    assert at_launch(128, 4) == 128 and rest(384, 128, 40) == 232 and rest(512, 128, 32) == 160


def test_its_text_is_read_back_and_verified() -> None:
    text = print_op(shared_out())
    assert "warp.set_registers 232" in text and parse_op(text) == shared_out()
    verify(shared_out())
    for old, new, says in (
        ("registers 40", "registers 44", "44 registers are no multiple of 8 in 24..256"),
        ("registers 40", "registers 16", "16 registers are no multiple"),
        ("registers 40", "registers 168", "those of the launch"), (" 384 {", " 256 {", "there is nothing to share out"),
        ("%warp < 8", "%warp < 7", "all four warps"), (" 384 {", " 416 {", "full warpgroups"),
    ):  # fmt: skip
        assert old in text
        with pytest.raises(IRError, match=says):
            verify(parse_op(text.replace(old, new)))

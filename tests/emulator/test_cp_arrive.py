"""Arrivals that come when a lane's cp.async have landed: what they hand over, and what goes wrong without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, faulty, glob, kernel, shared, zeros

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.parse import parse_op
from sparsegen.ir.text import print_op
from sparsegen.ir.types import f64, u64
from sparsegen.ir.verify import verify

SRC, OUT = glob("src", f64, 256), glob("out", f64, 128)
DATA = np.arange(256.0)


def handed(
    arrive: str = "after", bar: int = 0, count: int = 32, wait: bool = True, commit: bool = False, meet: bool = True,
    lanes: int = 32, turns: int = 1, back: bool = True,
) -> w.Func:  # fmt: skip
    """Warp 0 copies and arrives on mbarrier ``bar``, warp 1 waits for number 0 and reads, turn by turn.

    ``arrive``: ``after`` the copies, ``between`` the two of each lane, ``before`` them, ``plain`` (not waiting for
    them), or ``never``; the first ``lanes`` lanes copy, ``commit``: into groups; ``back``: warp 0 waits for the turn
    before to have been read.
    """
    t, bars = shared("t", f64, 64), shared("bars", u64, 4)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.tid.eq(0)), b.for_("i", 0, 4) as i:
            b.emit(w.MbarInit(bars, i, count))
        if meet:
            b.barrier()
        with b.for_("turn", 0, turns) as turn:
            with b.if_(v.warp.eq(0)):
                if back:
                    with b.if_(turn.ge(1)):
                        b.mbar_wait(bars, 2, (turn + 1) % 2)
                for half, place in ((0, "before"), (1, "between"), (2, "after")):
                    if arrive == place:
                        b.emit(w.CpArrive(bars, bar + v.lane * 0))
                    if half < 2:
                        b.cp_async(
                            t, half * 32 + v.lane, SRC, turn * 64 + half * 32 + v.lane, 1,
                            v.lane.lt(lanes) if lanes < 32 else None,
                        )  # fmt: skip
                        if commit:
                            b.commit()
                if arrive == "plain":
                    b.emit(w.MbarArrive(bars, v.lane * 0))
            with b.else_():
                if wait:
                    b.mbar_wait(bars, 0, turn % 2)
                for half in (0, 1):
                    with b.if_(v.lane.lt(lanes)):
                        b.st(OUT, turn * 64 + half * 32 + v.lane, b.ld(t, half * 32 + (lanes - 1 - v.lane)))
                b.emit(w.MbarArrive(bars, v.lane * 0 + 2))

    return kernel(body, (SRC, OUT), (t, bars), threads=64)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("commit", [False, True])
def test_it_hands_over_what_was_copied(commit: bool, seed: int) -> None:
    args, report = clean(handed(commit=commit, turns=2), {"src": DATA}, seed=seed)
    assert np.array_equal(args["out"].reshape(4, 32), DATA[:128].reshape(4, 32)[:, ::-1])
    assert report.counts["cp_arrive"] == 2 and report.counts["cp_async"] == 4


def test_lanes_that_copy_nothing_arrive_too() -> None:
    args, _ = clean(handed(lanes=7), {"src": DATA})
    assert np.array_equal(args["out"][:7], DATA[6::-1])


@pytest.mark.parametrize("seed", range(3))
def test_without_it_the_reader_waits_for_ever(seed: int) -> None:
    assert "deadlock" in run(handed(arrive="never"), zeros(handed()), seed=seed).kinds()
    assert "deadlock" in run(handed(bar=1), zeros(handed()), seed=seed).kinds()
    assert "deadlock" in run(handed(count=33), zeros(handed()), seed=seed).kinds()


@pytest.mark.parametrize("arrive", ["before", "between", "plain"])
def test_it_must_come_after_the_copies(arrive: str) -> None:
    """An arrival waits for the copies before it: of those behind it nobody is told."""
    for seed in range(3):
        report = run(handed(arrive), zeros(handed()), seed=seed)
        assert any("while a cp.async into it is in flight" in e.message for e in report.errors), str(report)


@pytest.mark.parametrize("stored", [False, True])
def test_it_hands_over_copies_and_nothing_else(stored: bool) -> None:
    """What a lane stores itself is not ordered by such an arrival, but by a plain one behind it."""
    t, extra, bars = shared("t", f64, 32), shared("extra", f64, 32), shared("bars", u64, 2)

    def made(plain: bool) -> w.Func:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.tid.eq(0)), b.for_("i", 0, 2) as i:
                b.emit(w.MbarInit(bars, i, 32))
            b.barrier()
            with b.if_(v.warp.eq(0)):
                b.cp_async(t, v.lane, SRC, v.lane, 1)
                if stored:
                    b.st(extra, v.lane, b.ld(SRC, v.lane + 32))
                b.emit(w.CpArrive(bars, v.lane * 0))
                if plain:
                    b.emit(w.MbarArrive(bars, v.lane * 0 + 1))
            with b.else_():
                b.mbar_wait(bars, 0, 0)
                if plain:
                    b.mbar_wait(bars, 1, 0)
                b.st(OUT, v.lane, b.ld(t, 31 - v.lane))
                if stored:
                    b.st(OUT, v.lane + 32, b.ld(extra, 31 - v.lane))

        return kernel(body, (SRC, OUT), (t, extra, bars), threads=64)

    for seed in range(3):
        clean(made(plain=True), {"src": DATA}, seed=seed)
        assert ("race" in run(made(plain=False), zeros(made(plain=False)), seed=seed).kinds()) == stored


def test_unless_one_waits_what_is_in_flight_is_read() -> None:
    for seed in range(3):
        assert run(handed(wait=False), zeros(handed()), seed=seed).kinds() & {"async", "uninit", "race"}


def test_a_phase_has_as_many_arrivals_as_were_set() -> None:
    found = run(handed(count=31), zeros(handed()))
    assert any("more arrivals on @bars[0] than the 31" in e.message for e in found.errors)


def test_the_mbarrier_must_be_there() -> None:
    assert run(handed(meet=False), zeros(handed())).kinds() & {"race", "uninit"}


def test_a_kernel_may_not_end_before_it() -> None:
    t, bars = shared("t", f64, 64), shared("bars", u64, 1)

    def make(wait: bool) -> w.Func:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.tid.eq(0)):
                b.emit(w.MbarInit(bars, v.tid, 32))
            b.sync()
            b.cp_async(t, v.lane, SRC, v.lane, 1)
            b.emit(w.CpArrive(bars, v.lane * 0))
            if wait:
                b.mbar_wait(bars, 0, 0)

        return kernel(body, (SRC, OUT), (t, bars))

    clean(make(True))
    report = faulty(make(False), "async", "wait for its mbarrier before the end")
    assert "ends while an arrival of cp.async is in flight" in report.errors[0].message


@pytest.mark.parametrize("seed", range(3))
def test_a_slot_is_filled_again_when_it_has_been_handed_back(seed: int) -> None:
    """Else it is overwritten while it is read, or a phase that nobody saw ends."""
    assert run(handed(turns=2, back=False), zeros(handed()), seed=seed).kinds() & {"race", "async", "deadlock"}


def test_its_text_is_read_back() -> None:
    func = handed(turns=2)
    text = print_op(func)
    assert "warp.cp_arrive @bars, " in text and parse_op(text) == func
    with pytest.raises(IRError, match="mbarriers are u64, but @t"):
        verify(parse_op(text.replace("warp.cp_arrive @bars", "warp.cp_arrive @t")))

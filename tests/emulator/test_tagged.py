"""Cells that blocks hand to one another, each a value and its tag: what they carry, and what goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, faulty, glob, kernel, zeros

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.types import DType, f32, u32, u64
from sparsegen.ir.verify import verify

BLOCKS, ROUNDS = 4, 5
SEEDS = range(6)


def ring(
    dtype: DType = u32, *, publish: bool = True, slots: int = 2, tag: int = 1, wait: int = 1, some: int = 0,
    values: int = 1,
) -> w.Func:  # fmt: skip
    """Each block adds to its number those of the blocks on both sides, ``ROUNDS`` times: every lane has its own cell.

    ``some``: lanes that ask for a cell, if not all do; the others get 0.  ``values`` go with one tag: the number, and
    zeros before it.
    ``slots`` places take turns; in round i the tag is i + ``tag``, and i + ``wait`` is waited for.
    """
    cells = replace(glob("cells", dtype, (values + 1) * slots * BLOCKS * 32), align=(values + 1) * dtype.nbytes)
    out = glob("out", dtype, BLOCKS * 32)

    def body(b: Any, v: Any) -> None:
        mine, got, seen = (b.alloc(name, t, 1) for name, t in (("mine", dtype), ("got", dtype), ("seen", u32)))
        b.st(mine, 0, b.convert(b.name(v.bx + 1, "number"), dtype))
        with b.for_("round", 0, ROUNDS) as i:
            slot, sums = b.let("slot", i % slots * (BLOCKS * 32)), [b.ld(mine, 0)]
            if publish:
                at, zero = (slot + v.bx * 32 + v.lane) * (values + 1), b.convert(b.name(v.bx * 0, "zero"), dtype)
                b.st_tagged(cells, at, [zero] * (values - 1) + sums, b.convert(b.name(i + tag, "tag"), dtype))
            for side in (1, BLOCKS - 1):
                beside = b.let("beside", (v.bx + side) % BLOCKS)
                with b.loop():
                    index = (slot + beside * 32 + v.lane) * (values + 1)
                    if some:  # a few lanes ask, the others have the tag at once
                        asks = v.lane.lt(some)
                        other = b.convert(b.name(i + wait, "other"), dtype)
                        *_, cell, found = b.ld_tagged(cells, index, asks, other, values=values)
                    else:
                        *_, cell, found = b.ld_tagged(cells, index, values=values)
                    b.st(got, 0, cell)
                    b.st(seen, 0, found if dtype is u32 else b.convert(found, u32))
                    b.break_if(b.ld(seen, 0).eq(i + wait))
                sums.append(b.ld(got, 0))
            b.st(mine, 0, b.binary("add", b.binary("add", sums[0], sums[1]), sums[2]))
        b.st(out, v.bx * 32 + v.lane, b.ld(mine, 0))

    return replace(kernel(body, (cells, out), grid=(BLOCKS, 1, 1)), together=True)


def summed() -> Any:
    numbers = np.arange(1, BLOCKS + 1)
    for _ in range(ROUNDS):
        numbers = numbers + np.roll(numbers, 1) + np.roll(numbers, -1)
    return np.repeat(numbers, 32)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("dtype", "values"), [(u32, 1), (u64, 1), (u32, 3)])
def test_a_cell_is_what_its_tag_says(dtype: DType, values: int, seed: int) -> None:
    program = ring(dtype, values=values)
    verify(program)
    made, report = clean(program, seed=seed)
    assert (made["out"] == summed()).all()
    assert report.counts["st.tagged"] == BLOCKS * ROUNDS <= report.counts["ld.tagged"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("dtype", "values"), [(u32, 1), (u64, 1), (u32, 3)])
def test_lanes_that_ask_for_nothing_get_a_tag(dtype: DType, values: int, seed: int) -> None:
    made, _ = clean(ring(dtype, some=5, values=values), seed=seed)
    lanes = made["out"].reshape(BLOCKS, 32)
    assert (lanes[:, :5] == summed().reshape(BLOCKS, 32)[:, :5]).all()
    assert (lanes[:, 5:] == np.arange(1, BLOCKS + 1)[:, None]).all()


def test_cells_come_late_with_a_seed() -> None:
    """Some ask again although the store has been made: who takes any cell for the right one is found."""
    asked = [clean(ring(), seed=seed)[1].counts["ld.tagged"] for seed in SEEDS]
    assert max(asked) > asked[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "wrong", [{"publish": False}, {"tag": 2}, {"wait": 2}], ids=["never stored", "wrong tag", "waits for another"]
)
def test_what_never_comes_is_a_deadlock(wrong: dict[str, Any], seed: int) -> None:
    report = run(ring(**wrong), zeros(ring(**wrong)), seed=seed)
    assert report.kinds() == {"deadlock"}
    assert "waits for the tag of a cell" in str(report)


def test_a_place_that_is_overwritten_too_early_is_found() -> None:
    """With one place for all rounds a block that goes ahead overwrites what its neighbour has yet to read."""
    kinds = [run(ring(slots=1), zeros(ring(slots=1)), seed=seed).kinds() for seed in range(1, 12)]
    assert {"deadlock"} in kinds
    assert set().union(*kinds) <= {"deadlock"}


def test_plain_accesses_race_with_tagged_ones() -> None:
    cells = glob("cells", u32, 2 * BLOCKS * 32)

    def body(b: Any, v: Any) -> None:
        one = b.convert(b.name(v.bx + 1, "one"), u32)
        b.st_tagged(cells, (v.bx * 32 + v.lane) * 2, [one], one)
        b.st(cells, ((v.bx + 1) % BLOCKS * 32 + v.lane) * 2, one)

    together = replace(kernel(body, (cells,), grid=(BLOCKS, 1, 1)), together=True)
    faulty(together, "global", "")


def test_blocks_that_wait_for_one_another_run_together() -> None:
    """However few blocks the caller asks for at a time."""
    made, _ = clean(ring(), batch=1)
    assert (made["out"] == summed()).all()


@pytest.mark.parametrize(
    ("dtype", "values", "align", "what"),
    [(f32, 1, 16, "u32 or u64"), (u64, 1, 8, "aligned to less"), (u32, 3, 8, "aligned to less"),
     (u32, 2, 16, "3 elements"), (u64, 3, 32, "4 elements")],
    ids=["floats", "halves", "half a record", "a pair", "too wide"],
)  # fmt: skip
def test_what_no_access_can_carry_is_refused(dtype: DType, values: int, align: int, what: str) -> None:
    cells = replace(glob("cells", dtype, 128), align=align)

    def body(b: Any, v: Any) -> None:
        b.ld_tagged(cells, v.lane * (values + 1), values=values)

    with pytest.raises(IRError, match=what):
        verify(kernel(body, (cells,)))


def test_a_condition_goes_with_a_tag() -> None:
    cells = glob("cells", u32, 64)

    def body(b: Any, v: Any) -> None:
        b.ld_tagged(cells, v.lane * 2, v.lane.lt(4))

    with pytest.raises(IRError, match="a tag goes with a condition"):
        verify(kernel(body, (cells,)))


def test_a_trap_ends_the_launch() -> None:
    """Where its condition holds in a lane of those that come there."""
    out = glob("out", u32, 32)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.lane.lt(7)):
            b.trap(b.let("asked", v.lane.eq(at)))
        b.st(out, v.lane, b.convert(b.name(v.lane + 1, "one"), u32))

    at = 9
    assert clean(kernel(body, (out,)))[0]["out"].all()
    at = 5
    assert faulty(kernel(body, (out,)), "trap", "in vain").errors[0].lane == 5


def test_a_scope_has_a_name() -> None:
    cells = glob("cells", u32, 64)
    for scope in ("gpu", "sys", "cta"):

        def body(b: Any, v: Any, scope: str = scope) -> None:
            b.ld_tagged(cells, v.lane * 2, scope=scope)

        if scope == "cta":
            with pytest.raises(IRError, match=r"scope .cta. is unknown"):
                verify(kernel(body, (cells,)))
        else:
            verify(kernel(body, (cells,)))

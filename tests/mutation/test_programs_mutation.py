"""Without any one of the ops that order it, a program of tests/programs fails on the emulator.

The sizes are those at which every one of them is needed: the ring goes round, several warps and blocks work together.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sparsegen.backends import emulator
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Const
from sparsegen.ir.fragments import SHAPES, signed
from sparsegen.ir.node import Op, walk
from sparsegen.ir.verify import verify
from tests.programs import heat2d_stream, mutants, ring_reduce
from tests.programs.run import SMALL

NAMES = [f"heat2d_stream.{k}" for k in heat2d_stream.SIZES] + ["ring_reduce.even", "ring_reduce.ragged"]
NAMES += [f"warpgroups.ring_{how}" for how in ("reader", "writer", "bulk", "arrive")]
NAMES += ["warpgroups.registers_b128mn", "clusters.sums2x4", "clusters.sums4x2", "transposes.u8.s8"]
INTEGERS = [name for name, shape in SHAPES.items() if shape.c.dtype.is_int]
LEFT_OUT = [(name, what) for name in NAMES for what, _ in mutants.deletions(SMALL[name](0).func)]
WEAKER = [(name, what) for name in NAMES for what, _ in mutants.weaker(SMALL[name](0).func)]


@pytest.mark.parametrize(("name", "what"), LEFT_OUT)
def test_nothing_can_be_left_out(name: str, what: str) -> None:
    case = SMALL[name](0)
    assert mutants.symptoms(case, dict(mutants.deletions(case.func))[what])


@pytest.mark.parametrize(("name", "what"), WEAKER)
def test_nothing_can_be_weaker(name: str, what: str) -> None:
    case = SMALL[name](0)
    assert mutants.symptoms(case, dict(mutants.weaker(case.func))[what])


@pytest.mark.parametrize("name", NAMES)
def test_the_program_itself_shows_nothing(name: str) -> None:
    case = SMALL[name](0)
    assert mutants.symptoms(case, case.func) == set()


def test_every_op_that_orders_was_tried() -> None:
    """14 of the ring (a wait is one loop), 5 of the stream, and so on; what is left of a function is well-formed."""
    for name, count in (("ring_reduce.even", 14), ("heat2d_stream.even", 5), ("warpgroups.ring_bulk", 14)):
        func = SMALL[name](0).func
        tried = list(mutants.deletions(func))
        assert len(tried) == len({what for what, _ in tried}) == count
        for _, less in tried:
            verify(less)
            assert sum(1 for _ in walk(less.body)) < sum(1 for _ in walk(func.body))


@pytest.mark.parametrize("shape", INTEGERS)
def test_other_signs_are_found(shape: str) -> None:
    case = SMALL[f"fragments.{shape}"](0)
    mma = next(op for op in walk(case.func.body) if isinstance(op, w.Mma))
    others = [other for other in INTEGERS if signed(other) == signed(shape) and other != shape]
    assert len(others) == 3
    for other in others:
        func = mutants.replace(case.func, mma, (dataclasses.replace(mma, shape=other),))
        assert mutants.symptoms(case, func) == {"wrong"}, other


@pytest.mark.parametrize(
    ("kind", "change"),
    [(w.LdMatrix, {"trans": False}), (w.Prmt, {"sel": Const(0x5410)}), (w.Mma, {"shape": "s8.u8.m16n8k32"})],
)
def test_each_step_of_a_transpose_is_needed(kind: type[Op], change: dict[str, Any]) -> None:
    case = SMALL["transposes.u8.s8"](0)
    step = next(op for op in walk(case.func.body) if isinstance(op, kind))
    func = mutants.replace(case.func, step, (dataclasses.replace(step, **change),))
    assert mutants.symptoms(case, func) == {"wrong"}


def test_without_its_gaps_the_ring_has_bank_conflicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heat2d_stream, "chunk", lambda q: q * 2)
    case = heat2d_stream.case(heat2d_stream.SIZES["even"])
    args = case.fresh()
    report = emulator.run(case.func, args)
    assert not case.wrong(args)
    assert report.degree == 2


def test_the_consumers_sum_in_a_group_of_their_own() -> None:
    """A block barrier in place of the named one would wait for the producer for ever: the verifier says so."""
    func = ring_reduce.build(ring_reduce.SIZES["even"])
    named = next(op for op in walk(func.body) if isinstance(op, w.Barrier) and op.id)
    with pytest.raises(IRError, match="all threads of the block"):
        verify(mutants.replace(func, named, (w.Barrier(),)))

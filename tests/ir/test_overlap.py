"""Launches that overlap: what a kernel touches of the launch before comes after its wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Value
from sparsegen.ir.module import Launch, Module
from sparsegen.ir.node import Op
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.ir.types import Buffer, f32, s32
from sparsegen.ir.verify import verify
from sparsegen.ir.verify_launch import waits
from sparsegen.ir.warp_launch import LaunchNext, LaunchWait
from sparsegen.problems.product import Variant
from tests.nm_kit import matrix

WAIT, READ = "warp.launch_wait\n", "warp.cp_async"


def program(x_order: str) -> Module:
    """nm_gather's program; an x by columns is turned by a kernel before."""
    k = sg.compile(sg.spmm(matrix(64, 96, 8, 32, (64, 1)), n=24), device="h200", backend="emulator",
                   schedule="nm_gather rows=64 cols=32 stages=2")  # fmt: skip
    return k._programs.get(1, Variant(x_order, "row", 8)).warp


def test_launches_overlap_where_x_is_turned_by_one_before() -> None:
    assert [waits(f) for f in program("row").funcs] == [False]
    assert [waits(f) for f in program("column").funcs] == [True, True]


def test_blocks_that_begin_early_do_not_meet_on_an_sm() -> None:
    """Two of their blocks would fit: each asks for more than half of an SM's shared memory."""
    turn, product = program("column").funcs
    assert isinstance(turn, w.Func) and isinstance(product, w.Func)
    device = load_profile("h200")
    assert occupancy(32, product.shared_offsets()[1], product.threads, device).blocks > 1
    assert occupancy(32, product.shared_bytes, product.threads, device).blocks == 1
    assert turn.shared_bytes == turn.shared_offsets()[1]


def test_what_comes_before_the_wait_touches_nothing_of_a_call() -> None:
    """What turns x waits before it reads it; then the warps that copy before they read that, the others for y."""
    text = print_module(program("column"))
    assert text.count(WAIT) == 3
    first, second = text.index(WAIT), text.index(WAIT, text.index(WAIT) + 1)
    barrier = text.index("warp.barrier", first)
    without = {
        "x": text[:first] + text[first + len(WAIT) : barrier] + WAIT + text[barrier:],  # once a tile is there
        "y": text[:second] + text[second + len(WAIT) :],
        "turned": text[: text.rindex(WAIT)] + text[text.rindex(WAIT) + len(WAIT) :],
    }
    for array, wrong in without.items():
        with pytest.raises(IRError, match=f"touches @{array}, which the launch before may still use") as caught:
            verify(parse_module(wrong))
        assert "warp.launch_wait" in str(caught.value)
    where = text.index(READ)
    late = text[: text.rindex(WAIT)] + text[text.rindex(WAIT) + len(WAIT) : where] + WAIT + text[where:]
    verify(parse_module(late))  # each turn, before what it copies


def copy(src: str, dst: str, first: Op, last: Op | None = None) -> w.Func:
    """A warp that copies an array."""
    a, b = (Buffer(name, f32, 32, "global") for name in (src, dst))
    v, tid = Value("v", f32), Value("tid", s32, 0, 31)
    body = (first, w.Ld((v,), a, tid), w.St(b, tid, (v,)), *((last,) if last else ()))
    return w.Func("k", (a, b), (), (1, 1, 1), 32, body)


@pytest.mark.parametrize(("roles", "array"), [(("in", "ws.b"), "a"), (("tiles", "ws.b"), "b"), (("bias", "out"), "a")])
def test_arrays_of_a_call_and_workspaces_are_touched_late(roles: tuple[str, str], array: str) -> None:
    runs = (Launch("k", roles),)
    verify(Module("m", (copy("a", "b", LaunchWait()),), runs))
    verify(Module("m", (copy("a", "b", LaunchNext()),), runs))  # is not launched early
    with pytest.raises(IRError, match=f"touches @{array}"):
        verify(Module("m", (copy("a", "b", LaunchNext(), LaunchWait()),), runs))


def test_what_the_launch_before_does_not_write_is_read_early() -> None:
    """If that one has not begun early itself: then all that came before it has ended."""

    def two(first: tuple[str, str], second: tuple[str, str], *, early: bool = False) -> Module:
        before = replace(copy("a", "b", LaunchWait() if early else LaunchNext()), symbol="before")
        after = copy("a", "b", LaunchNext())
        body = (*after.body[:2], LaunchWait(), after.body[2])  # it reads, waits, and writes
        return Module("m", (before, replace(after, body=body)), (Launch("before", first), Launch("k", second)))

    verify(two(("in", "ws.made"), ("in", "out")))
    for wrong in (two(("in", "ws.made"), ("ws.made", "out")), two(("in", "ws.made"), ("in", "out"), early=True)):
        with pytest.raises(IRError, match="touches @a"):
            verify(wrong)
    before, after = two(("in", "ws.made"), ("in", "out")).funcs
    assert isinstance(after, w.Func)
    writes = replace(after, body=(after.body[0], after.body[1], after.body[3], LaunchWait()))
    runs = Launch("before", ("in", "ws.made")), Launch("k", ("in", "out"))
    verify(Module("m", (before, writes), runs))  # nobody uses what it writes
    with pytest.raises(IRError, match="touches @b"):
        verify(Module("m", (before, writes), (runs[0], Launch("k", ("bias", "in")))))

"""Products of warpgroups whose a lies in registers: what they give, and when the registers may be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from emulator_kit import clean, faulty, glob, kernel, shared, zeros

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.swizzle import k_major
from sparsegen.ir.types import bf16, f16, f32, u32
from sparsegen.ir.verify import verify
from tests.programs.warpgroups import REGISTER_TILES, Fed

ONE, TWO = 0x3C003C00, 0x40004000  # of f16, twice each


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("cols", [64, 128])
@pytest.mark.parametrize("tile", REGISTER_TILES)
def test_the_product(tile: str, cols: int, dtype: Any) -> None:
    case = Fed(cols, dtype, REGISTER_TILES[tile]).case()
    args = case.fresh()
    verify(case.func)
    report = run(case.func, args)
    assert report.ok, str(report)
    assert not case.wrong(args)
    assert report.counts[f"wgmma_rs.{dtype}.m64n{cols}k16"] == 2 * 4 * 4


@pytest.mark.parametrize("cols", [8, 24, 96, 256])
@pytest.mark.parametrize("seed", range(3))
def test_widths_and_schedules(cols: int, seed: int) -> None:
    case = Fed(cols, b=(k_major(128), "k")).case(seed)
    args = case.fresh()
    assert run(case.func, args, seed=seed).ok
    assert not case.wrong(args)


def test_a_load_before_the_wait_for_who_reads() -> None:
    case = Fed(pending=2).case()
    report = run(case.func, case.fresh())
    assert report.kinds() == {"async"}, str(report)
    assert "write of register array @a0 while a wgmma in flight reads it" in report.errors[0].message


# ------------------------------------------------------------------------------------------------ one product
Do = Callable[[Any, Any, Any], object]
OUT = glob("out", f32, 128)


def nothing(*_: Any) -> None: ...


def ones(b: Any, v: Any, a: Any, count: int = 4) -> None:
    for r in range(count):
        b.st(a, r, b.let("one", ONE))


def product(fill: Do = ones, fenced: Do = nothing, then: Do = nothing, waited: Do = nothing) -> w.Func:
    """64 x 16 times 16 x 8, all ones (a is as ``fill`` writes it); ``then`` stands between the product and its wait."""
    tile = shared("t", f16, 256, 128)

    def body(b: Any, v: Any) -> None:
        for n in (0, 128):
            b.st(tile, v.tid + n, b.const(f16, 1.0))
        b.fence("async")
        b.barrier()
        acc, a = b.alloc("acc", f32, 4), b.alloc("a", u32, 4)
        for r in range(4):
            b.st(acc, r, b.const(f32, 0.0))
        fill(b, v, a)
        b.wgmma_fence()
        fenced(b, v, a)
        b.wgmma_rs(acc, a, tile, 0, cols=8, b_tile=(0, 128, 128), b_major="k")
        b.wgmma_commit()
        then(b, v, a)
        b.wgmma_wait(0)
        waited(b, v, a)
        b.st(OUT, v.tid, b.ld(acc, 0))

    return kernel(body, (OUT,), (tile,), threads=128)


def write(b: Any, v: Any, a: Any) -> None:
    b.st(a, 2, b.let("two", TWO))


def test_the_registers_are_free_after_the_wait_and_may_be_read_before() -> None:
    args, _ = clean(product(then=lambda b, v, a: b.ld(a, 2), waited=write))
    assert (args["out"] == 16).all()


def test_a_write_in_flight() -> None:
    report = faulty(product(then=write), "async", "wgmma_wait that covers its group")
    assert "write of register array @a while a wgmma in flight reads it" in report.errors[0].message


def test_they_are_read_late() -> None:
    """Without the checkers: what they hold at the wait is multiplied."""
    args = zeros(product())
    assert run(product(then=write), args, checks=("bounds",)).ok
    assert (args["out"] == 24).all()


def test_a_write_after_the_fence() -> None:
    report = faulty(product(fenced=write), "async", "before the first product")
    assert "reads registers @a without a wgmma_fence" in report.errors[0].message


def test_registers_that_nothing_has_written() -> None:
    report = faulty(product(fill=lambda *at: ones(*at, count=3)), "uninit", "before the product")
    assert "reads registers @a that nothing has written" in report.errors[0].message


def test_registers_that_some_lanes_have_not_written() -> None:
    def fill(b: Any, v: Any, a: Any) -> None:
        with b.if_(v.lane.lt(31)):
            ones(b, v, a)

    faulty(product(fill), "uninit", "before the product")


def test_registers_that_end_before_their_product() -> None:
    tile = shared("t", f16, 2048, 1024)

    def body(b: Any, v: Any) -> None:
        with b.for_("i", v.tid, 2048, 128) as i:
            b.st(tile, i, b.const(f16, 1.0))
        b.fence("async")
        b.barrier()
        acc = b.alloc("acc", f32, 4)
        for r in range(4):
            b.st(acc, r, b.const(f32, 0.0))
        with b.for_("turn", 0, 2):
            a = b.alloc("a", u32, 4)
            ones(b, v, a)
            b.wgmma_fence()
            b.wgmma_rs(acc, a, tile, 0, cols=8, b_tile=k_major(32), b_major="k")
            b.wgmma_commit()
        b.wgmma_wait(0)

    report = run(kernel(body, (), (tile,), threads=128), {})
    assert any("end of the region of register array @a" in e.message for e in report.errors), str(report)

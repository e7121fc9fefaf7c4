"""Races, missing waits, missing fences, collectives: each error beside its repaired twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulator_kit import barrier, clean, faulty, glob, kernel, nothing, shared, sync, zeros

from sparsegen.backends.emulator import ALL, run
from sparsegen.ir import warp as w
from sparsegen.ir.types import f64, s32, u32

OUT = glob("out", f64, 128)


# ------------------------------------------------------------------------------------------------ shared-memory races
def rotate(step: Any, shift: int, threads: int = 64) -> w.Func:
    """Each thread writes its element and reads that of thread tid + shift; ``step(b)`` stands in between."""
    t = shared("t", f64, threads)

    def body(b: Any, v: Any) -> None:
        b.st(t, v.tid, b.const(f64, 1.0))
        step(b)
        b.st(OUT, v.tid, b.ld(t, (v.tid + shift) % threads))

    return kernel(body, (OUT,), (t,), threads=threads)


@pytest.mark.parametrize("seed", [0, 1])
def test_read_after_write(seed: int) -> None:
    clean(rotate(nothing, 0), seed=seed)
    for shift in (1, 32):
        clean(rotate(barrier, shift), seed=seed)
        r = faulty(rotate(nothing, shift), "race", "barrier", seed=seed)
        assert "@t[" in r.errors[0].message and r.errors[0].buffer == "t"
        assert run(rotate(nothing, shift), zeros(rotate(nothing, shift)), checks=ALL - {"race"}).ok
    clean(rotate(sync, 1, threads=32), seed=seed)
    faulty(rotate(sync, 32), "race", "barrier", seed=seed)


def test_running_in_step_is_no_order() -> None:
    faulty(rotate(nothing, 1, threads=32), "race", "warp.sync")
    faulty(rotate(lambda b: b.shfl("xor", b.const(f64, 0.0), 1) and None, 1, threads=32), "race", "warp.sync")


@pytest.mark.parametrize("way", ["war", "waw"])
def test_write_after_read_and_write_after_write(way: str) -> None:
    t = shared("t", f64, 64)

    def make(step: Any) -> Any:
        def body(b: Any, v: Any) -> None:
            b.st(t, v.tid, b.const(f64, 1.0))
            b.barrier()
            if way == "war":
                b.st(OUT, v.tid, b.ld(t, (v.tid + 32) % 64))
            else:
                b.st(t, v.tid, b.const(f64, 2.0))
            step(b)
            b.st(t, (v.tid + 32 if way == "waw" else v.tid) % 64, b.const(f64, 3.0))

        return kernel(body, (OUT,), (t,), threads=64)

    clean(make(barrier))
    r = faulty(make(sync), "race", "barrier")
    assert ("read" if way == "war" else "the write") in r.errors[0].message


def test_all_lanes_read_then_one_writes() -> None:
    t = shared("t", f64, 1)

    def make(step: Any) -> Any:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.tid.eq(0)):
                b.st(t, 0, b.const(f64, 1.0))
            b.sync()
            b.st(OUT, v.tid, b.ld(t, 0))
            step(b)
            with b.if_(v.tid.eq(0)):
                b.st(t, 0, b.const(f64, 2.0))

        return kernel(body, (OUT,), (t,))

    clean(make(sync))
    assert "several lanes" in faulty(make(nothing), "race", "warp.sync").errors[0].message


def test_two_lanes_write_one_element() -> None:
    t = shared("t", f64, 32)
    clean(kernel(lambda b, v: b.st(t, v.tid, b.const(f64, 1.0)), (), (t,)))
    r = faulty(kernel(lambda b, v: b.st(t, v.tid // 2, b.const(f64, 1.0)), (), (t,)), "race", "predicate")
    assert r.errors[0].times == 16
    faulty(kernel(lambda b, v: b.st(t, 5, b.const(f64, 1.0)), (), (t,)), "race", "predicate")


def test_a_loop_needs_its_second_barrier() -> None:
    t = shared("t", f64, 64)

    def make(second: bool) -> Any:
        def body(b: Any, v: Any) -> None:
            acc = b.alloc("acc", f64, 1)
            b.st(acc, 0, b.const(f64, 0.0))
            with b.for_("i", 0, 3):
                b.st(t, v.tid, b.const(f64, 1.0))
                b.barrier()
                b.st(acc, 0, b.binary("add", b.ld(acc, 0), b.ld(t, (v.tid + 32) % 64)))
                if second:
                    b.barrier()
            b.st(OUT, v.tid, b.ld(acc, 0))

        return kernel(body, (OUT,), (t,), threads=64)

    args, _ = clean(make(True))
    assert args["out"][:64].tolist() == [3.0] * 64
    faulty(make(False), "race", "barrier")


def test_named_barriers_order_those_that_meet() -> None:
    t = shared("t", f64, 32)

    def make(ident: int) -> Any:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.warp.eq(0)):
                b.st(t, v.lane, b.const(f64, 1.0))
                b.barrier(1, 64)
            with b.if_(v.warp.eq(1)):
                b.barrier(1, 64)
                b.st(OUT, v.lane, b.ld(t, v.lane))
            with b.if_(v.warp.eq(2)):
                b.barrier(ident, 64)
                b.st(OUT, v.lane + 32, b.ld(t, v.lane))
            with b.if_(v.warp.eq(3)):
                b.barrier(ident, 64)
                b.barrier(ident, 64)
            with b.if_(v.warp.eq(0)):
                b.barrier(ident, 64)

        return kernel(body, (OUT,), (t,), threads=128)

    assert faulty(make(2), "race", "barrier").errors[0].warp == 2  # it met warp 3 only


def test_dirty_elements_may_be_written_by_all_and_read_by_none() -> None:
    t = shared("t", f64, 40)

    def make(read: int) -> Any:
        def body(b: Any, v: Any) -> None:
            b.st(t, v.tid % 33, b.const(f64, 1.0))
            b.barrier()
            b.st(OUT, v.tid, b.ld(t, 32 if read else v.tid % 32), where=v.tid.eq(0))

        return kernel(body, (OUT,), (t,), threads=128)

    faulty(make(0), "race", "own element")
    r = faulty(replace(make(1), scratch=(("t", 0, 32),)), "dirty", "live elements")
    assert r.errors[0].index == 32
    only = kernel(lambda b, v: b.st(t, 32, b.const(f64, 1.0)), (), (t,), threads=64)
    clean(replace(only, scratch=(("t", 32, 32),)))
    faulty(replace(only, scratch=(("t", 33, 33),)), "race", "own element")


# ------------------------------------------------------------------------------------------------ cp.async
SRC = glob("src", f64, 128)


def copy(commit: bool = True, pending: int | None = 0, order: Any = sync, shift: int = 1, groups: int = 1) -> w.Func:
    """A warp copies its row asynchronously, waits, and reads its neighbour's element."""
    t = shared("t", f64, 32)

    def body(b: Any, v: Any) -> None:
        b.cp_async(t, v.lane, SRC, v.lane, 1)
        if commit:
            b.commit()
        for _ in range(groups - 1):
            b.commit()
        if pending is not None:
            b.wait(pending)
        order(b)
        b.st(OUT, v.lane, b.ld(t, (v.lane + shift) % 32))
        b.wait(0)

    return kernel(body, (SRC, OUT), (t,))


def test_cp_async_and_its_wait() -> None:
    data = np.arange(128.0)
    args, rep = clean(copy(), {"src": data})
    assert args["out"][:32].tolist() == [float((i + 1) % 32) for i in range(32)]
    assert rep.counts["cp_async"] == 1 and rep.counts["bytes.global.read"] == 256
    clean(copy(pending=1, groups=2), {"src": data})
    clean(copy(order=nothing, shift=0), {"src": data})
    r = faulty(copy(pending=None), "async", "cp_wait")
    assert "in flight" in r.errors[0].message
    faulty(copy(pending=1), "async", "cp_wait")
    faulty(copy(pending=2, groups=2), "async", "cp_wait")
    faulty(copy(order=nothing), "race", "barrier")
    assert run(copy(pending=None), zeros(copy()), checks=ALL - {"async"}).ok


def test_a_copy_without_commit_is_never_waited_for() -> None:
    r = faulty(copy(commit=False), "async", "commit")
    assert any("ends while" in e.message for e in r.errors)


def test_the_wrong_number_shows_without_the_wait_even_unchecked() -> None:
    f = copy(pending=None)
    a = zeros(f, src=np.arange(128.0))
    run(f, a, checks=())
    assert np.isnan(a["out"][:32]).all()


def test_cp_async_overwrites_what_is_still_read() -> None:
    t = shared("t", f64, 32)

    def make(order: Any) -> Any:
        def body(b: Any, v: Any) -> None:
            b.st(t, v.lane, b.const(f64, 1.0))
            b.sync()
            b.st(OUT, v.lane, b.ld(t, 31 - v.lane))
            order(b)
            b.cp_async(t, v.lane, SRC, v.lane, 1)
            b.commit()
            b.wait(0)

        return kernel(body, (SRC, OUT), (t,))

    clean(make(sync))
    assert "cp.async of @t" in faulty(make(nothing), "race", "barrier").errors[0].message


def test_cp_async_bounds_alignment_and_predicate() -> None:
    t = shared("t", f64, 64)

    def make(dst: int, src: int, where: bool = False) -> Any:
        def body(b: Any, v: Any) -> None:
            b.cp_async(t, v.lane * 2 + dst, SRC, v.lane * 2 + src, 2, v.lane.lt(31) if where else None)
            b.commit()
            b.wait(0)

        return kernel(body, (SRC, OUT), (t,))

    clean(make(0, 2))
    clean(make(2, 0, where=True))
    faulty(make(2, 0), "bounds", "where")
    faulty(make(0, 1), "bounds", "pitch")
    faulty(make(0, 98, where=False), "bounds", "where")
    faulty(make(0, 0), "bounds", "align", align={"src": 8})


# ------------------------------------------------------------------------------------------------ global memory
def test_blocks_write_their_own_elements() -> None:
    def make(pitch: int) -> Any:
        return kernel(lambda b, v: b.st(OUT, v.bx * pitch + v.tid, b.const(f64, 1.0)), (OUT,), grid=(3, 1, 1))

    clean(make(32))
    for batch in (1, 3):
        r = faulty(make(31), "global", "own elements", batch=batch)
        assert r.errors[0].times == 2 and "block" in r.errors[0].message


def test_in_place_updates_across_blocks() -> None:
    u = glob("u", f64, 65)

    def make(dst: Any) -> Any:
        def body(b: Any, v: Any) -> None:
            x = b.ld(u, v.bx * 32 + v.tid + 1)
            b.barrier()
            b.st(dst, v.bx * 32 + v.tid, x)

        return kernel(body, (u, OUT), grid=(2, 1, 1))

    clean(make(OUT))
    for batch in (1, 2):
        faulty(make(u), "global", "fence gpu", batch=batch)


def test_global_memory_within_a_block() -> None:
    def make(step: Any) -> Any:
        def body(b: Any, v: Any) -> None:
            b.st(OUT, v.tid, b.const(f64, 1.0))
            step(b)
            b.st(OUT, v.tid + 64, b.ld(OUT, (v.tid + 32) % 64))

        return kernel(body, (OUT,), threads=64)

    clean(make(barrier))
    faulty(make(sync), "global", "barrier")


# ------------------------------------------------------------------------------------------------ collectives
@pytest.mark.parametrize("what", ["shfl", "ballot", "sync", "barrier", "mma", "ldmatrix"])
def test_collectives_want_all_lanes(what: str) -> None:
    from sparsegen.ir.types import f16

    t, h = shared("t", f64, 32), shared("h", f16, 64)

    def act(b: Any, v: Any, c: Any) -> None:
        if what == "shfl":
            b.shfl("xor", c, 1)
        elif what == "ballot":
            b.emit(w.Ballot((b.fresh("v", u32),), v.lane.lt(3)))
        elif what == "mma":
            b.mma("f64.m8n8k4", [c], [c], [c, c])
        elif what == "ldmatrix":
            b.emit(w.LdMatrix((b.fresh("v", u32),), h, v.lane % 8 * 8))
        else:
            getattr(b, what)()

    def make(limit: int) -> Any:
        def body(b: Any, v: Any) -> None:
            c = b.const(f64, 1.0)
            with b.for_("i", v.lane, 64, 32) as i:
                b.st(h, i, b.const(f16, 1.0))
            b.sync()
            with b.if_(v.tid.lt(limit)):
                act(b, v, c)

        return kernel(body, (), (t, h), threads=32)

    clean(make(32))
    r = faulty(make(20), "collective", "divergent")
    assert "12 of them" in r.errors[0].message and r.errors[0].lane == 20


def test_a_barrier_that_one_warp_does_not_reach() -> None:
    def make(limit: int) -> Any:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.warp.lt(limit)):
                b.barrier()

        return kernel(body, (), threads=96)

    clean(make(3))
    r = faulty(make(2), "deadlock", "reach the barrier")
    assert (
        "warps 0, 1 waits at barrier 0" in r.errors[0].message
        and "warps 2 of the block have ended" in r.errors[0].message
    )


def test_named_barriers_with_wrong_counts() -> None:
    def make(a: int, c: int) -> Any:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.warp.eq(0)):
                b.barrier(1, a)
            with b.else_():
                b.barrier(1, c)

        return kernel(body, (), threads=64)

    clean(make(64, 64))
    r = run(make(64, 96), {})
    assert "collective" in r.kinds() and any("different thread counts" in e.message for e in r.errors)
    assert run(make(96, 96), {}).kinds() == {"deadlock"}


def test_switching_off_a_checker_switches_off_that_one() -> None:
    f = rotate(nothing, 1)
    assert run(f, zeros(f), checks={"uninit"}).ok
    assert run(f, zeros(f), checks={"race"}).kinds() == {"race"}
    g = kernel(lambda b, v: b.st(OUT, v.tid - 1, b.binary("add", b.const(f64, 1.0), b.const(f64, 1.0))), (OUT,))
    assert run(g, zeros(g), checks=ALL - {"bounds"}).ok
    h = kernel(lambda b, v: b.let("x", b.ld(glob("i", s32, 32), v.tid, lo=1, hi=2) + 1) and None, (glob("i", s32, 32),))
    assert run(h, zeros(h), checks=ALL - {"promise"}).ok and not run(h, zeros(h)).ok

"""Mbarriers: what arrivals release and waits acquire, and what goes wrong without them, beside its repaired twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator_kit import barrier, clean, faulty, glob, kernel, nothing, shared, sync, zeros

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.types import f64, u32, u64

OUT = glob("out", f64, 128)


def signal(
    count: int = 32, wait: bool = True, lanes: int = 32, init_order: Any = barrier, early: bool = False
) -> w.Func:
    """Warp 0 writes and arrives; warp 1 waits and reads."""
    t, bars = shared("t", f64, 32), shared("bars", u64, 1)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.tid.eq(0)):
            b.emit(w.MbarInit(bars, v.tid, count))
        init_order(b)
        with b.if_(v.warp.eq(0)):
            if early:
                b.emit(w.MbarArrive(bars, v.lane * 0))
            b.st(t, v.lane, b.const(f64, 1.0))
            if not early:
                if lanes == 1:
                    b.sync()
                with b.if_(v.lane.lt(lanes)):
                    b.emit(w.MbarArrive(bars, v.lane * 0))
        with b.else_():
            if wait:
                b.mbar_wait(bars, 0, 0)
            b.st(OUT, v.lane, b.ld(t, v.lane))

    return kernel(body, (OUT,), (t, bars), threads=64)


@pytest.mark.parametrize("seed", range(4))
def test_arrive_releases_and_wait_acquires(seed: int) -> None:
    args, rep = clean(signal(), seed=seed)
    assert args["out"][:32].tolist() == [1.0] * 32
    assert rep.counts["mbar_try_wait"] == 1 and rep.counts["mbar_arrive"] == 1
    clean(signal(count=1, lanes=1), seed=seed)
    r = run(signal(wait=False), zeros(signal()), seed=seed)
    assert r.kinds() & {"race", "uninit"}
    r = run(signal(early=True), zeros(signal()), seed=seed)
    assert r.kinds() & {"race", "uninit"}


def test_one_lane_releases_only_its_own_accesses_since_the_last_sync() -> None:
    t, bars = shared("t", f64, 32), shared("bars", u64, 1)

    def make(step: Any, read: int) -> Any:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.tid.eq(0)):
                b.emit(w.MbarInit(bars, v.tid, 1))
            b.barrier()
            with b.if_(v.warp.eq(0)):
                b.st(t, v.lane, b.const(f64, 1.0))
                step(b)
                with b.if_(v.lane.eq(0)):
                    b.emit(w.MbarArrive(bars, v.lane))
            with b.else_():
                b.mbar_wait(bars, 0, 0)
                with b.if_(v.lane.eq(0)):
                    b.st(OUT, v.lane, b.ld(t, read))

        return kernel(body, (OUT,), (t, bars), threads=64)

    clean(make(sync, 5))
    clean(make(nothing, 0))
    faulty(make(nothing, 5), "race", "barrier")


def test_one_lane_waits_and_the_others_need_a_sync() -> None:
    t, bars = shared("t", f64, 32), shared("bars", u64, 1)

    def make(step: Any) -> Any:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.tid.eq(0)):
                b.emit(w.MbarInit(bars, v.tid, 32))
            b.barrier()
            with b.if_(v.warp.eq(0)):
                b.st(t, v.lane, b.const(f64, 1.0))
                b.emit(w.MbarArrive(bars, v.lane * 0))
            with b.else_():
                with b.if_(v.lane.eq(0)):
                    b.mbar_wait(bars, 0, 0)
                step(b)
                b.st(OUT, v.lane, b.ld(t, v.lane))

        return kernel(body, (OUT,), (t, bars), threads=64)

    clean(make(sync))
    r = faulty(make(nothing), "race", "warp.sync")
    assert r.errors[0].lane == 1


def test_a_phase_without_all_its_arrivals_is_a_deadlock() -> None:
    r = faulty(signal(count=33), "deadlock", "arrivals")
    assert "1 arrivals and 0 bytes are missing" in r.errors[0].message and "@bars[0]" in r.errors[0].message


def test_too_many_arrivals() -> None:
    r = run(signal(count=5), zeros(signal()))
    assert "collective" in r.kinds() and any("more arrivals" in e.message for e in r.errors)


def test_mbarriers_must_be_initialised_and_that_ordered() -> None:
    bars = shared("bars", u64, 1)

    def never(b: Any, v: Any) -> None:
        b.emit(w.MbarArrive(bars, v.lane * 0))

    r = run(kernel(never, (), (bars,)), {})
    assert any(e.kind == "uninit" and "mbar_init" in e.message for e in r.errors)
    r = run(signal(init_order=nothing), zeros(signal()))
    assert "race" in r.kinds() and any("mbar_init" in e.message for e in r.errors)


@pytest.mark.parametrize(("step", "ok"), [(sync, True), (nothing, False), (lambda b: b.shfl("idx", b.const(u32, 0), 0),
                         False)], ids=["sync", "nothing", "shuffle"])  # fmt: skip
def test_a_warp_must_meet_before_it_uses_the_mbarrier_of_one_lane(step: Any, ok: bool) -> None:
    """A shuffle exchanges registers: CUDA says that it orders no memory."""
    bars = shared("bars", u64, 1)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.lane.eq(0)):
            b.emit(w.MbarInit(bars, v.lane * 0, 1))
            b.fence("mbar_init")
        step(b)
        with b.if_(v.lane.eq(0)):
            b.emit(w.MbarArrive(bars, v.lane * 0))
        b.mbar_wait(bars, 0, 0)

    assert run(kernel(body, (), (bars,)), {}).kinds() == (set() if ok else {"race"})


def test_a_block_may_have_as_many_mbarriers_as_32_rings_of_8_stages() -> None:
    """Each warp waits for its own; more than the emulator can tell apart are refused with a remedy."""

    def made(count: int) -> w.Func:
        bars, t = shared("bars", u64, count), shared("t", f64, 128)

        def body(b: Any, v: Any) -> None:
            own = (count - 4) + v.warp
            with b.if_(v.lane.eq(0)):
                b.emit(w.MbarInit(bars, own, 1))
                b.fence("mbar_init")
            b.st(t, v.tid, b.const(f64, 1.0))
            b.sync()
            with b.if_(v.lane.eq(0)):
                b.emit(w.MbarArrive(bars, own))
            b.mbar_wait(bars, own, 0)
            b.st(OUT, v.tid, b.ld(t, v.tid ^ 1))

        return kernel(body, (OUT,), (t, bars), threads=128)

    clean(made(256))
    clean(made(508))
    with pytest.raises(IRError, match="4 warps and 509 mbarriers") as raised:
        run(made(509), {"out": np.zeros(128)})
    assert "fewer" in str(raised.value.hint)


def test_try_wait_may_time_out_so_it_needs_a_loop() -> None:
    t, bars = shared("t", f64, 32), shared("bars", u64, 1)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.tid.eq(0)):
            b.emit(w.MbarInit(bars, v.tid, 32))
        b.barrier()
        with b.if_(v.warp.eq(0)):
            b.mbar_try_wait(bars, 0, 0)
            b.st(OUT, v.lane, b.ld(t, v.lane))
        with b.else_():
            b.st(t, v.lane, b.const(f64, 1.0))
            b.emit(w.MbarArrive(bars, v.lane * 0))

    assert run(kernel(body, (OUT,), (t, bars), threads=64), {"out": np.zeros(128)}).kinds() & {"race", "uninit"}

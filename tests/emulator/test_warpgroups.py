"""Products of warpgroups: what they give, and that whatever must stand around them is found where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulator_kit import glob, kernel, shared, zeros
from harness import score
from warpgroup_kit import DEPTH, Gemm

from sparsegen.backends.emulator import Report, run
from sparsegen.ir import warp as w
from sparsegen.ir.expr import Const
from sparsegen.ir.node import rewrite
from sparsegen.ir.swizzle import Tile, k_major, mn_major
from sparsegen.ir.types import bf16, f16, f32, u64
from sparsegen.ir.verify import verify
from sparsegen.ir.warp_group import Wgmma

PLAIN: Tile = (0, 2048, 128)  # 8 rows of 8 elements one behind the other; the next 8 elements 2048 bytes on
TILES: dict[str, tuple[Tile, str, Tile, str]] = {
    "a128 k, b128 mn": (k_major(128), "k", mn_major(128, DEPTH), "mn"),
    "a64 k, b64 mn": (k_major(64), "k", mn_major(64, DEPTH), "mn"),
    "a64 k, b128 k": (k_major(64), "k", k_major(128), "k"),
    "a128 mn, b64 k": (mn_major(128, DEPTH), "mn", k_major(64), "k"),
    "a64 mn, b32 mn": (mn_major(64, DEPTH), "mn", mn_major(32, DEPTH), "mn"),
    "a32 mn, b plain k": (mn_major(32, DEPTH), "mn", PLAIN, "k"),
    "a plain k, b plain mn": (PLAIN, "k", PLAIN, "mn"),
    "a plain mn, b64 mn": (PLAIN, "mn", mn_major(64, DEPTH), "mn"),
}


def given(gemm: Gemm, seed: int = 0) -> tuple[dict[str, Any], Any, Report]:
    func = gemm.func()
    args, want = gemm.args(func)
    return args, want, run(func, args, seed=seed)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("cols", [64, 128])
@pytest.mark.parametrize("tiles", TILES)
def test_the_product(tiles: str, cols: int, dtype: Any) -> None:
    a_tile, a_major, b_tile, b_major = TILES[tiles]
    gemm = Gemm(cols, dtype, a_tile, a_major, b_tile, b_major, grid=1)
    verify(gemm.func())
    args, want, report = given(gemm)
    assert report.ok, str(report)
    assert np.abs(args["out"] - want).max() < 2e-6


@pytest.mark.parametrize("cols", [8, 24, 96, 256])
@pytest.mark.parametrize("seed", range(3))
def test_widths_and_schedules(cols: int, seed: int) -> None:
    args, want, report = given(Gemm(cols, b_tile=k_major(64), b_major="k"), seed)
    assert report.ok, str(report)
    assert np.abs(args["out"] - want).max() < 2e-6
    assert report.counts[f"wgmma.f16.m64n{cols}k16"] == 2 * 2 * 8


def test_nothing_can_be_left_out() -> None:
    gemm = Gemm()
    func = gemm.func()
    killed, survivors = score(func, lambda: gemm.args(func)[0], {"out": gemm.args(func)[1]}, rtol=1e-5)
    assert killed == 5 and [str(s) for s in survivors] == []


def faults(kind: str, message: str, remedy: str, **how: Any) -> Report:
    """The report of a changed program: errors of one kind, one of which says ``message``."""
    _, _, report = given(Gemm(**how))
    assert report.kinds() == {kind}, str(report)
    assert any(message in e.message and remedy in e.remedy for e in report.errors), str(report)
    return report


@pytest.mark.parametrize(("part", "message", "remedy"), [
    ("fence", "without a wgmma_fence", "wgmma_fence after the last access"),
    ("commit", "while a wgmma in flight writes it", "wgmma_commit"),
    ("wait", "while a wgmma in flight writes it", "wgmma_wait that covers"),
    ("wait", "the kernel ends while a wgmma that writes @acc", "wgmma_wait 0"),
    ("proxy", "which an ordinary store of warp", "fence async"),
])  # fmt: skip
def test_what_must_stand_there(part: str, message: str, remedy: str) -> None:
    faults("async", message, remedy, without=frozenset({part}))


def test_without_a_barrier_it_is_a_race() -> None:
    _, _, report = given(Gemm(without=frozenset({"barrier"})))
    assert "race" in report.kinds() and any("read of @sx" in e.message for e in report.errors), str(report)


def saying(place: str, emit: Any) -> Any:
    return lambda b, v, at, acc, sx, sy: emit(b, v, acc, sx, sy) if at == place else None


@pytest.mark.parametrize("place", ["issued", "committed"])
def test_registers_of_a_product_in_flight(place: str) -> None:
    put = saying(place, lambda b, v, acc, sx, sy: b.st(acc, 1, b.const(f32, 1.0)))
    faults("async", "write of register array @acc while a wgmma", "wgmma_wait", say=put)
    get = saying(place, lambda b, v, acc, sx, sy: b.ld(acc, 1))
    faults("async", "read of register array @acc while a wgmma", "wgmma_wait", say=get)


def test_a_wait_that_covers_another_group() -> None:
    """The products' group is the latest but one: waiting for all but two of them is too little."""

    def more(b: Any, v: Any, *bufs: Any) -> None:
        b.wgmma_commit()
        b.wgmma_wait(2)
        b.ld(bufs[0], 0)

    faults("async", "read of register array @acc while", "wgmma_wait that covers", say=saying("committed", more))

    def enough(b: Any, v: Any, *bufs: Any) -> None:
        b.wgmma_commit()
        b.wgmma_wait(1)
        b.ld(bufs[0], 0)

    assert given(Gemm(say=saying("committed", enough)))[2].ok


def test_registers_that_end_before_their_product() -> None:
    tile = shared("t", f16, 2048, 1024)

    def body(b: Any, v: Any) -> None:
        with b.for_("i", v.tid, 2048, 128) as i:
            b.st(tile, i, b.const(f16, 1.0))
        b.fence("async")
        b.barrier()
        with b.for_("turn", 0, 2):
            acc = b.alloc("acc", f32, 4)
            for r in range(4):
                b.st(acc, r, b.const(f32, 0.0))
            b.wgmma_fence()
            b.wgmma(acc, tile, 0, tile, 0, cols=8, a_tile=k_major(32), b_tile=k_major(32), a_major="k", b_major="k")
            b.wgmma_commit()
        b.wgmma_wait(0)

    report = run(kernel(body, (), (tile,), threads=128), {})
    assert any("end of the region of register array @acc" in e.message for e in report.errors), str(report)


def test_registers_touched_after_the_fence() -> None:
    between = saying("loaded", lambda b, v, *bufs: (b.wgmma_fence(), b.ld(bufs[0], 0)))
    faults("async", "without a wgmma_fence", "before the first product", say=between, without=frozenset({"fence"}))


def test_registers_that_nothing_has_written() -> None:
    func = Gemm().func()
    bare = rewrite(func.body, lambda op: None if isinstance(op, w.St) and op.buf.space == "reg" else op)
    report = run(replace(func, body=bare), Gemm().args(func)[0])
    assert report.kinds() == {"uninit"}


@pytest.mark.parametrize("place", ["issued", "committed"])
def test_tiles_that_a_product_in_flight_reads(place: str) -> None:
    def store(b: Any, v: Any, acc: Any, sx: Any, sy: Any) -> None:
        b.barrier()
        b.st(sy, v.tid * 0 + v.warp, b.const(f16, 0.0), where=v.lane.eq(0))

    faults("async", "write of @sy[0], which a wgmma in flight reads", "after a wgmma_wait", say=saying(place, store))


def test_tiles_that_are_handed_over_too_early() -> None:
    """One warp of the first warpgroup writes after a barrier that all reach before their wait, but waits itself."""

    def store(b: Any, v: Any, acc: Any, sx: Any, sy: Any) -> None:
        with b.if_(v.warp.eq(7)):
            b.st(sx, v.lane, b.const(f16, 0.0))

    report = given(Gemm(say=saying("waited", store)))[2]
    assert report.kinds() == {"race"} and any("the read by warp" in e.message for e in report.errors), str(report)


def ring(fence: str = "reader", wait: bool = True, bulk: bool = False) -> w.Func:
    """A producer warpgroup copies two tiles, by cp.async or bulk copies, over the ones that products have read."""
    src, out, tile = glob("x", f16, 2 * 2048), glob("out", f32, 512), shared("t", f16, 2048, 1024)
    bars = shared("bars", u64, 2)
    how = {"a_tile": k_major(64), "b_tile": k_major(64), "a_major": "k", "b_major": "k"}

    def body(b: Any, v: Any) -> None:
        with b.if_(v.tid.eq(0)):
            b.emit(w.MbarInit(bars, Const(0), 1 if bulk else 4))
            b.emit(w.MbarInit(bars, Const(1), 4))
            b.fence("mbar_init")
        b.barrier()
        with b.if_(v.warp.ge(4)), b.for_("turn", 0, 2, unroll=1) as turn:
            with b.if_(turn.ge(1)):
                b.mbar_wait(bars, 1, turn - 1)
            if bulk:
                with b.if_(v.tid.eq(128)):
                    b.emit(w.MbarArrive(bars, Const(0), Const(4096)))
                    b.emit(w.BulkCopy(tile, Const(0), src, turn * 2048, Const(2048), bars, Const(0)))
            else:
                for i in range(2):
                    at = (v.tid - 128) * 8 + 1024 * i
                    b.cp_async(tile, at, src, turn * 2048 + at, 8)
                b.commit()
                b.wait(0)
                if fence == "writer":
                    b.fence("async")
                b.sync()
                with b.if_(v.lane.eq(0)):
                    b.emit(w.MbarArrive(bars, Const(0)))
        with b.if_(v.warp.lt(4)):
            acc = b.alloc("acc", f32, 4)
            for r in range(4):
                b.st(acc, r, b.const(f32, 0.0))
            with b.for_("turn", 0, 2, unroll=1) as turn:
                b.mbar_wait(bars, 0, turn)
                if fence == "reader":
                    b.fence("async")
                b.wgmma_fence()
                for k in range(2):
                    b.wgmma(acc, tile, 16 * k, tile, 16 * k, cols=8, **how)
                b.wgmma_commit()
                if wait:
                    b.wgmma_wait(0)
                b.sync()
                with b.if_(v.lane.eq(0)):
                    b.emit(w.MbarArrive(bars, Const(1)))
            b.wgmma_wait(0)
            b.st(out, v.tid * 4, *(b.ld(acc, r) for r in range(4)))

    return kernel(body, (src, out), (tile, bars), threads=256)


def in_ring(seed: int = 0, **how: Any) -> tuple[Report, Any, Any]:
    func = ring(**how)
    verify(func)
    x = np.random.default_rng(1).uniform(-1, 1, 4096).astype(np.float16)
    args = zeros(func, x=x)
    report = run(func, args, seed=seed)
    at = Gemm(cols=64, b_tile=k_major(64), b_major="k").image(64, k_major(64), "k")
    rows = [x[2048 * i :][at].astype(np.float64) for i in range(2)]
    warp, lane, r = np.indices((4, 32, 4))
    want = sum(a @ a[:8].T for a in rows)[16 * warp + lane // 4 + 8 * (r // 2), 2 * (lane % 4) + r % 2]
    return report, args["out"], want.reshape(-1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", [{}, {"fence": "writer"}, {"bulk": True, "fence": ""}], ids=str)
def test_copies_into_a_ring(how: dict[str, Any], seed: int) -> None:
    report, got, want = in_ring(seed, **how)
    assert report.ok, str(report)
    assert np.abs(got - want).max() < 1e-5


def test_cp_async_needs_the_proxy_fence() -> None:
    report = in_ring(fence="")[0]
    assert report.kinds() == {"async"} and "fence async" in report.errors[0].remedy, str(report)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bulk", [False, True])
def test_a_slot_that_is_freed_before_the_wait(bulk: bool, seed: int) -> None:
    report = in_ring(seed, wait=False, bulk=bulk)[0]
    text = "bulk copy of @t" if bulk else "cp.async of @t"
    assert any(text in e.message for e in report.errors), str(report)


# ------------------------------------------------------------------------------------------------ together
def changed(func: w.Func, rule: Any) -> w.Func:
    return replace(func, body=rewrite(func.body, rule))


def test_all_four_warps_are_needed() -> None:
    func = Gemm().func()
    some = func.builtins()["warp"].ne(2)
    alone = changed(func, lambda op: w.If(some, (op,)) if isinstance(op, Wgmma) else op)
    report = run(alone, Gemm().args(func)[0])
    assert report.kinds() == {"deadlock"}
    assert "waits for the other warps of its warpgroup" in report.errors[0].message


def test_all_lanes_are_needed() -> None:
    func = Gemm().func()
    some = func.builtins()["lane"].ne(3)
    part = changed(func, lambda op: w.If(some, (op,)) if isinstance(op, Wgmma) else op)
    report = run(part, Gemm().args(func)[0])
    assert any(e.kind == "collective" and "1 of them are inactive" in e.message for e in report.errors), str(report)


def test_one_place_for_all_lanes() -> None:
    func = Gemm().func()
    lane = func.builtins()["lane"]
    apart = changed(func, lambda op: replace(op, b_index=lane // 16 * 16) if isinstance(op, Wgmma) else op)
    report = run(apart, Gemm().args(func)[0])
    assert any(e.kind == "collective" and "give 0 and 16 as the place" in e.message for e in report.errors), str(report)


@pytest.mark.parametrize(("shift", "message"), [
    (4, "starts at byte 8, but a tile starts at a multiple of 16"), (64, "first 32 of 256"), (-128, "outside 0..511"),
    (1024, "reaches element"),
])  # fmt: skip
def test_where_tiles_lie(shift: int, message: str) -> None:
    report = given(Gemm(shift=shift, groups=1))[2]
    assert any(e.kind == "bounds" and message in e.message for e in report.errors), str(report)


def test_the_buffer_is_aligned_to_the_pattern() -> None:
    func = Gemm().func()
    loose = [replace(s, align=128) for s in func.shared]
    swap = dict(zip(func.shared, loose, strict=True))

    def rule(op: Any) -> Any:
        names = [n for n in ("a", "b", "buf") if getattr(op, n, None) in swap]
        return replace(op, **{n: swap[getattr(op, n)] for n in names})

    report = run(replace(func, shared=tuple(loose), body=rewrite(func.body, rule)), Gemm().args(func)[0])
    assert report.kinds() == {"bounds"} and any("aligned to 128 bytes" in e.message for e in report.errors)

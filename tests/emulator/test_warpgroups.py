"""Products of warpgroups: what they give, and that whatever must stand around them is found where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulator_kit import kernel, shared
from harness import score

from sparsegen.backends.emulator import Report, run
from sparsegen.ir import warp as w
from sparsegen.ir.metadata import codes
from sparsegen.ir.node import rewrite
from sparsegen.ir.swizzle import k_major
from sparsegen.ir.types import bf16, f16, f32
from sparsegen.ir.verify import verify
from sparsegen.ir.warp_group import Wgmma
from tests.programs.case import Case
from tests.programs.warpgroups import CODES, SPARSE_TILES, TILES, Gemm, Ring, image


def given(gemm: Gemm, seed: int = 0) -> tuple[Case, dict[str, Any], Report]:
    case = gemm.case(seed)
    args = case.fresh()
    return case, args, run(case.func, args, seed=seed)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("cols", [64, 128])
@pytest.mark.parametrize("tiles", TILES)
def test_the_product(tiles: str, cols: int, dtype: Any) -> None:
    case, args, report = given(Gemm(cols, dtype, *TILES[tiles], grid=1))
    verify(case.func)
    assert report.ok, str(report)
    assert not case.wrong(args)


@pytest.mark.parametrize("cols", [8, 24, 96, 256])
@pytest.mark.parametrize("seed", range(3))
def test_widths_and_schedules(cols: int, seed: int) -> None:
    case, args, report = given(Gemm(cols, b=(k_major(64), "k")), seed)
    assert report.ok, str(report)
    assert not case.wrong(args)
    assert report.counts[f"wgmma.f16.m64n{cols}k16"] == 2 * 2 * 8


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("tiles", SPARSE_TILES)
def test_the_product_of_a_sparse_a(tiles: str, dtype: Any) -> None:
    case, args, report = given(Gemm(64, dtype, *SPARSE_TILES[tiles], sparse=True))
    verify(case.func)
    assert report.ok, str(report)
    assert not case.wrong(args)
    assert report.counts[f"wgmma_sp.{dtype}.m64n64k32"] == 2 * 2 * 8


SPARSE = {"cols": 64, "b": (k_major(128), "k"), "sparse": True}


def test_nothing_can_be_left_out_around_a_sparse_a() -> None:
    case = Gemm(**SPARSE).case()
    killed, survivors = score(case.func, case.fresh, {k: v.reshape(-1) for k, v in case.want.items()}, rtol=1e-5)
    assert killed == 5 and [str(s) for s in survivors] == []


@pytest.mark.parametrize("code", sorted(set(range(16)) - set(CODES)))
def test_places_that_are_not_two_of_four(code: int) -> None:
    """Of the fours of one lane's row, whose word the second product's selector takes."""
    case = Gemm(**SPARSE, grid=1, groups=1).case()
    args = case.fresh()
    args["meta"][70] = args["meta"][70] & ~np.uint32(15 << 16) | np.uint32(code << 16)
    report = run(case.func, args)
    assert report.kinds() == {"bounds"}, str(report)
    (found,) = report.errors
    assert f"row 9 of a warp has the code {code:04b}, which names no two" in found.message and found.warp == 2


def test_places_are_taken_when_the_product_is_issued() -> None:
    """Only of lanes that the selector names: the others' words may be anything."""
    case = Gemm(**SPARSE, grid=1, groups=1).case()
    first = replace(case.func, body=rewrite(case.func.body, lambda op: None if getattr(op, "selector", 0) else op))
    args = case.fresh()
    right = run(first, args)
    other = case.fresh()
    other["meta"][np.arange(128) // 2 % 2 == 1] = 0
    assert right.ok and run(first, other).ok
    assert np.array_equal(args["out"], other["out"])


def test_what_a_sparse_a_does_not_keep_is_not_multiplied() -> None:
    """A NaN of b reaches the rows that keep its k."""
    case = Gemm(**SPARSE, grid=1, groups=1).case()
    args = case.fresh()
    args["y"][image(64, k_major(128), "k", 32)[5, 40]] = np.nan
    kept = codes(args["meta"].astype("i8").reshape(4, 32), 1).reshape(64, 8)[:, 2]
    assert run(case.func, args).ok
    got = ~np.isfinite(args["out"].reshape(64, 64))
    assert np.array_equal(got[:, 5], kept % 4 == 0) and got.sum() == got[:, 5].sum()


def test_reals_are_summed_in_f32() -> None:
    case = Gemm().case()
    args = case.fresh()
    args["y"] *= np.float16(0.1)
    assert run(case.func, args).ok
    wide = 1 + (case.want["out"] - 1) * float(np.float16(0.1))
    assert 0 < np.abs(args["out"] - wide.reshape(-1)).max() < 2e-2


def test_tiles_are_read_and_sums_written_late() -> None:
    """Without the checkers: what stands in a tile at the wait is multiplied, and until then nothing is added."""

    def clear(b: Any, v: Any, acc: Any, sx: Any, sy: Any) -> None:
        with b.for_("j", v["tid"], sy.size, 256) as j:
            b.st(sy, j, b.const(f16, 0.0))
        b.barrier()

    for how in ({"say": saying("committed", clear)}, {"without": frozenset({"wait"})}):
        case = Gemm(**how).case()
        args = case.fresh()
        assert run(case.func, args, checks=("bounds",)).ok
        assert (args["out"] == 1).all()


def test_nothing_can_be_left_out() -> None:
    case = Gemm().case()
    killed, survivors = score(case.func, case.fresh, {k: v.reshape(-1) for k, v in case.want.items()}, rtol=1e-5)
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
    report = run(replace(func, body=bare), Gemm().case().fresh())
    assert report.kinds() == {"uninit"}


@pytest.mark.parametrize("place", ["issued", "committed"])
def test_tiles_that_a_product_in_flight_reads(place: str) -> None:
    def store(b: Any, v: Any, acc: Any, sx: Any, sy: Any) -> None:
        b.barrier()
        b.st(sy, v["tid"] * 0 + v["warp"], b.const(f16, 0.0), where=v["lane"].eq(0))

    faults("async", "write of @sy[0], which a wgmma in flight reads", "after a wgmma_wait", say=saying(place, store))


def test_tiles_that_are_handed_over_too_early() -> None:
    """One warp of the first warpgroup writes after a barrier that all reach before their wait, but waits itself."""

    def store(b: Any, v: Any, acc: Any, sx: Any, sy: Any) -> None:
        with b.if_(v["warp"].eq(7)):
            b.st(sx, v["lane"], b.const(f16, 0.0))

    report = given(Gemm(say=saying("waited", store)))[2]
    assert report.kinds() == {"race"} and any("the read by warp" in e.message for e in report.errors), str(report)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", [{}, {"fence": "writer"}, {"bulk": True}, {"boxes": True}], ids=str)
def test_a_slot_that_is_freed_before_the_wait(how: dict[str, Any], seed: int) -> None:
    case = Ring(**how, pending=2).case()
    report = run(case.func, case.fresh(), seed=seed)
    what = "bulk copy" if "bulk" in how else "tensor copy" if "boxes" in how else "cp.async"
    assert any(f"{what} of @ring" in e.message for e in report.errors), str(report)


def test_cp_async_needs_the_proxy_fence() -> None:
    case = Ring(fence="").case()
    report = run(case.func, case.fresh())
    assert report.kinds() == {"async"} and "fence async" in report.errors[0].remedy, str(report)


# ------------------------------------------------------------------------------------------------ together
def changed(func: w.Func, rule: Any) -> w.Func:
    return replace(func, body=rewrite(func.body, rule))


def test_all_four_warps_are_needed() -> None:
    func = Gemm().func()
    some = func.builtins()["warp"].ne(2)
    alone = changed(func, lambda op: w.If(some, (op,)) if isinstance(op, Wgmma) else op)
    report = run(alone, Gemm().case().fresh())
    assert report.kinds() == {"deadlock"}
    assert "waits for the other warps of its warpgroup" in report.errors[0].message


def test_all_lanes_are_needed() -> None:
    func = Gemm().func()
    some = func.builtins()["lane"].ne(3)
    part = changed(func, lambda op: w.If(some, (op,)) if isinstance(op, Wgmma) else op)
    report = run(part, Gemm().case().fresh())
    assert any(e.kind == "collective" and "1 of them are inactive" in e.message for e in report.errors), str(report)


def test_one_place_for_all_lanes() -> None:
    func = Gemm().func()
    lane = func.builtins()["lane"]
    apart = changed(func, lambda op: replace(op, b_index=lane // 16 * 16) if isinstance(op, Wgmma) else op)
    report = run(apart, Gemm().case().fresh())
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

    report = run(replace(func, shared=tuple(loose), body=rewrite(func.body, rule)), Gemm().case().fresh())
    assert report.kinds() == {"bounds"} and any("aligned to 128 bytes" in e.message for e in report.errors)

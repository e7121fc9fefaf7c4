"""Whole programs: right under every schedule and batch size, and wrong when one op is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, faulty, glob, kernel, shared, zeros
from emulator_programs import PROGRAMS, last_warp, ring, ring_args, split_args, split_sum
from harness import score
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.node import rewrite
from sparsegen.ir.types import f64, u64


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), batch=st.integers(1, 12))
def test_any_schedule_and_batch_give_the_same(name: str, seed: int, batch: int) -> None:
    make, inputs = PROGRAMS[name]
    f = make()
    args, want = inputs(f)
    r = run(f, args, seed=seed, batch=batch)
    assert r.ok, str(r)
    for key, value in want.items():
        assert (args[key] == value).all(), key
    base = run(f, inputs(f)[0])
    assert r.counts == base.counts


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_ordering_op_is_needed(name: str) -> None:
    """The mutation score of the hand-made programs: all mutants die, but those listed as redundant on purpose."""
    make, inputs = PROGRAMS[name]
    f = make()
    killed, survivors = score(f, lambda: inputs(f)[0], inputs(f)[1])
    assert killed > 0
    assert [str(s) for s in survivors] == []


def test_the_harness_finds_a_redundant_barrier() -> None:
    out = glob("out", f64, 64)

    def body(b: Any, v: Any) -> None:
        b.barrier()
        b.st(out, v.tid, b.const(f64, 1.0))

    f = kernel(body, (out,), threads=64)
    killed, survivors = score(f, lambda: zeros(f), {"out": np.ones(64)})
    assert killed == 0 and len(survivors) == 1 and "barrier" in str(survivors[0])


def without(f: w.Func, kind: type, which: int = 0) -> w.Func:
    """The program less the ``which``-th op of a kind."""
    seen = -1

    def rule(op: Any) -> Any:
        nonlocal seen
        if isinstance(op, kind):
            seen += 1
            return None if seen == which else op
        return op

    body = rewrite(f.body, rule)
    assert seen >= which
    return w.Func(f.symbol, f.params, f.shared, f.grid, f.threads, body)


# ------------------------------------------------------------------------------------------------ bulk copies
def test_bulk_copies_are_counted() -> None:
    f = ring(tiles=5, blocks=2)
    args, _ = ring_args(f)
    r = run(f, args)
    assert r.counts["bulk_copy"] == 10 and r.counts["bytes.bulk"] == 10 * 64 * 8
    assert r.counts["mbar_try_wait"] == 2 * 5 * 3


def test_the_fence_after_mbar_init() -> None:
    f = without(ring(), w.Fence)
    faulty(f, "async", "fence mbar_init", ring_args(f)[0])


def bulk(count: int = 32, dst: int = 0, src: int = 0, fence: bool = True, wait: bool = True, expect: int | None = None,
         fill: bool = False) -> w.Func:  # fmt: skip
    """One bulk copy into a tile, perhaps one that ordinary stores have filled before."""
    g, out, t, bars = glob("g", f64, 64), glob("out", f64, 32), shared("t", f64, 64), shared("bars", u64, 1)

    def body(b: Any, v: Any) -> None:
        if fill:
            b.st(t, v.lane, b.const(f64, 0.0))
            if fence:
                b.fence("async")
        with b.if_(v.lane.eq(0)):
            b.emit(w.MbarInit(bars, v.lane, 1))
            b.fence("mbar_init")
        b.sync()
        with b.if_(v.lane.eq(0)):
            b.emit(w.MbarArrive(bars, v.lane, v.lane * 0 + (count * 8 if expect is None else expect)))
            b.emit(w.BulkCopy(t, v.lane + dst, g, v.lane + src, v.lane * 0 + count, bars, v.lane))
        if wait:
            b.mbar_wait(bars, 0, 0)
        b.st(out, v.lane, b.ld(t, v.lane + dst))

    return kernel(body, (g, out), (t, bars))


def test_bulk_copy_and_its_wait() -> None:
    data = np.arange(64.0)
    args, _ = clean(bulk(src=2), {"g": data})
    assert args["out"].tolist() == data[2:34].tolist()
    r = faulty(bulk(wait=False), "async", "mbarrier")
    assert {"in flight" in e.message for e in r.errors} == {True} and len(r.errors) == 2  # the read, and the end


@pytest.mark.parametrize(("bad", "remedy"), [
    ({"count": 31, "expect": 248}, "multiple of 16"), ({"dst": 1}, "multiples of 16"), ({"src": 1}, "multiples of 16"),
])  # fmt: skip
def test_bulk_copies_must_be_aligned(bad: dict[str, int], remedy: str) -> None:
    clean(bulk(count=32, dst=2, src=2))
    r = run(bulk(**bad), zeros(bulk()))
    assert any(e.kind == "bounds" and remedy in e.remedy for e in r.errors), str(r)


def test_bulk_copies_must_fit() -> None:
    clean(bulk(dst=32))
    assert any(e.kind == "bounds" and "leaves" in e.message for e in run(bulk(dst=34), zeros(bulk())).errors)
    assert any(e.kind == "bounds" and e.buffer == "g" for e in run(bulk(src=34), zeros(bulk())).errors)


def test_the_expected_bytes_must_be_those_copied() -> None:
    faulty(bulk(expect=512), "deadlock", "bytes")


def test_ordinary_stores_before_a_bulk_copy_need_the_proxy_fence() -> None:
    clean(bulk(fill=True))
    assert "proxies" in faulty(bulk(fill=True, fence=False), "async", "fence async").errors[0].message


def again(fence: str) -> w.Func:
    """A tile is copied, read by two warps, and copied again by the first after a barrier; where a fence stands."""
    g, out, t, bars = glob("g", f64, 64), glob("out", f64, 128), shared("t", f64, 32), shared("bars", u64, 1)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.tid.eq(0)):
            b.emit(w.MbarInit(bars, v.tid, 1))
            b.fence("mbar_init")
        b.barrier()
        for turn in range(2):
            with b.if_(v.tid.eq(0)):
                if turn and fence == "copying":
                    b.fence("async")
                b.emit(w.MbarArrive(bars, v.tid, v.tid * 0 + 256))
                b.emit(w.BulkCopy(t, v.tid, g, v.tid + 32 * turn, v.tid * 0 + 32, bars, v.tid))
            b.mbar_wait(bars, 0, turn)
            b.st(out, v.tid + 64 * turn, b.ld(t, v.lane))
            if not turn and fence in ("early", "reading"):
                if fence == "early":
                    b.st(out, v.tid, b.ld(t, v.lane))
                b.fence("async")
                if fence == "early":
                    b.st(out, v.tid, b.ld(t, v.lane))
            b.barrier()

    return kernel(body, (g, out), (t, bars), threads=64)


@pytest.mark.parametrize("fence", ["copying", "reading"])
def test_a_bulk_copy_over_what_other_warps_have_read_needs_a_fence(fence: str) -> None:
    """Found on an H200: an arrival does not wait for loads under way, nor does a copy that waits for it."""
    data = np.arange(64.0)
    for seed in range(4):
        args, _ = clean(again(fence), {"g": data}, seed=seed)
        assert args["out"].tolist() == [*range(32), *range(32), *range(32, 64), *range(32, 64)]
    for without_ in ("none", "early"):  # a read after the fence is none that it orders
        (error, *_) = faulty(again(without_), "async", "fence async before the copy").errors
        assert "overwrites @t" in error.message and "which warp 1 has read" in error.message


# ------------------------------------------------------------------------------------------------ across blocks
@pytest.mark.parametrize("batch", [1, 2, 12])
@pytest.mark.parametrize("which", [0, 1])
def test_the_last_arriver_needs_both_fences(batch: int, which: int) -> None:
    f = without(split_sum(), w.Fence, which)
    faulty(f, "global", "fence gpu", split_args(f)[0], batch=batch)


@pytest.mark.parametrize("batch", [1, 12])
def test_a_fence_of_the_block_tells_no_other_block(batch: int) -> None:
    f = split_sum()
    body = rewrite(f.body, lambda op: replace(op, scope="block") if isinstance(op, w.Fence) else op)
    faulty(replace(f, body=body), "global", "fence gpu", split_args(f)[0], batch=batch)


@pytest.mark.parametrize("which", [0, 1])
def test_the_last_warp_of_a_block_needs_both_fences(which: int) -> None:
    faulty(without(last_warp(), w.Fence, which), "race", "barrier")


def test_the_last_arriver_sums_in_fixed_order() -> None:
    f = split_sum(splits=5, groups=2)
    outs = []
    for seed in range(6):
        args, _ = split_args(f)
        assert run(f, args, seed=seed, batch=4).ok
        outs.append(args["out"].tolist())
    assert all(o == outs[0] for o in outs)

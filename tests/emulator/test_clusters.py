"""Clusters: what blocks may do to each other's shared memory, and what is found where they may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, glob, kernel, shared, zeros

from sparsegen.backends.emulator import run
from sparsegen.backends.emulator import tally as counted
from sparsegen.ir import warp as w
from sparsegen.ir import warp_cluster as wc
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Const, Value
from sparsegen.ir.parse import parse_op
from sparsegen.ir.text import print_op
from sparsegen.ir.types import f16, f32, u64
from sparsegen.ir.verify import verify

THREADS = 64
SRC, OUT = glob("src", f32, 8 * THREADS), glob("out", f32, 8 * THREADS)
DATA = np.arange(8.0 * THREADS, dtype="f4")


def passed(
    size: int = 4, begin: bool = True, turns: int = 1, back: str = "arrive", early: bool = False, by: int = 1,
    cluster: bool = True, expect: int = 4 * THREADS, last: bool = False,
) -> w.Func:  # fmt: skip
    """Each block stores what it has read to the block ``by`` ranks further, which writes it out, for 8 blocks.

    ``begin``: blocks meet before the first store; ``early``: what was stored is read at once; ``back``: before the next
    turn's stores blocks ``arrive`` there, or meet at a ``barrier``, or do nothing; ``last``: after the last turn, too.
    ``cluster``: how they wait.
    """
    t, bars = shared("t", f32, THREADS), shared("bars", u64, 2)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.tid.eq(0)):
            b.emit(w.MbarInit(bars, Const(0), 1))
            b.emit(w.MbarInit(bars, Const(1), THREADS // 32))
            b.fence("mbar_init")
        if begin:
            b.emit(wc.ClusterBarrier())
        else:
            b.barrier()
        rank = b.let("to", (v.rank + by) % size)
        with b.for_("turn", 0, turns) as turn:
            x = b.ld(SRC, v.bx * THREADS + v.tid)
            if back == "arrive":
                with b.if_(turn.ge(1)):
                    b.mbar_wait(bars, 1, (turn + 1) % 2, cluster)
            with b.if_(v.tid.eq(0)):
                b.emit(w.MbarArrive(bars, Const(0), Const(expect)))
            b.emit(wc.ClusterSt(t, v.tid, (x,), bars, Const(0), rank))
            if not early:
                b.mbar_wait(bars, 0, turn % 2, cluster)
            b.st(OUT, v.bx * THREADS + v.tid, b.ld(t, THREADS - 1 - v.tid))
            if back == "barrier":
                b.emit(wc.ClusterBarrier())
            elif back == "arrive":
                b.sync()
                with b.if_(turn.lt(turns - 1 + last)), b.if_(v.lane.eq(0)):
                    b.emit(wc.ClusterArrive(bars, Const(1), (v.rank + size - by) % size))

    return kernel(body, (SRC, OUT), (t, bars), threads=THREADS, grid=(8, 1, 1), cluster=size)


def wanted(size: int, by: int = 1) -> Any:
    rows = DATA.reshape(8 // size, size, THREADS)
    return np.roll(rows, by, axis=1)[..., ::-1].reshape(-1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("back", ["barrier", "arrive"])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_blocks_pass_on_what_they_have(size: int, back: str, seed: int) -> None:
    args, report = clean(passed(size, turns=3, back=back), {"src": DATA}, seed=seed)
    assert np.array_equal(args["out"], wanted(size))
    assert report.counts["st.cluster"] == 8 * 2 * 3 and report.counts["bytes.cluster.write"] == 8 * THREADS * 4 * 3
    assert report.counts["cluster_barrier"] == 8 * 2 * (1 + 3 * (back == "barrier"))
    assert report.counts.get("cluster_arrive", 0) == 8 * 2 * 2 * (back == "arrive")
    args, _ = clean(passed(size, turns=3, back=back), {"src": DATA}, seed=seed, batch=1)
    assert np.array_equal(args["out"], wanted(size))


def found(func: w.Func, says: str, *kinds: str, seeds: int = 4, every: bool = True) -> None:
    """Runs of a program show it, all of them or some."""
    reports = [run(func, zeros(func), seed=seed) for seed in range(seeds)]
    hits = [any(says in e.message for e in r.errors) and (not kinds or r.kinds() <= {*kinds}) for r in reports]
    assert all(hits) if every else any(hits), "\n".join(map(str, reports))


def test_a_block_that_may_not_have_begun() -> None:
    found(passed(begin=False), "may not have begun")


def test_what_another_block_stores_must_have_arrived() -> None:
    found(passed(early=True), "while a bulk copy into it is in flight", "async", "uninit", "race", every=False)
    for seed in range(4):
        assert not run(passed(early=True), zeros(passed()), seed=seed).ok


def test_bytes_that_never_come_and_bytes_too_many() -> None:
    found(passed(expect=4 * THREADS + 16), "16 bytes are missing", "deadlock")
    found(passed(expect=4 * THREADS - 16), "-16 bytes are missing", "deadlock", every=False)


@pytest.mark.parametrize("back", ["", "arrive"])
def test_a_wait_for_other_blocks_says_so(back: str) -> None:
    found(passed(cluster=False, back=back, turns=1 + bool(back)), "does not acquire what other blocks released", "race")


def test_what_is_read_is_not_overwritten_by_another_block() -> None:
    for seed in range(4):
        report = run(passed(turns=2, back=""), zeros(passed()), seed=seed)
        assert report.kinds() & {"race", "deadlock", "async"}, str(report)
    found(passed(turns=2, back=""), "store from another block of @t", every=False)


@pytest.mark.parametrize("early", [False, True])
def test_a_block_that_ends_before_others_have_stored(early: bool) -> None:
    """Nobody waits for the stores of the last turn, or for the arrivals after it."""
    t, bars = shared("t", f32, THREADS), shared("bars", u64, 1)

    def make(wait: bool) -> w.Func:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.tid.eq(0)):
                b.emit(w.MbarInit(bars, Const(0), 1))
                b.emit(w.MbarArrive(bars, Const(0), Const(4 * THREADS)))
            b.emit(wc.ClusterBarrier())
            b.emit(wc.ClusterSt(t, v.tid, (b.const(f32, 1.0),), bars, Const(0), 1 - v.rank))
            if wait:
                b.mbar_wait(bars, 0, 0, cluster=True)

        return kernel(body, (SRC, OUT), (t, bars), threads=THREADS, grid=(8, 1, 1), cluster=2)

    if early:
        clean(make(wait=True))
        for seed in range(4):
            report = run(make(wait=False), zeros(make(wait=False)), seed=seed)
            assert any(
                "has ended" in e.message or "may end before" in e.message or "kernel ends while a store" in e.message
                for e in report.errors
            ), str(report)
    else:
        clean(passed(turns=2))
        for seed in range(4):
            report = run(passed(turns=2, last=True), zeros(passed()), seed=seed)
            assert any("has ended" in e.message or "may end before this" in e.message for e in report.errors)
            assert report.kinds() == {"race"} and "wait for whoever accesses" in report.errors[0].remedy


def test_all_blocks_are_waited_for() -> None:
    """One arrival less, and the others wait for ever; the verifier refuses what only some blocks reach."""
    t = shared("t", f32, THREADS)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.rank.eq(0)):
            b.emit(wc.ClusterBarrier())

    func = kernel(body, (SRC, OUT), (t,), threads=THREADS, grid=(8, 1, 1), cluster=2)
    report = run(func, zeros(func))
    assert report.kinds() == {"deadlock"} and "the barrier of its cluster for 4 warps" in report.errors[0].message
    with pytest.raises(IRError, match=r"all threads of all blocks of the cluster .*different from block to block"):
        verify(func)


def test_ranks_and_global_memory_of_a_cluster() -> None:
    """A cluster's barrier orders global memory too; a rank that is none is found."""
    cell = glob("cell", f32, 8)

    def make(meet: bool, rank: int = 0) -> w.Func:
        bars = shared("bars", u64, 1)

        def body(b: Any, v: Any) -> None:
            with b.if_(v.lane.eq(0)):
                b.emit(w.MbarInit(bars, Const(0), 32))
                b.st(cell, v.bx, b.convert(b.name(v.rank + 0, "r"), f32))
            if meet:
                b.emit(wc.ClusterBarrier())
            b.st(OUT, v.bx * 32 + v.lane, b.ld(cell, v.bx // 2 * 2 + 1 - v.rank))
            if meet:
                b.emit(wc.ClusterArrive(bars, Const(0), v.rank + rank))

        return kernel(body, (cell, OUT), (bars,), grid=(8, 1, 1), cluster=2)

    args, _ = clean(make(meet=True))
    assert np.array_equal(args["out"].reshape(-1, 32)[:8, 0], [1, 0] * 4)
    for seed in range(3):
        assert "global" in run(make(meet=False), zeros(make(meet=False)), seed=seed).kinds()
    report = run(make(meet=True, rank=1), zeros(make(meet=True)))
    assert any("rank 2 is outside 0..1" in e.message for e in report.errors)


def test_counts_of_single_clusters() -> None:
    func = passed(2)
    found = counted(func, {}, np.array([4, 5, 0, 1]))
    assert found.of[found.names.index("st.cluster")].tolist() == [2] * 4


def test_its_text_is_read_back_and_verified() -> None:
    func = passed(turns=2)
    verify(func)
    text = print_op(func)
    assert "cluster=4" in text and "warp.cluster_arrive @bars, 1, " in text and parse_op(text) == func
    for old, new, says in (
        ("cluster=4", "cluster=3", "cluster 3 is unknown"), ("[8, 1, 1]", "[6, 1, 1]", "6 blocks along x are no whole"),
        (" cluster=4", "", "%rank is not defined"), ("warp.cluster_arrive @bars", "warp.cluster_arrive @t", "are u64"),
        (f" {THREADS} ", " 40 ", "have full warps, not 40"),
    ):  # fmt: skip
        assert old in text
        with pytest.raises(IRError, match=says):
            verify(parse_op(text.replace(old, new)))
    t, half = shared("t", f32, 64), shared("half", f16, 64)
    one, small = w.ConstFloat((Value("one", f32),), 1.0), w.ConstFloat((Value("small", f16),), 1.0)
    bars = shared("bars", u64, 1)

    def stored(buf: Any, at: int, v: w.ConstFloat, rank: int = 0) -> Any:
        return wc.ClusterSt(buf, Const(at), v.out, bars, Const(0), Const(rank))

    for op, says in (
        (stored(t, 64, one), "outside"), (stored(t, 0, one, 4), "rank"),
        (stored(half, 0, small), "stores 2 bytes"),
        (stored(t, 0, small), "must be f32"),
        (stored(SRC, 0, one), "must be in shared"),
    ):  # fmt: skip
        with pytest.raises(IRError, match=says):
            verify(
                kernel(
                    lambda b, v, op=op: [b.emit(x) for x in (one, small, op)],
                    (SRC,),
                    (t, half, bars),
                    grid=(8, 1, 1),
                    cluster=4,
                )
            )
    for what in (lambda b: b.emit(wc.ClusterBarrier()), lambda b: b.mbar_wait(bars, 0, 0, cluster=True)):
        with pytest.raises(IRError, match="has no clusters"):
            verify(kernel(lambda b, v, what=what: what(b), (SRC,), (bars,)))

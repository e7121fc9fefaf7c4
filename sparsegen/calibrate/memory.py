"""Micro-kernels of the memories: bandwidth of shared memory, L2 and DRAM, latency of each by dependent loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Value
from sparsegen.ir.types import Buffer, s32, u32

from .probe import Frame, Probe

THREADS = 1024
#: Words of a 16-byte access, accesses a thread has under way, words of a block's row of accesses.
WIDE, UNDER_WAY = 4, 4
ROW = THREADS * WIDE
#: Of the streaming kernels: threads a block, and the words that a block moves.
STREAM_THREADS = 256
TILE = STREAM_THREADS * WIDE * UNDER_WAY
#: A sum that no thread finds in a buffer of zeros.
NEVER = 0x7FFFFFFF
#: Dependent loads a round.
LINKS = 4


def shared(blocks: int) -> Probe:
    """16-byte loads of shared memory by all threads, eight lanes after one another: no bank conflict.

    The order within eight lanes changes from round to round, so no load may be taken out of the loop; what is loaded is
    summed by xor (two instructions a load, at twice the rate).  ``work``: bytes of the block.
    """
    cells = Buffer("cells", u32, ROW * UNDER_WAY, "shared")
    frame = Frame("shared_read", blocks, THREADS, u32, (), (cells,))
    b, tid = frame.b, frame.at["tid"]
    with b.for_("i", tid, cells.size, THREADS) as i:
        b.st(cells, i, _word(b, i))
    return _read(frame, cells, lambda r: (tid ^ (r & 7)) * WIDE)


def l2(blocks: int, rows: int) -> Probe:
    """16-byte loads that skip L1 (``cg``) from a buffer that L2 holds: ``rows`` (a power of two) of 16 KiB.

    Every block goes through all rows from a place of its own, four loads a thread under way; the places change from
    round to round, so no load may be taken out of the loop.  ``work``: bytes of the block.
    """
    assert rows % UNDER_WAY == 0 and rows & (rows - 1) == 0, rows
    src = Buffer("src", u32, rows * ROW, "global")
    frame = Frame("l2_read", blocks, THREADS, u32, (src,))
    b, at = frame.b, frame.at

    def place(r: Value) -> Any:
        row = b.let("row", (at["bx"] + r) % (rows // UNDER_WAY) * UNDER_WAY)
        return row * ROW + at["tid"] * WIDE

    return _read(frame, src, place, "cg")


def _read(frame: Frame, source: Buffer, place: Callable[[Value], Any], cache: str = "") -> Probe:
    """Rounds of loads, four a thread under way from the place of a round on, a row apart.  ``work``: bytes."""
    b = frame.b
    total = b.alloc("total", u32, 1)
    b.st(total, 0, _word(b, frame.at["tid"]))
    with frame.timed(), b.for_("round", 0, frame.rounds, unroll=1) as r:
        first = b.let("place", place(r))
        _sum(b, total, [b.ldv(source, first + k * ROW, WIDE, cache=cache) for k in range(UNDER_WAY)])
    frame.drop(b.ld(total, 0))
    return Probe(frame.func(), 4 * WIDE * UNDER_WAY * THREADS)


def _word(b: Builder, value: Any) -> Value:
    """An index as a word."""
    return b.bitcast(b.name(value, "word"), u32)


def _sum(b: Builder, total: Buffer, loads: list[tuple[Value, ...]]) -> None:
    """The xor of all that was loaded, onto ``total``."""
    found = b.ld(total, 0)
    for values in loads:
        for v in values:
            found = b.binary("xor", found, v)
    b.st(total, 0, found)


def stream(what: str, nbytes: int) -> Probe:
    """``read``, ``write`` or ``copy`` of ``nbytes`` of global memory, more than L2 holds, in plain 16-byte accesses.

    A block moves one tile of 16 KiB, a thread four accesses of it that are under way together.  A read sums what it
    reads and stores the sum where it is NEVER, which it is not: a condition that needs the data, else nvcc would load
    nothing where nothing is stored.  ``work``: bytes of the launch, both ways.
    """
    tiles = nbytes // (4 * TILE)
    source, target = (Buffer(n, u32, tiles * TILE, "global") for n in ("big_in", "big_out"))
    params = (target,) if what == "write" else (source, target)
    shell = w.Func(f"stream_{what}", params, (), (tiles, 1, 1), STREAM_THREADS, ())
    b, at = Builder(), shell.builtins()
    b.reserve(*at, "big_in", "big_out")
    first = b.let("first", at["bx"] * TILE + at["tid"] * WIDE)
    places = [first + k * STREAM_THREADS * WIDE for k in range(UNDER_WAY)]
    if what == "write":
        loads = [(_word(b, at["tid"]),) * WIDE] * UNDER_WAY
    else:
        loads = [b.ldv(source, place, WIDE) for place in places]
    if what == "read":
        total = b.alloc("total", u32, 1)
        b.st(total, 0, _word(b, at["tid"]))
        _sum(b, total, loads)
        found = b.ld(total, 0)
        b.st(target, first, found, where=b.bitcast(found, s32).eq(NEVER))
    else:
        for place, values in zip(places, loads, strict=True):
            b.st(target, place, *values)
    func = w.Func(shell.symbol, shell.params, (), shell.grid, shell.threads, b.ops())
    return Probe(func, 4 * TILE * tiles * (2 if what == "copy" else 1))


def ring(links: int, stride: int, seed: int = 1) -> NDArray[np.uint32]:
    """Words ``stride`` apart, each of which holds the place of the next; one round visits all, in a random order."""
    order = np.random.default_rng(seed).permutation(links)
    out = np.zeros(links * stride, np.uint32)
    out[order * stride] = np.roll(order, -1) * stride
    return out


def chase(name: str, links: int, stride: int, cache: str, *, in_shared: bool = False) -> Probe:
    """Loads each of which needs the one before it for its address (a word's place, so its scaling is in the time).

    ``warm`` loads go before the timed ones, from place ``first`` on.  The ring decides what is measured: one that L1
    holds, one that only L2 holds (``cg``), one that no cache holds; or a copy in shared memory.  ``work``: loads.
    """
    size = links * stride
    src, cells = Buffer("next", u32, size, "global"), Buffer("cells", u32, size, "shared")
    warm, first = Value("warm", s32, 0, 1 << 20), Value("first", s32, 0, size - 1)
    frame = Frame(f"chase_{name}", 1, 32, u32, (src, warm, first), (cells,) if in_shared else ())
    b = frame.b
    if in_shared:
        with b.for_("i", frame.at["tid"], size, 32) as i:
            b.st(cells, i, b.ld(src, i))
        b.barrier()
    place = b.alloc("place", u32, 1)
    b.st(place, 0, _word(b, first))

    def follow() -> None:
        here = b.ld(place, 0, lo=0, hi=size - 1)
        b.st(place, 0, b.ld(cells if in_shared else src, here, cache=cache, lo=0, hi=size - 1))

    with b.for_("before", 0, warm, unroll=1):
        follow()
    with frame.timed():
        frame.turns(follow, LINKS)
    frame.drop(b.ld(place, 0))
    return Probe(frame.func(), LINKS, {"next": ring(links, stride)})

"""What the counts of a product owe to the weights: expected lengths of copies, and bank conflicts of the decode.

The numbers of a matrix say how many chunks its values take, from which follows the share of values that are kept.
Which ones they are is taken to be chance, each for itself: tiles are drawn so, by a generator with a fixed seed, and
the means over them are what is expected.  The unevenness of a matrix whose zeros gather is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.formats.bitmap import SLACK
from sparsegen.ir.op_spmm import SLAB, STRIP
from sparsegen.products.product import Problem

#: Tiles that are drawn of each kind, runs of tiles that are put together of them.
TILES, RUNS = 8192, 4096
#: Values of a chunk; chunks of a 16-byte unit, in which copies go.
VALUES, UNIT = 4, 2
#: 16-byte units of a warp's cp.async, and of 128 bytes.
PIECE, LINE = 32, 8
#: Lanes whose 8-byte loads share a wavefront, and chunks that lie on the same banks: a multiple of so many apart.
HALF, APART = 16, 16

Ints = npt.NDArray[Any]


@dataclass(frozen=True)
class Drawn:
    """Tiles of one size: the chunks of each, and the mean of the wavefronts that the loads of a tile take too many."""

    chunks: Ints
    conflicts: float


@dataclass(frozen=True)
class Refills:
    """Turns of rings that are alike: ``times`` of them, each of ``strips`` tiles.

    ``cut``: whether the last strip is the matrix's last one; ``cols``: columns of the slab.
    """

    times: int
    strips: int
    cut: bool
    cols: int


@dataclass(frozen=True)
class Copies:
    """What copies of values take together: chunks besides those of the tiles; instructions, sectors and wavefronts by
    cp.async."""

    extra: float
    pieces: float
    sectors: float
    wavefronts: float


def density(p: Problem) -> float:
    """The share of the weights that is kept, from the chunks that they take."""
    wanted = p.chunks - SLACK
    kinds = _kinds(p)
    least, most = 0.0, 1.0
    for _ in range(50):
        middle = (least + most) / 2
        taken = sum(times * _expected_chunks(rows * cols, middle) for (rows, cols), times in kinds.items())
        least, most = (middle, most) if taken < wanted else (least, middle)
    return most


def conflicts(p: Problem) -> float:
    """Wavefronts beyond the least that the loads of values take, every tile once."""
    kept = density(p)
    return sum(times * _drawn(kept, *size).conflicts for size, times in _kinds(p).items())


def copies(p: Problem, refills: list[Refills]) -> Copies:
    """The copies of values of these turns."""
    kept, rng = density(p), np.random.default_rng(1)
    total = np.zeros(4)
    for r in refills:
        whole = _drawn(kept, STRIP, r.cols).chunks
        last = _drawn(kept, (p.m - 1) % STRIP + 1, r.cols).chunks if r.cut else whole
        chunks = sum(rng.choice(whole, RUNS) for _ in range(r.strips - 1)) + rng.choice(last, RUNS)
        step = math.gcd(4, *np.unique(whole).tolist())
        begin = step * rng.integers(0, 4 // step, RUNS)
        start = begin // UNIT * UNIT
        units = (begin + chunks + 3) // UNIT - start // UNIT
        pieces, odd = -(-units // PIECE), start % 4 // UNIT
        rest = units % PIECE
        sectors = units // PIECE * (PIECE // 2 + odd) + np.where(rest > 0, (rest + odd + 1) // 2, 0)
        total += r.times * np.mean([UNIT * units - chunks, pieces, sectors, -(-units // LINE)], axis=1)
    return Copies(*total.tolist())


def _kinds(p: Problem) -> Mapping[tuple[int, int], int]:
    """(rows, columns) of tiles that lie in the matrix, and how many tiles have that size."""
    rows = {STRIP: p.m // STRIP, p.m % STRIP: 1}
    cols = {SLAB: p.k // SLAB, p.k % SLAB: 1}
    return {(r, c): i * j for r, i in rows.items() for c, j in cols.items() if r and c and i * j}


def _expected_chunks(size: int, kept: float) -> float:
    """Of a tile of ``size`` weights."""
    if kept in (0.0, 1.0):
        return kept * -(-size // VALUES)
    n = np.arange(size + 1)
    choose = _log_factorials(size)
    logs = choose[size] - choose - choose[::-1] + n * math.log(kept) + (size - n) * math.log1p(-kept)
    return float(np.exp(logs) @ -(-n // VALUES))


@lru_cache(maxsize=8)
def _log_factorials(most: int) -> npt.NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most + 1)))])


@lru_cache(maxsize=64)
def _drawn(kept: float, rows: int, cols: int) -> Drawn:
    """Tiles of which ``rows`` rows and ``cols`` columns lie in the matrix.

    Lane (g, t) of fragment f loads where its values of row g begin, and where those of row g + 8 do: the chunk there
    and the next one, 8 bytes each.  Among the 16 lanes of a turn, values lie so near together that no bank is asked for
    more than two words; it is for two where chunks lie 16 apart.
    """
    rng = np.random.default_rng(0)
    g, t = np.divmod(np.arange(32), 4)
    across = np.clip(cols - 16 * np.arange(4)[:, None] - 4 * t, 0, 4)
    upper, lower = (rng.binomial(across * (row < rows), kept, (TILES, 4, 32)) for row in (g, g + 8))
    both = (upper + lower).reshape(TILES, 128)
    before = (np.cumsum(both, axis=1) - both).reshape(TILES, 4, 32)
    found = 0
    for at in (before, before + upper):
        chunk = (at // VALUES).reshape(TILES, 8, HALF)
        bits = np.bitwise_or.reduce(np.uint64(1) << (chunk - chunk[:, :, :1]).astype(np.uint64), axis=2)
        found += int(np.count_nonzero(bits & bits >> np.uint64(APART)))
    return Drawn(-(-both.sum(axis=1) // VALUES), UNIT * found / TILES)

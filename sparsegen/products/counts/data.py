"""What the counts of a product owe to the weights: expected lengths of copies, and bank conflicts of the decode.

The chunks that a matrix takes say which share of its weights is kept.  Which ones is taken to be chance, each weight
for itself, so that the values of a tile, of a lane, before a lane have binomial distributions; the means over these are
what is expected.  The unevenness of a matrix whose zeros gather is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.formats.bitmap import SLACK
from sparsegen.ir.op_spmm import SLAB, STRIP
from sparsegen.products.product import Problem

#: Values of a chunk; chunks of a 16-byte unit, in which copies go.
VALUES, UNIT = 4, 2
#: 16-byte units of a warp's cp.async, and of 128 bytes.
PIECE, LINE = 32, 8
#: Lanes whose 8-byte loads share a wavefront; chunks that lie on the same banks: a multiple of so many apart.
HALF, APART = 16, 16

Floats = npt.NDArray[np.float64]


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
    wanted, kinds = p.chunks - SLACK, _kinds(p)
    least, most = 0.0, 1.0
    for _ in range(50):
        middle = (least + most) / 2
        taken = sum(times * _mean(_chunks(rows * cols, middle)) for (rows, cols), times in kinds.items())
        least, most = (middle, most) if taken < wanted else (least, middle)
    return most


def conflicts(p: Problem) -> float:
    """Wavefronts beyond the least that the loads of values take, every tile once."""
    kept = density(p)
    return sum(times * tile_conflicts(kept, *size) for size, times in _kinds(p).items())


def copies(p: Problem, refills: list[Refills]) -> Copies:
    """The copies of values of these turns.

    A copy begins at an even chunk and ends at one, behind the chunk after the last; where a run of tiles begins, modulo
    the 32 bytes of a sector, is any place that tiles can leave it.
    """
    kept, total = density(p), np.zeros(4)
    for r in refills:
        whole = _chunks(STRIP * r.cols, kept)
        length = _chunks(((p.m - 1) % STRIP + 1) * r.cols, kept) if r.cut else whole
        for _ in range(r.strips - 1):
            length = np.convolve(length, whole)
        n = np.arange(len(length))
        places = range(0, 4, math.gcd(4, *np.nonzero(whole > 1e-12)[0].tolist()))
        for begin in places:
            start = begin // UNIT * UNIT
            units = (begin + n + 3) // UNIT - start // UNIT
            odd, rest = start // UNIT, units % PIECE
            sectors = units // PIECE * (PIECE // 2 + odd) + np.where(rest > 0, (rest + odd + 1) // 2, 0)
            found = np.array([UNIT * units - n, -(-units // PIECE), sectors, -(-units // LINE)])
            total += r.times / len(places) * (found @ length)
    return Copies(*total.tolist())


def _kinds(p: Problem) -> Mapping[tuple[int, int], int]:
    """(rows, columns) of tiles that lie in the matrix, and how many tiles have that size."""
    rows = {STRIP: p.m // STRIP, p.m % STRIP: 1}
    cols = {SLAB: p.k // SLAB, p.k % SLAB: 1}
    return {(r, c): i * j for r, i in rows.items() for c, j in cols.items() if r and c and i * j}


@lru_cache(maxsize=256)
def _binomial(size: int, kept: float) -> Floats:
    """The chance of each number of values, of ``size`` weights."""
    n = np.arange(size + 1)
    if kept in (0.0, 1.0):
        return np.asarray(n == kept * size, np.float64)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(n[1:]))])
    logs = factorials[-1] - factorials - factorials[::-1] + n * math.log(kept) + (size - n) * math.log1p(-kept)
    return np.asarray(np.exp(logs), np.float64)


def _chunks(size: int, kept: float) -> Floats:
    """The chance of each number of chunks that ``size`` weights take."""
    chances: Floats = np.bincount(-(-np.arange(size + 1) // VALUES), weights=_binomial(size, kept)).astype(np.float64)
    return chances


def _mean(chances: Floats) -> float:
    return float(np.arange(len(chances)) @ chances)


@lru_cache(maxsize=256)
def tile_conflicts(kept: float, rows: int, cols: int) -> float:
    """Wavefronts too many, expected of a tile of which ``rows`` rows and ``cols`` columns lie in the matrix.

    Lane (g, t) of a fragment loads where its values of row g begin, and where those of row g + 8 do: the chunk there
    and the next one, 8 bytes each.  Values of the 16 lanes of a turn lie so near together that no bank is asked for
    more than two words; it is for two where chunks lie 16 apart.
    """
    found = 0.0
    for before, steps in _turns(rows, cols):
        if sum(steps) <= VALUES * (APART - 1):
            continue  # no two are so far apart
        first = np.array([_place(before, kept, at) for at in range(VALUES)])
        found += float(first @ _meetings(kept, steps))
    return UNIT * found


def _turns(rows: int, cols: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """For each 16 lanes that load together: weights before the first one's place, and from each place to the next."""
    g, t = np.divmod(np.arange(32), 4)
    across = np.clip(cols - 16 * np.arange(4)[:, None] - 4 * t, 0, 4)
    upper, lower = across * (g < rows), across * (g + 8 < rows)
    ends = np.cumsum(upper + lower).reshape(8, HALF)
    begins = ends - (upper + lower).reshape(8, HALF)
    for at in (begins, begins + upper.reshape(8, HALF)):
        for places in at.tolist():
            yield places[0], tuple(b - a for a, b in pairwise(places))


def _place(weights: int, kept: float, at: int) -> float:
    """The chance that the values of so many weights end at place ``at`` of a chunk."""
    turns = np.exp(2j * np.pi * np.arange(VALUES) / VALUES)
    return float(np.mean(turns**-at * (1 - kept + kept * turns) ** weights).real)


@lru_cache(maxsize=256)
def _meetings(kept: float, steps: tuple[int, ...]) -> Floats:
    """The chance that of 16 places two lie APART chunks from each other, for each place of the first in its chunk.

    Goes from place to place and keeps the chance of every place in a chunk and every set of chunks behind it, less than
    APART away, that others lie in: bit d - 1 of the set is the chunk at distance d.
    """
    sets = 1 << (APART - 1)
    alive: Any = np.zeros((VALUES, VALUES, sets))
    alive[range(VALUES), range(VALUES), 0] = 1.0
    met = np.zeros(VALUES)
    for weights in steps:
        chance = np.zeros(4 * VALUES)
        chance[: weights + 1] = _binomial(weights, kept)
        here = np.arange(VALUES)[:, None] - np.arange(VALUES)  # from place to place
        stay, one, two = (np.where(d >= 0, chance[d], 0.0) @ alive for d in (here, here + VALUES, here + 2 * VALUES))
        met += one[:, :, sets // 2 :].sum((1, 2))
        two = two.reshape(VALUES, VALUES, 2, 2, sets // 4)
        met += two[:, :, :, 1].sum((1, 2, 3))
        alive = stay
        alive[:, :, 1::2] += one[:, :, : sets // 2]
        alive[:, :, 2::4] += two[:, :, 0, 0] + two[:, :, 1, 0]
    return met

"""Generated kernels timed by hand on one H200 (1.98 GHz, CUDA 13), f64, before the random ones (random_kernels.py).

Periodic unless named.  ``blocks``: how many an SM had, by the registers that nvcc gave.  ``spilled``: bytes of local
memory a thread; the model does not know it, and no schedule that it chooses by itself has any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsegen.dsl.stencil import Stencil
from sparsegen.footprint import Footprint


def _footprint(kind: str, *extents: int) -> Footprint:
    """Of random weights: a full box, a star, or a product of a column and the same row."""
    draw = np.random.default_rng(1)
    if kind == "product":
        row = draw.uniform(0.1, 1.0, extents[0])
        w = np.outer(row, row)
    else:
        w = draw.uniform(0.1, 1.0, extents)
        if kind == "star":
            w[np.count_nonzero(np.indices(extents) - extents[0] // 2, axis=0) > 1] = 0.0
    return Footprint.of(Stencil.from_weights(w / w.sum()).gridded)


STENCILS = {
    "heat": _footprint("star", 3, 3),
    "box9": _footprint("box", 3, 3),
    "box49": _footprint("box", 7, 7),
    "star13": _footprint("star", 7, 7),
}
#: the same, where the rank of the weights matters
LOW_RANK = {
    "heat": STENCILS["heat"],
    "product9": _footprint("product", 3, 3),
    "product49": _footprint("product", 7, 7),
}


@dataclass(frozen=True)
class Point:
    """One measured launch."""

    name: str
    stencil: str
    shape: tuple[int, int]
    pitch: int | None
    boundary: str
    blocks: int
    spilled: int
    microseconds: float
    schedule: str


#: 10240 x 10240: name, stencil, boundary, blocks, spilled, microseconds, schedule.
_SQUARE = """
t1    heat  periodic    8   0   413.5  tiled tile=32x64 stages=1
t2    heat  periodic    6   0   521.3  tiled tile=32x64 stages=2
t3    heat  periodic    4   0   518.6  tiled tile=32x64 stages=3
t3b   box9  periodic    4   0   517.9  tiled tile=32x64 stages=3
t2w   heat  periodic    5   0   512.9  tiled tile=16x128 stages=2
t2h   heat  periodic    8   0   540.7  tiled tile=16x64 stages=2
t1b   box9  periodic    8   0   419.7  tiled tile=32x64 stages=1
d     heat  periodic    8   0   480.8  direct
p1    box9  periodic    2   0  1141.9  stencil2row mma=f64.m8n8k4 fuse=3 stages=1 lut=on
p1c   box9  periodic    2   0  1069.2  stencil2row mma=f64.m8n8k4 fuse=3 stages=1 lut=off
p2    box9  periodic    2   0   868.3  stencil2row mma=f64.m8n8k4 fuse=3 stages=2 lut=off
p3    box9  periodic    2   0   878.9  stencil2row mma=f64.m8n8k4 fuse=3 stages=3 lut=off
p2l   box9  periodic    2   0   957.4  stencil2row mma=f64.m8n8k4 fuse=3 stages=2 lut=on
m2    box9  periodic    2   0   644.8  stencil2row mma=f64.m16n8k4 fuse=3 stages=2 lut=off
m2_49 box49 periodic    2   0   657.1  stencil2row mma=f64.m16n8k4 stages=2 lut=off
m2k8  box9  periodic    2  16   670.3  stencil2row mma=f64.m16n8k8 fuse=3 stages=2 lut=off
m2k16 box9  periodic    2 128   763.2  stencil2row mma=f64.m16n8k16 fuse=3 stages=2 lut=off
a3    heat  frozen      8   0   419.5  tiled tile=32x64 stages=1
a4    heat  neumann     8   0   414.6  tiled tile=32x64 stages=1
a5    heat  dirichlet   8   0   414.4  tiled tile=32x64 stages=1
a6    box9  periodic    6   0   497.5  tiled tile=32x128 stages=1
a7    box9  periodic    8   0   443.6  tiled tile=16x128 stages=1
a8    box9  periodic    6   0   522.7  tiled tile=64x64 stages=1
a13   box9  periodic   11   0   519.6  tiled tile=32x64 warps=4 stages=1
a14   box9  periodic   16   0   442.9  tiled tile=32x32 warps=4 stages=1
a15   box9  periodic    4   0   443.7  tiled tile=64x64 warps=16 stages=1
b5    box9  frozen      2   8   685.3  stencil2row mma=f64.m16n8k4 fuse=3 stages=2 lut=off
b6    box9  dirichlet   2   0   755.3  stencil2row mma=f64.m16n8k4 fuse=3 stages=2 lut=off
b7    box9  neumann     2  24   705.9  stencil2row mma=f64.m16n8k4 fuse=3 stages=2 lut=off
b8    box49 frozen      2   0   680.7  stencil2row mma=f64.m16n8k4 stages=2 lut=off
b9    box9  frozen      2   0   896.5  stencil2row mma=f64.m8n8k4 fuse=3 stages=2 lut=off
d3    heat  periodic    5   0   460.7  tiled tile=32x64 stages=1
d4    heat  periodic    6   0   530.0  tiled tile=32x64 stages=2
d5    box9  periodic    3   0   522.5  tiled fuse=3 tile=32x64 stages=2
v1    box9  periodic    3   0   493.0  tiled fuse=3 tile=32x64 stages=1
v2    box49 periodic    3   0   491.6  tiled tile=32x64 stages=1
v3    box49 periodic    4   0   437.7  tiled tile=32x64 warps=4 stages=1
v4    box49 periodic    7   0   468.5  tiled tile=16x64 warps=4 stages=1
v5    box49 periodic    2   0   486.2  tiled tile=64x64 stages=1
v6    box49 periodic    2   0   484.8  tiled tile=32x128 stages=1
v7    star13 periodic   4   0   423.8  tiled tile=32x64 stages=1
"""
#: 10007 x 9999, with the elements from row to row in the third column.
_ODD = """
m2o   box9  9999        2   8   838.2  stencil2row mma=f64.m16n8k4 fuse=3 stages=2 lut=off
t2o   heat  9999        6   0   577.9  tiled tile=32x64 stages=2
a1    heat  9999        8   0   510.6  tiled tile=32x64 stages=1
a2    heat  10000       8   0   402.4  tiled tile=32x64 stages=1
b1    box9  9999        2   0   880.7  stencil2row mma=f64.m8n8k4 fuse=3 stages=2 lut=off
b2    box9  10000       2   0   833.3  stencil2row mma=f64.m8n8k4 fuse=3 stages=2 lut=off
b3    box9  10000       2   8   630.6  stencil2row mma=f64.m16n8k4 fuse=3 stages=2 lut=off
b4    box49 10000       2   8   631.9  stencil2row mma=f64.m16n8k4 stages=2 lut=off
"""


def _read(text: str, odd: bool) -> list[Point]:
    points = []
    for line in text.split("\n")[1:-1]:
        name, stencil, word, blocks, spilled, time, schedule = line.split(maxsplit=6)
        shape, pitch, boundary = ((10007, 9999), int(word), "periodic") if odd else ((10240, 10240), None, word)
        points.append(Point(name, stencil, shape, pitch, boundary, int(blocks), int(spilled), float(time), schedule))
    return points


POINTS = _read(_SQUARE, odd=False) + _read(_ODD, odd=True)


@dataclass(frozen=True)
class Stream:
    """One measured launch of a stream schedule (cols=4 warps=2 stages=8)."""

    stencil: str
    levels: int
    shape: tuple[int, int]
    pitch: int | None
    boundary: str
    microseconds: float


#: Stencil, levels, boundary and microseconds; of ranges the middle.  Heat at 11 and 12 levels spills (704, 1279).
_STREAMS = """
heat   10 periodic  579.5
heat    9 periodic  549
heat    8 periodic  531
heat    6 periodic  541.5
heat    4 periodic  494
heat   10 frozen    634
box9    5 periodic  550
box9    6 periodic  545
box9    6 dirichlet 582
box9    7 periodic  657
box9    8 periodic  722
star13  3 periodic  544.5
star13  4 periodic  648
box49   1 periodic  522
box49   2 periodic  882
"""
STREAMS = [
    Stream(name, int(levels), (10240, 10240), None, boundary, float(time))
    for name, levels, boundary, time in (line.split() for line in _STREAMS.split("\n")[1:-1])
]
STREAMS += [Stream("heat", 10, (10007, 9999), pitch, "periodic", t) for pitch, t in ((10000, 591.0), (9999, 578.0))]
STREAMS += [Stream("box9", n, (10007, 9999), 10000, "periodic", t) for n, t in ((6, 564.0), (8, 688.0))]


@dataclass(frozen=True)
class LowRank:
    """One measured launch of a lowrank schedule on 10240 x 10240, periodic."""

    stencil: str
    blocks: int
    microseconds: float
    schedule: str


#: Stencil, blocks, microseconds, schedule.  Windows start at 32-byte sectors in all of these.  Started in the middle of
#: one (product9 at fuse=6, whose window has moved since) copies took longer: 483, and 516 with the best ring.
_LOWRANKS = """
product49 4  417.3  lowrank
product49 2  466.6  lowrank stages=2
product49 2  423.2  lowrank warps=8
product49 5  428.8  lowrank tile=64x32
product9  4  417.7  lowrank fuse=3
product9  2  466.3  lowrank fuse=3 stages=2
product9  3  416.8  lowrank mma=f64.m16n8k8 fuse=3
product9  5  413.9  lowrank mma=f64.m8n8k4 fuse=3 tile=32x64
product9  3  427.9  lowrank fuse=8
product9  2  458.0  lowrank fuse=8 warps=8
product9  1  466.0  lowrank fuse=8 tile=128x64 warps=8 stages=2
product9  1  455.6  lowrank fuse=8 tile=128x64 warps=16 stages=2
product9  3  460.5  lowrank fuse=12
product9  2  519.7  lowrank fuse=12 warps=8
heat      2  706.0  lowrank fuse=3
heat      2  832.0  lowrank fuse=3 tile=64x32
"""
LOWRANKS = [
    LowRank(stencil, int(blocks), float(time), schedule)
    for stencil, blocks, time, schedule in (line.split(maxsplit=3) for line in _LOWRANKS.split("\n")[1:-1])
]


@dataclass(frozen=True)
class Patches:
    """One measured launch of a patches schedule (warps=4 stages=6)."""

    stencil: str
    blocks: int
    shape: tuple[int, int]
    boundary: str
    microseconds: float
    schedule: str


#: Stencil, blocks, boundary, microseconds, schedule.  The one of 3 strips and 3 levels spilled 4 bytes.
_PATCHES = """
box9  2 periodic  633.4 patches fuse=2 levels=3
box9  2 periodic  883   patches fuse=2 levels=4
box9  3 periodic  474   patches fuse=2 levels=2
box9  2 periodic  697   patches fuse=3 levels=2
box9  4 periodic  672   patches fuse=2 levels=3 strips=1
box9  2 periodic  639   patches fuse=2 levels=3 strips=3
box9  2 periodic  473   patches fuse=2 levels=2 strips=3
box9  2 frozen    676   patches fuse=2 levels=3
heat  2 periodic  631   patches fuse=2 levels=3
heat  2 periodic  883   patches fuse=2 levels=4
box49 2 periodic  463   patches fuse=1 levels=1
box49 4 periodic  483   patches fuse=1 levels=1 strips=1
box49 2 periodic  690   patches fuse=1 levels=2
box49 3 periodic  731   patches fuse=1 levels=2 strips=1
box49 2 periodic 1163   patches fuse=1 levels=3 strips=1
"""
PATCHES = [
    Patches(name, int(blocks), (10240, 10240), boundary, float(time), schedule)
    for name, blocks, boundary, time, schedule in (line.split(maxsplit=4) for line in _PATCHES.split("\n")[1:-1])
]
PATCHES += [Patches("box9", 2, (10007, 9999), "periodic", 598.5, "patches fuse=2 levels=3")]  # copied cell by cell


@dataclass(frozen=True)
class Row:
    """One measured launch of a toeplitz schedule on a periodic row of 102 400 000 cells; ``blocks`` as in Point."""

    stencil: str
    blocks: int
    microseconds: float
    schedule: str


ROW_STENCILS = {"heat1": _footprint("box", 3), "row5": _footprint("box", 5)}
#: Stencil, steps, mma=f64.m16n8.., products, warps, stages, blocks an SM, microseconds.
_ROWS = """
heat1 24 k8 8 1 2 12 441.7
heat1 32 k8 8 1 2  8 441.3
heat1 40 k8 8 1 2  8 457.8
heat1 48 k8 8 1 2  8 458.4
heat1 56 k8 8 1 2  8 464.7
heat1 64 k8 8 1 2  8 521.1
heat1 56 k8 8 2 2  4 469.1
heat1 48 k8 8 4 2  2 445.6
heat1 48 k8 8 8 2  1 454.7
heat1 56 k8 4 1 3  8 489.9
heat1 32 k4 8 1 2 12 445.1
heat1 48 k4 8 1 2  8 465.8
heat1 40 k4 4 1 2 12 443.6
heat1 48 k4 4 1 2 12 447.6
heat1 48 k4 4 1 2 16 449.2
heat1 64 k4 4 1 2 12 539.6
heat1 56 k4 4 1 3 12 488.2
row5  16 k8 8 1 2  8 442.7
row5  20 k8 8 1 2  8 458.4
row5  24 k8 8 1 2  8 456.6
row5  28 k8 8 1 2  8 468.3
row5  32 k8 8 1 2  8 525.1
row5  24 k8 8 4 2  2 445.6
row5  28 k8 4 1 3  8 493.4
row5  16 k4 8 1 2 12 448.1
row5  24 k4 4 1 2 16 450.1
row5  28 k4 4 1 2 12 486.3
"""


def _row(line: str) -> Row:
    name, fuse, mma, products, warps, stages, blocks, time = line.split()
    schedule = f"toeplitz mma=f64.m16n8{mma} fuse={fuse} products={products} warps={warps} stages={stages}"
    return Row(name, int(blocks), float(time), schedule)


ROWS = [_row(line) for line in _ROWS.split("\n")[1:-1]]

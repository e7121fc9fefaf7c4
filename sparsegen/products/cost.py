"""The predicted time of a sparse product: what the busiest SM and the memory have to do, and what cannot overlap.

    time = launch + latency + max(hbm, decode, tensor, shared, l2, ring) + exposed + reduce

with the memory cold, as in a model whose layers follow one another.  ``decode``: w warps of a sub-core issue
w / (w + PARTIES) instructions a clock between them: each waits as long as PARTIES others would take.  ``exposed``:
units that are nearly as busy as the longest one get in its way, by the NORM-th root of the sum of the NORM-th powers.
Of the dense product the time is

    time = launch + latency + DENSE_SHARE * (1 or MISALIGNED) * max(hbm, tensor), walk beside it

``walk``, of what L2 keeps from call to call: the products of an output one after another, which else the memory hides.

The constants below are counted in the lowered program (tests compare them with the emulator's counts) or, where it
says so, fitted to 1,752 kernels on one H200 (seeds 101, 202 and 404 of tests/cost/data/products.csv.xz, and
tests/cost/measured_products.py); 1,152 more were predicted before they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, log2
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.arithmetic import ARRAYS, Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.op_spmm import SLAB, STRIP
from sparsegen.products.geometry import Geometry, Schedules, geometry
from sparsegen.products.product import BitmapNumbers
from sparsegen.schedule import SpmmSchedule

if TYPE_CHECKING:
    from sparsegen.products.hybrid import HybridNumbers
    from sparsegen.products.nm import NmNumbers
    from sparsegen.products.ragged import Ragged
    from sparsegen.products.vectors import VectorNumbers

    Numbers = BitmapNumbers | NmNumbers | VectorNumbers | Ragged | HybridNumbers

REASONS: Final[dict[str, str]] = {
    "hbm": "W's format, x, y and the epilogue's arrays, once each",
    "l2": "the busiest SM's part of W, and x anew for each of its blocks, through its port to L2",
    "ring": "each turn of a warp's ring takes a loaded DRAM latency, stages - 1 of them under way",
    "chain": "what a warp does in a turn of its ring, one thing after another: wait, x, scan, values, mma",
    "decode": "instructions that spread values into fragments, and of each turn of a ring; few warps fill few slots",
    "tensor": "mma instructions x cycles per mma, over the SM's tensor cores",
    "shared": "masks and values out of shared memory; x, by every warp for each of its slabs, through the same pipe",
    "exposed": "units that are nearly as busy as the longest get in its way",
    "reduce": "sums of the slab warps through shared memory, those of the splits through L2",
    "walk": "of what L2 keeps: steps along K of a dense product's blocks, one after another",
    "latency": "what each round of blocks waits for before its first tiles (index, then values), and at its end",
    "launch": "starting the kernel",
}
#: The terms that add to the longest of the others.
ADDED: Final = frozenset(("exposed", "reduce", "latency", "launch"))
#: The formula's symbols, and what they are.
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of W",
    "K": "columns of W",
    "N": "columns of x",
    "B": "bytes of W's format",
    "E": "bytes of bias, scale and residual",
    "R": "warps of a block that share its rows",
    "C": "warps that share its slabs",
    "cols": "columns of x of a block",
    "stages": "slots of a warp's ring",
    "splits": "blocks that share a run of strips",
    "G": "runs of strips",
    "b": "blocks an SM at a time",
    "sums": "sums that a lane holds",
    "full": "1, or more for a W with fewer zeros than any that was fitted",
}
#: Two-byte numbers of x and y.
ITEM: Final = 2

# ---- counted in the program that ir/lower/bitmap.py makes; of a fragment (16 x 16) or of a tile (four of them)
#: Warp instructions to decode a fragment, and of its tile's scan.
FRAGMENT, SCAN = 29.0, 38.0
#: The same of elements of 8 bits; the wavefronts of a tile's loads of these, three of four bytes a fragment.
NARROW_FRAGMENT: Final = {"s8": 27.0, "e4m3": 25.0, "e5m2": 23.0}
NARROW_WAVEFRONTS: Final = 18.0
#: Multiply-adds and conversions of a fragment for one column on the CUDA cores, less the permutes that pair its
#: values for an mma (fitted; the IR has both, nvcc joins them).
MULTIPLY: Final = 1.0
#: The same of elements of 8 bits, in which nothing is paired (fitted to 28672x8192 on one H200: i8 70 us, e4m3 66).
NARROW_MULTIPLY: Final = 6.2
#: 128-byte wavefronts of a tile's loads from shared memory: 16 of 8 bytes a lane, mask, index.
WAVEFRONTS: Final = 38.0
#: Elements of a column of x that a lane has of a slab, and how many of them one load takes at the most.
OWN, WIDEST = 16, 4
# ---- fitted
#: Instructions of a turn of a warp's ring (wait, refill), to read and pair x for each column of the block, and to read
#: and convert a single one.
TURN, READ, READ_ONE = 120.0, 5.9, 60.0
#: Warps' worth of latency that a warp's instruction waits for.
PARTIES: Final = 1.67
#: Wavefronts of a load of x, and instructions of it: its lanes lie on eight lines.
X_WAVEFRONTS: Final = 2.34
X_LOAD: Final = 6.7
#: How far the busiest warps' tiles count, against the mean of a block's: the others leave them issue slots.
UNEVEN: Final = 0.12
#: The power with which busy units get in each other's way.
NORM: Final = 2.97
#: Passes through shared memory that the sums of the slab warps cost, barriers and the ends of warps included.
SUMS: Final = 9.6
#: L2 latencies until the last of the blocks that share a run of strips has seen the others' sums, and for each of them.
SPLIT: Final = 0.4
EXCHANGE: Final = 4.9
#: A DRAM latency with the memory busy, over the idle one.
LOADED: Final = 1.7
#: Clocks that a turn of a warp's ring takes alone, and each of its tiles.
CHAIN, CHAIN_TILE = 1365.0, 480.0
#: DRAM latencies in which a round of blocks has no tile to decode: of the index, of the values, and at the end.
START: Final = 2.2
#: How much of that a block costs that others of its SM run beside.
BESIDE: Final = 0.022
#: Share of W that is stored beyond which no kernel was fitted, and the longest unit's time there over the fit's (two
#: kernels of 5120x13824x16 on one H200: 1.38 with 30 % zeros, 1.2 with none).
FITTED_SHARE, FULL = 0.62, 1.3
# ---- cuBLAS by the measured times in the kernel notes (28672x8192, 21504x7168, 8192^2 and 4096^2, n=16; cold L2), of
# suite nm and of the problems of regret (153 in all: within 6 % in the median)
#: DRAM latencies besides its launch, and its time over that of its bytes or mma.
DENSE_START, DENSE_SHARE = 11.03, 1.18
#: With warm L2: L2 latencies besides, those of a walk for each doubling of K beyond WALK_FROM, and by which power that
#: adds up with the rest: of 16 bits, of 16 bits where rows do not start at 16 bytes, and of more (299 products in a
#: loop on one H200, tests/cost/data/looped.csv.xz: within 9 % in the median).
WALK_FROM, WALK, WALK_ASKEW, WALK_WIDE = 512, (2.5, 8.7, 2), (15.0, 14.0, 1), (30.0, 3.5, 1)
#: From Hopper on the library multiplies by warpgroups, faster than one mma is after another: multiply-adds of 16-bit
#: numbers of an SM a clock (H100 whitepaper: 989 TFLOP/s by 132 SMs at 1.83 GHz; 4096^3 took 163 us, predicted 175).
WARPGROUP = 2048
#: Clocks that its multiply-adds of f32 take on CUDA cores, over the fewest, and how many columns of x a block has there
#: at least, used or not, of eight or more (82 products of 32 columns on one H200: within 10 % in the median).
DENSE_CORES, DENSE_COLS_F32 = 1.13, 48
#: The same by the bytes at which rows start where these are not 16, which cuBLAS's fast kernels need but for so few
#: columns: of its bytes, and of its mma (30 products on one H200: within 10 % in the median); of f32.
DENSE_FEW: Final = 4
DENSE_MISALIGNED: Final = {8: 1.7, 4: 1.9, 2: 4.1}
DENSE_ASKEW: Final = {8: 7.0, 4: 7.0, 2: 8.8}
DENSE_ASKEW_F32: Final = 1.2


def cost(p: BitmapNumbers, s: SpmmSchedule, device: DeviceProfile) -> Cost:
    """The cost of a complete schedule that is legal there."""
    return LAW.evaluate(s, _values(p, s, device, geometry(p, s, device)), device, (p.m, p.k, p.n), p)


def times(p: BitmapNumbers, s: Schedules, device: DeviceProfile, g: Geometry) -> Any:
    """The seconds of many schedules, an array; ``g``: their geometry.

    A power of arrays may be rounded otherwise than one of floats: the times are those of ``cost`` but for the last bit.
    """
    return law(s, SimpleNamespace(**_values(p, s, device, g)), ARRAYS)[0]


def dense_cost(p: Numbers, device: DeviceProfile) -> Cost:
    """The cost of the dense product of a library; one in f32 is done on CUDA cores, as is one in f64 where tensor cores
    have none."""
    item = p.item
    starts = max(gcd(16, *(item * run for run in (p.k, *runs))) for runs in p.runs)  # of rows of W, x and y
    whole = starts == 16 or (item == ITEM and p.n <= DENSE_FEW)
    besides, walk, beside = WALK_WIDE if item > ITEM else WALK if whole else WALK_ASKEW
    warm = device.kept * device.lat_l2 / device.clock
    slow = 1.0 if whole else DENSE_ASKEW_F32 if item > ITEM else DENSE_MISALIGNED[starts]
    values = _common(p, device) | {
        "B": item * p.m * p.k, "item": item, "share": DENSE_SHARE * slow,
        "start": DENSE_START * device.lat_dram / device.clock + warm * besides,
        "walk": warm * walk * log2(max(1.0, p.k / WALK_FROM)), "beside": beside,
    }  # fmt: skip
    if item > ITEM:
        f64_cores = item > 4 and device.cpi.get("f64.m8n8k4", 0.0) * 8  # mma of an m16n8k16
        cycles = f64_cores or DENSE_CORES * _on_cores(device, item)
        values["cpi"] = cycles * min(8.0, up(p.n, DENSE_COLS_F32) / p.n)
    elif device.compute_capability >= HOPPER:
        values["cpi"] = 16 * 8 * 16 * device.sub_cores / WARPGROUP
    if item == ITEM and not whole:
        values["cpi"] *= DENSE_ASKEW[starts] / slow
    return LAW.evaluate(SpmmSchedule("dense"), values, device, (p.m, p.k, p.n), p)


def _common(p: Numbers, device: DeviceProfile) -> dict[str, Any]:
    return {
        "M": p.m, "K": p.k, "N": p.n, "E": p.operands, "item": ITEM, "launch": device.launch_s, "SMs": device.sms,
        "sub": device.sub_cores, "f": device.clock, "cpi": _cycles(device),
        "bw_G": device.hbm_read_gbs * 1e9,  # y is a small part of what moves
    }  # fmt: skip


def _cycles(device: DeviceProfile) -> float:
    """Cycles of m16n8k16 a sub-core (f16 and bf16 alike); by its multiply-adds on the CUDA cores where it has none."""
    return device.cpi.get("f16.m16n8k16", _on_cores(device))


def _on_cores(device: DeviceProfile, item: int = 4) -> float:
    """Cycles a sub-core for the multiply-adds of m16n8k16 on the CUDA cores, in numbers of ``item`` bytes."""
    rate = device.f64_fma_per_clk_sm if item > 4 else device.f32_fma_per_clk_sm
    return 16 * 8 * 16 * device.sub_cores / rate


def multiply(item: int, device: DeviceProfile) -> float:
    """Issue slots of a sub-core that a warp's multiply-add of elements of ``item`` bytes takes: those of 16 bits are
    widened first, those of 64 wait for as few units as the device has."""
    return 32 * device.sub_cores / device.f64_fma_per_clk_sm if item > 4 else 2.0 if item == ITEM else 1.0


def _values(p: BitmapNumbers, s: SpmmSchedule | Schedules, device: DeviceProfile, g: Geometry) -> dict[str, Any]:
    """The symbols of the formula and their numbers, or arrays: problem, schedule, device."""
    return _common(p, device) | {
        "B": p.nbytes * p.busy // max(1, p.experts), "busy": p.busy, "R": s.warps[0], "C": s.warps[1],
        "cols": s.cols, "stages": s.stages, "splits": s.splits, "G": g.groups, "b": g.resident, "sums": g.sums,
        "bw_S": device.bw_shared / device.sms,
        "bw_L2": device.l2_bytes_per_clk_sm * device.clock, "lat_dram": device.lat_dram, "lat_l2": device.lat_l2,
        "lat_barrier": device.lat_barrier,
        "full": FULL if p.values > FITTED_SHARE * p.m * p.k else 1.0,
        "fragment": NARROW_FRAGMENT.get(p.dtype, FRAGMENT),
        "wavefronts": NARROW_WAVEFRONTS if p.narrow else WAVEFRONTS,
        "multiply": NARROW_MULTIPLY if p.narrow else MULTIPLY,
        "meet": 1 * (s.splits > 1), "wide": next(n for n in (WIDEST, 2, 1) if p.k % n == 0),
    }  # fmt: skip


def nbytes(v: Any) -> Any:
    """Bytes through the memory: W, x, y, and the epilogue's arrays."""
    return v.B + v.item * (v.K + v.M) * v.N + v.E


def rate(cost: Cost) -> float:
    """TB/s of W's format (dense: of the dense matrix), x and y."""
    return float(nbytes(SimpleNamespace(**cost.values))) / cost.time / 1e12


def in_the_way(busy: Mapping[str, Any], norm: float, a: Arithmetic) -> tuple[Any, Any]:
    """The longest of some times, and what the others add to it: the ``norm``-th root of the sum of their powers."""
    longest = a.max(*busy.values())
    return longest, sum((t / longest) ** norm for t in busy.values()) ** (1 / norm) * longest - longest


def law(s: SpmmSchedule | Schedules, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats, arrays or sympy's symbols, in their arithmetic."""
    largest, up = a.max, a.ceil
    hbm = nbytes(v) / v.bw_G
    if s.family == "dense":
        tensor = v.M * v.N * v.K / (STRIP * 8 * 16) * v.cpi / (v.sub * v.SMs * v.f)
        terms = {"hbm": hbm, "tensor": tensor, "walk": v.walk, "latency": v.start, "launch": v.launch}
        moved = v.share * largest(hbm, tensor)
        return v.launch + v.start + (moved**v.beside + v.walk**v.beside) ** (1 / v.beside), terms
    strips, slabs = up(v.M / STRIP), up(v.K / SLAB)
    tile = v.B / (strips * slabs * v.busy)  # bytes
    warps = v.R * v.C
    here = up(v.G * v.splits * up(v.N / v.busy / v.cols) * v.busy / v.SMs)  # blocks of the busiest SM
    block, part = up(strips / v.G), up(slabs / v.splits)  # strips and slabs of its busiest block
    turns = up(part / v.C)  # slabs of a warp
    tiles = up(block / v.R) * turns * warps * here  # of an SM, as if all its warps were the busiest
    rounds = up(here / v.b)
    # instructions of a fragment, and its cycles of a tensor core
    instructions, cycles = (v.multiply, 0) if s.mma == "none" else (v.cols / 8, v.cols / 8 * v.cpi)
    mean = here * block * part
    tiles = mean + UNEVEN * (tiles - mean)
    refills = here * warps * turns
    w = v.b * warps / v.sub  # of a sub-core, the busiest has the next whole number
    own = READ_ONE if s.mma == "none" else v.cols * (READ + X_LOAD * OWN / v.wide / 8)
    issued = tiles * (4 * (v.fragment + instructions) + SCAN) + refills * (TURN + own)
    waits = rounds / here * PARTIES * v.sub / warps
    wide = v.cols * SLAB * ITEM  # bytes of x of a slab
    partial = warps * v.sums * 128  # bytes of the sums of a block
    sums = partial / v.C * (1 + 1 / v.splits)
    exchange = v.meet * (here * sums / v.bw_L2 + (EXCHANGE + SPLIT * v.splits) * v.lat_l2 / v.f)  # among the splits
    fetches = OWN / v.wide * X_WAVEFRONTS * v.cols / 8
    busy = {
        "hbm": hbm,
        "decode": issued / v.sub * (up(w) / w + waits) / v.f,
        "tensor": tiles * 4 * cycles / v.sub / v.f,
        "shared": (tiles * v.wavefronts + refills * fetches) * 128 / v.bw_S,
    }
    apart = {
        "l2": here * part * (block * tile + wide) / v.bw_L2,
        "ring": rounds * turns * LOADED * v.lat_dram / (v.stages - 1) / v.f,
        "chain": rounds * turns * (CHAIN + CHAIN_TILE * up(block / v.R)) / v.f,
    }
    longest, exposed = in_the_way(busy, NORM, a)
    exposed += (v.full - 1) * longest
    reduce = here * SUMS * partial / v.bw_S + exchange
    latency = (rounds + BESIDE * (here - rounds)) * START * v.lat_dram / v.f
    terms = {**busy, **apart, "exposed": exposed, "reduce": reduce, "latency": latency, "launch": v.launch}
    return v.launch + latency + largest(longest, *apart.values()) + exposed + reduce, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")

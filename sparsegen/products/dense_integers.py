"""A product of integers by a library, with the dense matrix: which ones torch does exactly, and how long they take.

torch has ``torch._int_mm``, cuBLAS's product of two matrices of int8 with sums of int32.  Tensor cores take both with
adjacent k (cuBLAS: "only the TN format is supported"), so x is first written by columns where it comes by rows.

    time = launch + start + turn + tensor + read + write + after

with the memory cold, as the times of vectors come out where both were measured.  Fitted to the cold times of the
eleven sizes in docs/bench/magicube.json, on one H200: within 3 % in the median, 10 % at most.  In a loop cuBLAS takes
1.5 to 8.5 us less there.  Other GPUs were not measured.
"""

from __future__ import annotations

from typing import Any, Final

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.formats.matrix import NAMES
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.types import DTYPES
from sparsegen.products.vectors import VectorNumbers
from sparsegen.products.vectors_cost import NEXT
from sparsegen.schedule import Schedule, SpmmSchedule

REASONS: Final[dict[str, str]] = {
    "tensor": "tiles of 64 x 128 of the busiest SM, over all of K, by mma.m16n8k32: K is not split",
    "read": "the dense matrix in int8 and x, once each",
    "write": "the sums, in int32",
    "start": "what cuBLAS needs besides a launch",
    "turn": "where x comes by rows, writing it by columns by a kernel before",
    "after": "where y is of floats: kernels one after another that make f32 of the sums, do the epilogue, and round",
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of W",
    "K": "columns of W",
    "N": "columns of x",
    "E": "bytes of bias, scale and residual",
    "rows": "1 if x comes by rows, else 0",
    "steps": "kernels after the product",
}
ADDED: Final = frozenset(("start", "turn", "after", "launch"))
# ---- what torch._int_mm takes (aten/src/ATen/native/cuda/Blas.cpp): more rows of the first matrix than so many, and
# multiples of so many columns of both
ROWS, MULTIPLE = 16, 8
#: Rows and columns of a tile, and multiply-adds of an mma; bytes of a sum, and of a sector of L2, which is what torch
#: reads for each byte where it turns x over.
TILE, MMA, SUM, SECTOR = (64, 128), 16 * 8 * 32, 4, 32
_MMA: Final = "s8.m16n8k32"
# ---- fitted
#: Seconds besides a launch; times over those of the bytes at DRAM's bandwidth.
START, READ, WRITE = 1.15e-6, 2.7, 1.45


def lacking(p: VectorNumbers, device: DeviceProfile) -> ScheduleError | None:
    """Why no library does the product exactly on the device; None if torch does."""
    if (p.dtype, p.x) not in (("s8", "s8"), ("s4", "s8")):
        w, x = (NAMES[DTYPES[name]] for name in (p.dtype, p.x))
        return ScheduleError(
            f"schedule='dense' multiplies W of i8 or i4 by x of i8, W is {w} and x {x}",
            hint="leave the schedule to the cost model",
        )
    if _MMA not in device.cpi:
        return ScheduleError(
            f"schedule='dense' multiplies integers by mma.{_MMA.removeprefix('s8.')}, which {device.name} has not",
            hint="take a GPU from Ampere on",
        )
    rows, columns = (p.n, p.m) if p.columns else (p.m, p.n)
    if rows <= ROWS or columns % MULTIPLE or p.k % MULTIPLE:
        first, second = ("n", "M") if p.columns else ("M", "n")
        return ScheduleError(
            f"torch._int_mm needs {first} above {ROWS}, {second} and K that {MULTIPLE} divides; M, K and n are {p.m}, "
            f"{p.k} and {p.n}",
            hint="fill W and x up with zeros, or leave the schedule to the cost model",
        )
    return None


def price(p: VectorNumbers, device: DeviceProfile) -> Cost:
    """The cost of a product that torch does."""
    y = DTYPES[p.y]
    values = {
        "M": p.m, "K": p.k, "N": p.n, "E": p.operands, "y": y.nbytes, "rows": 1 * (not p.columns),
        "steps": 0 if y.is_int else 1 + p.after + (y.bits < 32), "launch": device.launch_s, "start": START,
        "SMs": device.sms, "sub": device.sub_cores, "f": device.clock, "cpi": device.cpi[_MMA],
        "bw_G": device.hbm_read_gbs * 1e9, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
    }  # fmt: skip
    return LAW.evaluate(SpmmSchedule("dense"), values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    rows, columns = TILE
    tiles = a.ceil(a.ceil(v.M / rows) * a.ceil(v.N / columns) / v.SMs)  # of the busiest SM
    terms = {
        "tensor": tiles * v.K * rows * columns / MMA * v.cpi / v.sub / v.f,
        "read": READ * v.K * (v.M + v.N) / v.bw_G,
        "write": WRITE * SUM * v.M * v.N / v.bw_G,
        "start": v.start,
        "turn": v.rows * (NEXT * v.launch + SECTOR * v.K * v.N / (v.SMs * v.bw_L2)),
        "after": v.steps * (NEXT * v.launch + 2 * SUM * v.M * v.N / v.bw_G) + v.E / v.bw_G,
        "launch": v.launch,
    }
    return sum(terms.values()), terms


def rate(cost: Cost) -> float:
    """TB/s of the dense matrix, x, y and the epilogue's arrays, once each."""
    v = cost.values
    return float(v["M"] * v["K"] + (v["K"] + v["y"] * v["M"]) * v["N"] + v["E"]) / cost.time / 1e12


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")

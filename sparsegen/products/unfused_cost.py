"""The predicted time of unfused sparse attention: two products, each by its own formula, and the softmax between.

    time = launch + quantise + scores + softmax + values

The softmax reads scores from DRAM, and again from the caches, and writes exponentials.  Its figures are estimates: of 4
heads of 4096 by 4096 on one H200 the sum is right to a microsecond up to 5 % of the keys, and 13 and 50 less than
measured at 10 and 20 %.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.products import attention_cost, sddmm_gather_cost, strided_cost
from sparsegen.products.attention import AttentionNumbers
from sparsegen.products.attention_cost import JOIN, NEXT, quantising, rate
from sparsegen.products.sddmm_cost import NEXT as APART
from sparsegen.products.unfused import BLOCK, Products
from sparsegen.schedule import Schedule

#: Both products: the first letters of their symbols, and their laws.
SCORES, VALUES = "scores", "values"
PARTS: Final = {SCORES: sddmm_gather_cost.LAW, VALUES: strided_cost.LAW}
REASONS: Final[dict[str, str]] = {
    SCORES: "products of q and k where the pattern is, a kernel of sampled products",
    "softmax": "the largest score of each row, exponentials and their sums: bytes of DRAM, or instructions",
    VALUES: "products of exponentials and v, a kernel of sparse products",
    "quantise": attention_cost.REASONS["quantise"],
    "launch": "starting the kernels",
}
SYMBOLS: Final[dict[str, str]] = {
    **{f"{part}.{name}": f"{what}, of the {part}" for part, law in PARTS.items() for name, what in law.symbols.items()},
    **{name: attention_cost.SYMBOLS[name] for name in ("heads", "M", "N", "d", "f16")},
    "E": "scores of all heads, those that fill blocks up among them",
    "planes": "bytes of an exponential",
}
ADDED: Final = frozenset(("quantise", "launch"))
# ---- estimated
#: Instructions of a warp for 128 scores, both times that it reads them, and of each plane of exponentials.
ISSUE, PLANE = 70.0, 12.0


class Shape(NamedTuple):
    """What a schedule makes of it: of the kernel of scores for one head and for all, and of that of values."""

    products: Products
    head: sddmm_gather_cost.Shape
    scores: sddmm_gather_cost.Shape
    values: strided_cost.Shape


def price(p: AttentionNumbers, s: Schedule, device: DeviceProfile, g: Shape, scores: Cost, values: Cost) -> Cost:
    """The cost of a complete schedule that is legal there, of the costs of its products."""
    before = NEXT if device.compute_capability >= HOPPER else APART  # the softmax begins while scores end
    own: dict[str, Any] = {
        "next": before + APART,
        "heads": p.heads, "M": p.m, "N": p.n, "d": p.d, "f16": 1 * (not p.quantized), "planes": p.softmax_bits // 8,
        "E": p.heads * g.products.blocks * BLOCK * p.height, "b": scores.blocks_per_sm, "launch": device.launch_s,
        "f": device.clock, "sub": device.sub_cores, "SMs": device.sms, "lat_dram": device.lat_dram,
        "bw_G": device.hbm_read_gbs * 1e9, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
    }  # fmt: skip
    for part, cost in ((SCORES, scores), (VALUES, values)):
        own |= {f"{part}.{name}": value for name, value in cost.values.items()}
    return LAW.evaluate(s, own, device, (p.heads, p.m, p.n, p.d), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    products: dict[str, Any] = {}
    for part, of in PARTS.items():
        own = SimpleNamespace(**{n.partition(".")[2]: x for n, x in vars(v).items() if n.startswith(f"{part}.")})
        products[part] = of.equations(s, own, a)[0] - own.launch
    moved, issued = v.E * (4 + v.planes), v.E / 128 * (ISSUE + PLANE * v.planes)
    softmax = a.max(moved / v.bw_G, issued / (v.sub * v.SMs * v.f)) + JOIN * v.lat_dram / v.f
    quantise, launch = quantising(v), (1 + v.next) * v.launch
    terms = {SCORES: products[SCORES], "softmax": softmax, VALUES: products[VALUES], "quantise": quantise}
    return launch + sum(terms.values()), {**terms, "launch": launch}


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")

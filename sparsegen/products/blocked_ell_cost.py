"""The predicted time of a product in Blocked-ELL and compressed rows: its two kernels, each by its own formula.

    time = launch + tiles + rest + next

Dense tiles cost what they cost ``hybrid`` where each block row has as many as the longest one, and sums in f32 are
written and read between the two.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.products import csr_cost, hybrid_cost
from sparsegen.products.blocked_ell import BlockedEllNumbers
from sparsegen.products.cost import rate
from sparsegen.products.hybrid_cost import NEXT
from sparsegen.schedule import Schedule

#: Both kernels: the first letters of their symbols, and their laws.
TILES, REST = "tiles", "rest"
PARTS: Final = {TILES: hybrid_cost.LAW, REST: csr_cost.LAW}
REASONS: Final[dict[str, str]] = {
    TILES: "dense tiles on tensor cores, those among them that fill block rows up, and their sums to DRAM",
    REST: "all other entries on CUDA cores, on top of the sums of tiles, and the epilogue",
    "next": "what a kernel costs that follows another one",
    "launch": "starting the kernels",
}
SYMBOLS: Final[dict[str, str]] = {
    **{f"{part}.{name}": f"{what}, of the {part}" for part, law in PARTS.items() for name, what in law.symbols.items()},
    "two": "1 if there are both tiles and other entries",
}
ADDED: Final = frozenset(("next", "launch"))


def price(p: BlockedEllNumbers, s: Schedule, device: DeviceProfile, parts: dict[str, Cost]) -> Cost:
    """The cost of a complete schedule that is legal there, of the costs of its kernels."""
    own: dict[str, Any] = {
        "M": p.m, "K": p.k, "N": p.n, "B": p.nbytes, "E": p.operands, "item": p.item, "two": 1 * p.two,
        "b": next(iter(parts.values())).blocks_per_sm, "launch": device.launch_s,
    }  # fmt: skip
    for part, cost in parts.items():
        own |= {f"{part}.{name}": value for name, value in cost.values.items()}
    return LAW.evaluate(s, own, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    terms: dict[str, Any] = {}
    for part, of in PARTS.items():
        own = SimpleNamespace(**{n.partition(".")[2]: x for n, x in vars(v).items() if n.startswith(f"{part}.")})
        if vars(own):
            terms[part] = of.equations(s, own, a)[0] - own.launch
    terms["next"] = v.two * NEXT * v.launch
    return v.launch + sum(terms.values()), {**terms, "launch": v.launch}


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")

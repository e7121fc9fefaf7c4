"""From a product to its kernel: the op level, and the passes that lower it."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.module import Module
from sparsegen.ir.op_spmm import Spmm
from sparsegen.ir.passes import Manager
from sparsegen.ir.passes.bitmap import Bitmap
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.pipeline import Pipeline
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import DTYPES
from sparsegen.pipelines import Program
from sparsegen.products.geometry import BULK, geometry
from sparsegen.products.product import Problem, Product
from sparsegen.products.schedule import SpmmSchedule

#: Roles of a launch: arrays of a call, those of W, and the workspace of splits.
IN, OUT = "in", "out"
MATRIX = ("index", "masks", "values")
SLOTS, COUNTER = "workspace.slots", "workspace.counter"


class Variant(NamedTuple):
    """What of the arrays of a call the code depends on: the orders of x and y (``row`` or ``column``), and how many
    adjacent elements of x a load may take."""

    x: str
    y: str
    vec: int


def describe(product: Product, name: str, variant: Variant) -> Module:
    """The op level."""
    p, e = Problem.of(product), product.epilogue
    op = Spmm(
        symbol(name), p.m, p.k, p.n, DTYPES[p.dtype], p.chunks, *variant, e.bias, e.scale, e.residual,
        e.activation or "none",
    )  # fmt: skip
    return Module(name, (op,))


def lower(product: Product, schedule: SpmmSchedule, device: DeviceProfile, variant: Variant) -> Program:
    """The kernel of a complete bitmap schedule, lowered and verified."""
    g = geometry(Problem.of(product), schedule, device)
    bitmap = Bitmap(
        schedule.mma,
        schedule.cols,
        *schedule.warps,
        schedule.rows,
        g.groups,
        schedule.splits,
        g.chunks,
        device.compute_capability >= BULK,
        g.resident,
    )
    op = describe(product, product.name, variant)
    tile = Manager((bitmap, Pipeline(schedule.stages))).run(op)
    warp = Manager((ToWarp(), Simplify(), Dce()), shared_limit=device.smem_block).run(tile)
    return Program(1, op, tile, warp)


@dataclass
class Programs:
    """The programs of one kernel, lowered when first needed, one for each variant."""

    product: Product
    schedule: SpmmSchedule
    device: DeviceProfile
    _known: dict[Variant, Program] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)

    def get(self, variant: Variant) -> Program:
        """The program for arrays in these orders."""
        with self._lock:
            if variant not in self._known:
                self._known[variant] = lower(self.product, self.schedule, self.device, variant)
            return self._known[variant]

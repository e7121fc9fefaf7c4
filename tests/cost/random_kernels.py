"""Random kernels timed on one H200, and what the cost model says of them.

``data/stencils.csv.xz`` and ``data/products.csv.xz`` come from ``sparsegen bench`` (suite ``regret``): of each problem
the schedules that the model of that day ranked first, and as many drawn at random.  Seeds 101, 202 and 303 were used to
fit the model; 404, 3669357388, 1361293057, 1641594708 and 3350954841 were predicted before.  The fit of products was
done anew with 404 (PRODUCTS_FITTED); of the seeds after it nothing is in it.  ``data/chosen.csv`` was
measured so too, for problems that they lack: odd planes (15 random problems of three axes with rows that 16 bytes do
not divide), one step on large fields, a few schedules of one star on fields of odd and even rows, and
those of stars and boxes that ``march`` and ``slab`` were fitted to.

Left out: kernels that spill or that are refused now (two of ``slab``, of all the registers there are), tiles and blocks
of a field of one row that have more rows than it (no longer searched), products with x in rows (the model predicts
columns), and of ``column`` what was measured before lanes shared the copies of rows that 16 bytes do not divide (those
kernels are other ones now).
"""

from __future__ import annotations

import csv
import dataclasses
import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from sparsegen.bench import packed
from sparsegen.bench.regret import stencil_problems, weights
from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.cost import total
from sparsegen.cost.devices import DeviceProfile, load_profile
from sparsegen.cost.stencil import cost
from sparsegen.dsl.stencil import Stencil
from sparsegen.families.spmm.dense import DENSE
from sparsegen.footprint import Footprint
from sparsegen.problems.stencil import grid
from sparsegen.products.cost import cost as product_cost
from sparsegen.products.cost import dense_cost
from sparsegen.products.product import BitmapNumbers
from sparsegen.schedule import Schedule, SpmmSchedule, StencilSchedule
from tests.cost.measured_products import TIMES
from tests.cost.test_product_cost import problem

#: Seeds of the products in the fit, which measured_products.py belongs to as well.
PRODUCTS_FITTED = 101, 202, 404
LATER = 1361293057, 1641594708  #: seeds measured with the copies that ``column`` has now
SIDES = {"periodic": periodic, "frozen": frozen, "neumann": neumann, "dirichlet(0.5)": dirichlet(0.5)}
DATA, H200 = Path(__file__).parent / "data", load_profile("h200")


@dataclass(frozen=True)
class Kernel:
    """A measured kernel; ``family`` of a product: dense, bitmap, or vector (its sums on the CUDA cores)."""

    case: str  #: of which problem
    family: str
    seconds: float  #: measured: a call of all the steps of a stencil, one product
    seed: int
    predict: Callable[[DeviceProfile], float]
    whole: bool = True  #: whether all that was measured of its problem is here

    def error(self, profile: DeviceProfile = H200) -> float:
        """The logarithm of predicted over measured seconds."""
        return float(np.log(self.predict(profile) / self.seconds))


def _read(name: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(io.StringIO(packed.read(DATA / name), newline=""))


def _stencil(fp: Footprint, shape: tuple[int, ...], s: StencilSchedule, steps: int) -> Callable[[DeviceProfile], float]:
    return lambda profile: total.total_time(cost(fp, shape, s, profile), steps)


def _product(p: BitmapNumbers, s: SpmmSchedule) -> Callable[[DeviceProfile], float]:
    return lambda profile: (dense_cost(p, profile) if s == DENSE else product_cost(p, s, profile)).time


@cache
def stencils() -> tuple[Kernel, ...]:
    """All that count."""
    problems = {}
    for seed, count in {(int(row["seed"]), int(row["problems"])) for row in _read("stencils.csv.xz")}:
        problems |= {(seed, p.name): p for p in stencil_problems(seed, count)}
    out = []
    for row in _read("stencils.csv.xz"):
        seed, s = int(row["seed"]), Schedule.parse(row["schedule"])
        p = problems[seed, row["case"]]
        fp, shape = Footprint.of(p.stencil.gridded), grid(p.shape)
        tall = fp.flat and ((s.family == "tiled" and s.tile and s.tile[0] > 1) or
                            (s.family == "direct" and s.block[1] > 1))  # fmt: skip
        if int(row["spills"]) or tall:
            continue
        seconds, predict = float(row["microseconds"]) * 1e-6, _stencil(fp, shape, s, p.steps)
        whole = fp.axes < 3 or shape[-1] * fp.itemsize % 16 == 0 or seed in LATER
        out.append(Kernel(f"{seed} {p.name}", s.family, seconds, seed, predict, whole))
    return (*out, *_chosen())


def _chosen() -> Iterator[Kernel]:
    """Those of ``data/chosen.csv``; of the weights only what they are made of matters."""
    for row in _read("chosen.csv"):
        shape = tuple(map(int, row["shape"].split("x")))
        w = weights(random.Random(row["case"]), row["weights"], len(shape), int(row["radius"]))
        stencil = Stencil.from_weights(w.astype({"f64": "f8", "f32": "f4"}[row["dtype"]]), SIDES[row["boundary"]])
        fp, s = Footprint.of(stencil.gridded), Schedule.parse(row["schedule"])
        predict = _stencil(fp, grid(shape), s, int(row["steps"]))
        if not int(row["spills"]):
            whole = not row["case"].startswith("walk")  # a handful of schedules, not the first and random ones
            yield Kernel(row["case"], s.family, float(row["microseconds"]) * 1e-6, 0, predict, whole)


def fitted_products() -> tuple[int, int]:
    """How many measured products are in the fit, and how many were predicted before they were measured."""
    fit = [int(row["seed"]) in PRODUCTS_FITTED for row in _read("products.csv.xz")]
    return sum(fit) + len(TIMES), len(fit) - sum(fit)


@cache
def products() -> tuple[Kernel, ...]:
    """All that count."""
    out = []
    for row in _read("products.csv.xz"):
        if row["order"] != "columns":
            continue
        p = problem(int(row["m"]), int(row["k"]), int(row["n"]), float(row["sparsity"]))
        p = dataclasses.replace(p, dtype=row["dtype"], columns=True)
        s = SpmmSchedule.parse(row["schedule"])
        family = "dense" if s == DENSE else "vector" if s.mma == "none" else "bitmap"
        seconds, case = float(row["microseconds"]) * 1e-6, f"{row['seed']} {row['case']}"
        out.append(Kernel(case, family, seconds, int(row["seed"]), _product(p, s)))
    return tuple(out)

"""Suite ``stencil``: the eight shapes of the papers in one, two and three dimensions, and what they must reach.

Its parts are measured one at a time, each complete in itself: what a row is compared with is measured in the same part.

==========  =========================================================================================================
targets     each shape at its size, periodic, f64, against figures for an H200; Box-2D9P on tensor cores alone
boundaries  frozen, dirichlet and neumann against periodic
odd         sizes that nothing divides against those of ``targets``
f32         f32 against f64
single      one step a launch against a copy
wide        a star of 25 points on three axes in f32, one step a pass: of order 8, as waves have it
sweep       sizes from what fits in L1 to what fills the memory, for the picture
==========  =========================================================================================================

Weights are random, positive, asymmetric, with the sum 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from sparsegen.bench.stencil_run import COPIES, Case, Share
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir.errors import ScheduleError


@dataclass(frozen=True)
class Form:
    """A shape: the extents of its weights, whether only those on an axis count, GS/s at least and hoped for."""

    name: str
    edges: tuple[int, ...]
    star: bool
    least: float
    aim: float


FORMS: Final = (
    Form("Heat-1D", (3,), True, 4500, 6000),
    Form("1D5P", (5,), True, 2250, 3000),
    Form("Heat-2D", (3, 3), True, 1250, 1800),
    Form("Box-2D9P", (3, 3), False, 870, 1250),
    Form("Star-2D13P", (7, 7), True, 445, 620),
    Form("Box-2D49P", (7, 7), False, 220, 290),
    Form("Heat-3D", (3, 3, 3), True, 545, 750),
    Form("Box-3D27P", (3, 3, 3), False, 260, 380),
)
#: The star of part ``wide``, its size, type, and what its floor calls it.
WIDE: Final = Form("Star-3D25P", (9, 9, 9), True, 410, 480)
WIDE_SHAPE, WIDE_TYPE, WIDE_FLOOR = (512, 512, 512), "f32", "so8_star25 f32"
#: GS/s of Box-2D9P on tensor cores alone, and the program whose floor it has.
TENSOR: Final = ("Box-2D9P", 780.0, "stencil_tc_floor")
SIZES: Final[dict[int, tuple[int, ...]]] = {1: (102_400_000,), 2: (10240, 10240), 3: (768, 768, 768)}
ODD: Final[dict[int, tuple[int, ...]]] = {1: (102_400_007,), 2: (10007, 9999), 3: (761, 767, 769)}
#: Time steps of a call, divisible by the usual numbers of steps a pass; and of the check, which is not.
STEPS: Final = {1: 96, 2: 120, 3: 48}
CHECK: Final = 100
BORDERS: Final = (frozen, dirichlet(0.5), neumann)
#: Share of the row compared with: a border, an odd size, f32 instead of f64, one step a launch instead of a copy.
BORDER, ODD_SIZE, F32, SINGLE = 0.85, 0.9, 1.7, 0.9
#: Powers of two that an axis has in the sweep: the exponents from, below, and the step.
SWEEP: Final = {"Heat-1D": (14, 29, 2), "Heat-2D": (8, 15, 1), "Box-2D9P": (8, 15, 1), "Heat-3D": (5, 11, 1)}


@cache
def stencil(name: str, boundary: BoundarySpec = periodic, dtype: str = "f64") -> Stencil:
    """One of FORMS, or WIDE, with its weights."""
    forms = (*FORMS, WIDE)
    at = [form.name for form in forms].index(name)
    form = forms[at]
    w = np.random.default_rng(at).random(form.edges) + 0.1
    if form.star:
        off = [np.arange(extent) != extent // 2 for extent in form.edges]
        w[np.sum(np.meshgrid(*off, indexing="ij"), axis=0) > 1] = 0.0
    c_name = f"stencil_{name}".replace("-", "_").lower()
    return Stencil.from_weights(w / w.sum(), boundary, c_name, dtype)


def case(form: Form, part: str, shape: tuple[int, ...] | None = None, dtype: str = "f64") -> Case:
    """A shape, periodic, at its size unless another is given, as the cost model would run it."""
    ndim = len(form.edges)
    plain = stencil(form.name, dtype=dtype)
    return Case(
        form.name, plain, shape or SIZES[ndim], STEPS[ndim], "auto", check=CHECK, part=part, rests=part != "sweep"
    )


def tensor_schedule(of: Case) -> str:
    """The cheapest schedule that multiplies on tensor cores, by the cost model; ScheduleError if there is none."""
    import sparsegen as sg
    from sparsegen.cost.total import total_time

    costs = sg.schedules(of.stencil, of.shape, of.steps)
    lines = {str(cost.schedule): total_time(cost, of.steps) for cost in costs}
    tensor = [line for line in lines if "mma=" in line and "mma=none" not in line]
    if not tensor:
        raise ScheduleError(f"no schedule runs {of.stencil.name} on tensor cores here", hint="leave out part targets")
    return min(tensor, key=lines.__getitem__)


def _targets() -> list[Case]:
    cases = [replace(case(f, "targets"), target=f.least, aim=f.aim, floor=f.name) for f in FORMS]
    name, least, program = TENSOR
    (plain,) = (c for c in cases if c.name == name)
    schedule = tensor_schedule(plain)
    tensor = replace(plain, name=f"{name}, tensor cores", schedule=schedule, target=least, aim=None)
    return [*cases, replace(tensor, floor=f"{program}:{name}")]


def _compared(part: str, share: float, name: str, others: Callable[[Form], list[Case]]) -> list[Case]:
    """Each shape as it is (called ``name``, or as its size), and others that must reach a share of its rate."""
    cases = []
    for form in FORMS:
        plain = case(form, part)
        than = Share(share, name or "×".join(map(str, plain.shape)), (plain,))
        cases += [plain, *(replace(other, share=than) for other in others(form))]
    return cases


def _bordered(form: Form) -> list[Case]:
    return [replace(case(form, "boundaries"), stencil=stencil(form.name, border)) for border in BORDERS]


def _single() -> list[Case]:
    copies = {
        ndim: tuple(
            Case("copy", Stencil.from_weights(np.ones((1,) * ndim)), shape, 1, how, part="single") for how in COPIES
        )
        for ndim, shape in SIZES.items()
    }
    cases = [each for pair in copies.values() for each in pair]
    for form in FORMS:
        share = Share(SINGLE, "copy", copies[len(form.edges)])
        cases.append(replace(case(form, "single"), steps=1, share=share))
    return cases


def _wide() -> list[Case]:
    plain = Case(WIDE.name, stencil(WIDE.name, dtype=WIDE_TYPE), WIDE_SHAPE, STEPS[3], "auto", check=CHECK, part="wide")
    return [replace(plain, target=WIDE.least, aim=WIDE.aim, floor=WIDE_FLOOR)]


def _sweep() -> list[Case]:
    return [
        case(form, "sweep", (2**n,) * len(form.edges))
        for form in FORMS
        if form.name in SWEEP
        for n in range(*SWEEP[form.name])
    ]


_CASES: Final[dict[str, Callable[[], list[Case]]]] = {
    "targets": _targets,
    "boundaries": lambda: _compared("boundaries", BORDER, "periodic", _bordered),
    "odd": lambda: _compared("odd", ODD_SIZE, "", lambda form: [case(form, "odd", ODD[len(form.edges)])]),
    "f32": lambda: _compared("f32", F32, "f64", lambda form: [case(form, "f32", dtype="f32")]),
    "single": _single,
    "wide": _wide,
    "sweep": _sweep,
}


#: What is measured one at a time.
PARTS: Final = tuple(_CASES)


def cases(parts: Sequence[str] = PARTS) -> list[Case]:
    """The cases of some parts; what a case is compared with stands before it."""
    return [each for part in parts for each in _CASES[part]()]

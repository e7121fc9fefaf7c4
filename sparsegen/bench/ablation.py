"""Suite ``ablation``: ConvStencil's, five forms of one product, each with one thing more than the one before.

The paper's figure is for Heat-1D, Box-2D9P and Box-3D27P on an A100; each is a part here, with three time steps fused,
which makes an edge of 7.  The gain of a form over the one before it is measured on a GPU, or predicted for a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sparsegen.bench.cells import Cells, Result
from sparsegen.bench.stencil_run import Case
from sparsegen.bench.stencils import SIZES, stencil
from sparsegen.cost.stencil import cost
from sparsegen.footprint import Footprint
from sparsegen.problems.stencil import grid
from sparsegen.schedule import StencilSchedule

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

#: The stencils of the paper's figure by their axes, and the gains of its forms but the first.
CASES: Final = {1: "Heat-1D", 2: "Box-2D9P", 3: "Box-3D27P"}
GAINS: Final = {1: (0.22, 0.76, 0.01, 0.04), 2: (1.70, 0.68, 0.14, 0.19), 3: (0.67, 0.44, 0.10, 0.13)}
PARTS: Final = tuple(CASES.values())
#: Time steps of a call.
STEPS: Final = 12


@dataclass(frozen=True)
class Form:
    """One bar of the figure, and its schedule."""

    name: str
    schedule: str


_BARE = "stages=1 fuse=3 lut=off dirty=off"
FORMS: Final = (
    Form("explicit stencil2row, CUDA cores", f"stencil2row mma=none {_BARE} pad=off transform=explicit"),
    Form("implicit stencil2row", f"stencil2row mma=none {_BARE} pad=off transform=implicit"),
    Form("+ tensor cores", f"stencil2row mma=f64.m8n8k4 {_BARE} pad=off"),
    Form("+ padding", f"stencil2row mma=f64.m8n8k4 {_BARE} pad=on"),
    Form("+ dirty bits, lookup table", "stencil2row mma=f64.m8n8k4 stages=1 fuse=3 lut=on dirty=on pad=on"),
)


def cases(parts: Sequence[str] = PARTS) -> list[Case]:
    """The five forms of each part's stencil; the name of each case is the form's."""
    sizes = {name: SIZES[axes] for axes, name in CASES.items()}
    return [
        Case(form.name, stencil(part), sizes[part], STEPS, form.schedule, part=part) for part in parts for form in FORMS
    ]


def predicted(part: str, device: DeviceProfile) -> list[float]:
    """GS/s of each form of a part's stencil by the cost model."""
    fp = Footprint.of(stencil(part).gridded)
    return [cost(fp, grid(c.shape), StencilSchedule.parse(c.schedule), device).rate for c in cases([part])]


def gains(rates: Sequence[float | None]) -> list[float | None]:
    """Gain of each form over the one before it, 0.5 for half as fast again; None where a number is missing."""
    return [None, *(b / a - 1 if a and b else None for a, b in pairwise(rates))]


def table(part: str, rates: Sequence[float | None], models: Mapping[str, Sequence[float]]) -> Cells:
    """Cells with their head: the form, measured GS/s and gain (if any was measured), each model's, the paper's gain."""
    columns: list[tuple[str, Sequence[float | None]]] = [("measured", rates)] if any(rates) else []
    columns += models.items()
    head = ["form"] + [cell for name, _ in columns for cell in (f"{name}, GS/s", "gain")] + ["paper (A100)"]
    (axes,) = (axes for axes, name in CASES.items() if name == part)
    rows = [head]
    for at, (form, paper) in enumerate(zip(FORMS, (None, *GAINS[axes]), strict=True)):
        cells = [form.name]
        for _, values in columns:
            cells += [_rate(values[at]), _gain(gains(values)[at])]
        rows.append([*cells, _gain(paper)])
    return rows


def of_result(found: Result, part: str) -> list[float | None]:
    """Measured GS/s of each form of a part's stencil, from a result."""
    by_name = {row["case"]: row["gs_per_s"] for row in found["rows"] if row["part"] == part}
    return [by_name.get(form.name) for form in FORMS]


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _gain(value: float | None) -> str:
    return "" if value is None else f"{value:+.0%}"

"""Suite ``ablation``: ConvStencil's, five forms of one product, each with one thing more than the one before.

The paper's figure is for Heat-1D, Box-2D9P and Box-3D27P on an A100; each is a part here, with three time steps fused,
which makes an edge of 7.  The gain of a form over the one before it is measured on a GPU, or predicted for a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sparsegen.bench.cells import Cells, Result, number
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


_BARE = "stages=1 fuse=3 lut=off dirty=off"
#: The bars of the figure, and their schedules.
FORMS: Final = {
    "explicit stencil2row, CUDA cores": f"stencil2row mma=none {_BARE} pad=off transform=explicit",
    "implicit stencil2row": f"stencil2row mma=none {_BARE} pad=off transform=implicit",
    "+ tensor cores": f"stencil2row mma=f64.m8n8k4 {_BARE} pad=off",
    "+ padding": f"stencil2row mma=f64.m8n8k4 {_BARE} pad=on",
    "+ dirty bits, lookup table": "stencil2row mma=f64.m8n8k4 stages=1 fuse=3 lut=on dirty=on pad=on",
}


def cases(parts: Sequence[str] = PARTS) -> list[Case]:
    """The five forms of each part's stencil; the name of each case is the form's."""
    return [
        Case(name, stencil(part), SIZES[stencil(part).ndim], STEPS, schedule, part=part)
        for part in parts
        for name, schedule in FORMS.items()
    ]


def predicted(part: str, device: DeviceProfile) -> list[float]:
    """GS/s of each form of a part's stencil by the cost model."""
    fp = Footprint.of(stencil(part).gridded)
    return [cost(fp, grid(c.shape), StencilSchedule.parse(c.schedule), device).rate for c in cases([part])]


def table(part: str, rates: Sequence[float | None], models: Mapping[str, Sequence[float]]) -> Cells:
    """Cells with their head: the form, measured GS/s and gain (if any was measured), each model's, the paper's gain.

    A gain is over the form before, 50 % for half as fast again.
    """
    columns = [["form", *FORMS]]
    for name, values in {**({"measured": rates} if any(rates) else {}), **models}.items():
        gains = ["", *(f"{b / a - 1:+.0%}" if a and b else "" for a, b in pairwise(values))]
        columns += [[f"{name}, GS/s", *(number(value, ".0f") for value in values)], ["gain", *gains]]
    columns.append(["paper (A100)", "", *(f"{gain:+.0%}" for gain in GAINS[stencil(part).ndim])])
    return [list(cells) for cells in zip(*columns, strict=True)]


def of_result(found: Result, part: str) -> list[float | None]:
    """Measured GS/s of each form of a part's stencil, from a result."""
    by_name = {row["case"]: row["gs_per_s"] for row in found["rows"] if row["part"] == part}
    return [by_name.get(name) for name in FORMS]

"""ConvStencil's ablation: five forms of one product, each with one thing more than the one before.

The paper's figure is for Box-2D9P with three fused steps on an A100; the gain of each form over the one before it is
measured here on a GPU, or predicted by the cost model for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sparsegen.bench.harness import SECONDS, Case, Row
from sparsegen.bench.harness import run as measure

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

NAME, SHAPE, STEPS = "Box-2D9P", (10240, 10240), 12


@dataclass(frozen=True)
class Form:
    """One bar of the figure: its schedule, and the paper's gain over the form before (A100)."""

    name: str
    schedule: str
    paper: float | None


#: The stencils of the paper's figure by their axes, and the gains of its forms but the first.
CASES = {1: "Heat-1D", 2: "Box-2D9P", 3: "Box-3D27P"}
GAINS = {1: (0.22, 0.76, 0.01, 0.04), 2: (1.70, 0.68, 0.14, 0.19), 3: (0.67, 0.44, 0.10, 0.13)}
_BARE = "stages=1 fuse=3 lut=off dirty=off"
FORMS = (
    Form("explicit stencil2row, CUDA cores", f"stencil2row mma=none {_BARE} pad=off transform=explicit", None),
    Form("implicit stencil2row", f"stencil2row mma=none {_BARE} pad=off transform=implicit", GAINS[2][0]),
    Form("+ tensor cores", f"stencil2row mma=f64.m8n8k4 {_BARE} pad=off", GAINS[2][1]),
    Form("+ padding", f"stencil2row mma=f64.m8n8k4 {_BARE} pad=on", GAINS[2][2]),
    Form(
        "+ dirty bits, lookup table", "stencil2row mma=f64.m8n8k4 stages=1 fuse=3 lut=on dirty=on pad=on", GAINS[2][3]
    ),
)


def cases() -> list[Case]:
    """The five forms; the name of each case is the form's."""
    from sparsegen.bench.suites import stencil

    return [Case(form.name, stencil(NAME), SHAPE, STEPS, form.schedule) for form in FORMS]


def run(
    seconds: float = SECONDS, cold: bool = False, seed: int = 0, say: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """The forms, measured."""
    return measure(cases(), seconds, cold, seed, say)


def predicted(device: DeviceProfile) -> list[float]:
    """GS/s of each form by the cost model."""
    from sparsegen.bench.suites import stencil
    from sparsegen.cost.stencil import cost
    from sparsegen.footprint import Footprint
    from sparsegen.schedule import Schedule

    st = stencil(NAME)
    return [cost(Footprint.of(st), SHAPE, Schedule.parse(form.schedule), device).rate for form in FORMS]


def gains(rates: Sequence[float | None]) -> list[float | None]:
    """Gain of each form over the one before it, 0.5 for half as fast again; None where a number is missing."""
    return [None, *(b / a - 1 if a and b else None for a, b in pairwise(rates))]


def table(rates: Sequence[float | None], models: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """Cells with their head: the form, measured GS/s and gain (if any was measured), each model's, the paper's gain."""
    columns: list[tuple[str, Sequence[float | None]]] = [("measured", rates)] if any(rates) else []
    columns += models.items()
    head = ["form"] + [cell for name, _ in columns for cell in (f"{name}, GS/s", "gain")] + ["paper (A100)"]
    rows = [head]
    for at, form in enumerate(FORMS):
        cells = [form.name]
        for _, values in columns:
            cells += [_rate(values[at]), _gain(gains(values)[at])]
        rows.append([*cells, _gain(form.paper)])
    return rows


def of_rows(rows: Sequence[dict[str, Any]]) -> list[float | None]:
    """Measured GS/s of each form from a result's rows."""
    by_name = {row["case"]: row["gs_per_s"] for row in rows}
    return [by_name.get(form.name) for form in FORMS]


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _gain(value: float | None) -> str:
    return "" if value is None else f"{value:+.0%}"

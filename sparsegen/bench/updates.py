"""Suite ``updates``: general updates in two and three dimensions, and what they must reach.

==========  =========================================================================================================
targets     waves, reactions and flows, periodic, against figures for an H200 and the floors written by hand
boundaries  frozen, dirichlet and neumann against periodic
odd         sizes that nothing divides against those of ``targets``
onchip      small fields that stay in registers for all steps of a call
sites       waves with a source and receivers against the same without
==========  =========================================================================================================

Systems of several fields must reach a multiple of what they do with one time step a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import sparsegen as sg
from sparsegen.bench import onchip, sites
from sparsegen.bench.stencil_run import Case, Share
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.update import Update

PARTS: Final = ("targets", "boundaries", "odd", "onchip", "sites")
BORDERS: Final = (frozen, dirichlet(0.5), neumann)
#: Share of the row compared with: a border, an odd size; several steps a pass over one.
BORDER, ODD_SIZE, LEVELS = 0.85, 0.9, 2.5
#: Cells that are taken off each axis for an odd size.
OFF: Final = (1, 3, 5)
#: Weights of the second derivative of order 8 on an axis, from the cell outwards (B. Fornberg, 1988).
SECOND: Final = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)


def _spread(w: Any) -> Any:
    return w[-1, 0] + w[1, 0] + w[0, -1] + w[0, 1] - 4 * w[0, 0]


def _across(w: Any) -> Any:
    return 0.5 * (w[0, 1] - w[0, -1])


def _down(w: Any) -> Any:
    return 0.5 * (w[1, 0] - w[-1, 0])


def wave(u: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
    """The wave equation with a speed that varies: two levels and a coefficient."""
    now: Any = u
    return 2 * now[0, 0] - now.prev[0, 0] + c[0, 0] * _spread(now)


def gray_scott(u: sg.Field, v: sg.Field) -> Any:
    """Two substances that react and spread (Pearson, 1993)."""
    reaction = u[0, 0] * v[0, 0] ** 2
    return (
        u[0, 0] + 0.16 * _spread(u) - reaction + 0.035 * (1 - u[0, 0]),
        v[0, 0] + 0.08 * _spread(v) + reaction - 0.1 * v[0, 0],
    )


def acoustic(u: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
    """Sound in a medium that varies, of order 8 in space: a star of 25 points, two levels and a coefficient."""
    now: Any = u
    total = 3 * SECOND[0] * now[0, 0, 0]
    for k, weight in enumerate(SECOND[1:], 1):
        far = ((0, 0, k), (0, 0, -k), (0, k, 0), (0, -k, 0), (k, 0, 0), (-k, 0, 0))
        total = total + weight * sum(now[at] for at in far)
    return 2 * now[0, 0, 0] - now.prev[0, 0, 0] + c[0, 0, 0] * total


def fitzhugh_nagumo(u: sg.Field, w: sg.Field) -> Any:
    """Pulses in nerves: a field that spreads and one that does not (FitzHugh, 1961)."""
    return (
        u[0, 0] + 0.2 * _spread(u) + 0.02 * (u[0, 0] * (1 - u[0, 0]) * (u[0, 0] - 0.1) - w[0, 0]),
        w[0, 0] + 0.001 * (u[0, 0] - 0.5 * w[0, 0]),
    )


def shallow_water(h: sg.Field, a: sg.Field, b: sg.Field) -> Any:
    """Height and two speeds of shallow water, smoothed."""
    flow = (h[0, 0] + 1) * (_across(a) + _down(b)) + a[0, 0] * _across(h) + b[0, 0] * _down(h)
    return (
        h[0, 0] - 0.05 * flow + 0.05 * _spread(h),
        a[0, 0] - 0.05 * (a[0, 0] * _across(a) + b[0, 0] * _down(a) + _across(h)) + 0.05 * _spread(a),
        b[0, 0] - 0.05 * (a[0, 0] * _across(b) + b[0, 0] * _down(b) + _down(h)) + 0.05 * _spread(b),
    )


def magnetic(u: sg.Field, v: sg.Field, p: sg.Field, q: sg.Field) -> Any:
    """Two speeds and two parts of a magnetic field that carry each other."""

    def carried(w: Any, by: Any) -> Any:
        moved = u[0, 0] * _across(w) + v[0, 0] * _down(w)
        return w[0, 0] - 0.02 * (moved - p[0, 0] * _across(by) - q[0, 0] * _down(by)) + 0.05 * _spread(w)

    return carried(u, p), carried(v, q), carried(p, u), carried(q, v)


def life(u: sg.Field) -> Any:
    """Conway's Game of Life on cells of 0 and 1."""
    cells: Any = u
    around = sum(cells[dy, dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0))
    return sg.where((around == 3) | ((around == 2) & (cells[0, 0] == 1)), 1, 0)


@dataclass(frozen=True)
class Form:
    """An update at its size: GS/s at least and hoped for on an H200, and what its floor calls it."""

    name: str
    formula: Callable[..., Any]
    dtype: str
    shape: tuple[int, ...]
    least: float | None = None
    aim: float | None = None
    floor: str = ""
    #: Must reach LEVELS times what it does with one step a pass.
    levelled: bool = False


FORMS: Final = (
    Form("wave", wave, "f64", (8192, 8192), 635, 850, "wave2d f64"),
    Form("Gray-Scott", gray_scott, "f32", (8192, 8192), 1150, 1500, "gray_scott f32"),
    Form("acoustic, order 8", acoustic, "f32", (512, 512, 512), 240, 255, "so8_wave f32"),
    Form("FitzHugh-Nagumo", fitzhugh_nagumo, "f64", (4096, 4096), levelled=True),
    Form("shallow water", shallow_water, "f64", (4096, 4096), levelled=True),
    Form("magnetic field", magnetic, "f32", (4096, 4096), levelled=True),
    Form("Life", life, "f32", (4096, 4096)),
)
#: Those that are measured with borders and at odd sizes.
_BORDERED: Final = FORMS[:3]
#: Time steps of a call: passes of usual lengths divide them; and of one whose field stays on chip with its sites.
STEPS: Final = {2: 120, 3: 24}
ON_CHIP: Final = 300


@cache
def update(name: str, boundary: BoundarySpec = periodic, dtype: str | None = None) -> Update:
    """One of FORMS, perhaps in another type."""
    form = next(form for form in FORMS if form.name == name)
    made = sg.stencil(dtype=dtype or form.dtype, boundary=boundary)(form.formula)
    assert isinstance(made, Update)
    return made


def case(form: Form, part: str, shape: tuple[int, ...] | None = None) -> Case:
    """An update, periodic, at its size unless another is given, as the cost model would run it."""
    return Case(form.name, update(form.name), shape or form.shape, STEPS[len(form.shape)], "auto", part=part)


def one_step(of: Case) -> Case:
    """The case with one time step a pass, by the cheapest such schedule."""
    found = sg.schedules(of.stencil, of.shape, 1)
    return replace(of, name=f"{of.name}, a step a pass", schedule=str(found[0].schedule))


def _targets() -> list[Case]:
    cases = list[Case]()
    for form in FORMS:
        plain = case(form, "targets")
        if form.levelled:
            single = one_step(plain)
            cases += [single, replace(plain, share=Share(LEVELS, "a step a pass", (single,)))]
        else:
            cases.append(replace(plain, target=form.least, aim=form.aim, floor=form.floor))
    return cases


def _boundaries() -> list[Case]:
    cases = list[Case]()
    for form in _BORDERED:
        plain = case(form, "boundaries")
        than = Share(BORDER, "periodic", (plain,))
        others = (replace(plain, stencil=update(form.name, border), share=than) for border in BORDERS)
        cases += [plain, *others]
    return cases


def _odd() -> list[Case]:
    cases = list[Case]()
    for form in _BORDERED:
        plain = case(form, "odd")
        odd = case(form, "odd", tuple(n - off for n, off in zip(form.shape, OFF, strict=False)))
        cases += [plain, replace(odd, share=Share(ODD_SIZE, "×".join(map(str, form.shape)), (plain,)))]
    return cases


def _sites() -> list[Case]:
    of = {form.name: case(form, "sites") for form in _BORDERED}
    wave, volume = of["wave"], of["acoustic, order 8"]
    single = update("wave", dtype="f32")
    small = replace(wave, stencil=single, shape=(1024, 1024), steps=ON_CHIP, schedule="resident")
    return [
        volume, *(sites.surveyed(volume, (1, edge, edge), sites.LARGE) for edge in (32, 256)),
        wave, *(sites.surveyed(wave, counts, sites.LARGE) for counts in ((1, 1000), (4, 2000))),
        small, sites.surveyed(small, (1, 200), sites.ON_CHIP),
    ]  # fmt: skip


def cases(parts: Sequence[str]) -> list[Case]:
    """The cases of some parts, in the order of PARTS."""
    made = {"targets": _targets, "boundaries": _boundaries, "odd": _odd, "onchip": onchip.cases, "sites": _sites}
    return [one for part in PARTS if part in parts for one in made[part]()]

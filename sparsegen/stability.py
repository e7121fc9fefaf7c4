"""Whether a linear scheme is stable, by von Neumann: how much a wave grows in a time step, at most.

Source: J. G. Charney, R. Fjortoft, J. von Neumann, Tellus 2 (1950).  On a periodic grid a linear scheme with constant
coefficients multiplies each wave ``exp(i (theta . cell))`` by a number, or with several fields and time levels by a
matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparsegen.adjoint.linear import Linear
from sparsegen.backends.reference.update import MEANING
from sparsegen.callsite import located, user_loc
from sparsegen.dsl.show import read_text
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import STEP, Update
from sparsegen.ir import formula
from sparsegen.ir.errors import StencilError

Matrices = npt.NDArray[np.complex128]
Angles = npt.NDArray[np.float64]

#: Wave numbers along each axis that are tried first, by the number of axes.
_TRIED: Final = {1: 512, 2: 64, 3: 20}
#: Of these, so many are looked at more closely.
_REFINED: Final = 16
#: Half of those that a rough look takes, and the corners of coefficients that it takes at most.
_ROUGH: Final = 6
_CORNERS: Final = 64
#: How much above 1 a growth is taken for a rounding: of a number, and of a root of a matrix, where double roots lose
#: half of the digits.
_SLACK: Final = {True: 1e-12, False: 1e-6}
#: The farthest time step that is tried, and the halvings between one that is stable and twice that.
_FAR, _HALVED = 2.0**40, 30


@dataclass(frozen=True)
class Stability:
    """What :func:`growth` finds.

    ``factor``: by what the wave that grows most is multiplied in a time step; ``wave``: its wave number on each axis,
    in radians a cell (pi alternates from cell to cell); ``coefs``: the coefficients' values with which it does.
    ``limit``: where the scheme has a scalar ``dt`` and none was given, the largest one that is stable; all else is then
    of that one.  It is infinite where every one is stable, 0 where none is.
    """

    factor: float
    wave: tuple[float, ...]
    coefs: Mapping[str, float]
    stable: bool
    limit: float | None = None

    def __str__(self) -> str:
        wave = ", ".join(f"{angle / np.pi:.3g} pi" for angle in self.wave)
        where = "".join(f", {name} = {value:.6g}" for name, value in self.coefs.items())
        limit = "" if self.limit is None else f"; stable for dt up to {self.limit:.8g}"
        verdict = "stable" if self.stable else "unstable"
        return f"{verdict}: growth {self.factor:.8g} a time step at ({wave}){where}{limit}"

    def __repr__(self) -> str:
        return f"<Stability {self}>"


def growth(scheme: Stencil | Update, /, **coefs: Any) -> Stability:
    """The growth of errors in a time step of a linear scheme: the largest spectral radius over all wave numbers.

    Each coefficient and scalar is a number or an array, of which the least and the largest value are tried: what varies
    is taken for constant around every cell, and so are masks, inside and outside of which is tried where they are not
    given.  Boundaries are taken for periodic.  Constant terms, such as sources, do
    not count.  ``stable``: no wave is multiplied by more than 1 but for roundings (1e-12, or 1e-6 where several fields
    or time levels make a matrix); one that grows with a power of the number of steps, as at the very limit of leapfrog,
    counts as stable.  Growth that the equation itself has counts as well.  Where the scheme has a scalar ``dt`` and
    none is given, the largest stable one is looked for, to nine digits.

    Wave numbers are tried on a grid, and around its best to all digits.  StencilError for formulas that are not linear
    in the fields, and for coefficients that are missing or none.
    """
    with located(user_loc()):
        if not isinstance(scheme, (Stencil, Update)):
            raise StencilError(f"{scheme} makes no time steps", hint="give a stencil or an update, or a kernel of one")
        linear = Linear.of(scheme)
        if STEP in coefs or STEP not in [parameter.name for parameter in linear.given if parameter.number]:
            return _worst(linear, coefs)
        limit = _limit(lambda dt: _worst(linear, {**coefs, STEP: dt}).stable)
        at = limit if 0 < limit < math.inf else 1.0
        return replace(_worst(linear, {**coefs, STEP: at}), limit=limit)


def rough(scheme: Linear, coefs: Mapping[str, Any]) -> float:
    """The growth as :func:`growth` has it, of a few wave numbers only: in milliseconds, and hardly ever too small.

    StencilError as there, and for more than 64 corners of coefficients.
    """
    corners = list(_corners(scheme, coefs))
    if len(corners) > _CORNERS:
        raise StencilError(f"{scheme.name} has {len(corners)} corners of coefficients", hint="call sg.growth")
    largest = 1.0
    for values in corners:
        symbol = _Symbol(scheme, values)
        line = np.linspace(-np.pi, np.pi, 2 * max(_ROUGH, 2 * symbol.reach) + 1)
        largest = max(largest, float(symbol.radius(_points(*[line] * symbol.ndim)).max()))
    return largest


def _worst(scheme: Linear, coefs: Mapping[str, Any]) -> Stability:
    """The growth with the coefficients of which it is the largest."""
    slack = _SLACK[sum(levels for _, levels in scheme.fields) == 1]
    found: list[Stability] = []
    for values in _corners(scheme, coefs):
        factor, wave = _largest(_Symbol(scheme, values))
        found.append(Stability(factor, wave, values, factor <= 1 + slack))
    return max(found, key=lambda one: one.factor)


def _limit(stable: Callable[[float], bool]) -> float:
    """The largest time step that is stable, as all smaller ones are: 0 or infinite where none or all are."""
    high = 1.0
    while stable(high):
        if (high := 2 * high) > _FAR:
            return math.inf
    low = high / 2
    while not stable(low):
        high, low = low, low / 2
        if low < 1 / _FAR:
            return 0.0
    for _ in range(_HALVED):
        middle = (low + high) / 2
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def _corners(scheme: Linear, coefs: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """The coefficients' and scalars' least and largest values, in all ways."""
    names, needed = [p.name for p in scheme.given], {p.name: p.mask for p in scheme.needs}
    if wrong := [name for name in coefs if name not in names]:
        raise StencilError(
            f"{scheme.name} has no coefficient {wrong[0]}", hint=f"it has these: {', '.join(names) or 'none'}"
        )
    ends: list[tuple[float, ...]] = []
    names = [name for name in names if name in needed or name in coefs]
    for name in names:
        if name not in coefs and needed[name]:
            ends.append((0.0, 1.0))
            continue
        if name not in coefs:
            raise StencilError(
                f"the growth of {scheme.name} depends on {name}",
                hint=f"give its value, or the array: stability({', '.join(f'{n}=...' for n in names)})",
            )
        try:
            values = np.asarray(coefs[name], float)
        except (TypeError, ValueError):
            values = np.array(np.nan)
        if not values.size or not np.isfinite(values).all():
            raise StencilError(f"the coefficient {name} is no array of finite numbers", hint="give numbers")
        ends.append(tuple(dict.fromkeys((float(values.min()), float(values.max())))))
    return (dict(zip(names, values, strict=True)) for values in product(*ends))


class _Symbol:
    """The matrix that a step multiplies a wave by, for any wave numbers."""

    def __init__(self, scheme: Linear, coefs: Mapping[str, float]) -> None:
        self.ndim = len(scheme.sides[0])
        rows = [(name, level) for name, levels in scheme.fields for level in range(levels)]
        self.size = len(rows)
        values = _values(scheme.code, coefs)
        new = {name: row for (name, _), row in zip(scheme.fields, scheme.rows, strict=True)}
        self.entries: list[tuple[int, int, npt.NDArray[np.float64], float]] = []
        for row, (name, level) in enumerate(rows):
            factors = {read: values[place] for read, place in new[name].items()}
            if level:  # what was one level newer
                factors = {(name, level - 1, (0,) * self.ndim): 1.0}
            for (read, at, offset), factor in factors.items():
                if not np.isfinite(factor):
                    what = f"{scheme.name} multiplies {read_text(read, at, offset)} by {factor}"
                    raise StencilError(what, hint="give other values of its coefficients")
                self.entries.append((row, rows.index((read, at)), np.array(offset, float), factor))

    @property
    def reach(self) -> int:
        """The farthest offset along an axis."""
        return max((int(np.abs(offset).max()) for _, _, offset, _ in self.entries), default=0)

    def __call__(self, waves: Angles) -> Matrices:
        """The matrices of the wave numbers [count, axes]."""
        found = np.zeros((len(waves), self.size, self.size), complex)
        for row, column, offset, factor in self.entries:
            found[:, row, column] += factor * np.exp(1j * (waves @ offset))
        return found

    def radius(self, waves: Angles) -> npt.NDArray[np.float64]:
        """The spectral radius at each wave number."""
        matrices = self(waves)
        if self.size == 1:
            return np.abs(matrices[:, 0, 0])
        largest: npt.NDArray[np.float64] = np.abs(np.linalg.eigvals(matrices)).max(1)
        return largest


def _largest(symbol: _Symbol) -> tuple[float, tuple[float, ...]]:
    """The largest spectral radius, and where it is: on a grid, and by ever smaller steps around its best points."""
    count = max(_TRIED[symbol.ndim], 4 * symbol.reach)  # eight a period of the fastest term
    # Coefficients are real, so the opposite wave grows as much: half of the first axis is enough.
    line = np.linspace(-np.pi, np.pi, 2 * count + 1)
    grid = _points(line[count:], *[line] * (symbol.ndim - 1))
    near = _points(*[np.linspace(-1, 1, 5)] * symbol.ndim)
    radii = symbol.radius(grid)
    best = np.argsort(radii)[-_REFINED:]
    waves, largest, step = grid[best], radii[best], np.pi / count
    while step > 1e-9:
        around = np.clip(waves[:, None] + step * near, -np.pi, np.pi)
        radii = symbol.radius(around.reshape(-1, symbol.ndim)).reshape(len(waves), -1)
        at = np.arange(len(waves)), radii.argmax(1)
        better = radii[at] > largest + 1e-14
        waves[better], largest[better] = around[at][better], radii[at][better]
        step /= 2
    first = largest.argmax()
    wave = np.where(waves[first] == -np.pi, np.pi, waves[first])  # which are the same
    return float(largest[first]), tuple(round(float(angle), 12) + 0.0 for angle in wave)


def _points(*lines: Angles) -> Angles:
    """All points of a grid [count, axes]."""
    return np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(lines))


def _values(code: formula.Code, coefs: Mapping[str, float]) -> list[Any]:
    """Every node of a formula of coefficients and scalars, as a number; NaN where one is not given."""
    found: list[Any] = []
    for node in code:
        if node[0] == "const":
            found.append(node[1])
        elif node[0] in ("read", "scalar"):
            found.append(np.float64(coefs.get(str(node[1]), np.nan)))
        else:
            with np.errstate(all="ignore"):
                found.append(MEANING[str(node[0])](*(found[a] for a in formula.operands(node))))
    return found

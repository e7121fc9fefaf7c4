"""Whether a linear scheme is stable, by von Neumann: how much a wave grows in a time step, at most.

Source: J. G. Charney, R. Fjortoft, J. von Neumann, Tellus 2 (1950).  On a periodic grid a linear scheme with constant
coefficients multiplies each wave ``exp(i (theta . cell))`` by a number, or with several fields and time levels by a
matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, NoReturn, cast

import numpy as np
import numpy.typing as npt

from sparsegen.backends.reference.update import MEANING
from sparsegen.boundary import periodic, resolve
from sparsegen.callsite import located, user_loc
from sparsegen.dsl.show import text
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import Update
from sparsegen.ir import formula
from sparsegen.ir.errors import StencilError

Matrices = npt.NDArray[np.complex128]
Angles = npt.NDArray[np.float64]

#: Wave numbers along each axis that are tried first, by the number of axes.
_TRIED: Final = {1: 512, 2: 64, 3: 20}
#: Of these, so many are looked at more closely.
_REFINED: Final = 16
#: How much above 1 a growth is taken for a rounding: of a number, and of a root of a matrix, where double roots lose
#: half of the digits.
_SLACK: Final = {True: 1e-12, False: 1e-6}
#: A value of the formula: a number, and the factor of each read of a field that it is the sum of.
_Linear = tuple[Any, dict[formula.Read, float]]


@dataclass(frozen=True)
class Stability:
    """What :func:`growth` finds.

    ``factor``: by what the wave that grows most is multiplied in a time step; ``wave``: its wave number on each axis,
    in radians a cell (pi alternates from cell to cell); ``coefs``: the coefficients' values with which it does.
    """

    factor: float
    wave: tuple[float, ...]
    coefs: Mapping[str, float]
    stable: bool

    def __str__(self) -> str:
        wave = ", ".join(f"{angle / np.pi:.3g} pi" for angle in self.wave)
        where = "".join(f", {name} = {value:.6g}" for name, value in self.coefs.items())
        return f"{'stable' if self.stable else 'unstable'}: growth {self.factor:.8g} a time step at ({wave}){where}"

    def __repr__(self) -> str:
        return f"<Stability {self}>"


def growth(scheme: Stencil | Update, /, **coefs: Any) -> Stability:
    """The growth of errors in a time step of a linear scheme: the largest spectral radius over all wave numbers.

    Each coefficient and scalar is a number or an array, of which the least and the largest value are tried: what varies
    is taken for constant around every cell.  Boundaries are taken for periodic.  Constant terms, such as sources, do
    not count.  ``stable``: no wave is multiplied by more than 1 but for roundings (1e-12, or 1e-6 where several fields
    or time levels make a matrix); one that grows with a power of the number of steps, as at the very limit of leapfrog,
    counts as stable.  Growth that the equation itself has counts as well.

    Wave numbers are tried on a grid, and around its best to all digits.  StencilError for formulas that are not linear
    in the fields, and for coefficients that are missing or none.
    """
    with located(user_loc()):
        if isinstance(scheme, Stencil):
            update: Update = replace(scheme, sides=resolve(periodic, scheme.ndim, None)).as_update()
        elif isinstance(scheme, Update):
            update = scheme
        else:
            raise StencilError(f"{scheme} makes no time steps", hint="give a stencil or an update, or a kernel of one")
        slack = _SLACK[sum(levels for _, levels in update.fields) == 1]
        found: list[Stability] = []
        for values in _corners(update, coefs):
            factor, wave = _largest(_Symbol(update, values))
            found.append(Stability(factor, wave, values, factor <= 1 + slack))
        return max(found, key=lambda one: one.factor)


def _corners(update: Update, coefs: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """The coefficients' and scalars' least and largest values, in all ways."""
    names = (*update.coefs, *formula.scalars(update.code))
    if wrong := [name for name in coefs if name not in names]:
        raise StencilError(
            f"{update.name} has no coefficient {wrong[0]}", hint=f"it has these: {', '.join(names) or 'none'}"
        )
    ends: list[tuple[float, ...]] = []
    for name in names:
        if name not in coefs:
            raise StencilError(
                f"the growth of {update.name} depends on {name}",
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

    def __init__(self, update: Update, coefs: Mapping[str, float]) -> None:
        self.ndim = update.ndim
        rows = [(name, level) for name, levels in update.fields for level in range(levels)]
        self.size = len(rows)
        values = _linear(update, coefs)
        self.entries: list[tuple[int, int, npt.NDArray[np.float64], float]] = []
        for row, (name, level) in enumerate(rows):
            if level:  # what was one level newer
                factors = {(name, level - 1, (0,) * self.ndim): 1.0}
            else:
                field = [field for field, _ in update.fields].index(name)
                factors = values[update.results[field]][1]
            for (read, at, offset), factor in factors.items():
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


def _linear(update: Update, coefs: Mapping[str, float]) -> list[_Linear]:
    """Every node of the formula as a linear form of reads of fields."""
    found: list[_Linear] = []
    for place, node in enumerate(update.code):
        op, args = str(node[0]), [found[a] for a in formula.operands(node)]
        if op == "read":
            read = formula.read(node)
            found.append((coefs[read[0]], {}) if read[0] in coefs else (0.0, {read: 1.0}))
        elif op in ("const", "scalar"):
            found.append((cast("float", node[1]) if op == "const" else coefs[str(node[1])], {}))
        elif not any(factors for _, factors in args):
            with np.errstate(all="ignore"):
                found.append((MEANING[op](*(number for number, _ in args)), {}))
        elif op in ("add", "sub"):
            found.append(_sum(args[0], args[1], 1.0 if op == "add" else -1.0))
        elif op == "neg":
            found.append(_sum((0.0, {}), args[0], -1.0))
        elif op == "mul" and not (args[0][1] and args[1][1]):
            factor, of = (args[1][0], args[0]) if args[0][1] else (args[0][0], args[1])
            found.append(_sum((0.0, {}), of, factor))
        elif op == "div" and not args[1][1]:
            found.append(_sum((0.0, {}), args[0], 1.0 / args[1][0] if args[1][0] else np.nan))
        elif op == "where" and not args[0][1]:
            found.append(args[1] if args[0][0] else args[2])
        else:
            _refuse(update, place)
    for place in update.results:
        if not all(map(np.isfinite, found[place][1].values())):
            raise StencilError(f"{update.name} has infinite factors with these coefficients", hint="give others")
    return found


def _sum(a: _Linear, b: _Linear, factor: float) -> _Linear:
    """``a + factor * b``."""
    total = dict(a[1])
    for read, number in b[1].items():
        total[read] = total.get(read, 0.0) + factor * number
    return a[0] + factor * b[0], total


def _refuse(update: Update, place: int) -> NoReturn:
    graph = formula.Graph()
    for node in update.code:
        graph.add(*node)
    raise StencilError(
        f"{update.name} is not linear: {text(graph, place)}",
        hint="linearise it: write an update of a small change around a constant state, and give growth that one",
    )

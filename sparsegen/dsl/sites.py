"""Sites of an update's fields: sources that every time step adds, and receivers that record every time step."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparsegen.callsite import user_loc
from sparsegen.dsl.differences import spacing_of
from sparsegen.ir.boundary import Sides
from sparsegen.ir.errors import Loc, StencilError
from sparsegen.ir.op_sites import Placed

Points = npt.NDArray[np.float64]
#: A site so near to a cell, in cells, lies on it: coordinates are worked out with a rounding or two.
_ON: Final = 1e-6


class _Site:
    """Points of a field."""

    def __init__(self, points: Any, field: str | None, spacing: Any) -> None:
        loc = user_loc()
        try:
            found: Any = np.array(points, np.float64)
        except (TypeError, ValueError):
            found = np.empty(0)
        if found.ndim != 2 or not len(found) or not 1 <= found.shape[1] <= 3 or not np.isfinite(found).all():
            what = f"points of shape {list(found.shape)}" if found.size else f"points {points!r}"
            raise StencilError(
                f"{type(self).__name__}: {what}", loc=loc,
                hint="pass an array [points, axes] of finite coordinates, in the order of the field's axes",
            )  # fmt: skip
        apart = spacing_of(spacing, type(self).__name__, loc)
        if isinstance(apart, tuple) and len(apart) != found.shape[1]:
            what = f"{len(apart)} numbers for points of {found.shape[1]} coordinates"
            raise StencilError(f"{type(self).__name__}: spacing has {what}", loc=loc, hint="give one for each axis")
        cells = found / np.array(1 if apart is None else apart, np.float64)
        near = np.round(cells)
        self.points: Points = np.where(np.abs(cells - near) <= _ON, near, cells)
        self.points.setflags(write=False)
        self.field = field

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.points)} points{f' of {self.field}' if self.field else ''}>"


class Source(_Site):
    """Points at which every time step adds a number to a field, when it has made its new value.

    ``points`` [n, axes]: coordinates, in the order of the field's axes; the first cell has 0.  They count cells, or are
    lengths with ``spacing``, the distance of cells (a number for each axis, or one for all).  A number goes to the
    2^axes cells around its point by linear interpolation; at a border that wraps to those at the other end.

    ``signal`` [steps, n], or [steps] for all points alike: what each step adds; calls may give another one by the
    source's name, and of a batch one for each item, [items, steps, n].  ``field``: to which field, if there are
    several.  An equation's source term is multiplied with what the time step does to it: ``dt**2 * c**2 * s`` for the
    wave equation.
    """

    def __init__(self, points: Any, signal: Any = None, field: str | None = None, spacing: Any = None) -> None:
        super().__init__(points, field, spacing)
        self.signal = signal


class Receiver(_Site):
    """Points at which every time step records a field, when its sources have been added.

    ``points``, ``field`` and ``spacing`` as of a :class:`Source`.  What is recorded is the value between the cells
    around a point, by linear interpolation: [steps, n] numbers (of each item of a batch), in f32 of fields of 16 bits.
    """

    def __init__(self, points: Any, field: str | None = None, spacing: Any = None) -> None:
        super().__init__(points, field, spacing)


@dataclass(frozen=True, eq=False)
class Sites:
    """A group of sources or receivers of an update: ``points`` [n, axes] are in cells.

    ``pairs``: of a part of a domain, which cells of the part are near which of the sites; ``points`` are the domain's.
    """

    name: str
    field: str
    points: Points
    source: bool
    signal: Any = None
    pairs: Placed | None = None

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Sites) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What it is; signals are a call's."""
        pairs = () if self.pairs is None else tuple(part.tobytes() for part in self.pairs)
        return self.name, self.field, self.source, self.points.shape, self.points.tobytes(), *pairs

    @property
    def turned(self) -> Sites:
        """Receivers where these are sources, and sources where they are receivers."""
        return replace(self, source=not self.source, signal=None)

    def check(self, shape: Sequence[int], sides: Sides, loc: Loc | None) -> None:
        """StencilError for a point outside a domain of ``shape``; a part of a domain has what it has."""
        if self.pairs is not None:
            return
        top = np.array([n if pair[0].kind == "periodic" else n - 1 for n, pair in zip(shape, sides, strict=True)])
        outside = ((self.points < 0) | (self.points > top)).any(1)
        if outside.any():
            first = int(np.flatnonzero(outside)[0])
            raise StencilError(
                f"point {first} of {self.name}, at {self.points[first].tolist()} cells, is outside the domain, which "
                f"ends at {top.tolist()}", loc=loc,
                hint="count cells from 0, in the order of the field's axes; of lengths say spacing=...",
            )  # fmt: skip

    def placed(self, shape: Sequence[int], sides: Sides) -> Placed:
        """The cells around each point, with the weights of linear interpolation; those of no weight are left out."""
        if self.pairs is not None:
            return self.pairs
        low = np.floor(self.points)
        share = self.points - low
        cells, sites, weights = list[Any](), list[Any](), list[Any]()
        for corner in product((0, 1), repeat=len(shape)):
            weight = np.where(corner, share, 1 - share).prod(1)
            there = np.flatnonzero(weight)
            cells.append(low[there].astype(np.int64) + corner)
            sites.append(there)
            weights.append(weight[there])
        at = np.concatenate(cells)
        wraps = [pair[0].kind == "periodic" for pair in sides]
        at = np.where(wraps, at % np.array(shape), at)
        return Placed(at, np.concatenate(sites), np.concatenate(weights))


def resolved(
    groups: Mapping[str, Any], fields: Sequence[str], taken: Sequence[str], ndim: int, loc: Loc | None
) -> tuple[Sites, ...]:
    """The sites that are named so; StencilError for what is none, and for names that are ``taken``."""
    found = list[Sites]()
    for name, group in groups.items():
        if not isinstance(group, (Source, Receiver)):
            raise StencilError(
                f"{name} is {group!r}", loc=loc, hint="pass sg.Source(points, signal) or sg.Receiver(points)"
            )
        if name in taken or keyword.iskeyword(name):
            raise StencilError(f"{name} is a name that is taken", loc=loc, hint="give the sites another name")
        if (field := group.field or fields[0]) not in fields or (group.field is None and len(fields) > 1):
            what = f"of {field}, which is no field" if group.field else "of one of several fields"
            listed = ", ".join(fields)
            raise StencilError(
                f"{name} are sites {what}", loc=loc, hint=f"say which, as in field='{fields[0]}': {listed}"
            )
        if group.points.shape[1] != ndim:
            raise StencilError(
                f"the points of {name} have {group.points.shape[1]} coordinates, the field has {ndim} axes", loc=loc,
                hint="give one for each axis",
            )  # fmt: skip
        signal = group.signal if isinstance(group, Source) else None
        found.append(Sites(name, field, group.points, isinstance(group, Source), signal))
    return tuple(found)

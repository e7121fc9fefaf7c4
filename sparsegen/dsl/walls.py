"""Walls inside a domain: what a field's neighbours are where some of them lie in a region.

A read looks from the cell straight to its offset, in the smallest whole steps.  The first cell of a region on the way
stops it, as the border of a domain would: *neumann* turns it round at the face before that cell, as a mirror there
shows what lies in front of it; with a value, or *dirichlet*, it finds that value; with *frozen* that cell's own.  A
cell inside a region sees itself wherever it looks.

Walks can be walked back: the cell that is found by looking one way finds this one by looking the other way.  So what a
scheme of symmetric coefficients, or of fluxes, conserves in a domain with mirrors it conserves between walls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from math import gcd
from typing import TYPE_CHECKING, Any, NoReturn

from sparsegen.boundary import dirichlet, neumann
from sparsegen.dsl.derivable import Derivable
from sparsegen.dsl.offsets import offset_of, shown
from sparsegen.dsl.operands import Accessor, Condition, Offset, Read, Region
from sparsegen.dsl.refuse import ARITHMETIC, COMPARED, LOGIC, Refused, fault, refusing
from sparsegen.ir.boundary import Side

if TYPE_CHECKING:
    from sparsegen.dsl.operands import Trace


class _Wall:
    """A region, and what a read finds that runs into it."""

    def __init__(self, region: Any, side: Any) -> None:
        if not isinstance(region, (Region, Condition)):
            raise fault(
                f"walled by {shown(region)}, which is no region",
                "give a mask, solid: sg.Mask, or a condition of the cell, as in solid[0, 0] | hot[0, 0]",
            )
        kind = side.kind if isinstance(side, Side) else ""
        if side is dirichlet or kind == "periodic":
            what = f"walls cannot be {kind or 'dirichlet without a value'}"
            raise fault(what, "give sg.neumann, sg.dirichlet(v), sg.frozen, or a value of the formula")
        self.region, self.mirror, self.frozen = region, kind == "neumann", kind == "frozen"
        self.value = side.value if isinstance(side, Side) else side

    def holds(self, offset: Offset) -> Condition:
        """Whether a cell lies in it."""
        if isinstance(self.region, Region):
            return self.region[offset]
        return Condition(self.region.trace, _moved(Read(self.region.trace, self.region.place), offset).place)

    def found(self, offset: Offset) -> Any:
        """The value at a cell in it."""
        return _moved(self.value, offset) if isinstance(self.value, Read) else self.value


class Neighbour(Read):
    """The value of the cell itself that knows what its neighbours are: a derivative asks ``at`` for them."""

    def __init__(self, at: Callable[[Offset], Read], here: Offset) -> None:
        value = at(here)
        super().__init__(value.trace, value.place)
        self.at = at


class Walled(Refused, Derivable):
    """What :meth:`Derivable.walled` gives: it is read as the field, ``w[0, 1]``, and has its derivatives."""

    def __init__(self, of: Accessor | Read, walls: tuple[_Wall, ...]) -> None:
        self._of, self._walls = of, walls
        self._text = f"{of}.walled(...)"

    def walled(self, region: Any, side: Any = None) -> Walled:
        """More walls: of a cell in several regions those named first count."""
        return Walled(self._of, (*self._walls, *walled(self._of, region, side)._walls))

    def __getitem__(self, key: Any) -> Read:
        return self._at(offset_of(self._text, key))

    def _plain(self, offset: Offset) -> Read:
        """The value of a cell, whatever lies between."""
        found: Read = self._of[offset] if isinstance(self._of, Accessor) else _moved(self._of, offset)
        return found

    def _at(self, offset: Offset) -> Read:
        """What is found at an offset."""
        far = gcd(*offset)
        unit = tuple(d // far for d in offset) if far else offset

        def plain(at: int) -> Read:
            return self._plain(tuple(at * d for d in unit))

        def entered(at: int, turned: Callable[[], Read], found: Read) -> Read:
            """What is found on entering a cell: ``found``, if it lies in no region."""
            cell = tuple(at * d for d in unit)
            for wall in reversed(self._walls):
                stopped = turned() if wall.mirror else plain(at) if wall.frozen else wall.found(cell)
                found = _where(wall.holds(cell), stopped, found)
            return found

        # The cells from low to high are known to be free, and the one below or above them, where it is said, a mirror.
        @cache
        def walk(at: int, way: int, left: int, low: int, high: int, below: bool, above: bool) -> Read:
            if left == 0:
                return plain(at)
            to = at + way
            if low <= to <= high:
                return walk(to, way, left - 1, low, high, below, above)
            if below if to < low else above:
                return walk(at, -way, left - 1, low, high, below, above)
            onwards = walk(to, way, left - 1, min(low, to), max(high, to), below and to > high, above and to < low)
            return entered(
                to, lambda: walk(at, -way, left - 1, low, high, below or to < low, above or to > high), onwards
            )

        here = plain(0)
        return entered(0, lambda: here, walk(0, 1, far, 0, 0, False, False))

    def _centre(self) -> Read:
        here = self._of._centre()
        return Neighbour(self._at, (0,) * _axes(here.trace))

    def refuse(self, what: str) -> NoReturn:
        raise fault(f"{self._text} is {what}", "read a cell of it by its offsets, as in w[0, 0], or take its laplace")

    def __str__(self) -> str:
        return self._text


for _name in ARITHMETIC:
    setattr(Walled, f"__{_name}__", refusing("used in arithmetic without offsets"))
for _name, _what in (COMPARED | LOGIC).items():
    setattr(Walled, f"__{_name}__", refusing(_what))


def walled(of: Accessor | Read, region: Any, side: Any) -> Walled:
    """A field or a value between walls; ``side`` None stands for neumann."""
    return Walled(of, (_Wall(region, neumann if side is None else side),))


def _axes(trace: Trace) -> int:
    assert trace.first is not None  # the centre was read
    return len(trace.first[0][2])


def _moved(value: Read, offset: Offset) -> Read:
    moved: Read = import_module("sparsegen.dsl.derivatives").moved(value, offset)
    return moved


def _where(condition: Condition, a: Any, b: Read) -> Read:
    """The choice between two values; none where they are one."""
    place = b.place_of(a, "value of a wall")
    if place == b.place:
        return b
    return Read(b.trace, b.trace.graph.add("where", condition.place, place, b.place))

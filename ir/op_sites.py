"""Sites of fields: sources, where every time step adds numbers, and receivers, where it records.

A site lies between cells: a source's number goes to the cells around it, and a receiver's is made of them, by weights
(of linear interpolation, say).  The module of an update has three tables for each group of sites, one element for each
pair of a site and a cell: ``cells`` [n, axes], ``sites`` [n] (which site), ``weights`` [n].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from .module import Module

#: How roles of arrays begin that have a row for each time step of a call; a pass has the rows of its steps.
TIMED: Final = ("in.steps.", "out.steps.", "workspace.steps.")


def signal(name: str) -> str:
    """What a pass calls the numbers that a group of sources adds, [steps, sites]."""
    return f"{TIMED[0]}{name}"


def record(name: str) -> str:
    """What a pass calls the numbers that a group of receivers records, [steps, sites]."""
    return f"{TIMED[1]}{name}"


def between(name: str) -> str:
    """What a launch of all steps of a call calls the cells that a group of receivers sees, [steps, cells]."""
    return f"{TIMED[2]}{name}"


def apart(role: str) -> str:
    """What a pass of a batch calls the distance of two items, in elements, in an array of such a ``role``."""
    return f"apart.{role}"


class Placed(NamedTuple):
    """Pairs of a site and a cell near it: ``cells`` [n, axes], ``sites`` [n], ``weights`` [n]."""

    cells: npt.NDArray[Any]
    sites: npt.NDArray[Any]
    weights: npt.NDArray[Any]

    def tables(self, symbol: str, name: str) -> dict[str, npt.NDArray[Any]]:
        """The tables of a module for the group ``name`` of the update ``symbol``."""
        return {f"{symbol}.{name}.{part}": table for part, table in self._asdict().items()}


def placed(module: Module, symbol: str, name: str) -> Placed:
    """What a module's tables say of a group of sites."""
    return Placed(*(module.constants[f"{symbol}.{name}.{part}"] for part in Placed._fields))


def without(tables: Mapping[str, Any], symbol: str, name: str) -> dict[str, Any]:
    """The tables of a module but those of a group of sites."""
    gone = {f"{symbol}.{name}.{part}" for part in Placed._fields}
    return {role: table for role, table in tables.items() if role not in gone}

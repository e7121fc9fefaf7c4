"""Families of schedules: a module each, with the functions that :class:`sparsegen.families.base.Family` names.

To add one: its words in :mod:`sparsegen.schedule`, its module here, its passes in :mod:`sparsegen.pipelines`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from sparsegen.schedule import FAMILIES, StencilSchedule

if TYPE_CHECKING:
    from sparsegen.families.base import Family


@cache
def named(name: str) -> Family:
    """The module of a family (a key of FAMILIES)."""
    return cast("Family", import_module(f"sparsegen.families.{name}"))


def family(schedule: StencilSchedule) -> Family:
    """The family of a schedule."""
    return named(schedule.family)


def takers(axes: int) -> str:
    """The families for fields of so many axes, for messages."""
    return ", ".join(name for name in FAMILIES if axes in named(name).AXES)

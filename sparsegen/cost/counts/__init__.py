"""Exact counts of a pass from its schedule alone: instructions, bytes, sectors, bank conflicts, for any size of field.

A module for each family, with one function ``launches(p)``; the names of the counts are those of the emulator
(``Kernel.counts``), and tests hold both to equality.  Nothing here imports the emulator or the warp level: a count is
arithmetic on the schedule's numbers, and on addresses of one warp where requests are made.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sparsegen.cost.counts.base import Launch, Pass

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.schedule import StencilSchedule


def launches(
    stencil: Stencil, shape: tuple[int, ...], schedule: StencilSchedule, device: DeviceProfile
) -> tuple[Launch, ...]:
    """The launches of one pass of a legal schedule on packed fields of ``shape`` (a row has one row), in their order.

    ScheduleError if the schedule cannot run there.
    """
    p = Pass.of(stencil, shape, schedule, device)
    found: tuple[Launch, ...] = import_module(f"{__name__}.{p.schedule.family}").launches(p)
    return found


__all__ = ["Launch", "Pass", "launches"]

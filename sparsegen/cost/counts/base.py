"""What counts are made of: a pass in numbers, a launch with its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparsegen.compiler import check
from sparsegen.cost.stencil import blocks_per_sm, filled
from sparsegen.families.base import Geometry
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.schedule import StencilSchedule


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel's name and its counts, named as the emulator names them; none is zero but conflicts."""

    kernel: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Pass:
    """One pass of a complete schedule over packed fields.

    ``stencil`` and ``shape`` have at least two axes (``Stencil.gridded``); ``resident``: blocks an SM at a time.
    """

    stencil: Stencil
    shape: tuple[int, ...]
    schedule: StencilSchedule
    geometry: Geometry
    footprint: Footprint
    device: DeviceProfile
    resident: int

    @classmethod
    def of(cls, stencil: Stencil, shape: tuple[int, ...], schedule: StencilSchedule, device: DeviceProfile) -> Pass:
        """The numbers of a schedule; ScheduleError if it cannot run the stencil on that shape and device."""
        fp = Footprint.of(stencil)
        s = filled(check(stencil, shape, schedule, device), fp, shape, device)
        g = geometry(s, fp)
        return cls(stencil, shape, s, g, fp, device, blocks_per_sm(s, g, device, fp))


def total(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of counts, name by name."""
    out: Counter[str] = Counter()
    for part in parts:
        out.update(part)
    return dict(out)

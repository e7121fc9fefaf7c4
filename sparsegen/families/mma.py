"""What families on tensor cores share: the word for the shape of mma, which of them a sum takes, and their cycles."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.base import Geometry
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import StencilSchedule, Word, text
from sparsegen.sizes import MMA


def mma_word(default: str, shapes: Iterable[str] = MMA) -> Word:
    """The word for the mma shape."""
    return Word("mma", text, default, choices=tuple(shapes))


def check_mma(
    s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, shapes: Collection[str], otherwise: str
) -> None:
    """ScheduleError for another type than f64, an mma that the family or the device does not have, or one that a tile
    takes and the profile has no cycles for.

    ``shapes``: those of the family, the first that fits is proposed; ``otherwise``: what is proposed if none does.
    """
    if s.mma not in shapes or fp.dtype != "f64":
        raise ScheduleError(
            f"{s.family} multiplies f64 on tensor cores, not {fp.dtype} with mma={s.mma}",
            hint=f"choose among: {', '.join(shapes)}" if fp.dtype == "f64" else otherwise,
        )
    need = MMA[s.mma][3]
    if device.compute_capability < need:
        fits = [shape for shape in shapes if MMA[shape][3] <= device.compute_capability]
        raise ScheduleError(
            f"mma={s.mma} needs sm_{need[0]}{need[1]}; {device.name} is {device.arch}",
            hint=f"set mma={fits[0]}" if fits else otherwise,
        )
    for shape, _ in g.mmas:
        if shape not in device.cpi:
            raise ScheduleError(
                f"mma={s.mma}: the profile of {device.name} has no cycles for {shape}",
                hint="add it to the profile's [cpi]",
            )


def mma_values(g: Geometry, device: DeviceProfile) -> dict[str, float]:
    """``q_mma`` and ``n_mma``: cycles of a tile's mma, and how many they are."""
    return {"q_mma": sum(n * device.cpi[shape] for shape, n in g.mmas), "n_mma": sum(n for _, n in g.mmas)}


def narrowing(mma: str, slices: int) -> list[tuple[str, int]]:
    """How many mma of which shape run over ``slices`` slices of four: as many as fit of ``mma``, the rest narrower."""
    m, _, k_f, _ = MMA[mma]
    out = []
    for name, (rows, _, k, _) in sorted(MMA.items(), key=lambda item: -item[1][2]):
        if name != "none" and rows == m and k <= k_f and slices >= k // 4:
            out.append((name, slices // (k // 4)))
            slices %= k // 4
    return out

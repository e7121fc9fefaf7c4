"""What GPUs talk through: figures of links as a device profile's table ``[link]`` has them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from sparsegen.ir.errors import DeviceError

#: The lowest and the highest sane value of each figure, and its unit.
_RANGES: Final = {
    "gpus": (1, 1024, "GPUs that one link joins"), "gbs": (1, 10_000, "GB/s a direction of a GPU"),
    "latency_s": (1e-7, 1e-2, "seconds from a launch to the end of the shortest message"),
    "network_gbs": (0.1, 10_000, "GB/s a direction of a GPU"), "network_latency_s": (1e-7, 1e-2, "seconds, as above"),
}  # fmt: skip


@dataclass(frozen=True)
class Link:
    """Within a node of so many ``gpus`` (NVLink, or PCIe), and between nodes: bytes a second one way, and latency."""

    gpus: int
    gbs: float
    latency_s: float
    network_gbs: float
    network_latency_s: float

    def seconds(self, nbytes: float, *, apart: bool) -> float:
        """The time of messages of so many bytes that start together; ``apart``: to another node."""
        if not nbytes:
            return 0.0
        latency, gbs = (self.network_latency_s, self.network_gbs) if apart else (self.latency_s, self.gbs)
        return latency + nbytes / (gbs * 1e9)


def link_from(table: Any, where: str) -> Link | None:
    """The link of a parsed table ``[link]``, None where there is none; DeviceError for a figure that is no sane one."""
    if table is None:
        return None
    names = [f.name for f in fields(Link)]
    known = isinstance(table, dict) and set(table) == set(names)
    if not known:
        raise DeviceError(f"{where}: the table [link] does not have the figures {', '.join(names)}",
                          hint="write each of them, or leave the table away")  # fmt: skip
    for name, (low, high, unit) in _RANGES.items():
        value = table[name]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise DeviceError(f"{where}: link.{name} = {value!r} is absurd",
                              hint=f"a sane value is {low:g} to {high:g} {unit}")  # fmt: skip
    return Link(int(table["gpus"]), *(float(table[name]) for name in names[1:]))

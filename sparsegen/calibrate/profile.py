"""A calibration as a device profile in TOML: every figure with where it comes from."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sparsegen.cost.devices import RANGES, DeviceProfile, profile_from

from .plan import sub_cores

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import DeviceInfo

    from .run import Calibration

_COLUMN: Final = 34


#: The figures that the driver knows, by what a device's facts call them.
_ASKED: Final = {
    "sms": "sm_count", "l2_bytes": "l2_bytes", "smem_sm": "shared_per_sm", "smem_block": "shared_per_block",
    "regs_sm": "registers_per_sm", "max_threads_sm": "threads_per_sm", "max_blocks_sm": "blocks_per_sm",
}  # fmt: skip


def number(value: float) -> str:
    """Four digits that count, as TOML writes a number."""
    text = f"{value:.4g}"
    if "e" not in text:
        return text if "." in text else f"{text}.0"
    return text if abs(value) < 1e-4 else f"{value:.1f}"


def _line(key: str, value: str, comment: str) -> str:
    start = f"{key} = {value}"
    return f"{start:<{_COLUMN}} # {comment}"


def text(gpu: DeviceInfo, found: Calibration, setting: Mapping[str, str]) -> str:
    """The TOML of a GPU's profile; what the profile format has no figure for stands in ``[measured]``.

    ``setting``: with what it was measured, the date among it.
    """
    how = {f.key: f for f in found.plan}

    def source(key: str) -> str:
        what = f", {how[key].what}" if how[key].what else ""
        return f"measured{what}; spread {100 * found.figures[key].spread:.1f} %"

    major, minor = gpu.capability
    lines = [
        f"# {gpu.name}: measured by sparsegen calibrate on {setting['date']}.",
        f"# {found.repeats} repeats of each figure: the median; spread is (p90 - p10) / median.",
        _line("name", json.dumps(gpu.name), "device query"),
        _line("cc", f'"{major}.{minor}"', "device query"),
        _line("arch", f'"{gpu.arch}"', "what nvcc compiles for"),
    ]
    for key in RANGES:
        if key == "sub_cores":
            lines.append(_line(key, f"{sub_cores(gpu)}", "of its generation, by white papers"))
        elif key in _ASKED:
            lines.append(_line(key, f"{getattr(gpu, _ASKED[key]):_}", "device query"))
        else:
            lines.append(_line(key, number(found.figures[key].value), source(key)))
    lines += ["", "[cpi] # cycles per mma per sub-core"]
    shapes = [key for key in found.figures if key.startswith("cpi.")]
    lines += [_line(f'"{k[4:]}"', number(found.figures[k].value), source(k)) for k in shapes]
    lines += [
        "",
        "[measured]",
        *(f"{key} = {json.dumps(value)}" for key, value in setting.items()),
        _line("seconds", number(found.seconds), "that it took, compilation included"),
        _line("clock_mhz_first", number(found.clocks[0]), "before the other figures"),
        _line("clock_mhz_last", number(found.clocks[1]), "after them"),
    ]
    others = [k for k in found.figures if k not in RANGES and k not in shapes]
    lines += [_line(k, number(found.figures[k].value), source(k)) for k in others]
    lines += ["", "[measured.spread] # (p90 - p10) / median"]
    lines += [f'"{k}" = {m.spread:.4f}' for k, m in found.figures.items()]
    return "\n".join(lines) + "\n"


def checked(written: str) -> DeviceProfile:
    """The profile that the text is, read as any profile is read; DeviceError for a missing or absurd figure."""
    return profile_from(tomllib.loads(written), "what sparsegen calibrate measured")

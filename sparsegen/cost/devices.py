"""Device profiles: the figures of a GPU that the cost model needs, read from TOML; sources stand there."""

from __future__ import annotations

import difflib
import os
import re
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from sparsegen.ir.errors import DeviceError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

PROFILES = Path(__file__).parent / "profiles"

#: key -> (lowest, highest sane value, unit).  Every key must be in every profile.
RANGES: dict[str, tuple[float, float, str]] = {
    "sms": (1, 1024, "SMs"),
    "sub_cores": (1, 8, "sub-cores an SM, each with a scheduler and a tensor core"),
    "clock_mhz": (200, 5000, "MHz"),
    "hbm_read_gbs": (10, 50_000, "GB/s"),
    "hbm_write_gbs": (10, 50_000, "GB/s"),
    "hbm_copy_gbs": (10, 50_000, "GB/s, read and write together"),
    "l2_bytes": (2**18, 2**30, "bytes"),
    "l2_bytes_per_clk_sm": (8, 512, "bytes a clock an SM"),
    "smem_sm": (2**14, 2**20, "bytes an SM"),
    "smem_block": (2**14, 2**20, "bytes a block"),
    "smem_bytes_per_clk_sm": (16, 1024, "bytes a clock an SM"),
    "regs_sm": (2**12, 2**20, "32-bit registers an SM"),
    "max_threads_sm": (256, 8192, "threads an SM"),
    "max_blocks_sm": (1, 128, "blocks an SM"),
    "f64_fma_per_clk_sm": (0.5, 1024, "FMA a clock an SM"),
    "f32_fma_per_clk_sm": (8, 4096, "FMA a clock an SM"),
    "alu_per_clk_sm": (8, 4096, "32-bit logic operations a clock an SM"),
    "popc_per_clk_sm": (1, 1024, "32-bit population counts a clock an SM"),
    "shuffle_per_clk_sm": (1, 1024, "lanes shuffled a clock an SM"),
    "launch_s": (1e-7, 1e-3, "seconds"),
    "lat_shared": (5, 500, "cycles"),
    "lat_l1": (5, 500, "cycles"),
    "lat_l2": (20, 5000, "cycles"),
    "lat_dram": (50, 20_000, "cycles"),
    "lat_barrier": (1, 2000, "cycles"),
}
_CPI_RANGE = (0.5, 100_000.0)
#: Those that are whole numbers: what a device query tells.
WHOLE = {"sms", "sub_cores", "l2_bytes", "smem_sm", "smem_block", "regs_sm", "max_threads_sm", "max_blocks_sm"}
_TEXT = ("name", "cc", "arch")


@dataclass(frozen=True)
class DeviceProfile:
    """A GPU, as far as costs are concerned.  Units are in RANGES; ``cpi`` is cycles per mma per sub-core, by shape."""

    name: str
    cc: str
    arch: str
    sms: int
    sub_cores: int
    clock_mhz: float
    hbm_read_gbs: float
    hbm_write_gbs: float
    hbm_copy_gbs: float
    l2_bytes: int
    l2_bytes_per_clk_sm: float
    smem_sm: int
    smem_block: int
    smem_bytes_per_clk_sm: float
    regs_sm: int
    max_threads_sm: int
    max_blocks_sm: int
    f64_fma_per_clk_sm: float
    f32_fma_per_clk_sm: float
    alu_per_clk_sm: float
    popc_per_clk_sm: float
    shuffle_per_clk_sm: float
    launch_s: float
    lat_shared: float
    lat_l1: float
    lat_l2: float
    lat_dram: float
    lat_barrier: float
    #: mma shape (``f64.m8n8k4``) -> cycles; pairs, so that a profile can be hashed.
    cpi_table: tuple[tuple[str, float], ...]
    #: no code is generated for it (nvcc no longer knows it); costs and explanations only.
    explain_only: bool = False

    @cached_property
    def cpi(self) -> dict[str, float]:
        """Cycles per mma per sub-core, by shape."""
        return dict(self.cpi_table)

    @cached_property
    def compute_capability(self) -> tuple[int, int]:
        """``"9.0"`` as (9, 0)."""
        major, minor = self.cc.split(".")
        return int(major), int(minor)

    @property
    def clock(self) -> float:
        """Clock in Hz."""
        return self.clock_mhz * 1e6

    @property
    def tensor_cores(self) -> int:
        """Tensor cores of the whole chip: the N_tcu of ConvStencil's equations."""
        return self.sms * self.sub_cores

    @property
    def bw_global(self) -> float:
        """Global memory, bytes a second, reads and writes together: bw_G."""
        return self.hbm_copy_gbs * 1e9

    @property
    def bw_shared(self) -> float:
        """Shared memory of the whole chip, bytes a second: bw_S."""
        return self.smem_bytes_per_clk_sm * self.sms * self.clock


def names() -> list[str]:
    """The profiles that are shipped."""
    return sorted(p.stem for p in PROFILES.glob("*.toml"))


def load_profile(device: str | Path) -> DeviceProfile:
    """A shipped profile by name (any case), or one from a TOML file by path."""
    text = str(device)
    if text.endswith(".toml"):
        return _read(Path(text).resolve())
    known = names()
    if text.lower() not in known and os.path.exists(text):
        raise DeviceError(
            f"{text!r} is a {'folder' if os.path.isdir(text) else 'file'}, but no .toml file",
            hint=f"give the path of a .toml file, or one of: {', '.join(known)}",
        )
    if text.lower() not in known:
        close = difflib.get_close_matches(text.lower(), known, n=1, cutoff=0.5)
        guess = f"did you mean {close[0]!r}? " if close else ""
        raise DeviceError(
            f"no profile of a device called {text!r}",
            hint=f"{guess}there are: {', '.join(known)}; or give the path of a .toml file",
        )
    return _shipped(text.lower())


@cache
def _shipped(name: str) -> DeviceProfile:
    return _read(PROFILES / f"{name}.toml")


def _read(path: Path) -> DeviceProfile:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise DeviceError(
            f"cannot read the device profile {path}: {e.strerror}", hint=f"shipped profiles: {', '.join(names())}"
        ) from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise DeviceError(f"{path} is not TOML: {e}", hint="compare it with a shipped profile") from e
    return profile_from(data, str(path))


def profile_from(data: dict[str, Any], where: str) -> DeviceProfile:
    """A profile from a parsed TOML table; each figure is checked, ``where`` names the file in messages."""
    data = dict(data)
    for key in _TEXT:
        if not isinstance(data.get(key), str) or not data[key]:
            raise DeviceError(
                f"{where}: {key} is missing or no text", hint=f'write {key} = "…", as in a shipped profile'
            )
    major, dot, minor = data["cc"].partition(".")
    if not (dot and major.isdigit() and minor.isdigit()):
        raise DeviceError(f"{where}: cc = {data['cc']!r} is no compute capability", hint='write it as in cc = "9.0"')
    if not re.fullmatch(f"sm_{major}{minor}[af]?", data["arch"]):
        raise DeviceError(
            f"{where}: arch = {data['arch']!r} is none of compute capability {data['cc']}",
            hint=f'write arch = "sm_{major}{minor}", or its a or f variant',
        )
    figures: dict[str, Any] = {}
    for key, (low, high, unit) in RANGES.items():
        figures[key] = _figure(data.get(key), key, low, high, unit, where)
        if key in WHOLE:
            if figures[key] != int(figures[key]):
                raise DeviceError(
                    f"{where}: {key} = {figures[key]} is no whole number", hint=f"sane: {low:g} to {high:g} {unit}"
                )
            figures[key] = int(figures[key])
    if figures["smem_block"] > figures["smem_sm"]:
        raise DeviceError(
            f"{where}: smem_block = {figures['smem_block']} is more than smem_sm = {figures['smem_sm']}",
            hint="a block cannot have more shared memory than its SM",
        )
    table = data.get("cpi")
    if not isinstance(table, dict):
        raise DeviceError(
            f"{where}: the table [cpi] is missing", hint='cycles per mma per sub-core, such as "f64.m8n8k4" = 16.2'
        )
    cpi = tuple(
        (str(s), _figure(c, f"cpi.{s}", *_CPI_RANGE, "cycles per mma per sub-core", where)) for s, c in table.items()
    )
    explain_only = data.get("explain_only", False)
    if not isinstance(explain_only, bool):
        raise DeviceError(
            f"{where}: explain_only = {explain_only!r} is neither true nor false", hint="write true or false"
        )
    unknown = set(data) - set(RANGES) - set(_TEXT) - {"cpi", "explain_only", "measured"}
    if unknown:
        key = min(unknown)
        close = difflib.get_close_matches(key, list(RANGES), n=1)
        raise DeviceError(
            f"{where}: unknown figure {key!r}",
            hint=(f"did you mean {close[0]!r}? " if close else "") + f"there are: {', '.join(RANGES)}",
        )
    return DeviceProfile(
        name=data["name"], cc=data["cc"], arch=data["arch"], cpi_table=cpi, explain_only=explain_only, **figures
    )


def _figure(value: object, key: str, low: float, high: float, unit: str, where: str) -> float:
    sane = f"a sane value is {low:g} to {high:g} {unit}"
    if value is None:
        raise DeviceError(f"{where}: the figure {key} is missing", hint=sane)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DeviceError(f"{where}: {key} = {value!r} is no number", hint=sane)
    if not low <= value <= high:  # also false for NaN
        raise DeviceError(f"{where}: {key} = {value:g} is absurd", hint=sane)
    return float(value)

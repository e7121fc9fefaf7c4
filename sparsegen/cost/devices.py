"""Device profiles: the figures of a GPU that the cost model needs, read from TOML; sources stand there."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from sparsegen.cost.links import Link, link_from
from sparsegen.ir.errors import DeviceError
from sparsegen.schedule import nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

PROFILES = Path(__file__).parent / "profiles"
#: Compute capabilities of the first GPUs with ``cp.async``, and with bulk copies, tensor copies and warpgroups.
AMPERE, HOPPER = (8, 0), (9, 0)

#: Share of L2 up to which what a kernel moves stays there whole from call to call, and from which nothing of it does;
#: share of a launch that is left of one in a CUDA graph of many.  Fitted on one H200.
STAYS, GONE, NEXT = 0.4, 0.85, 0.31
_CPI = (0.5, 100_000.0, "cycles per mma per sub-core")
_TEXT = ("name", "cc", "arch")


def figure(low: float, high: float, unit: str) -> Any:
    """A figure of a profile: the lowest and the highest sane value, and its unit."""
    return field(metadata={"range": (low, high, unit)})


@dataclass(frozen=True)
class DeviceProfile:
    """A GPU, as far as costs are concerned.  ``cpi`` is cycles per mma per sub-core, by shape."""

    name: str
    cc: str
    arch: str
    #: mma shape (``f64.m8n8k4``) -> cycles; pairs, so that a profile can be hashed.
    cpi_table: tuple[tuple[str, float], ...]
    sms: int = figure(1, 1024, "SMs")
    sub_cores: int = figure(1, 8, "sub-cores an SM, each with a scheduler and a tensor core")
    clock_mhz: float = figure(200, 5000, "MHz")
    hbm_read_gbs: float = figure(10, 50_000, "GB/s")
    hbm_write_gbs: float = figure(10, 50_000, "GB/s")
    hbm_copy_gbs: float = figure(10, 50_000, "GB/s, read and write together")
    l2_bytes: int = figure(2**18, 2**30, "bytes")
    l2_bytes_per_clk_sm: float = figure(8, 512, "bytes a clock an SM")
    smem_sm: int = figure(2**14, 2**20, "bytes an SM")
    smem_block: int = figure(2**14, 2**20, "bytes a block")
    smem_bytes_per_clk_sm: float = figure(16, 1024, "bytes a clock an SM")
    regs_sm: int = figure(2**12, 2**20, "32-bit registers an SM")
    max_threads_sm: int = figure(256, 8192, "threads an SM")
    max_blocks_sm: int = figure(1, 128, "blocks an SM")
    f64_fma_per_clk_sm: float = figure(0.5, 1024, "FMA a clock an SM")
    f32_fma_per_clk_sm: float = figure(8, 4096, "FMA a clock an SM")
    alu_per_clk_sm: float = figure(8, 4096, "32-bit logic operations a clock an SM")
    popc_per_clk_sm: float = figure(1, 1024, "32-bit population counts a clock an SM")
    shuffle_per_clk_sm: float = figure(1, 1024, "lanes shuffled a clock an SM")
    launch_s: float = figure(1e-7, 1e-3, "seconds")
    lat_shared: float = figure(5, 500, "cycles")
    lat_l1: float = figure(5, 500, "cycles")
    lat_l2: float = figure(20, 5000, "cycles")
    lat_dram: float = figure(50, 20_000, "cycles")
    lat_barrier: float = figure(1, 2000, "cycles")
    #: the share of what a kernel moves that L2 keeps from call to call.
    kept: float = 0.0
    #: no code is generated for it (nvcc no longer knows it); costs and explanations only.
    explain_only: bool = False
    #: whether all blocks of a launch can be made to run at the same time; a driver may not.
    cooperative: bool = True
    #: to other GPUs; None where the profile does not say.
    link: Link | None = None
    #: of how many equal shares of the GPU this is one.
    shares: int = 1

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
        return self.hbm_copy_gbs * 1e9 / self.shares

    @property
    def bw_shared(self) -> float:
        """Shared memory of the whole chip, bytes a second: bw_S."""
        return self.smem_bytes_per_clk_sm * self.own_sms * self.clock

    @property
    def own_sms(self) -> float:
        """SMs of this share of the GPU: not always a whole number, and all of them where there is one share."""
        return self.sms if self.shares == 1 else self.sms / self.shares

    @property
    def own_l2(self) -> float:
        """Bytes of L2 of this share of the GPU."""
        return self.l2_bytes / self.shares

    def share(self, items: int) -> DeviceProfile:
        """What each item of a batch has of this GPU, which runs the blocks of all of them at once.

        Waves of blocks and bytes a second come out as those of the whole batch on the whole GPU do, so the time of one
        item on its share is that of the batch; a launch is started once, and latencies stay what they are.
        """
        return replace(self, shares=items)

    def missed(self, nbytes: float) -> float:
        """Share of so many bytes, moved again and again, that L2 does not keep."""
        return min(1.0, max(0.0, (nbytes / self.own_l2 - STAYS) / (GONE - STAYS)))

    def warm(self, nbytes: float) -> DeviceProfile:
        """This GPU to a kernel that is called again and again, as in a CUDA graph, and moves so many bytes: what L2
        keeps of them comes from there, and launches follow each other."""
        missed, l2 = self.missed(nbytes), self.l2_bytes_per_clk_sm * self.clock * self.sms / 1e9
        speeds = {
            name: 1 / (missed / getattr(self, name) + (1 - missed) / l2)
            for name in ("hbm_read_gbs", "hbm_write_gbs", "hbm_copy_gbs")
        }
        latency = self.lat_l2 + missed * (self.lat_dram - self.lat_l2)
        return replace(self, **speeds, lat_dram=latency, launch_s=NEXT * self.launch_s, kept=1 - missed)


#: key -> (lowest, highest sane value, unit).  Every key must be in every profile.
RANGES: dict[str, tuple[float, float, str]] = {f.name: f.metadata["range"] for f in fields(DeviceProfile) if f.metadata}
#: Those that are whole numbers: what a device query tells.
WHOLE = {f.name for f in fields(DeviceProfile) if f.metadata and f.type == "int"}


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
        raise DeviceError(
            f"no profile of a device called {text!r}",
            hint=f"{nearest(text.lower(), known)}there are: {', '.join(known)}; or give the path of a .toml file",
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

    def need(fine: object, what: str, hint: str) -> None:
        if not fine:
            raise DeviceError(f"{where}: {what}", hint=hint)

    def figure(value: Any, key: str, low: float, high: float, unit: str) -> Any:
        sane = f"a sane value is {low:g} to {high:g} {unit}"
        need(value is not None, f"the figure {key} is missing", sane)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        need(number, f"{key} = {value!r} is no number", sane)
        need(number and low <= value <= high, f"{key} = {value:g} is absurd" if number else "", sane)  # so is NaN
        whole = key in WHOLE
        need(not whole or value == int(value), f"{key} = {value} is no whole number", sane)
        return int(value) if whole else float(value)

    for key in _TEXT:
        text = data.get(key)
        need(
            text and isinstance(text, str),
            f"{key} is missing or no text",
            f'write {key} = "…", as in a shipped profile',
        )
    major, dot, minor = data["cc"].partition(".")
    compute = dot and major.isdigit() and minor.isdigit()
    need(compute, f"cc = {data['cc']!r} is no compute capability", 'write it as in cc = "9.0"')
    need(
        re.fullmatch(f"sm_{major}{minor}[af]?", data["arch"]),
        f"arch = {data['arch']!r} is none of compute capability {data['cc']}",
        f'write arch = "sm_{major}{minor}", or its a or f variant',
    )
    figures = {key: figure(data.get(key), key, *limits) for key, limits in RANGES.items()}
    block, whole = figures["smem_block"], figures["smem_sm"]
    need(
        block <= whole,
        f"smem_block = {block} is more than smem_sm = {whole}",
        "a block cannot have more shared memory than its SM",
    )
    explain_only = data.get("explain_only", False)
    need(isinstance(data.get("cpi"), dict), "the table [cpi] is missing", f'{_CPI[2]}, such as "f64.m8n8k4" = 16.2')
    cpi = tuple((str(shape), figure(cycles, f"cpi.{shape}", *_CPI)) for shape, cycles in data["cpi"].items())
    boolean = isinstance(explain_only, bool)
    need(boolean, f"explain_only = {explain_only!r} is neither true nor false", "write true or false")
    for key in sorted(set(data) - set(RANGES) - {*_TEXT, "cpi", "explain_only", "link", "measured"}):
        need(False, f"unknown figure {key!r}", f"{nearest(key, RANGES)}there are: {', '.join(RANGES)}")
    own = {key: data[key] for key in _TEXT}
    link = link_from(data.get("link"), where)
    return DeviceProfile(**own, cpi_table=cpi, explain_only=explain_only, link=link, **figures)

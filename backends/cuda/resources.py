"""What a kernel uses, as ptxas reports it, and how many of its blocks fit on a multiprocessor."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sparsegen.ir.errors import DeviceError

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True)
class KernelResources:
    """One kernel's use: registers a thread; bytes of spills, stack (a thread) and static shared memory (a block)."""

    name: str
    arch: str = ""
    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    static_shared: int = 0
    barriers: int = 0
    constant: int = 0

    @property
    def spills(self) -> bool:
        """Whether registers went to local memory."""
        return self.spill_stores > 0 or self.spill_loads > 0


def parse_ptxas_log(log: str) -> dict[str, KernelResources]:
    """The resources of each kernel, by its (mangled) name, from the output of ``nvcc -Xptxas=-v``."""
    found: dict[str, KernelResources] = {}
    entry = function = ""
    for line in log.splitlines():
        if m := _ENTRY.search(line):
            entry = function = m[1]
            found[entry] = KernelResources(entry, arch=m[2])
        elif m := _PROPERTIES.search(line):
            function = m[1]
        elif (m := _STACK.search(line)) and function == entry and entry in found:
            found[entry] = replace(found[entry], stack=int(m[1]), spill_stores=int(m[2]), spill_loads=int(m[3]))
        elif (m := _USED.search(line)) and entry in found:
            counts = {kind: int(n) for n, kind in re.findall(r"(?:used )?(\d+) (?:bytes )?(barriers|smem)", line)}
            constant = sum(int(n) for n in re.findall(r"(\d+) bytes cmem", line))
            found[entry] = replace(
                found[entry],
                registers=int(m[1]),
                barriers=counts.get("barriers", 0),
                static_shared=counts.get("smem", 0),
                constant=constant,
            )
    return found


@dataclass(frozen=True)
class SmLimits:
    """What one multiprocessor holds. Memory in bytes, registers as 32-bit words; ``sm`` is the number in ``sm_90``."""

    sm: int
    max_threads: int
    max_blocks: int
    shared: int
    shared_reserved: int
    shared_granularity: int
    registers: int = 65536
    register_granularity: int = 256
    max_registers: int = 255
    max_block_threads: int = 1024
    sub_cores: int = 4

    @property
    def shared_block(self) -> int:
        """The most shared memory one block can have, opted in, in bytes (227 KiB on sm_90)."""
        return self.shared - self.shared_reserved


def _limits(sm: int, threads: int, blocks: int, shared_kib: int) -> SmLimits:
    # Blocks from sm_80 on pay 1 KiB to the driver; allocation is in steps of 128 bytes (256 before).
    ampere = sm >= 80
    return SmLimits(sm, threads, blocks, shared_kib * 1024, 1024 if ampere else 0, 128 if ampere else 256)


# CUDA C++ Programming Guide, "Compute Capabilities", table "Technical Specifications per Compute Capability"; the same
# figures as in CCCL's <cuda/__device/arch_traits.h>. Granularities: the toolkit's <cuda_occupancy.h>; a test compares
# with that header as compiled. (sm, threads a SM, blocks a SM, KiB of shared memory a SM)
SM_LIMITS: dict[int, SmLimits] = {
    row[0]: _limits(*row)
    for row in (
        (75, 1024, 16, 64),
        (80, 2048, 32, 164),
        (86, 1536, 16, 100),
        (87, 1536, 16, 164),
        (88, 1536, 16, 100),
        (89, 1536, 24, 100),
        (90, 2048, 32, 228),
        (100, 2048, 32, 228),
        (103, 2048, 32, 228),
        (120, 1536, 24, 100),
        (121, 1536, 24, 100),
    )
}


def sm_limits(arch: str | int) -> SmLimits:
    """The limits of an arch (``"sm_90a"``, ``"sm_80"`` or the number 90); DeviceError for one that is not known."""
    number = re.fullmatch(r"(?:sm_)?(\d+)[af]?", str(arch))
    if number is None or int(number[1]) not in SM_LIMITS:
        known = ", ".join(f"sm_{n}" for n in SM_LIMITS)
        raise DeviceError(f"no multiprocessor limits known for arch {arch!r}", hint=f"known: {known}")
    return SM_LIMITS[int(number[1])]


@dataclass(frozen=True)
class Occupancy:
    """How many blocks and warps of a kernel are resident on one multiprocessor, and what stops the next block."""

    blocks: int
    warps: int
    max_warps: int
    limited_by: str

    @property
    def fraction(self) -> float:
        """Resident warps over the most possible, 0 to 1."""
        return self.warps / self.max_warps


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def occupancy(registers: int, shared: int, threads: int, limits: SmLimits) -> Occupancy:
    """Resident blocks of a kernel: ``registers`` a thread, ``shared`` bytes (static + dynamic) and ``threads`` a block.

    Registers are given out to whole warps in each of the four sub-cores, shared memory in steps and with the driver's
    own part. A block that cannot run at all gives ``blocks == 0``, and ``limited_by`` names why.
    """
    warps = max(1, -(-threads // 32))
    per_warp = _round_up(registers * 32, limits.register_granularity)
    allocated = _round_up(shared + limits.shared_reserved, limits.shared_granularity)
    fits: dict[str, int] = {"threads": limits.max_threads // (warps * 32), "blocks": limits.max_blocks}
    if threads > limits.max_block_threads:
        fits["threads"] = 0
    too_many = per_warp * _round_up(warps, limits.sub_cores) > limits.registers or registers > limits.max_registers
    if too_many:
        fits["registers"] = 0
    elif per_warp:
        fits["registers"] = limits.registers // limits.sub_cores // per_warp * limits.sub_cores // warps
    if allocated > limits.shared:
        fits["shared memory"] = 0
    elif allocated:
        fits["shared memory"] = limits.shared // allocated
    limited_by = min(fits, key=lambda k: fits[k])
    blocks = fits[limited_by]
    return Occupancy(blocks, blocks * warps, limits.max_threads // 32, limited_by)

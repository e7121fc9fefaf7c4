"""What a kernel uses, as ptxas reports it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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
            shared, barriers = counts.get("smem", 0), counts.get("barriers", 0)
            found[entry] = replace(found[entry], registers=int(m[1]), static_shared=shared, barriers=barriers)
    return found

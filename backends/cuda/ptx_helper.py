"""A device function around one instruction of PTX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_DEVICE: Final = "__device__ __forceinline__"


@dataclass(frozen=True)
class Helper:
    """A device function: its name and its text."""

    name: str
    text: str


def function(result: str, name: str, params: str, instruction: str, outs: str = "", ins: str = "", *,
              memory: bool = True, before: str = "", after: str = "", template: str = "") -> Helper:  # fmt: skip
    """One whose ``asm`` binds ``outs`` and ``ins``; ``volatile`` and a barrier to nvcc if it is of ``memory``."""
    operands = f"{outs} : {ins}" if outs else f": {ins}" if ins else ":"
    clobber = ' : "memory"' if memory and (outs or ins) else ': "memory"' if memory else ""
    lines = [f'asm{" volatile" if memory else ""}("{instruction}" :{" " if outs else ""}{operands}{clobber});']
    lines = [s for s in (before, *lines, after) if s]
    head = [f"template <{template}>"] if template else []
    return Helper(name, "\n".join([*head, f"{_DEVICE} {result} {name}({params}) {{", *(f"  {s}" for s in lines), "}"]))

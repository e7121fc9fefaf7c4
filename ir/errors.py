"""Every error that sparsegen raises on purpose, and the source location that it can point at."""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True)
class Loc:
    """A line of the user's program (or of an ``.sgir`` file): file, 1-based line, 0-based column."""

    file: str
    line: int
    col: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def excerpt(self) -> str:
        """The source line with a caret below the column; empty if the file cannot be read."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text:
            return ""
        first = max(0, self.col - 60)  # a long line is shown around the column
        shown = ("…" if first else "") + text[first : first + 116] + ("…" if len(text) > first + 116 else "")
        return f"  {shown}\n  {' ' * (self.col - first + (first > 0))}^"


def shortened(text: str, most: int = 4000) -> str:
    """The text, of which the middle is left out if it has more than ``most`` characters: what users pass has no end."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … ({len(text) - most} characters more) … {text[-most // 2 :]}"


class SparsegenError(Exception):
    """Base of all errors: what is wrong, where (the user's line), and the knob to turn.

    ``message`` says what and names the value; ``loc`` the line; ``hint`` the remedy.
    """

    def __init__(self, message: str, *, loc: Loc | None = None, hint: str | None = None) -> None:
        self.message, self.loc, self.hint = shortened(message), loc, hint
        self.args = (self.message,)  # as Exception's own __init__ does, which torch.compile cannot trace

    def __str__(self) -> str:
        parts = [self.message if self.loc is None else f"{self.loc}: {self.message}"]
        if self.loc is not None and (excerpt := self.loc.excerpt()):
            parts.append(excerpt)
        if self.hint:
            parts.append(f"remedy: {self.hint}")
        return "\n".join(parts)


class StencilError(SparsegenError):
    """A stencil that cannot be described: not linear, offsets not constant, bad weights, wrong rank."""


class BoundaryError(SparsegenError):
    """A boundary that is unknown, incomplete or contradictory."""


class ScheduleError(SparsegenError):
    """A schedule that is unknown, contradictory, or illegal on the device."""


class ArrayError(SparsegenError):
    """An array of the wrong dtype, shape, stride, device or overlap."""


class RunError(SparsegenError):
    """A run that cannot begin or go on: a checkpoint of another kernel or a broken one, or a picture not to be made."""


class FormatError(SparsegenError):
    """A sparse format that is unknown or cannot hold a matrix, or a file of one that cannot be trusted."""


class ProductError(SparsegenError):
    """A sparse product that cannot be described: no sparse matrix, a bad n, an unknown activation."""


class ToolchainError(SparsegenError):
    """nvcc or a disassembler is missing or failed."""


class DeviceError(SparsegenError):
    """A GPU or a device profile that is not there."""


class DeviceMemoryError(DeviceError):
    """Device memory that the driver could not give."""


class IRError(SparsegenError):
    """A program that the verifier or the parser refuses."""


class KernelFault(SparsegenError):
    """The emulator found an error in a running program: race, deadlock, missing wait, bad access."""

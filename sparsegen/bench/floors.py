"""Floors: programs written by hand that are measured beside ours, in the same call on the same GPU.

A floor is any program that prints lines ``BEST name GS/s variant``; everything else that it prints is passed over.
``--floor "FILE.cu WORDS"`` compiles it with nvcc and runs it with these words; a file that is not called ``.cu`` is
run as it is.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.ir.errors import ToolchainError

#: Seconds that nvcc, and then the program, may take.
COMPILE_LIMIT, RUN_LIMIT = 300, 240
USE = 'write --floor "FILE.cu WORDS"'
_BEST = re.compile(r"^BEST (\S+) (\d+(?:\.\d+)?)(?: (\S+))?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Floor:
    """One figure of a floor: GS/s of what it calls ``name``, by which of its variants, and the program's name."""

    name: str
    rate: float
    variant: str
    program: str

    def __str__(self) -> str:
        return f"{self.program} {self.variant}".rstrip()


def parse(output: str, program: str) -> list[Floor]:
    """The figures in what a program printed; one of 0 GS/s (nothing ran, or nothing was right) is none."""
    found = (Floor(name, float(rate), variant or "", program) for name, rate, variant in _BEST.findall(output))
    return [floor for floor in found if floor.rate > 0]


def best(floors: Iterable[Floor], wanted: str) -> Floor | None:
    """The fastest floor called ``wanted``, which is ``NAME``, or ``PROGRAM:NAME`` for those of one program only."""
    program, _, name = wanted.rpartition(":")
    fit = [floor for floor in floors if floor.name == name and program in ("", floor.program)]
    return max(fit, key=lambda floor: floor.rate, default=None)


def prepare(line: str, arch: str, folder: Path) -> list[str]:
    """The command that runs a floor; a ``.cu`` file is compiled into ``folder`` first (ToolchainError if it cannot)."""
    try:
        path, *words = shlex.split(line)
    except ValueError as error:
        raise ToolchainError(f"the floor {line!r} cannot be read: {error}", hint=USE) from error
    file = Path(path)
    if not file.is_file():
        raise ToolchainError(f"there is no floor {path!r}", hint=USE)
    if file.suffix != ".cu":
        return [str(file.resolve()), *words]
    target = folder / file.stem
    code = f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"
    _output([str(find_nvcc().path), code, "-O3", "-std=c++17", str(file), "-o", str(target)], COMPILE_LIMIT)
    return [str(target), *words]


def measure(command: Sequence[str]) -> list[Floor]:
    """Run a prepared floor; ToolchainError if it fails or prints no figure."""
    output = _output(command, RUN_LIMIT)
    found = parse(output, Path(command[0]).stem)
    if not found:
        raise ToolchainError(
            f"{shlex.join(command)} printed no figure", hint="a floor prints lines such as: BEST Heat-2D 1308.2 variant"
        )
    return found


def _output(command: Sequence[str], limit: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"cannot run {shlex.join(command)}: {error}", hint="try it by hand") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = said[-1] if said else "no output"
        raise ToolchainError(f"{shlex.join(command)} ended with {done.returncode}: {last}", hint="try it by hand")
    return done.stdout

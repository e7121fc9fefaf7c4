"""Floors: programs written by hand that are measured beside ours, in the same call on the same GPU.

A floor is any program that prints lines ``BEST name GS/s variant``, or for products
``variant,M,K,N,sparsity,MB,us_hot,us_cold,GB/s,error,more``; everything else that it prints is passed over.
``--floor "FILE.cu WORDS"`` compiles it with nvcc and runs it with these words; a file that is not called ``.cu`` is
run as it is.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.ir.errors import SparsegenError, ToolchainError

#: Seconds that nvcc, and then the program, may take.
COMPILE_LIMIT, RUN_LIMIT = 300, 240
USE = 'write --floor "FILE.cu WORDS"'
_BEST = re.compile(r"^BEST (\S+) (\d+(?:\.\d+)?)(?: (\S+))?\s*$", re.MULTILINE)
#: An ablation, whose result means nothing, has the error -1; behind that of a wrong result stands FAIL.
_PRODUCT = re.compile(
    r"^(\w+),(\d+),(\d+),(\d+),(\d\.\d+),[\d.]+,[\d.]+,([\d.]+),[\d.]+,\d[\d.e+-]*(?:,.*)?$", re.MULTILINE
)


@dataclass(frozen=True)
class Floor:
    """One figure of a floor: GS/s of what it calls ``name``, by which of its variants, and the program's name."""

    name: str
    rate: float
    variant: str
    program: str

    def __str__(self) -> str:
        return f"{self.program} {self.variant}".rstrip()


@dataclass(frozen=True)
class ProductFloor:
    """One figure of a floor of products: M, K, N and the share of zeros, seconds with a cold L2."""

    shape: tuple[int, int, int]
    sparsity: float
    seconds: float
    variant: str
    program: str

    def __str__(self) -> str:
        return f"{self.program} {self.variant}"


F = TypeVar("F", Floor, ProductFloor)


def parse(output: str, program: str) -> list[Floor]:
    """The figures in what a program printed; one of 0 GS/s (nothing ran, or nothing was right) is none."""
    found = (Floor(name, float(rate), variant or "", program) for name, rate, variant in _BEST.findall(output))
    return [floor for floor in found if floor.rate > 0]


def parse_products(output: str, program: str) -> list[ProductFloor]:
    """The figures of right results in what a program of products printed."""
    return [
        ProductFloor((int(m), int(k), int(n)), float(sparsity), float(cold) * 1e-6, variant, program)
        for variant, m, k, n, sparsity, cold in _PRODUCT.findall(output)
    ]


def best_product(floors: Iterable[ProductFloor], shape: tuple[int, ...], sparsity: float) -> ProductFloor | None:
    """The fastest variant for M, K, N and a share of zeros (to a thousandth)."""
    fit = [floor for floor in floors if floor.shape == shape and abs(floor.sparsity - sparsity) < 1e-3]
    return min(fit, key=lambda floor: floor.seconds, default=None)


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
    return _figures(command, parse)


def _figures(command: Sequence[str], read: Callable[[str, str], list[F]]) -> list[F]:
    found = read(_output(command, RUN_LIMIT), Path(command[0]).stem)
    if not found:
        line = "BEST Heat-2D 1308.2 variant"
        if read is parse_products:
            line = "variant,28672,8192,16,0.60,219,81.7,91.0,2408,2e-4"
        raise ToolchainError(f"{shlex.join(command)} printed no figure", hint=f"a floor prints lines such as: {line}")
    return found


@contextmanager
def compiling(lines: Sequence[str], arch: str) -> Iterator[list[Future[list[str]]]]:
    """The commands of floors, which are compiled while something else goes on; they are gone at the end."""
    with TemporaryDirectory(prefix="sparsegen-floor-") as folder, ThreadPoolExecutor(len(lines) or 1) as pool:
        yield [pool.submit(prepare, line, arch, Path(folder)) for line in lines]


def figures(
    prepared: Iterable[Future[list[str]]], read: Callable[[str, str], list[F]], say: Callable[[str], None]
) -> list[F]:
    """Run the floors that are being compiled, one after another; one that fails is said, and has no figures."""
    known: list[F] = []
    for each in prepared:
        try:
            known += _figures(each.result(), read)
        except SparsegenError as error:
            say(f"floor: {error}")
    return known


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

"""Floors: programs written by hand that are measured beside ours, in the same call on the same GPU.

A floor is any program that prints lines ``BEST name GS/s variant``, or for products
``variant,M,K,N,sparsity,MB,us_hot,us_cold,GB/s,error,more``; everything else that it prints is passed over.
``--floor "FILE.cu WORDS"`` compiles it with nvcc and runs it with these words; a file that is not called ``.cu`` is
run as it is.  Where none is named, those of ``benchmarks/floors`` run beside the part that has them, in a checkout.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.ir.errors import SparsegenError, ToolchainError

#: Seconds that nvcc, and then the program, may take.
COMPILE_LIMIT, RUN_LIMIT = 300, 360
USE = 'write --floor "FILE.cu WORDS"'
EXAMPLES = "BEST Heat-2D 1308.2 variant, or variant,28672,8192,16,0.60,219,81.7,91.0,2408,2e-4"
#: The programs of a checkout that have figures of a suite's part, with their words.
FOLDER: Final = Path(__file__).resolve().parents[2] / "benchmarks" / "floors"
OWN: Final = {
    ("stencil", "targets"): ("stencil_floor.cu", "stencil_tc_floor.cu"),
    ("stencil", "wide"): ("onchip_wave_floor.cu 2",),
    ("updates", "targets"): ("onchip_wave_floor.cu 2", "onchip_wave_floor.cu 3"),
    ("updates", "onchip"): ("onchip_wave_floor.cu 1",),
    ("bitmap", "targets"): ("bitmap_floor.cu", "bitmap2_floor.cu"),
    ("nm", "wide"): ("nm_floor.cu big small",), ("nm", "narrow"): ("nm_floor.cu spmv",),
    **{("magicube", name): ("magicube_floor.cu",)
       for name in ("spmm", "mixed", "short", "uneven", "sddmm", "attention")},
    **{("unstructured", name): ("unstructured_floor.cu",) for name in ("dlmc", "graphs", "clustered")},
}  # fmt: skip
#: A system of equations: its name, type, edge and axes, the variant's words, GS/s, and that it was right.
_SYSTEM = re.compile(r"^(\w+),(f64|f32),(\d+)\^(\d),(.*?),GS/s=([\d.]+),.* ok$", re.MULTILINE)
#: A field that stays on chip: the variant, points, type, edge and axes, more of the variant, GS/s of a long call.
_ONCHIP = re.compile(
    r"^onchip[23]d ([^,]*),(\dpt),(f64|f32),(\d+\^[23]),(.*?),GS/s .*1000 steps=([\d.]+),.* ok$", re.MULTILINE
)
_BEST = re.compile(r"^BEST (\S+) (\d+(?:\.\d+)?)(?: (\S+))?\s*$", re.MULTILINE)
#: An ablation, whose result means nothing, has the error -1; behind that of a wrong result stands FAIL.
_PRODUCT = re.compile(
    r"^(\w+),(\d+),(\d+),(\d+),(\d\.\d+),[\d.]+,[\d.]+,([\d.]+),[\d.]+,\d[\d.e+-]*(?:,.*)?$", re.MULTILINE
)


@dataclass(frozen=True)
class Floor:
    """One figure of a floor: GS/s of what it calls ``name``, or how many products so called a second (with cold L2), by
    which of its variants, and the program's name."""

    name: str
    rate: float
    variant: str
    program: str

    def __str__(self) -> str:
        return f"{self.program} {self.variant}".rstrip()


def own(suite: str, parts: Sequence[str]) -> list[str]:
    """The lines of ``--floor`` where none is given, each once; none for other parts, or in an installed package."""
    lines = [
        line.split(" ", 1) for line in dict.fromkeys(line for part in parts for line in OWN.get((suite, part), ()))
    ]
    return [" ".join((shlex.quote(str(FOLDER / name)), *words)) for name, *words in lines if (FOLDER / name).is_file()]


#: Of the two times the second is with cold L2; a product is M tokens by K by N rows of W.
_PATTERN = re.compile(
    r"^(\w+),(f16|f32),(\d+),(\d+),(\d+),(\d+):(\d+),(?:VW(\d+)|EW),([\d.]+),([\d.]+),.*,yes$", re.MULTILINE
)


def pattern(shape: Iterable[int], kept: int, window: int, vector: int | tuple[int, int], dtype: str) -> str:
    """What products of M, K, N with ``kept`` of every ``window`` columns are called, ``vector`` rows alike."""
    return f"{'x'.join(map(str, shape))} {dtype}, {kept} of {window}, {vector}"


def product(shape: Iterable[int], sparsity: float) -> str:
    """What products of M, K, N with a share of zeros are called."""
    return f"{'x'.join(map(str, shape))}, {sparsity:.3f}"


#: The same of products with vectors of integers: both times, then whether every integer is right, or an error.
_VECTORS = re.compile(
    r"^RES,(\w+),([\w-]+),([\w.]+),(\d+),(\d+),(\d+),(\d+),(\d\.\d+),(\w+),([\d.]+),([\d.]+),(?:exact|relerr=[\d.]+),",
    re.MULTILINE,
)
_SIGMA = re.compile(r"sigma(\d+\.\d+)")


def vectors(op: str, types: str, shape: Iterable[int], height: int, sparsity: float, sigma: float = 0.0) -> str:
    """What ``op``s of integers in vectors are called; ``sigma``: of the rows' lognormal loads, 0 if alike."""
    return f"{op} {'x'.join(map(str, shape))} {types}, V={height}, {sparsity:.2f}, {sigma:g}"


def _of_vectors(line: Sequence[str], program: str) -> list[Floor]:
    op, types, variant, m, k, n, height, sparsity, loads, *times = line
    found = _SIGMA.search(variant)
    if (loads == "lognormal") != bool(found):  # of which spread it does not say
        return []
    sigma = float(found[1]) if found else 0.0
    name = vectors(op, types, (int(m), int(k), int(n)), int(height), float(sparsity), sigma)
    return [
        Floor(f"{name}, {state}", 1e6 / float(took), variant, program)
        for state, took in zip(("hot", "cold"), times, strict=True)
    ]


#: The same of products of any sparse matrix: its name, columns, type, system and variant, then both times.
_MATRICES = re.compile(
    r"^RES,([^,]+),\d+,\d+,\d+,\d\.\d+,(\d+),(f16|f32),([\w+]+),([^,]+),([\d.]+),([\d.]+),[\d.e+-]+,[\d.]+$",
    re.MULTILINE,
)
_LIBRARIES: Final = ("cuBLAS", "cuSPARSE")


def matrix(name: str, n: int, dtype: str) -> str:
    """What products of a matrix with ``n`` columns are called."""
    return f"{name}, n={n}, {dtype}"


def parse(output: str, program: str) -> list[Floor]:
    """The figures in what a program printed; one of 0 GS/s (nothing ran, or nothing was right) is none."""
    stencils = (Floor(name, float(rate), variant or "", program) for name, rate, variant in _BEST.findall(output))
    patterns = [
        Floor(f"{pattern((int(m), int(k), int(n)), int(kept), int(window), int(vector or 1), dtype)}, {state}",
              1e6 / float(took), name, program)
        for name, dtype, n, k, m, kept, window, vector, hot, cold in _PATTERN.findall(output)
        for state, took in (("hot", hot), ("cold", cold))
    ]  # fmt: skip
    matrices = [
        Floor(f"{matrix(name, int(n), dtype)}, {state}", 1e6 / float(took), f"{system} {variant}", program)
        for name, n, dtype, system, variant, hot, cold in _MATRICES.findall(output)
        if system not in _LIBRARIES
        for state, took in (("hot", hot), ("cold", cold))
    ]
    systems = [
        Floor(f"{name} {dtype}", float(rate), variant, program)
        for name, dtype, _, _, variant, rate in _SYSTEM.findall(output)
    ]
    systems += [
        Floor(f"{points} {dtype} {size}", float(rate), f"{variant},{more}", program)
        for variant, points, dtype, size, more, rate in _ONCHIP.findall(output)
    ]
    return (
        patterns
        + matrices
        + systems
        + [floor for line in _VECTORS.findall(output) for floor in _of_vectors(line, program)]
        + [floor for floor in stencils if floor.rate > 0]
        + [
            Floor(product(map(int, shape), float(sparsity)), 1e6 / float(cold), variant, program)
            for variant, *shape, sparsity, cold in _PRODUCT.findall(output)
        ]
    )


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
    text = file.read_text(encoding="utf-8", errors="replace")
    libraries = [f"-l{name}" for name in ("cublas", "cusparse") if name in text]
    command = [str(find_nvcc().path), code, "-O3", "-std=c++17", str(file), "-o", str(target), *libraries]
    _output(command, COMPILE_LIMIT)
    return [str(target), *words]


def measure(command: Sequence[str]) -> list[Floor]:
    """Run a prepared floor; ToolchainError if it fails or prints no figure."""
    found = parse(_output(command, RUN_LIMIT), Path(command[0]).stem)
    if not found:
        hint = f"a floor prints lines such as: {EXAMPLES}"
        raise ToolchainError(f"{shlex.join(command)} printed no figure", hint=hint)
    return found


def measured(lines: Sequence[str], arch: str, say: Callable[[str], None]) -> list[Floor]:
    """The figures of floors, compiled together and run one after another; one that fails is said, and has none."""
    known: list[Floor] = []
    with TemporaryDirectory(prefix="sparsegen-floor-") as folder, ThreadPoolExecutor(len(lines) or 1) as pool:
        for each in [pool.submit(prepare, line, arch, Path(folder)) for line in lines]:
            try:
                known += measure(each.result())
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

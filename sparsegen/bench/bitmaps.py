"""Suite ``bitmap``: products of pruned weights as language models have them, and what they must reach on an H200.

Its parts are measured one at a time, each complete in itself: what a row is compared with is measured in the same part.

=======  ===========================================================================================================
targets  f16 matrices at 50 to 70 % zeros, against figures for an H200, cuBLAS and what was written by hand
widths   one column to 128
bf16     those of ``targets`` at 60 % in bf16
dlmc     a pruned network's pattern, tiled, against the same number of zeros in other places
encode   how long it takes to encode the largest matrix, on the GPU and on the host
=======  ===========================================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparsegen.ir.errors import ArrayError
from sparsegen.loading import read_smtx

Shape = tuple[int, int, int]  #: M, K, N
LARGE, MIDDLE, SQUARE, SMALL = (28672, 8192), (21504, 7168), (8192, 8192), (4096, 4096)
#: What is in L2 before a call: lines of a memset, lines that were read, what the last call left there.
COLD, READ, WARM = "memset", "read", "hot"
STATES: Final = (COLD, READ, WARM)
#: How x and y are packed.
ORDERS: Final = ("rows", "columns")
#: What a target is a multiple of, where it is no figure: the same case's time in cuBLAS, or of the shuffled pattern.
CUBLAS, UNIFORM = "cuBLAS", "uniform"
#: matrix, columns, share of zeros -> microseconds at least and hoped for, with cold L2; None: no slower than cuBLAS.
TARGETS: Final[tuple[tuple[tuple[int, int], int, float, float | None, float | None], ...]] = (
    (LARGE, 16, 0.5, 98, 75),
    (LARGE, 16, 0.6, 92, 65),
    (LARGE, 16, 0.7, 84, 54),
    (LARGE, 8, 0.6, 86, 62),
    (LARGE, 32, 0.6, 110, 75),
    (MIDDLE, 16, 0.6, 72, 45),
    (SQUARE, 16, 0.6, 40, 26),
    (SMALL, 16, 0.6, None, None),
)
WIDTHS: Final = (1, 4, 64, 128)
USUAL: Final = 0.6  #: share of zeros of the parts that have one only
#: Patterns of SPARSEGEN_DATA (Deep Learning Matrix Collection) and their share of zeros; they divide LARGE.
PATTERNS: Final = (
    ("dlmc/transformer-magnitude-0.5-ffn_conv1.smtx", 0.5),
    ("dlmc/transformer-magnitude-0.7-ffn_conv1.smtx", 0.7),
)
#: A pruned pattern's time over that of as many zeros in random places.
PATTERN_SHARE: Final = 1.1
#: Seconds to encode LARGE.
GPU_ENCODE, HOST_ENCODE = 0.05, 10.0


@dataclass(frozen=True)
class Weights:
    """A random matrix: each element is zero with probability ``sparsity``, or by a file's pattern, tiled.

    ``shuffled``: the pattern's zeros are put in random places.
    """

    shape: tuple[int, int]
    sparsity: float
    dtype: str = "f16"
    pattern: str = ""
    shuffled: bool = False


@dataclass(frozen=True)
class ProductCase:
    """What to measure: a product of ``weights`` with ``n`` columns, or with ``n`` 0 how long their encoding takes.

    ``target`` and ``aim`` are seconds; with ``of`` the target is that multiple of another time (CUBLAS: of the dense
    product, UNIFORM: of the case before this one).  ``on``: where weights are encoded.
    """

    part: str
    weights: Weights
    n: int
    target: float | None = None
    aim: float | None = None
    of: str = ""
    on: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """M, K, N; M, K of an encoding."""
        return (*self.weights.shape, self.n) if self.n else self.weights.shape

    @property
    def name(self) -> str:
        """What it is called in tables."""
        w = self.weights
        if self.on:
            return f"encode, {self.on}"
        if w.pattern:
            return f"{Path(w.pattern).stem}, {'as many zeros anywhere' if w.shuffled else 'tiled'}"
        return f"{w.sparsity:.0%} zeros"


def _target(matrix: tuple[int, int], n: int, sparsity: float, least: float | None, aim: float | None) -> ProductCase:
    case = ProductCase("targets", Weights(matrix, sparsity), n, 1.0, of=CUBLAS)
    return case if least is None else replace(case, target=least * 1e-6, aim=aim and aim * 1e-6, of="")


def _pattern(file: str, sparsity: float) -> tuple[ProductCase, ProductCase]:
    w = Weights(LARGE, sparsity, pattern=file)
    uniform = ProductCase("dlmc", replace(w, shuffled=True), 16)
    return uniform, ProductCase("dlmc", w, 16, PATTERN_SHARE, of=UNIFORM)


#: part -> its cases; what a case is compared with stands before it.
CASES: Final[dict[str, list[ProductCase]]] = {
    "targets": [_target(*each) for each in TARGETS],
    "widths": [ProductCase("widths", Weights(matrix, USUAL), n) for matrix in (LARGE, SQUARE) for n in WIDTHS],
    "bf16": [
        ProductCase("bf16", Weights(matrix, USUAL, "bf16"), n)
        for matrix, n, sparsity, *_ in TARGETS
        if sparsity == USUAL
    ],
    "dlmc": [case for each in PATTERNS for case in _pattern(*each)],
    "encode": [
        ProductCase("encode", Weights(LARGE, USUAL), 0, GPU_ENCODE, on="GPU"),
        ProductCase("encode", Weights(LARGE, USUAL), 0, HOST_ENCODE, on="host"),
    ],
}
PARTS: Final = tuple(CASES)


def cases(parts: Sequence[str] = PARTS) -> list[ProductCase]:
    """The cases of some parts."""
    return [case for part in parts for case in CASES[part]]


def best(times: Mapping[str, Mapping[str, float]], state: str) -> float:
    """The time of the better order of x and y, of those after ``state``."""
    return min(each[state] for each in times.values())


def pattern(name: str | Path) -> Any:
    """Where the entries of a pattern are, bool [rows, cols].

    ``name``: an .smtx file, or its name in the folder SPARSEGEN_DATA, ArrayError where that is not set; FormatError for
    a file that is none.
    """
    folder = os.environ.get("SPARSEGEN_DATA", "")
    if not (folder or isinstance(name, Path)):
        raise ArrayError(f"skipped: {name} is not here", hint="set SPARSEGEN_DATA to the folder of patterns")
    file = name if isinstance(name, Path) else Path(folder) / name
    rows = read_smtx(file)
    kept = np.zeros(rows.shape, bool)
    kept[rows.of_entries(), rows.idx] = True
    return kept

"""Suite ``bitmap``: products of pruned weights as language models have them, and what they must reach on an H200.

Its parts are measured one at a time, each complete in itself: what a row is compared with is measured in the same part.

=======  ===========================================================================================================
targets  f16 matrices at 50 to 70 % zeros, against figures for an H200, cuBLAS and what was written by hand
shapes   layers of language models with few columns, against cuBLAS
widths   other numbers of columns, up to 512
bf16     bf16 beside f16
narrow   elements of 8 bits beside f16
grouped  matrices that multiply one x, as q, k and v do: a launch each, and one for all
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
#: What a target is a multiple of, where it is no figure: the time of the same case in cuBLAS, with as many zeros
#: elsewhere, in f16, or with a launch for each matrix.
CUBLAS, UNIFORM, HALVES, APART = "cuBLAS", "uniform", "f16", "launches apart"
USUAL: Final = 0.6  #: share of zeros of the parts that have one only
#: columns of LARGE -> microseconds with cold L2, at least and hoped for, by the share of zeros.
FIGURES: Final[dict[int, dict[float, tuple[float, float]]]] = {
    16: {0.5: (92, 80), 0.6: (78.5, 66), 0.7: (74, 56)}, 8: {0.5: (88, 77), 0.6: (76.5, 63), 0.7: (71.5, 53)},
    1: {0.5: (88, 76), 0.6: (75.5, 60), 0.7: (71, 50)}, 32: {0.5: (105, 92), 0.6: (95, 78), 0.7: (90, 68)},
    64: {0.5: (127, 115), 0.6: (112, 95), 0.7: (106, 85)},
}  # fmt: skip
#: Of 128 columns, shares of cuBLAS's time.
SHARES: Final[dict[float, tuple[float, float | None]]] = {0.5: (1.1, None), 0.6: (1.05, 0.95), 0.7: (1.0, 0.9)}
#: Layers of language models and their share of zeros, columns, and the share of cuBLAS's time.
LAYERS: Final = (((11008, 4096), 0.6), ((4096, 11008), 0.6), ((13824, 5120), 0.55), ((18944, 3584), 0.6))
LAYER_COLUMNS, OF_LAYER = (1, 8, 16), 1 / 1.3
WIDTHS: Final = ((LARGE, (4, 256, 512)), (SQUARE, (1, 4, 32, 64, 128, 256)))
#: Columns of other types, and their time over that of f16.
TYPE_COLUMNS: Final = (1, 8, 16, 64)
OF_HALVES: Final = {"bf16": 1.03, "i8": 1 / 1.15, "e4m3": 1 / 1.15}
#: Matrices that multiply one x, columns, and the time of one launch over that of one each.
GROUPED, GROUP_COLUMNS, OF_APART = 3, (1, 16), 0.75
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

    ``shuffled``: the pattern's zeros are put in random places.  ``number``: which of several such matrices.
    """

    shape: tuple[int, int]
    sparsity: float
    dtype: str = "f16"
    pattern: str = ""
    shuffled: bool = False
    number: int = 0


@dataclass(frozen=True)
class ProductCase:
    """What to measure: a product of ``weights`` with ``n`` columns, or with ``n`` 0 how long their encoding takes.

    ``target`` and ``aim`` are seconds; with ``of`` they are multiples of another time (CUBLAS: of the dense product,
    else of another case's).  ``on``: where weights are encoded.  ``count``: of so many such matrices, in one launch or
    ``apart``.
    """

    part: str
    weights: Weights
    n: int
    target: float | None = None
    aim: float | None = None
    of: str = ""
    on: str = ""
    count: int = 1
    apart: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """M (of all matrices), K, N; M, K of an encoding."""
        m, k = self.weights.shape
        return (m * self.count, k, self.n) if self.n else self.weights.shape

    @property
    def each(self) -> tuple[Weights, ...]:
        """The matrices."""
        return tuple(replace(self.weights, number=i) for i in range(self.count))

    @property
    def other(self) -> ProductCase | None:
        """The case of whose time the target is a multiple, if it is of one."""
        w = self.weights
        change: dict[str, dict[str, Any]] = {
            UNIFORM: {"weights": replace(w, shuffled=True)}, HALVES: {"weights": replace(w, dtype="f16")},
            APART: {"apart": True},
        }  # fmt: skip
        return replace(self, target=None, aim=None, of="", **change[self.of]) if self.of in change else None

    @property
    def name(self) -> str:
        """What it is called in tables."""
        w = self.weights
        if self.on:
            return f"encode, {self.on}"
        if w.pattern:
            return f"{Path(w.pattern).stem}, {'as many zeros anywhere' if w.shuffled else 'tiled'}"
        launches = f", {self.count} matrices, {'a launch each' if self.apart else 'one launch'}" * (self.count > 1)
        return f"{w.sparsity:.0%} zeros{launches}"


def _targets() -> list[ProductCase]:
    def figure(matrix: tuple[int, int], n: int, zeros: float, least: float, aim: float) -> ProductCase:
        return ProductCase("targets", Weights(matrix, zeros), n, least * 1e-6, aim * 1e-6)

    def share(matrix: tuple[int, int], n: int, zeros: float, least: float, aim: float | None) -> ProductCase:
        return ProductCase("targets", Weights(matrix, zeros), n, least, aim, CUBLAS)

    found = [figure(LARGE, n, zeros, *goals) for n, each in FIGURES.items() for zeros, goals in each.items()]
    found += [share(LARGE, 128, zeros, *goals) for zeros, goals in SHARES.items()]
    return [
        *found, figure(MIDDLE, 16, USUAL, 58.5, 48), figure(SQUARE, 16, USUAL, 31, 25),
        share(SMALL, 16, USUAL, 1.0, None),
    ]  # fmt: skip


def _beside(*cases: ProductCase) -> list[ProductCase]:
    """The cases, each behind the one that it is a multiple of."""
    return list(dict.fromkeys(each for case in cases for each in (case.other, case) if each))


def _types(part: str, *names: str) -> list[ProductCase]:
    """Products of some types, behind those of f16."""
    return _beside(*(ProductCase(part, Weights(LARGE, USUAL, dtype), n, OF_HALVES[dtype], of=HALVES)
                     for n in TYPE_COLUMNS for dtype in names))  # fmt: skip


#: part -> its cases; what a case is compared with stands before it.
CASES: Final[dict[str, list[ProductCase]]] = {
    "targets": _targets(),
    "shapes": [ProductCase("shapes", Weights(matrix, zeros), n, OF_LAYER, of=CUBLAS)
               for matrix, zeros in LAYERS for n in LAYER_COLUMNS],
    "widths": [ProductCase("widths", Weights(matrix, USUAL), n) for matrix, columns in WIDTHS for n in columns],
    "bf16": _types("bf16", "bf16"), "narrow": _types("narrow", "i8", "e4m3"),
    "grouped": _beside(*(ProductCase("grouped", Weights(SMALL, USUAL), n, OF_APART, of=APART, count=GROUPED)
                         for n in GROUP_COLUMNS)),
    "dlmc": _beside(*(ProductCase("dlmc", Weights(LARGE, zeros, pattern=file), 16, PATTERN_SHARE, of=UNIFORM)
                      for file, zeros in PATTERNS)),
    "encode": [
        ProductCase("encode", Weights(LARGE, USUAL), 0, GPU_ENCODE, on="GPU"),
        ProductCase("encode", Weights(LARGE, USUAL), 0, HOST_ENCODE, on="host"),
    ],
}  # fmt: skip
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

"""Suite ``magicube``: products, sampled products and attention of integers in vectors, as Magicube's paper has them.

=========  =======================================================================================================
spmm       8 bits times 8 bits, vectors of 8 rows, two sizes, half of W to a fiftieth
mixed      operands of 4 and 16 bits; x of 4 bits is packed
short      vectors of 4 and of 2 rows
uneven     loads of vector rows that are lognormal
sddmm      the elements of a dense product that a mask keeps
attention  4 heads of 4096 queries and keys: of integers quantised beforehand, and of f16
dlmc       patterns of pruned networks rounded up to vectors, and as many of them anywhere (with ``--data``); the
           model may choose the library's dense product, and is judged by the best of both
=========  =======================================================================================================

What is asked for are microseconds of a call with warm L2.  ``magicube_run`` measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sparsegen.bench import beside
from sparsegen.bench.beside import BesideRow
from sparsegen.bench.bitmaps import pattern
from sparsegen.bench.cells import Cells, Result, Row, judged, micro, part, pivot, size
from sparsegen.ir.errors import ArrayError

#: Parts with cases of their own; those of ``dlmc`` are the files that there are.
FIXED: Final = ("spmm", "mixed", "short", "uneven", "sddmm", "attention")
PARTS: Final = (*FIXED, "dlmc")
SPMM, SDDMM, ATTENTION = "spmm", "sddmm", "attention"
#: Heads of attention, and bits of its exponentials and of q, k and v as the paper writes them.
HEADS: Final = 4
QUANTIZED, FROM_F16 = "8b-8b", "f16 8b-8b"
#: Columns of x that patterns of networks are multiplied with.
COLUMNS: Final = (128, 512)
#: sparsity -> microseconds at least and aimed at.
Goals = Mapping[float, tuple[float | None, float | None]]


@dataclass(frozen=True)
class VectorCase:
    """What to measure: ``op`` of ``shape`` (M, K, N; queries, keys, d of attention) with vectors of ``height`` rows.

    ``kinds``: the types of the operands; ``sigma``: of lognormal loads; ``file``: a pattern, ``anywhere``: as many
    vectors in random places; ``least`` and ``aim``: microseconds asked for.
    """

    part: str
    op: str
    shape: tuple[int, int, int]
    sparsity: float
    kinds: tuple[str, str] = ("i8", "i8")
    height: int = 8
    sigma: float = 0.0
    least: float | None = None
    aim: float | None = None
    quantized: bool = True
    file: str = ""
    anywhere: bool = False

    @property
    def types(self) -> str:
        """The types of the operands as the paper writes them."""
        if self.op == ATTENTION:
            return QUANTIZED if self.quantized else FROM_F16
        return types(self.kinds)

    @property
    def name(self) -> str:
        """What it is called in tables, besides its size, types and share of zeros."""
        if self.file:
            return f"{Path(self.file).stem}{', as many anywhere' * self.anywhere}"
        if self.op == ATTENTION:
            return f"attention, {HEADS} heads"
        return f"{self.op}, V={self.height}" + f", lognormal loads, sigma {self.sigma:g}" * (self.sigma > 0)


def types(kinds: Sequence[str]) -> str:
    """The types of two operands as the paper writes them, such as L16-R8."""
    return "-".join(side + kind[1:] for side, kind in zip("LR", kinds, strict=True))


def _each(part: str, op: str, shape: tuple[int, int, int], goals: Goals, **more: Any) -> list[VectorCase]:
    """A case for each share of zeros."""
    return [VectorCase(part, op, shape, zeros, least=least, aim=aim, **more) for zeros, (least, aim) in goals.items()]


def _least(*least: float, at: Sequence[float] = (0.7, 0.9, 0.98), aims: Sequence[float] = ()) -> Goals:
    return {zeros: (goal, aims[i] if aims else None) for i, (zeros, goal) in enumerate(zip(at, least, strict=False))}


_SQUARE, _LAYER, _SAMPLED, _HEADS = (4096, 4096, 256), (2048, 2304, 512), (4096, 512, 4096), (4096, 4096, 64)
_ALL: Final = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
_EIGHT: Final = _least(21, 15.6, 12.9, 10.1, 7.4, 5.2, at=_ALL, aims=(16, 12, 10, 8, 6, 4))
#: 4 bits of x are half the bytes.
_FOUR: Final = _least(15, 9.5, 5.4, aims=[round(0.7 * (_EIGHT[zeros][0] or 0), 1) for zeros in (0.7, 0.9, 0.98)])
_ATTENTION: Final = _least(28.9, 21.2, 17.2, at=(0.8, 0.9, 0.95), aims=(22, 15, 11))
#: Microseconds that quantising f16 may take.
_QUANTISE: Final = 6.0
CASES: Final[tuple[VectorCase, ...]] = (
    *_each("spmm", SPMM, _SQUARE, _EIGHT),
    *_each("spmm", SPMM, _LAYER, _least(13.5, 10.5, 8.8, 7.4, 5.5, 4.1, at=_ALL, aims=(10.5, 8.5, 7, 6, 4.5, 3.3))),
    *_each("mixed", SPMM, _SQUARE, _least(18.4, 11.5, 5.2), kinds=("i16", "i8")),
    *_each("mixed", SPMM, _SQUARE, _FOUR, kinds=("i8", "i4")),
    *_each("mixed", SPMM, _SQUARE, _FOUR, kinds=("i4", "i4")),
    *_each("mixed", SPMM, _SQUARE, _least(19.8, 11.3), kinds=("i16", "i4")),
    *_each("mixed", SPMM, _SQUARE, _least(31.5, 17.9, 8.1), kinds=("i16", "i16")),
    *_each("short", SPMM, _SQUARE, _least(21.5, 12.6, 6.5), height=4),
    *_each("short", SPMM, _SQUARE, _least(27.8, 17, 9.4), height=2),
    *_each("uneven", SPMM, _SQUARE, _least(16, 11.2), sigma=1.0),
    *_each("sddmm", SDDMM, _SAMPLED, _least(33.5, 24, 19.2, 13.4, 10.4, 8.4, at=_ALL, aims=(26, 19, 15, 10.5, 8, 5.5))),
    *_each("sddmm", SDDMM, _SAMPLED, {0.9: (33.3, None), 0.98: (25.6, 18)}, kinds=("i16", "i16")),
    *_each("attention", ATTENTION, _HEADS, _ATTENTION),
    *_each("attention", ATTENTION, _HEADS, {zeros: ((least or 0) + _QUANTISE, None)
                                           for zeros, (least, _) in _ATTENTION.items()}, quantized=False),
)  # fmt: skip


def cases(parts: Sequence[str], data: Path | None = None) -> list[VectorCase]:
    """The cases of some parts; ``data``: the folder of patterns, ArrayError if it has none."""
    found = [case for case in CASES if case.part in parts]
    return found + (_patterns(data) if data and "dlmc" in parts else [])


def _patterns(folder: Path) -> list[VectorCase]:
    """The patterns of a folder, each beside as many vectors in random places."""
    files = sorted(folder.glob("*.smtx"))
    if not files:
        raise ArrayError(f"{folder} has no patterns, *.smtx", hint="name a folder of the collection for --data")
    found = []
    for file in files:
        m, k = pattern(file).shape
        for n in COLUMNS:
            case = VectorCase("dlmc", SPMM, (m, k, n), 0.0, file=str(file))
            found += [case, replace(case, anywhere=True)]
    return found


@dataclass(frozen=True, kw_only=True)
class VectorRow(BesideRow):
    """One problem; ``dtype``: types of the operands."""


# ------------------------------------------------------------------------------------------------------------- tables
#: What may be chosen for a pattern: the cheapest schedule of ours, and the library's product.
OWN, DENSE = "vectors", "dense"
_PRODUCTS: Final = {"int8": "cuBLAS int8", "f16": "cuBLAS f16"}
#: What stands beside each part, those that are not named here as ``products``: the names of columns by library.
LIBRARIES: Final = {
    "products": _PRODUCTS, "dlmc": {OWN: "vectors", DENSE: "dense", **_PRODUCTS},
    "attention": {"flash": "SDPA flash", "cudnn": "SDPA cuDNN"},
}  # fmt: skip


def view(name: str, found: Result) -> Cells:
    """The table of a part, with those that stand beside any of its rows."""
    return beside.view(part(found, name), LIBRARIES.get(name, _PRODUCTS))


def headline(found: Result) -> Cells:
    """A line a kind of problem, a column a share of zeros: µs, and in brackets what is asked for."""

    def cell(row: Row) -> str:
        asked = f" ({micro(row['target'], 'g')})" if row["target"] else ""
        return judged(row, micro(row["hot_s"])) + asked

    rows = [row for row in found["rows"] if row["part"] != "dlmc"]
    names, lines = pivot(((row["case"], size(row), row["dtype"]), beside.zeros(row), cell(row)) for row in rows)
    return [["pattern", "size", "type", *names], *([*line, *cells] for line, cells in lines.items())]

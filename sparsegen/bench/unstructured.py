"""Suite ``unstructured``: products of any sparse matrix, as ``format="auto"`` has them.

=========  =======================================================================================================
dlmc       patterns of pruned networks (Deep Learning Matrix Collection) in f32 and f16
graphs     adjacency: cora, 100,000 nodes of a power law, a band of a million
clustered  rows that touch the same blocks of columns, in no order; beside them BSA-SpMM's own way, in two launches
auto       the patterns of ``--data`` and 40 matrices of the seed (``mixture``): what is chosen, over the best of all
=========  =======================================================================================================

Patterns come from ``--data``, a folder with ``*.smtx`` and ``cora.mtx`` in it or below; of one that is not there as
many entries are anywhere.  What is asked for are microseconds of a call with warm L2.  ``unstructured_run`` measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sparsegen.bench import beside, generated, graphs
from sparsegen.bench.beside import BesideRow
from sparsegen.bench.cells import Cells, Result, part
from sparsegen.bench.mixture import BAND, CLUSTERS, POWER, RANDOM, Matrix, matrices, of_file, of_graph
from sparsegen.formats.rows import Rows
from sparsegen.ir.errors import ArrayError

AUTO: Final = "auto"
PARTS: Final = ("dlmc", "graphs", "clustered", AUTO)
#: What stands beside: the names of columns by library.
CUBLAS, CUSPARSE = "cublas", "cusparse"
LIBRARIES: Final = {CUBLAS: "cuBLAS", CUSPARSE: "cuSPARSE"}
#: BSA-SpMM's own way, in two launches (the format's name), beside products whose rows are put in order.
PAPER: Final = "blocked_ell"
#: Seed of what stands for a pattern that is not there.
SEED: Final = 16


@dataclass(frozen=True)
class SparseCase:
    """A product of a matrix with random values and ``n`` columns; ``least`` and ``aim``: microseconds asked for, or
    with ``peer`` shares of what cuSPARSE takes."""

    part: str
    matrix: Matrix
    n: int
    dtype: str
    least: float | None = None
    aim: float | None = None
    peer: bool = False


# --------------------------------------------------------------------------------------------------------------- cases
#: Patterns of networks: file, rows, columns, share of zeros.
_PATTERNS: Final = (
    *((f"transformer-magnitude-{zeros}-ffn_conv1", 2048, 512, zeros) for zeros in (0.7, 0.9, 0.95, 0.98)),
    ("rn50-magnitude-0.9-final_dense", 1000, 2048, 0.9),
)
#: The same for few columns, and rows of W that are long.
_LONG: Final = (
    ("rn50-magnitude-0.98-final_dense", 1000, 2048, 0.98),
    ("rn50-magnitude-0.98-bottleneck_2_block_group4_1_1", 512, 4608, 0.98),
)
#: Rows, share of zeros, type, columns -> microseconds at least, and aimed at.
_GOALS: Final[Mapping[tuple[int, float, str, int], tuple[float, float]]] = {
    (2048, 0.9, "f32", 128): (7.1, 5.5), (2048, 0.9, "f32", 512): (16.2, 12), (2048, 0.7, "f16", 512): (8.6, 5),
    (1000, 0.9, "f32", 128): (14.2, 10), (1000, 0.9, "f32", 512): (38.4, 30), (2048, 0.95, "f16", 512): (7.2, 5),
}  # fmt: skip
COLUMNS: Final = (128, 512)
DTYPES: Final = ("f32", "f16")
CORA: Final = ("cora", 2708, 10_556)  #: file, nodes, edges counted from both ends
_NODES, _BAND = 100_000, 1_000_000


def cases(parts: Sequence[str], data: Path | None = None, seed: int = 0) -> list[SparseCase]:
    """The cases of some parts; ``data``: the folder of patterns, ArrayError if it has none; ``seed``: of part auto."""
    files = _files(data)
    made: dict[str, Callable[[], list[SparseCase]]] = {
        "dlmc": lambda: _networks(files), "graphs": lambda: _graphs(files), "clustered": _clustered,
        AUTO: lambda: _auto(files, seed),
    }  # fmt: skip
    return [case for part in parts for case in made[part]()]


def _files(data: Path | None) -> dict[str, Path]:
    """The patterns of a folder by name."""
    if data is None:
        return {}
    found = {file.stem: file for form in ("*.smtx", "*.mtx") for file in sorted(data.rglob(form))}
    if not found:
        raise ArrayError(f"{data} has no patterns, *.smtx", hint="name a folder of the collection for --data")
    return found


def _networks(files: Mapping[str, Path]) -> list[SparseCase]:
    found = [
        SparseCase("dlmc", matrix, n, dtype, least, aim)
        for name, m, k, zeros in _PATTERNS
        for matrix in [_pattern(files, name, (m, k), round((1 - zeros) * m * k))]
        for dtype in DTYPES
        for n in COLUMNS
        for least, aim in [_GOALS.get((m, zeros, dtype, n), (None, None))]
    ]
    return found + [
        SparseCase("dlmc", _pattern(files, name, (m, k), round((1 - zeros) * m * k)), 32, "f16", 1.0, 0.7, peer=True)
        for name, m, k, zeros in _LONG
    ]


def _pattern(files: Mapping[str, Path], name: str, shape: tuple[int, int], entries: int) -> Matrix:
    """The pattern of a file, or as many entries anywhere."""
    if name in files:
        return of_file(files[name])
    anywhere = partial(generated.scattered, shape, entries, SEED)
    return Matrix(f"anywhere-{shape[0]}x{shape[1]}-{entries}", RANDOM, anywhere)


def _graphs(files: Mapping[str, Path]) -> list[SparseCase]:
    name, nodes, edges = CORA
    cora = _pattern(files, name, (nodes, nodes), edges)
    power = Matrix("powerlaw_100k_20", POWER, lambda: of_graph(graphs.power_law(_NODES)),
                   ("--graph", "powerlaw_100k_20"))  # fmt: skip
    band = Matrix("banded_1000k_20", BAND, partial(generated.banded, _BAND, 20, 2000, shuffled=False),
                  ("--graph", "banded_1000k_20"))  # fmt: skip
    return [
        SparseCase("graphs", cora, 128, "f16", 7.1, 5.5), SparseCase("graphs", cora, 512, "f16", 9.2, 7.5),
        SparseCase("graphs", power, 128, "f16", 85, 65), SparseCase("graphs", power, 128, "f32", 132, 105),
        SparseCase("graphs", band, 128, "f16", 665, 480),
    ]  # fmt: skip


def _clustered() -> list[SparseCase]:
    """Groups of 32 rows with 16 blocks of 32 columns, half full, and a thousandth of all elements."""
    make = partial(generated.clustered, 8192, 8192, group=32, blocks=16, fill=0.5, noise=0.001)
    matrix = Matrix("clustered_8192_c256_b16_d0.5", CLUSTERS, make, ("--clustered",))
    return [
        SparseCase("clustered", matrix, 128, "f16", 14.5, 11),
        SparseCase("clustered", matrix, 512, "f16", 52, 38),
        SparseCase("clustered", matrix, 128, "f32"),
        SparseCase("clustered", matrix, 512, "f32"),
    ]


def _auto(files: Mapping[str, Path], seed: int) -> list[SparseCase]:
    patterns = [of_file(file) for file in files.values()]
    widths = (32, *COLUMNS)
    return [
        SparseCase(AUTO, matrix, n, dtype)
        for matrix in (*patterns, *matrices(seed))
        for dtype in DTYPES
        for n in widths
    ]


# -------------------------------------------------------------------------------------------------------------- floors
def words(cases: Sequence[SparseCase], folder: Path) -> list[str]:
    """The words that have the hand-written floor measure these products but for those of part auto; patterns are
    written to ``folder``."""
    asked = [case for case in cases if case.part != AUTO]
    found = dict.fromkeys(case.matrix for case in asked)
    if not found:
        return []
    said = [word for matrix in found for word in matrix.floor]
    for matrix in found:
        if not matrix.floor:
            file = folder / f"{matrix.name}.smtx"
            write(matrix.rows, file)
            said.append(str(file))
    return ["--n", ",".join(map(str, sorted({case.n for case in asked}))), *said]


def write(rows: Rows, file: Path) -> None:
    """Save a pattern as an .smtx file, as ``sparsegen.load_smtx`` reads it."""
    head = f"{rows.shape[0]}, {rows.shape[1]}, {rows.nnz}"
    file.write_text("\n".join([head, *(" ".join(map(str, a.tolist())) for a in (rows.ptr, rows.idx)), ""]))


# -------------------------------------------------------------------------------------------------------------- tables
@dataclass(frozen=True, kw_only=True)
class SparseRow(BesideRow):
    """One product.  ``entries`` and ``kind``: of the matrix.

    ``families``: of part auto the seconds, with warm L2, of the cheapest schedule by the model of each other family, if
    its result is right; ``predicted``: the model's seconds of those families that it compared.
    """

    kind: str
    entries: int
    families: Mapping[str, float] | None = None
    predicted: Mapping[str, float] | None = None


def view(name: str, found: Result) -> Cells:
    """The table of a part with targets."""
    return beside.view(part(found, name), {**LIBRARIES, PAPER: "two launches"})

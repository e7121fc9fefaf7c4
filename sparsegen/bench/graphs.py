"""Suite ``csr``: the adjacency of graphs times dense columns, as a layer of a graph network has it.

=========  =========================================================================================================
power-law  100,000 nodes with 20 edges each on average, made here: few nodes with many edges, few that are named often
given      the graph of ``--graph``, a Matrix Market file
=========  =========================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.formats.rows import distinct
from sparsegen.ir.errors import ArrayError

PARTS: Final = ("power-law", "given")
NODES, EDGES = 100_000, 20
COLUMNS: Final = (1, 32, 128, 512)
DTYPES: Final = ("f16", "f32")
#: The time of cuSPARSE's best algorithm over ours that is asked for, and for how many columns.
AHEAD: Final = {128: 1.3}


@dataclass(frozen=True)
class GraphCase:
    """What to measure: a graph's adjacency with random values, times ``n`` columns."""

    part: str
    name: str
    n: int
    dtype: str

    @property
    def ahead(self) -> float | None:
        """How many times faster than cuSPARSE it must be."""
        return AHEAD.get(self.n)


def cases(part: str, name: str, quick: bool = False) -> list[GraphCase]:
    """All widths and types; ``quick``: those with a target."""
    widths = [n for n in COLUMNS if n in AHEAD or not quick]
    return [GraphCase(part, name, n, dtype) for n in widths for dtype in DTYPES]


class Adjacency(NamedTuple):
    """A graph of ``nodes`` nodes: where each one's neighbours begin, and the neighbours, ascending."""

    nodes: int
    ptr: npt.NDArray[np.int64]
    idx: npt.NDArray[np.int64]


def adjacency(nodes: int, row: npt.NDArray[np.int64], column: npt.NDArray[np.int64]) -> Adjacency:
    """The graph with these edges; an edge that is there twice counts once."""
    edges = distinct(row * nodes + column)
    counts = np.bincount(edges // nodes, minlength=nodes)
    return Adjacency(nodes, np.concatenate([[0], np.cumsum(counts)]), edges % nodes)


def power_law(nodes: int = NODES, edges: int = EDGES, seed: int = 1) -> Adjacency:
    """A random graph: the number of a node's edges follows a power law, and so does how often a node is named."""
    rng = np.random.default_rng(seed)
    many = edges * 0.38 * (rng.random(nodes) + 1e-9) ** (-1 / 1.6)
    degrees = np.clip(many.astype(np.int64), 1, nodes // 8)
    row = np.repeat(np.arange(nodes), degrees)
    rank = (nodes * rng.random(len(row)) ** 3).astype(np.int64) % nodes
    return adjacency(nodes, row, (rank * 2654435761 + 7) % nodes)  # those that are named often lie anywhere


def given(file: Path) -> Adjacency:
    """The graph of a Matrix Market file of coordinates, which may be symmetric; ArrayError if it is none."""
    try:
        with file.open() as lines:
            kind = next(lines).split()
            size = next(line for line in lines if not line.startswith("%")).split()
            entries = np.loadtxt(lines, dtype=np.float64, ndmin=2)
        row, column = entries[:, :2].astype(np.int64).T - 1
        rows, columns, count = (int(n) for n in size)
        if kind[:3] != ["%%MatrixMarket", "matrix", "coordinate"] or rows != columns or count != len(entries):
            raise ValueError(f"its head is {' '.join(kind)}, its size {' '.join(size)}, it has {len(entries)} entries")
    except (OSError, ValueError, IndexError, StopIteration) as error:
        raise ArrayError(f"{file} is no graph: {error}", hint="pass a Matrix Market file, as in cora.mtx") from error
    if "symmetric" in kind:
        row, column = np.concatenate([row, column]), np.concatenate([column, row])
    return adjacency(rows, row, column)


def parts(chosen: Sequence[str], file: Path | None) -> list[tuple[str, str, Adjacency]]:
    """Part, name and adjacency of each graph: the generated one, and that of ``file``."""
    found = [("power-law", f"power law, {NODES:,} x {EDGES}", power_law())] if "power-law" in chosen else []
    if file is not None and "given" in chosen:
        found.append(("given", file.stem, given(file)))
    return found

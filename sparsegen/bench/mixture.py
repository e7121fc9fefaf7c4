"""Sparse matrices of all kinds: those of a seed, and those of files."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from sparsegen.bench import generated, graphs
from sparsegen.formats.library import NUMPY
from sparsegen.formats.rows import Rows
from sparsegen.loading import read_smtx

#: Kinds of matrices: those of files, and those that are made.
NETWORK, GRAPH = "network", "graph"
POWER, BAND, CLUSTERS, RANDOM = "power law", "banded", "clustered", "random"
#: Matrices of each kind that is made, their fewest and most rows, and the most entries of one.
EACH: Final = 10
ROWS: Final = (1000, 1_000_000)
ENTRIES: Final = 4_000_000
#: The most rows with blocks of columns: their entries are more than those of other kinds.
_BLOCKS: Final = 32_768
#: The most rows and columns with a share of zeros as weights have.
_WEIGHTS: Final = 4096


@dataclass(frozen=True)
class Matrix:
    """A pattern: its name, of which kind it is, and what makes it; ``floor``: the words that have a floor make it too,
    empty where it reads a file."""

    name: str
    kind: str
    make: Callable[[], Rows] = field(compare=False, repr=False)
    floor: tuple[str, ...] = ()

    @cached_property
    def rows(self) -> Rows:
        """Where its entries are."""
        return self.make()


def of_file(file: Path) -> Matrix:
    """The pattern of an .smtx file, or the graph of a Matrix Market file."""
    if file.suffix == ".smtx":
        return Matrix(file.stem, NETWORK, partial(_of_network, file))
    return Matrix(file.stem, GRAPH, lambda: of_graph(graphs.given(file)))


def _of_network(file: Path) -> Rows:
    rows = read_smtx(file)
    return generated.pattern(rows.shape, rows.of_entries(), rows.idx)  # which sorts


def of_graph(found: graphs.Adjacency) -> Rows:
    """The rows of a graph's adjacency."""
    return Rows(NUMPY, (found.nodes, found.nodes), found.ptr, found.idx)


def matrices(seed: int) -> list[Matrix]:
    """EACH of every kind that is made, of a thousand rows to a million."""
    draw = random.Random(seed)
    return [
        make(draw, draw.randrange(1 << 30), f"{kind.replace(' ', '-')}-{at}")
        for at in range(EACH)
        for kind, make in ((POWER, _power), (BAND, _band), (CLUSTERS, _clusters), (RANDOM, _random))
    ]


def _rows(draw: random.Random, most: int) -> int:
    """As many rows of a thousand as of a hundred thousand."""
    return round(math.exp(draw.uniform(math.log(ROWS[0]), math.log(most))))


def _each(draw: random.Random, rows: int) -> int:
    """Entries a row."""
    return min(draw.choice((4, 8, 16, 32, 64)), max(2, ENTRIES // rows))


def _power(draw: random.Random, seed: int, name: str) -> Matrix:
    nodes = _rows(draw, ROWS[1])
    each = _each(draw, nodes)
    return Matrix(name, POWER, lambda: of_graph(graphs.power_law(nodes, each, seed)))


def _band(draw: random.Random, seed: int, name: str) -> Matrix:
    rows = _rows(draw, ROWS[1])
    width, shuffled = draw.choice((32, 200, 2000)), draw.random() < 0.5
    return Matrix(name, BAND, partial(generated.banded, rows, _each(draw, rows), min(width, rows // 4), seed, shuffled))


def _clusters(draw: random.Random, seed: int, name: str) -> Matrix:
    rows, columns = (_rows(draw, _BLOCKS) // 32 * 32 for _ in range(2))
    fill = draw.choice((0.3, 0.5, 0.8))
    blocks = max(1, min(draw.choice((4, 8, 16)), columns // 64, int(ENTRIES / (rows * 32 * fill))))
    noise = draw.choice((0.0, 0.0005, 0.002))
    group = draw.choice((32, 64, 128))
    return Matrix(name, CLUSTERS, partial(generated.clustered, rows, columns, group=group, blocks=blocks, fill=fill,
                                          noise=noise, seed=seed))  # fmt: skip


def _random(draw: random.Random, seed: int, name: str) -> Matrix:
    """Half of them as weights are, with a share of zeros; the others with few entries a row."""
    if draw.random() < 0.5:
        m, k = (_rows(draw, _WEIGHTS) for _ in range(2))
        zeros = draw.choice((0.6, 0.8, 0.9, 0.95, 0.98))
        return Matrix(name, RANDOM, partial(generated.scattered, (m, k), round((1 - zeros) * m * k), seed))
    m = _rows(draw, ROWS[1])
    return Matrix(name, RANDOM, partial(generated.uniform, m, _rows(draw, ROWS[1]), _each(draw, m), seed))

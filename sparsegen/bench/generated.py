"""Patterns without a file: clustered, banded and uniform matrices of a seed, their rows in no order unless it is said.

``graphs.power_law`` makes those of graphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegen.formats.library import NUMPY
from sparsegen.formats.rows import Rows, distinct


def pattern(shape: tuple[int, int], row: Any, column: Any) -> Rows:
    """The rows with entries at these places; a place that is there twice counts once."""
    keys = distinct(np.asarray(row, np.int64) * shape[1] + column)
    ptr = np.zeros(shape[0] + 1, np.int64)
    np.cumsum(np.bincount(keys // shape[1], minlength=shape[0]), out=ptr[1:])
    return Rows(NUMPY, shape, ptr, keys % shape[1])


def clustered(
    rows: int,
    columns: int,
    *,
    group: int,
    blocks: int,
    fill: float = 0.8,
    noise: float = 0.0,
    tile: int = 32,
    seed: int = 0,
) -> Rows:
    """Groups of ``group`` rows that touch the same ``blocks`` of 32 columns, shuffled.

    ``fill``: the share of a group's blocks that holds entries; ``noise``: of all elements the share that holds one too.
    """
    draw, tile = np.random.default_rng(seed), 32
    place = draw.permutation(rows)
    row, column = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first in range(0, rows, group):
        own = place[first : first + group]
        chosen = draw.choice(columns // tile, blocks, replace=False)
        at, held = np.nonzero(draw.random((len(own), blocks * tile)) < fill)
        row.append(own[at])
        column.append(chosen[held // tile] * tile + held % tile)
    scattered = round(noise * rows * columns)
    row.append(draw.integers(0, rows, scattered))
    column.append(draw.integers(0, columns, scattered))
    return pattern((rows, columns), np.concatenate(row), np.concatenate(column))


def uniform(rows: int, columns: int, each: int, seed: int = 0) -> Rows:
    """About ``each`` entries a row, anywhere."""
    draw = np.random.default_rng(seed)
    return pattern((rows, columns), np.repeat(np.arange(rows), each), draw.integers(0, columns, rows * each))


def scattered(shape: tuple[int, int], entries: int, seed: int = 0) -> Rows:
    """So many entries, anywhere; ``shape`` must not have many more elements than a host can number."""
    places = np.random.default_rng(seed).choice(shape[0] * shape[1], entries, replace=False)
    return pattern(shape, places // shape[1], places % shape[1])


def banded(rows: int, each: int, width: int, seed: int = 0, shuffled: bool = True) -> Rows:
    """A square matrix with about ``each`` entries a row, at most ``width`` from the diagonal; rows in no order if
    ``shuffled``."""
    draw = np.random.default_rng(seed)
    row = np.repeat(np.arange(rows), each)
    column = np.clip(row + draw.integers(-width, width + 1, rows * each), 0, rows - 1)
    return pattern((rows, rows), draw.permutation(rows)[row] if shuffled else row, column)

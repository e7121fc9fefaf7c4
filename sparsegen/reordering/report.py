"""What an order of rows does to a matrix, in numbers and as text, and whether it is worth it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparsegen.formats.rows import Rows
from sparsegen.formats.stats import VECTOR
from sparsegen.reordering.blocks import Blocks, held_by_tiles

#: A reordering is advised if nonzeros per vector of 8 x 1 rise so many times: for less, what it takes does not pay.
GAIN: Final = 1.5


@dataclass(frozen=True)
class Figures:
    """A matrix whose rows are in some order: ``tiles`` tau x tau that hold any nonzero, ``dense`` nonzeros in tiles
    that hold more than the share delta of their elements, and ``vectors`` of 8 x 1 that hold any."""

    tiles: int
    dense: int
    vectors: int


def measured(rows: Rows, blocks: Blocks, permutation: Any, delta: float) -> Figures:
    """The figures with rows in an order (new -> old), given as an array of NumPy."""
    lib = rows.library
    with lib.active():
        place = lib.zeros((rows.shape[0],), "int64")
        place[lib.constant(permutation)] = lib.arange(rows.shape[0])
        held = held_by_tiles(blocks, place)
        dense = (held * (held > delta * blocks.tile**2)).sum()
        vectors = lib.distinct(place[rows.of_entries()] // VECTOR * max(1, rows.shape[1]) + rows.idx)
        return Figures(int(held.shape[0]), int(dense), vectors)


def both(rows: Rows, blocks: Blocks, permutation: Any, delta: float) -> tuple[Figures, Figures]:
    """The figures with rows as they are, and in an order."""
    as_given = np.arange(rows.shape[0], dtype=np.int64)
    before, after = (measured(rows, blocks, order, delta) for order in (as_given, permutation))
    return before, after


def gain(before: Figures, after: Figures) -> float:
    """How many times nonzeros per vector rise; 1 for an empty matrix."""
    return before.vectors / after.vectors if after.vectors else 1.0


def table(nnz: int, tile: int, delta: float, before: Figures, after: Figures) -> str:
    """Both as lines of text, and the verdict."""
    both, times = (before, after), gain(before, after)
    said = (
        f"advised: nonzeros per vector rise {times:.2f} times"
        if times >= GAIN
        else f"not advised: nonzeros per vector rise {times:.2f} times, which pays from {GAIN:g} times on"
    )
    lines = [
        ("", "before", "after"),
        (f"non-zero tiles {tile}x{tile}", f"{before.tiles:,}", f"{after.tiles:,}"),
        (f"nonzeros in tiles filled above {delta:g}", *(f"{100 * f.dense / max(1, nnz):.1f} %" for f in both)),
        (f"nonzeros per vector {VECTOR}x1", *(f"{nnz / max(1, f.vectors):.2f}" for f in both)),
    ]
    return "\n".join([*(f"{name:<36}{a:>12}{b:>12}".rstrip() for name, a, b in lines), said])

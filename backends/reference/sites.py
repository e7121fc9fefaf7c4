"""The meaning of sites: what sources add to a field, and what receivers record of one."""

from __future__ import annotations

import numpy as np

from sparsegen.ir.op_sites import Placed

from .boundary import Field


def add(field: Field, placed: Placed, numbers: Field) -> None:
    """Adds to the cells around each source its number times their weights, in place; ``numbers`` [sources]."""
    more = (placed.weights.astype(numbers.dtype) * numbers[placed.sites]).astype(numbers.dtype)
    for cell, value in zip(placed.cells, more, strict=True):  # one after the other: each sum is rounded
        at = tuple(cell)
        field[at] = numbers.dtype.type(field[at]) + value


def record(field: Field, placed: Placed, numbers: Field) -> None:
    """Writes what each receiver sees: the sum of the cells around it times their weights; ``numbers`` [receivers]."""
    numbers[...] = 0
    seen = field[tuple(placed.cells.T)].astype(numbers.dtype) * placed.weights.astype(numbers.dtype)
    np.add.at(numbers, placed.sites, seen)

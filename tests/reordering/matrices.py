"""Small patterns for the tests of reordering, as what ``reorder`` takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegen.bench.generated import banded, clustered, uniform
from sparsegen.bench.graphs import power_law
from sparsegen.formats.library import NUMPY
from sparsegen.formats.rows import Rows


def dense(rows: Rows) -> Any:
    """The pattern as a matrix of float32 ones."""
    w = np.zeros(rows.shape, np.float32)
    w[rows.of_entries(), rows.idx] = 1
    return w


def masked(w: Any) -> Rows:
    """The rows of a matrix of NumPy."""
    row, column = np.nonzero(w)
    return Rows(NUMPY, w.shape, np.searchsorted(row, np.arange(w.shape[0] + 1)), column)


def every() -> dict[str, Rows]:
    """One or more of each kind, with short last blocks and empty rows among them."""
    graph = power_law(1500)
    pruned = np.random.default_rng(9)
    mixed = pruned.random((700, 250)) < pruned.random((700, 1)) * pruned.random((1, 250))
    mixed[::50] = False
    return {
        "groups of 64": clustered(1024, 1024, group=64, blocks=6, fill=0.6),
        "groups of 32": clustered(1000, 1030, group=32, blocks=4, noise=0.002, seed=1),
        "groups of 16": clustered(800, 2000, group=16, blocks=4, noise=0.001, seed=2),
        "groups of 100 in noise": clustered(1500, 1500, group=100, blocks=6, fill=0.5, noise=0.005, seed=3),
        "uniform": uniform(600, 900, 15),
        "uneven": masked(mixed),
        "banded": banded(1500, 20, 40),
        "power law": Rows(NUMPY, (1500, 1500), graph.ptr, graph.idx),
    }

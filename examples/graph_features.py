"""Two layers of a graph convolutional network: products with a graph's adjacency, against SciPy.

    python examples/graph_features.py [--nodes 300] [--features 64] [--out 16] [--seed 0]

A layer is relu(A (X W)) (Kipf and Welling, ICLR 2017): A is the graph with an edge from each node to itself, every
element over the square roots of the degrees of both its nodes.  X W is dense and small, and NumPy's; the product with A
is ours, in f32, its relu in the epilogue.  ``format="auto"`` leaves it to the cost model how A is read, for the columns
that a layer has.  The graph is cora.mtx, 2,708 papers that cite one another, if the folder SPARSEGEN_DATA has it, else
one of ``--nodes`` whose degrees follow a power law.  Features and weights are random.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import device_seconds, options

import sparsegen as sg
from sparsegen.bench.graphs import power_law
from sparsegen.bench.report import columns

#: Largest error of a result, over its largest number.
TOLERANCE = 1e-5


def graph(nodes: int) -> tuple[str, Any]:
    """A name, and the adjacency as SciPy's sparse rows of ones."""
    import scipy.sparse

    if folder := os.environ.get("SPARSEGEN_DATA"):
        for file in sorted(Path(folder).rglob("cora.mtx")):
            a = sg.load_mtx(file, duplicates="first")
            return "cora", scipy.sparse.csr_array((a != 0).astype(np.float32))
    made = power_law(nodes, 8)
    ones = np.ones(len(made.idx), np.float32)
    return "power law", scipy.sparse.csr_array((ones, made.idx, made.ptr), shape=(nodes, nodes))


def normalised(a: Any) -> Any:
    """The adjacency, either way and with loops, over the square roots of degrees, as rows of f32."""
    import scipy.sparse

    looped = ((a + a.T + scipy.sparse.eye_array(a.shape[0])) != 0).astype(np.float64)
    scale = scipy.sparse.diags_array(1 / np.sqrt(looped.sum(1)))
    rows = (scale @ looped @ scale).tocsr().astype(np.float32)
    rows.sort_indices()
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """1 where a layer is not what SciPy has."""
    args = options(__doc__, nodes=300, features=64, out=16, seed=0).parse_args(argv)
    rng = np.random.default_rng(args.seed)
    name, a = graph(args.nodes)
    a = normalised(a)
    x = rng.standard_normal((a.shape[0], args.features)).astype(np.float32)
    matrix, off = sg.sparse(a, format="auto"), 0.0
    cells = [["layer", "columns", "schedule", "error", "SciPy, us", "model, us", "measured, us"]]
    for layer, wide in enumerate((args.features // 2, args.out), 1):
        weights = rng.standard_normal((x.shape[1], wide)).astype(np.float32) / np.float32(np.sqrt(x.shape[1]))
        kernel = sg.compile(sg.spmm(matrix, n=wide, activation="relu"))
        mixed = x @ weights
        start = time.perf_counter()
        wanted = np.maximum(a @ mixed, 0)
        host = time.perf_counter() - start
        x = np.asarray(kernel(mixed))
        error = float(np.abs(x - wanted).max() / np.abs(wanted).max())
        seconds = device_seconds(kernel)
        cells.append([
            str(layer), str(wide), str(kernel.schedule), f"{error:.0e}", f"{host * 1e6:.0f}",
            f"{kernel.cost.time * 1e6:.1f}", f"{seconds * 1e6:.1f}" if seconds else "–",
        ])  # fmt: skip
        off = max(off, error)
    print(f"{name}: {a.shape[0]:,} nodes, {a.nnz:,} elements of the normalised adjacency\n{columns(cells)}")
    if off > TOLERANCE:
        print(f"wrong: off by {off:.0e}", file=sys.stderr)
    return int(off > TOLERANCE)


if __name__ == "__main__":
    raise SystemExit(main())

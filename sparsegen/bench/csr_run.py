"""How the products of suite ``csr`` are measured, beside all algorithms of cuSPARSE: the fastest counts, right or not.

Cold times are between CUDA events around a call after a memset of 256 MB; hot ones are those of HOT calls of a CUDA
graph, which no host is too slow for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sparsegen.bench import graphs
from sparsegen.bench.bitmaps import COLD
from sparsegen.bench.cusparse import CuSparse
from sparsegen.bench.graphs import Adjacency, GraphCase
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.lab import Lab
from sparsegen.bench.products import ProductRow, Products
from sparsegen.formats import sparse

if TYPE_CHECKING:
    from sparsegen.kernel import SpmmKernel


@dataclass(frozen=True, kw_only=True)
class CsrRow(ProductRow):
    """One product; ``hot_s``: a call with warm L2.

    ``cusparse``: of each algorithm the cold and the hot time, and its error.  ``ahead``: how many times faster than the
    fastest of them, both hot, it must be.
    """

    entries: int
    ahead: float | None = None
    hot_s: float | None = None
    cusparse: Mapping[str, Mapping[str, float]] | None = None


def fastest(row: Mapping[str, Any], state: str) -> tuple[float, str] | None:
    """Seconds and name of the fastest algorithm of cuSPARSE, ``cold`` or ``hot``; None where there are none."""
    return min(((times[state], name) for name, times in (row["cusparse"] or {}).items()), default=None)


class Graphs(Products[GraphCase, CsrRow]):
    """Suite ``csr`` on a GPU; ``found``: part, name and adjacency of each graph."""

    row = CsrRow

    def __init__(self, lab: Lab, seed: int, seconds: float, found: Sequence[tuple[str, str, Adjacency]]) -> None:
        super().__init__(lab, seed, seconds)
        self._cusparse = CuSparse(self.torch)
        self._tensors = {
            (part, dtype): self.matrix(adjacency, dtype, seed + at)
            for part, _, adjacency in found
            for at, dtype in enumerate(graphs.DTYPES)
        }
        self._encoded = {key: sparse(w, format="csr") for key, w in self._tensors.items()}

    def matrix(self, graph: Adjacency, dtype: str, seed: int) -> Any:
        """A torch tensor of layout ``sparse_csr`` with the entries of a graph, its values random."""
        tables = [self.torch.from_numpy(a).to(self.device) for a in (graph.ptr, graph.idx)]
        values = self.uniform((len(graph.idx),), dtype, seed)
        return self.torch.sparse_csr_tensor(*tables, values, size=(graph.nodes, graph.nodes))

    def build(self, case: GraphCase) -> SpmmKernel:
        """The kernel of a case."""
        return self.kernel(self._encoded[case.part, case.dtype], case.n, ["rows"])

    def labels(self, case: GraphCase, seed: int) -> dict[str, Any]:
        """What every row says of its case."""
        w = self._tensors[case.part, case.dtype]
        return {
            "part": case.part, "case": case.name, "shape": (*w.shape, case.n), "dtype": case.dtype, "seed": seed,
            "entries": int(w.values().shape[0]), "ahead": case.ahead,
        }  # fmt: skip

    def measure(self, case: GraphCase, kernel: SpmmKernel, seed: int) -> CsrRow:
        """Check, then time a product and those of cuSPARSE."""
        torch, w = self.torch, self._tensors[case.part, case.dtype]
        (m, k), n = w.shape, case.n
        x = self.uniform((k, n), case.dtype, seed)
        y = torch.empty((m, n), dtype=x.dtype, device=x.device)
        wide = torch.sparse_csr_tensor(w.crow_indices(), w.col_indices(), w.values().double(), size=(m, k))
        exact = wide @ x.double()
        call = partial(kernel, x, out=y)
        error, same = self.checked(call, y, exact)
        timing, hot = self.series(call, COLD), self.hot(call)
        peers = {
            name: {"error": min(self.off(peer, y, exact), 1e30), "cold": self.series(peer, COLD).median,
                   "hot": self.hot(peer)}
            for name, peer in self._cusparse.products(w, case.dtype, x, y)
        }  # fmt: skip
        said = {**self.labels(case, seed), **self.figures(kernel, "rows", timing)}
        return judged(CsrRow(**said, hot_s=hot, cusparse=peers, error=error, same=same))

    @staticmethod
    def line(row: CsrRow) -> str:
        """A row as a line of progress."""
        what = f"{row.case} {'x'.join(map(str, row.shape))} {row.dtype}"
        if row.median_s is None or row.hot_s is None:
            return f"{what}: {row.failed}"
        cold, hot = (fastest(row.as_json(), state) for state in ("cold", "hot"))
        against = f", cuSPARSE {hot[0] * 1e6:.1f} ({hot[1]}), cold {cold[0] * 1e6:.1f}" if hot and cold else ""
        told = f"{row.hot_s * 1e6:.2f} us hot, {row.median_s * 1e6:.2f} cold{against}, error {row.error:.1e}"
        return f"{what}: {told}{'' if row.ok else ', NOT OK'}; {row.schedule}"


def judged(row: CsrRow) -> CsrRow:
    """The row with its ``ok``."""
    right = row.error is not None and row.error <= TOLERANCE[row.dtype] and bool(row.same)
    peer = fastest(row.as_json(), "hot")
    met = row.ahead is None or peer is None or peer[0] >= row.ahead * (row.hot_s or math.inf)
    return replace(row, ok=right and met)

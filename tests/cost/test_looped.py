"""Products of sparse matrices of all kinds as they were called in a loop on one H200, and what the cost model expects.

``data/looped.csv.xz``: 3,057 products of the patterns of ``shared/data`` (seed 0) and of four seeds of
``bench.mixture``, in microseconds of a call of a CUDA graph.  All were fitted to; the tests make the small ones anew.
"""

from __future__ import annotations

import csv
import io
import lzma
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sparsegen as sg
from sparsegen.bench.mixture import Matrix, matrices
from sparsegen.bench.unstructured_run import formats_of

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
#: The most entries of a matrix that is made anew.
SMALL = 120_000
#: The error in the median up to which a family is near: of small matrices, where what a kernel starts with counts most.
MEDIAN = {
    "csr": 0.1, "csr_strip": 0.1, "hybrid": 0.2, "vector_gather": 0.1, "vector_strip": 0.16, "dense": 0.14
}  # fmt: skip


@cache
def measured() -> dict[tuple[int, str], list[dict[str, str]]]:
    """Rows of the file by seed and matrix."""
    found = defaultdict[tuple[int, str], list[dict[str, str]]](list)
    text = lzma.decompress((Path(__file__).parent / "data" / "looped.csv.xz").read_bytes()).decode()
    for row in csv.DictReader(io.StringIO(text)):
        found[int(row["seed"]), row["matrix"]].append(row)
    return found


def products(matrix: Matrix, rows: list[dict[str, str]]) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Each measured product of a matrix, and the costs of all schedules by their lines."""
    at = matrix.rows
    w = scipy.sparse.csr_array((np.ones(at.nnz, np.float32), at.idx, at.ptr), shape=at.shape)
    made = {dtype: formats_of(sg.sparse(w, format="auto", dtype=dtype))[0] for dtype in {row["dtype"] for row in rows}}
    costs = dict[tuple[str, str], dict[str, Any]]()
    for row in rows:
        if (key := (row["dtype"], row["n"])) not in costs:
            listed = sg.schedules(sg.spmm(made[row["dtype"]], int(row["n"])), device="h200")
            costs[key] = {str(cost.schedule): cost for cost in listed}
        yield row, costs[key]


@cache
def errors() -> dict[str, list[float]]:
    """|log(measured / predicted)| by family."""
    found = defaultdict[str, list[float]](list)
    for seed in (77, 1124, 2216):
        for matrix in matrices(seed):
            rows = [row for row in measured()[seed, matrix.name] if int(row["entries"]) <= SMALL]
            for row, costs in products(matrix, rows) if rows else ():
                if (cost := costs.get(row["schedule"])) is not None:
                    found[cost.schedule.family].append(abs(float(np.log(float(row["us"]) * 1e-6 / cost.time))))
    return found


@pytest.mark.parametrize("family", MEDIAN)
def test_the_model_is_near_what_was_measured(family: str) -> None:
    found = errors()[family]
    assert len(found) >= 15
    assert float(np.median(found)) <= MEDIAN[family]
    assert float(np.quantile(found, 0.9)) <= 0.45

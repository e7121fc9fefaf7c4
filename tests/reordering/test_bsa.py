"""The clustering of the paper, against its algorithms written down row by row; and the parallel one against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparsegen.formats.rows import Rows, rows_of
from sparsegen.reordering import bsa, parallel
from sparsegen.reordering.blocks import Variant, dispersion, encoded
from sparsegen.reordering.report import Figures, measured
from sparsegen.reordering.similarity import jaccard
from tests.reordering.matrices import dense, every, masked
from tests.reordering.test_blocks import masks

MATRICES = every()
names = pytest.mark.parametrize("name", MATRICES)


def by_hand(mask: Any, tile: int, alpha: float, variant: Variant) -> tuple[list[int], list[int]]:
    """Permutation and clusters by algorithms 1 and 2 of the paper, with whole vectors, one row after the other."""
    pieces = [mask[:, at : at + tile].sum(1) for at in range(0, mask.shape[1], tile)]
    encodings = np.stack(pieces, 1)
    scattered = dispersion(encoded(masked(mask), tile), variant)
    order = sorted(range(len(mask)), key=lambda row: scattered[row])
    of_row, cluster = [-1] * len(mask), 0
    left = [row for row in order if scattered[row]]
    while left:
        representative, rest = encodings[left[0]].copy(), []
        of_row[left[0]] = cluster
        for row in left[1:]:
            if jaccard(representative, encodings[row]) > alpha:
                of_row[row] = cluster
                representative += encodings[row]
            else:
                rest.append(row)
        left, cluster = rest, cluster + 1
    return sorted(order, key=lambda row: of_row[row]), of_row


@example((np.arange(3)[:, None].repeat(17, 1) > 0, 2), 1.0, "paper")  # two rows that are alike, by rounded sums
@given(masks(), st.sampled_from([0.0, 0.2, 0.3, 0.55, 1.0]), st.sampled_from(["paper", "artifact"]))
def test_the_reference_is_the_papers(given_mask: tuple[Any, int], alpha: float, variant: Variant) -> None:
    mask, tile = given_mask
    found = bsa.clusters(encoded(masked(mask), tile), alpha, variant)
    permutation, of_row = by_hand(mask, tile, alpha, variant)
    assert found.permutation.tolist() == permutation and found.of_row.tolist() == of_row
    assert found.count == len({*of_row} - {-1})


@names
def test_the_reference_compares_many_rows_at_once_rightly(name: str) -> None:
    """Large enough that what joins is found in pieces of all sizes."""
    rows = MATRICES[name]
    kept = np.flatnonzero(np.arange(rows.shape[0]) % 4 == 0)
    mask = dense(rows)[kept] != 0
    found = bsa.clusters(encoded(masked(mask), 32), 0.3)
    assert (found.permutation.tolist(), found.of_row.tolist()) == by_hand(mask, 32, 0.3, "paper")


def test_the_threshold_is_strict() -> None:
    """Rows of one block are wholly alike, J is 1; those that share none are not, J is 0."""
    mask = np.zeros((2, 4), bool)
    mask[0, 0] = mask[1, 1] = True
    assert [bsa.clusters(encoded(masked(mask), 2), alpha).count for alpha in (0.999, 1.0)] == [1, 2]
    assert bsa.clusters(encoded(masked(mask), 1), 0.0).count == 2


def test_representatives_sum_up_rows_that_are_not_normalised() -> None:
    """A row of many entries counts more: were sums normalised, the third row would be in a cluster of its own."""
    counts = np.array([[0, 1, 0], [28, 29, 0], [32, 3, 0]])
    mask = (np.arange(32) < counts.reshape(3, 3, 1)).reshape(3, 96)
    first, second, third = (line / np.linalg.norm(line) for line in counts)
    assert jaccard(first, second) > 0.3 > jaccard(first + second, third)
    assert bsa.clusters(encoded(masked(mask), 32), 0.3).of_row.tolist() == [0, 0, 0]


# ------------------------------------------------------------------------------------------------- the parallel one
def figures(rows: Rows, found: bsa.Clusters) -> Figures:
    return measured(rows, encoded(rows, 32), found.permutation, 0.3)


@names
def test_the_parallel_one_is_as_good(name: str) -> None:
    rows = MATRICES[name]
    blocks = encoded(rows, 32)
    ours, wanted = parallel.clusters(blocks, 0.3), bsa.clusters(blocks, 0.3)
    assert sorted(ours.permutation.tolist()) == list(range(rows.shape[0]))
    assert figures(rows, ours).dense >= 0.98 * figures(rows, wanted).dense
    assert figures(rows, ours).vectors <= 1.05 * figures(rows, wanted).vectors


def test_the_matrices_have_something_to_find() -> None:
    """Else all of the above would be true of any order."""
    gained = {}
    for name, rows in MATRICES.items():
        natural = measured(rows, encoded(rows, 32), np.arange(rows.shape[0]), 0.3)
        gained[name] = figures(rows, bsa.clusters(encoded(rows, 32), 0.3)).dense - natural.dense
    assert sum(gain > 20_000 for gain in gained.values()) >= 4, gained


@names
def test_the_parallel_one_keeps_clusters_together(name: str) -> None:
    rows = MATRICES[name]
    found = parallel.clusters(encoded(rows, 32), 0.3)
    assert np.array_equal(found.of_row < 0, np.diff(rows.ptr) == 0)  # empty rows are in none
    assert (np.diff(found.of_row[found.permutation]) >= 0).all()  # and come first
    assert set(found.of_row.tolist()) - {-1} == set(range(found.count))
    again = parallel.clusters(encoded(rows, 32), 0.3)
    assert np.array_equal(again.permutation, found.permutation)


@settings(max_examples=40)
@given(masks(), st.sampled_from([0.0, 0.3, 1.0]))
def test_the_parallel_one_takes_any_matrix(given_mask: tuple[Any, int], alpha: float) -> None:
    mask, tile = given_mask
    found = parallel.clusters(encoded(masked(mask), tile), alpha)
    assert sorted(found.permutation.tolist()) == list(range(len(mask)))
    assert ((found.of_row < 0) == ~mask.any(1)).all()
    blocks = [set(np.flatnonzero(line) // tile) for line in mask]
    for cluster in range(found.count):  # rows of one are joined by column blocks that they share
        reached, *others = (blocks[row] for row in np.flatnonzero(found.of_row == cluster))
        while others:
            near = [each for each in others if each & reached]
            assert near
            reached = reached.union(*near)
            others = [each for each in others if not each & reached]
    if alpha == 1:
        assert found.count == int(mask.any(1).sum())


@names
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torch_finds_the_same(name: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    rows = MATRICES[name]
    there = rows_of(torch.from_numpy(dense(rows)).to(device))
    ours, wanted = parallel.clusters(encoded(there, 32), 0.3), parallel.clusters(encoded(rows, 32), 0.3)
    assert np.array_equal(ours.permutation, wanted.permutation) and np.array_equal(ours.of_row, wanted.of_row)
    assert measured(there, encoded(there, 32), ours.permutation, 0.3) == figures(rows, wanted)


@pytest.mark.gpu
@names
def test_cupy_finds_the_same(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    rows = MATRICES[name]
    there = rows_of(cupy.asarray(dense(rows)))
    ours, wanted = parallel.clusters(encoded(there, 32), 0.3), parallel.clusters(encoded(rows, 32), 0.3)
    assert np.array_equal(ours.permutation, wanted.permutation) and np.array_equal(ours.of_row, wanted.of_row)

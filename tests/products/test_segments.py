"""Rows cut into segments: every entry is in one, long ones come first, and what shares a warp is of one sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.ir.tile_ragged import RANK
from sparsegen.products.ragged import segments


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60),
    st.integers(1, 20),
    st.sampled_from([(1, 1), (2, 4), (8, 32)]),
)
def test_every_entry_is_in_one_segment(lengths: list[int], longest: int, teams: tuple[int, int]) -> None:
    warp, block = teams
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    records, cuts = segments(ptr, longest, warp, block)
    assert records.dtype == np.int32 and len(records) % block == 0 and cuts % warp == 0
    row, begin, end, rank = records.astype(int).T
    real = row < len(lengths)
    assert (begin[~real] == end[~real]).all() and (rank[~real] == 0).all()
    assert (end - begin <= longest).all()
    before, after = rank % RANK, rank // RANK
    assert (before[cuts:] == 0).all() and (after[cuts:] == 0).all()
    seen = np.zeros(ptr[-1], dtype=int)
    for r, length in enumerate(lengths):
        mine = np.flatnonzero(row == r)
        assert (mine == mine[0] + np.arange(len(mine))).all() or len(mine) == 1
        assert begin[mine[0]] == ptr[r] and end[mine[-1]] == ptr[r + 1] and (begin[mine[1:]] == end[mine[:-1]]).all()
        assert (before[mine] == np.arange(len(mine))).all() and (after[mine] == len(mine) - 1 - before[mine]).all()
        assert (mine[0] < cuts) == (length > longest)
        for i in mine:
            seen[begin[i] : end[i]] += 1
    assert (seen == 1).all()


def test_neighbours_are_of_similar_length() -> None:
    lengths = np.random.default_rng(0).integers(0, 300, 500)
    records, _ = segments(np.concatenate([[0], np.cumsum(lengths)]), 1000, 4, 8)
    found = np.diff(records[:, 1:3], axis=1)[: len(lengths), 0]
    assert (found[1:] < 2 * np.maximum(found[:-1], 1)).all()


def test_a_rank_counts_no_more_pieces_than_it_can() -> None:
    records, cuts = segments(np.array([0, RANK * 40]), 1, 1, 1)
    assert 1 < cuts < RANK and (np.diff(records[:, 1:3], axis=1) <= 42).all()

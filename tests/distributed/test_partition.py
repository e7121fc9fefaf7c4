"""Every cell has one holder, and every cell of a halo comes from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsegen.distributed.partition import Partition, within
from sparsegen.ir.errors import ArrayError


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    axes = draw(st.integers(1, 3))
    mesh = tuple(draw(st.integers(1, 4)) for _ in range(draw(st.integers(1, min(2, axes)))))
    halo = tuple(draw(st.integers(0, 3)) for _ in range(axes))
    grain = tuple(draw(st.sampled_from((1, 1, 4))) for _ in range(axes))
    turns = draw(st.integers(1, 2))
    least = [(h + g) * turns * n for h, g, n in zip(halo, grain, (*mesh, 1, 1), strict=False)]
    grid = tuple(n + draw(st.integers(0, 5)) for n in least)
    return Partition(grid, mesh, halo, tuple(draw(st.booleans()) for _ in range(axes)), grain, turns)


def filled(p: Partition) -> dict[int, Any]:
    """For each piece the numbers of the cells that its frame holds after all messages; -1 where nothing came."""
    domain = np.arange(np.prod(p.grid)).reshape(p.grid)
    found = {i: np.full([hi - lo for lo, hi in piece.frame], -1) for i, piece in enumerate(p.pieces)}
    for i, piece in enumerate(p.pieces):
        found[i][within(piece.own, piece.frame)] = domain[within(piece.own, ((0, 0),) * len(p.grid))]
    for rank in range(len(p.blocks)):
        for m in p.messages(rank):
            if p.pieces[m.target].rank == rank:
                place = found[m.target][within(m.given, p.pieces[m.target].frame)]
                assert (place == -1).all(), "a cell comes twice"
                place[...] = domain[within(m.taken, ((0, 0),) * len(p.grid))]
    return found


@settings(deadline=None, max_examples=150)
@given(partitions())
def test_halos_hold_what_lies_there(p: Partition) -> None:
    domain = np.arange(np.prod(p.grid)).reshape(p.grid)
    held = filled(p)
    for i, piece in enumerate(p.pieces):
        where = [np.arange(lo, hi) % n for (lo, hi), n in zip(piece.frame, p.grid, strict=True)]
        assert (held[i] == domain[np.ix_(*where)]).all()
        for axis, ((lo, hi), (low, high)) in enumerate(zip(piece.frame, piece.own, strict=True)):
            ends = p.split[axis] and p.periodic[axis]
            assert lo % p.grain[axis] == 0 or not p.split[axis]
            assert lo <= low - p.halo[axis] or (not ends and lo == 0)
            assert hi == high + p.halo[axis] or (not ends and hi in (high, p.grid[axis]))


@settings(deadline=None, max_examples=50)
@given(partitions())
def test_blocks_tile_the_domain(p: Partition) -> None:
    times = np.zeros(p.grid, int)
    for block in p.blocks:
        times[tuple(slice(*run) for run in block)] += 1
    assert (times == 1).all()
    sizes = [[hi - lo for lo, hi in block] for block in p.blocks]
    assert max(np.ptp(sizes, axis=0)) <= 1


@settings(deadline=None, max_examples=50)
@given(partitions())
def test_both_ends_agree_on_messages(p: Partition) -> None:
    ranks = range(len(p.blocks))
    every = {rank: p.messages(rank) for rank in ranks}
    holder = [piece.rank for piece in p.pieces]
    for a in ranks:
        for b in ranks:
            sent = [m for m in every[a] if (holder[m.source], holder[m.target]) == (a, b)]
            assert sent == [m for m in every[b] if (holder[m.source], holder[m.target]) == (a, b)]


def test_what_is_done_first_lies_beside_what_a_neighbour_does_first() -> None:
    p = Partition((80,), (4,), (2,), (True,), (1,), 2)
    holder = [piece.rank for piece in p.pieces]
    apart = [m for rank in range(4) for m in p.messages(rank) if holder[m.source] != holder[m.target]]
    assert {(p.pieces[m.source].turn, p.pieces[m.target].turn) for m in apart} == {(0, 0), (1, 1)}


@pytest.mark.parametrize(
    ("grid", "mesh", "halo", "says"),
    [
        ((10, 10), (12,), (1, 1), "12 ranks leave blocks of 0"),
        ((10, 10), (4,), (3, 3), "4 ranks leave blocks of 2"),
        ((10, 10), (1, 5), (3, 3), "10 cells on axis 1 over 5 ranks"),
        ((10,), (2, 2), (1,), "a mesh of 2 axes, 2x2, for fields of 1"),
    ],
)
def test_meshes_that_do_not_fit(grid: Any, mesh: Any, halo: Any, says: str) -> None:
    with pytest.raises(ArrayError, match=says) as caught:
        Partition(grid, mesh, halo, (True,) * len(grid), (1,) * len(grid))
    assert caught.value.hint

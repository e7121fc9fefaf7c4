"""Encodings, dispersion and similarity, by the paper's own words and example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.reordering.blocks import ascending, dispersion, encoded, held_by_tiles
from sparsegen.reordering.similarity import jaccard, of_parts
from tests.reordering.matrices import masked


@st.composite
def masks(draw: st.DrawFn) -> tuple[Any, int]:
    """A mask of any small shape, with empty rows, and a number of columns of a block."""
    shape = draw(st.integers(1, 12)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    mask = rng.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    mask[:: draw(st.integers(1, 12))] = False
    return mask, draw(st.integers(1, 12))


@given(masks())
def test_blocks_and_dispersion_are_what_the_paper_says(given_mask: tuple[Any, int]) -> None:
    mask, tile = given_mask
    blocks = encoded(masked(mask), tile)
    found = {(int(r), int(b)): int(n) for r, b, n in zip(blocks.row, blocks.block, blocks.count, strict=True)}
    wanted, paper, artifact = {}, [], []
    for row, line in enumerate(mask):
        pieces = [line[at : at + tile] for at in range(0, len(line), tile)]  # the last one may be short
        wanted |= {(row, b): int(piece.sum()) for b, piece in enumerate(pieces) if piece.any()}
        zeros = sum(len(piece) - int(piece.sum()) for piece in pieces if piece.any())
        touched = sum(bool(piece.any()) for piece in pieces)
        paper.append(tile * touched + zeros)
        artifact.append(int(line.sum()) * touched + tile * touched - int(line.sum()))
    assert found == wanted and list(found) == sorted(found)
    assert dispersion(blocks).tolist() == paper
    assert dispersion(blocks, "artifact").tolist() == artifact
    order, empty = ascending(blocks)
    assert order.tolist() == sorted(range(len(paper)), key=lambda row: paper[row]) and empty == paper.count(0)


def test_a_row_without_dispersion_comes_before_a_scattered_one() -> None:
    mask = np.zeros((2, 64), bool)
    mask[0, ::8] = mask[1, :8] = True  # eight entries in two blocks of 32, and in one
    assert dispersion(encoded(masked(mask), 32)).tolist() == [2 * 32 + 56, 32 + 24]


def test_the_papers_example() -> None:
    a, b = [8, 10, 18, 0, 3], [1, 20, 0, 14, 0]
    assert round(jaccard(a, b), 4) == 0.1818 and jaccard(a, b) == jaccard(b, a)
    assert jaccard(a, np.multiply(a, 7)) == pytest.approx(1) and jaccard([1, 0], [0, 1]) == 0
    x, y = (np.array(v) / np.linalg.norm(v) for v in (a, b))
    assert of_parts(np.minimum(x, y).sum(), x.sum(), y.sum()) == pytest.approx(jaccard(a, b))


@given(masks())
def test_entries_of_tiles(given_mask: tuple[Any, int]) -> None:
    mask, tile = given_mask
    place = np.random.default_rng(0).permutation(len(mask))
    moved = np.zeros_like(mask)
    moved[place] = mask
    whole = np.pad(moved, [(0, -n % tile) for n in mask.shape])
    sums = whole.reshape(whole.shape[0] // tile, tile, -1, tile).sum((1, 3)).reshape(-1)
    assert held_by_tiles(encoded(masked(mask), tile), place).tolist() == sums[sums > 0].tolist()

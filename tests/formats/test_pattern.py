"""``sg.pattern``: masks against their definitions, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sparsegen as sg

MASKS = hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=20))
SEQ = st.integers(1, 30)


@given(mask=MASKS, height=st.sampled_from([2, 4, 8]))
def test_vectors_are_whole(mask: Any, height: int) -> None:
    before = mask.copy()
    wanted = [[mask[i - i % height : i - i % height + height, j].any() for j in range(mask.shape[1])]
              for i in range(mask.shape[0])]  # fmt: skip
    for array in (mask, np.asfortranarray(mask), mask.T.copy().T, np.repeat(mask, 2, 1)[:, ::2]):
        rounded = sg.pattern.vectors(array, height)
        assert rounded.dtype == bool and rounded.shape == mask.shape and rounded.flags.c_contiguous
        assert np.array_equal(rounded, np.array(wanted, bool).reshape(mask.shape))
        assert np.array_equal(sg.pattern.vectors(rounded, height), rounded)
    assert np.array_equal(mask, before)


def test_vectors_where_the_tensor_is() -> None:
    torch: Any = pytest.importorskip("torch")
    mask = np.random.default_rng(1).random((13, 9)) < 0.2
    rounded = sg.pattern.vectors(torch.from_numpy(mask), 4)
    assert rounded.dtype == torch.bool and np.array_equal(rounded, sg.pattern.vectors(mask, 4))


def by_definition(seq: int, keeps: Any) -> Any:
    return np.array([[bool(keeps(i, j)) for j in range(seq)] for i in range(seq)])


@given(seq=SEQ, window=st.integers(0, 40))
def test_local(seq: int, window: int) -> None:
    mask = sg.pattern.local(seq, window)
    assert mask.dtype == bool and np.array_equal(mask, by_definition(seq, lambda i, j: abs(i - j) <= window))


@given(seq=SEQ, stride=st.integers(1, 40), window=st.none() | st.integers(0, 8))
def test_strided(seq: int, stride: int, window: int | None) -> None:
    near = stride if window is None else window
    mask = sg.pattern.strided(seq, stride, window)
    wanted = by_definition(seq, lambda i, j: abs(i - j) <= near or (i - j) % stride == 0)
    assert mask.dtype == bool and np.array_equal(mask, wanted)


def test_strided_is_that_of_child() -> None:
    """The sets A(1) and A(2) of their section 4.3."""
    near, far = (by_definition(24, keeps) for keeps in (lambda i, j: i - 5 <= j <= i, lambda i, j: (i - j) % 5 == 0))
    assert np.array_equal(np.tril(sg.pattern.strided(24, 5)), np.tril(near | far))


@given(
    seq=SEQ, block=st.integers(1, 9), window=st.integers(0, 3), count=st.integers(0, 3), drawn=st.integers(0, 4),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_bigbird(seq: int, block: int, window: int, count: int, drawn: int, seed: int) -> None:
    """Whole blocks: all of the band and the global ones, and of the others as many as were asked for."""
    options = {"window_blocks": 2 * window + 1, "global_blocks": count, "random_blocks": drawn, "seed": seed}
    mask = sg.pattern.bigbird(seq, block, **options)
    assert (
        mask.dtype == bool
        and mask.shape == (seq, seq)
        and np.array_equal(mask, sg.pattern.bigbird(seq, block, **options))
    )
    blocks = mask[::block, ::block]
    assert np.array_equal(mask, by_definition(seq, lambda i, j: blocks[i // block, j // block]))
    sure = by_definition(len(blocks), lambda i, j: abs(i - j) <= window or min(i, j) < count)
    assert blocks[sure].all()
    assert np.array_equal((blocks & ~sure).sum(1), np.minimum(drawn, (~sure).sum(1)))


def test_bigbird_is_drawn_by_its_seed() -> None:
    """As in the base model: 64 blocks, of which a row far from the first keeps 3 + 2 + 3; other seeds, other blocks."""
    a, b = (sg.pattern.bigbird(4096, seed=seed)[::64, ::64] for seed in (0, 1))
    assert (a != b).any() and a[10].sum() == b[10].sum() == 8
    drawn = np.array([np.flatnonzero(row)[-1] for row in a[4:40]])
    assert len(set(drawn)) > 10  # spread, not the first that are free


ONES = np.ones((4, 4), bool)


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: sg.pattern.vectors(ONES, 3), ["height=3", "2, 4 or 8"]),
        (lambda: sg.pattern.vectors(ONES, True), ["height=True"]),
        (lambda: sg.pattern.vectors(ONES * 1.0, 4), ["dtype float64", "not bool", "w != 0"]),
        (lambda: sg.pattern.vectors(ONES[0], 4), ["shape (4,)"]),
        (lambda: sg.pattern.vectors([[True]], 4), ["list is not an array"]),
        (lambda: sg.pattern.local(0, 2), ["seq=0"]),
        (lambda: sg.pattern.local(1 << 17, 2), ["seq=131072", "scipy.sparse"]),
        (lambda: sg.pattern.local(8, -1), ["window=-1"]),
        (lambda: sg.pattern.local(8, 1.5), ["window=1.5", "whole number"]),
        (lambda: sg.pattern.strided(8, 0), ["stride=0"]),
        (lambda: sg.pattern.bigbird(8, 0), ["block=0"]),
        (lambda: sg.pattern.bigbird(8, 2, window_blocks=2), ["window_blocks=2 is even", "window_blocks=3"]),
        (lambda: sg.pattern.bigbird(8, 2, seed=-1), ["seed=-1"]),
    ],
)
def test_refusals(attempt: Any, words: list[str]) -> None:
    with pytest.raises((sg.ArrayError, sg.FormatError)) as e:
        attempt()
    assert e.value.hint and e.value.loc is not None and e.value.loc.file == __file__
    assert all(word in str(e.value) for word in words), str(e.value)

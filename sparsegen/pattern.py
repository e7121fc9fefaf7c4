"""Masks of what stays: any mask rounded up to vectors, and the patterns of sparse attention.

The patterns are NumPy arrays of bool, [seq, seq]: True where the query of that row sees the key of that column.  They
combine with ``&`` and ``|``, and ``np.tril(mask)`` is that of a decoder, whose queries see no later keys.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sparsegen.arguments import positive
from sparsegen.arrays import describe
from sparsegen.callsite import located, user_loc
from sparsegen.formats.library import library_of
from sparsegen.formats.nm import whole
from sparsegen.formats.vectors import HEIGHTS
from sparsegen.ir.errors import ArrayError, FormatError

__all__ = ["bigbird", "local", "strided", "vectors"]

#: The longest sequence: its mask is 4 GiB.
LONGEST: Final = 1 << 16

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def vectors(mask: Any, height: int) -> Any:
    """A mask [M, K] rounded up to whole vectors of ``height`` x 1: each is kept if any of its elements is.

    ``mask``: an array of bool of NumPy, CuPy or torch, which is not changed; the result is one of the same library on
    the same device.  ``height``: 2, 4 or 8, the vectors of Magicube; row 0 begins the first one, and where it does not
    divide M the last ones are shorter.  Raises ArrayError (what ``mask`` is) or FormatError (another height).
    """
    with located(user_loc()):
        rows = whole(height)
        if rows is None or rows not in HEIGHTS:
            raise FormatError(f"height={height!r}: vectors have 2, 4 or 8 rows", hint="give one of these: height=8")
        view = describe(mask)
        layout = view.layout
        if layout.problem is not None or layout.dtype.name != "bool" or len(layout.shape) != 2:
            what = layout.problem[0] if layout.problem else f"of dtype {layout.dtype} and shape {layout.shape}"
            raise ArrayError(f"mask is {what}, not bool [M, K]", hint="make it of weights by w != 0, heads one by one")
        lib, bits = library_of(view)
        (m, k), groups = layout.shape, -(-layout.shape[0] // rows)
        with lib.active():
            whole_groups = lib.zeros((groups * rows, k), "bool")
            whole_groups[:m] = bits != 0
            kept = whole_groups.reshape(groups, rows, k).any(1).reshape(groups, 1, k)
            return lib.packed(lib.xp.broadcast_to(kept, (groups, rows, k)).reshape(groups * rows, k)[:m])


def local(seq: int, window: int) -> Mask:
    """Each query sees the keys at most ``window`` positions away on either side, and its own: a band [seq, seq].

    The sliding window of Longformer (Beltagy et al., 2020) and others; ``window=0`` is the diagonal.
    """
    with located(user_loc()):
        return _band(_seq(seq), positive(window, "window", FormatError, least=0))


def strided(seq: int, stride: int, window: int | None = None) -> Mask:
    """Each query sees every ``stride``-th key, counted from its own, and those at most ``window`` away: [seq, seq].

    The two parts of the strided pattern of Child et al. ("Generating Long Sequences with Sparse Transformers", 2019) in
    one mask.  By default ``window`` is ``stride``, as theirs is, and theirs leaves out later keys:
    ``np.tril(strided(seq, stride))``.  ``window=0`` leaves out the band.
    """
    with located(user_loc()):
        count, step = _seq(seq), positive(stride, "stride", FormatError)
        mask = _band(count, step if window is None else positive(window, "window", FormatError, least=0))
        for first in range(min(step, count)):
            mask[first::step, first::step] = True
        return mask


def bigbird(
    seq: int,
    block: int = 64,
    *,
    window_blocks: int = 3,
    global_blocks: int = 2,
    random_blocks: int = 3,
    seed: int = 0,
) -> Mask:
    """Blocks of ``block`` x ``block``: a band, some that see and are seen by all, and some at random: [seq, seq].

    The pattern of Zaheer et al. ("Big Bird: Transformers for Longer Sequences", 2020) as they build it of blocks, with
    the numbers of their base model; the global tokens are the first ones of the sequence itself.  A row of blocks keeps
    the ``window_blocks`` around its own (an odd number), the first ``global_blocks``, and ``random_blocks`` of those
    that are left, or all if there are fewer; the first ``global_blocks`` rows keep all.  The same ``seed`` gives the
    same mask.  Where ``block`` does not divide ``seq`` the last blocks are smaller.
    """
    with located(user_loc()):
        count = _seq(seq)
        size = min(count, positive(block, "block", FormatError))
        width = positive(window_blocks, "window_blocks", FormatError)
        if width % 2 == 0:
            raise FormatError(
                f"window_blocks={width} is even: as many blocks lie on either side of a row's own",
                hint=f"give an odd number: window_blocks={width + 1}",
            )
        first = positive(global_blocks, "global_blocks", FormatError, least=0)
        drawn = positive(random_blocks, "random_blocks", FormatError, least=0)
        draw = np.random.default_rng(positive(seed, "seed", FormatError, least=0))
        blocks = _band(-(-count // size), width // 2)
        blocks[:first] = blocks[:, :first] = True
        for row in blocks:
            row[draw.permutation(np.flatnonzero(~row))[:drawn]] = True
        return blocks.repeat(size, 0)[:count].repeat(size, 1)[:, :count]


def _band(count: int, away: int) -> Mask:
    """A mask [count, count] of what is at most so far from the diagonal."""
    away = min(away, count)
    band: Mask = np.tri(count, k=away, dtype=bool) & ~np.tri(count, k=-away - 1, dtype=bool)
    return band


def _seq(seq: Any) -> int:
    count = positive(seq, "seq", FormatError)
    if count > LONGEST:
        raise FormatError(
            f"seq={count}: a mask of {LONGEST} x {LONGEST} bools, 4 GiB, is the largest",
            hint="make the masks of parts of the sequence, and join them as a sparse matrix: scipy.sparse.block_array",
        )
    return count

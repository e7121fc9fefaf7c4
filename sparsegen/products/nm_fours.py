"""W that keeps at most 2 of every aligned 4 columns, as sparse tensor cores read it: kept elements, and which they are.

Fours that keep fewer get elements that are zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import Nm
from sparsegen.ir import metadata
from sparsegen.ir.metadata import KEEP, OF
from sparsegen.ir.numbers.fours import KEPT
from sparsegen.ir.numbers.groups import ROWS, STEP
from sparsegen.ir.swizzle import swizzled
from sparsegen.ir.types import u32

FOURS: Final = STEP // OF


def _code(kept: int) -> int:
    """The code of a four of which these bits are kept: those places, and others where they are fewer than two."""
    places = [i for i in range(OF) if kept >> i & 1]
    spare = [i for i in reversed(range(OF)) if i not in places]
    first, second = sorted((places + spare)[:KEEP])
    return first | second << 2


#: The code for each set of kept places.
_CODES: Final = np.array([_code(kept) for kept in range(1 << OF)])


def fours(w: SparseMatrix) -> bool:
    """Whether every aligned 4 columns of the matrix keep at most 2, by its pattern or by where its elements are."""
    assert isinstance(w, Nm)
    if w.n == 1 or (w.n == KEEP and w.m % OF == 0):  # no four reaches into more than KEEP windows, or than one
        return True
    return w.once("fours", lambda: _scattered(w))


def _scattered(w: Nm) -> bool:
    lib, wide = w.library, w.vector[1]
    whole = -(-w.windows * w.m // OF) * OF
    with lib.active():
        idx = lib.wide(w.arrays["idx"]).reshape(w.groups, w.windows, w.n // wide, 1) * wide + lib.arange(wide)
        begin = (lib.arange(w.windows) * w.m).reshape(1, w.windows, 1, 1)
        step = max(1, lib.band // whole)
        for first in range(0, w.groups, step):  # most matrices that are not so are not from the start
            at = (idx[first : first + step] + begin).reshape(-1, w.windows * w.n)
            kept = lib.zeros((at.shape[0], whole), "bool")
            kept[lib.arange(at.shape[0]).reshape(-1, 1), at] = True
            if bool((kept.reshape(-1, OF).sum(-1) > KEEP).any()):
                return False
    return True


def _tiles(w: SparseMatrix, rows: int) -> Iterator[tuple[Any, Any]]:
    """Of some tiles of ``rows`` rows at a time the bits of all fours, and their codes (int64): ``[tiles * groups of 64
    rows, 64 rows, turns, 16 fours, 4]``, ``[..., 16]``."""
    lib, raw, (m, k) = w.library, f"int{w.kind.bits}", w.shape
    turns, tiles = -(-k // STEP), -(-m // rows)
    bits, table = lib.view(w.to_dense(), raw), lib.constant(_CODES)
    step = max(1, lib.band // (rows * turns * STEP))
    for first in range(0, tiles, step):
        here = min(step, tiles - first)
        dense = lib.zeros((here * rows, turns * STEP), raw)
        some = bits[first * rows : (first + here) * rows]
        dense[: some.shape[0], :k] = some
        cut = dense.reshape(-1, ROWS, turns, FOURS, OF)
        kept = (lib.wide(cut != 0) << lib.arange(OF)).sum(-1)
        yield cut, table[kept]


def kept_images(w: SparseMatrix, rows: int) -> Any:
    """The kept elements of each tile, turn by turn, 64 rows x 32 at a time, swizzled."""
    lib, pieces = w.library, []
    with lib.active():
        place = lib.constant(swizzled(ROWS, 2 * KEPT, 2 * KEPT).inverse_table().reshape(-1))
        for cut, codes in _tiles(w, rows):
            groups, _, turns = cut.shape[:3]
            flat, code = cut.reshape(-1, OF), codes.reshape(-1, 1)
            places = lib.xp.concatenate((code % OF, code // OF), 1)
            kept = flat[lib.arange(flat.shape[0]).reshape(-1, 1), places]
            kept = kept.reshape(-1, rows // ROWS, ROWS, turns, KEPT)
            kept = lib.packed(lib.transpose(kept, (0, 3, 1, 2, 4))).reshape(groups * turns, ROWS * KEPT)
            pieces.append(kept[:, place].reshape(-1))
        return lib.view(lib.xp.concatenate(pieces), w.kind)


def kept_words(w: SparseMatrix, rows: int) -> Any:
    """The words that say which elements are kept, of each thread that multiplies and turn one."""
    lib, pieces = w.library, []
    with lib.active():
        for _, codes in _tiles(w, rows):
            cut = codes.reshape(-1, rows // ROWS, ROWS, codes.shape[2], FOURS)
            cut = lib.packed(lib.transpose(cut, (0, 3, 1, 2, 4))).reshape(-1, metadata.ROWS, FOURS)
            pieces.append(metadata.words(cut, lib.transpose).reshape(-1))
        return lib.cast(lib.xp.concatenate(pieces), u32)

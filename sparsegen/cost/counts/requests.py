"""What a warp's request costs: sectors of global memory, wavefronts of shared memory, from the lanes' addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Bytes of a sector of global memory; banks of shared memory, 4 bytes wide each.
SECTOR, BANKS = 32, 32
Addresses = npt.NDArray[np.int64]  #: [requests, 32 lanes], in bytes
Mask = npt.NDArray[np.bool_]  #: of the same shape: which lanes ask


def sectors(at: Addresses, nbytes: int, on: Mask | None = None) -> npt.NDArray[Any]:
    """Distinct sectors that each request touches, ``nbytes`` a lane."""
    first, last = at // SECTOR, (at + nbytes - 1) // SECTOR
    both = np.concatenate([first, last], axis=1)
    if on is not None:
        both = np.where(np.concatenate([on, on], axis=1), both, -1)
    both = np.sort(both, axis=1)
    fresh = np.diff(both, axis=1, prepend=-1) != 0
    return np.asarray((fresh & (both >= 0)).sum(axis=1))


def wavefronts(at: Addresses, nbytes: int, on: Mask | None = None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """(wavefronts, the least possible) of each request of ``nbytes`` a lane.

    Lanes take turns of 128 bytes: 32 of them with up to 4 bytes, 16 with 8, 8 with 16.  A turn takes as many
    wavefronts as the busiest bank has different words to give; at best one.
    """
    words, lanes = max(1, nbytes // 4), min(32, 128 // nbytes)
    requests = len(at)
    word = at[:, :, None] // 4 + np.arange(words)
    if on is not None:
        word = np.where(on[:, :, None], word, -1)
    word = np.sort(word.reshape(requests * (32 // lanes), lanes * words), axis=1)
    asked = (word >= 0) & (np.diff(word, axis=1, prepend=-1) != 0)
    turn = np.nonzero(asked)[0]
    busy = np.bincount(turn * BANKS + word[asked] % BANKS, minlength=len(word) * BANKS).reshape(requests, -1, BANKS)
    most = busy.max(axis=2)
    return most.sum(axis=1), (most > 0).sum(axis=1)

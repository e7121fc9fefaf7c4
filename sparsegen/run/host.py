"""Host arrays as a back end takes them: flat, in the order in which their elements lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

HostArray = npt.NDArray[Any]
Arrays = Mapping[str, HostArray]


def _in_order(a: HostArray) -> HostArray | None:
    """The elements of an array that is packed, whatever the order of its axes in memory, not copied; else None."""
    if a.flags.c_contiguous:
        return a.reshape(-1)
    lying = a.transpose(sorted(range(a.ndim), key=lambda axis: -a.strides[axis]))
    return lying.reshape(-1) if lying.flags.c_contiguous else None


def flat(a: HostArray) -> HostArray:
    """The elements of a packed array in the order in which they lie, not copied; of any other array those of a packed
    copy."""
    own = _in_order(a)
    return np.ascontiguousarray(a).reshape(-1) if own is None else own


@contextmanager
def results(arrays: Arrays) -> Iterator[dict[str, HostArray]]:
    """Flat arrays to write results to; what lies elsewhere is copied to ``arrays`` at the end."""
    made: dict[str, HostArray] = {}
    for name, a in arrays.items():
        own = _in_order(a)
        made[name] = np.empty(a.size, a.dtype) if own is None else own
    yield made
    for name, a in arrays.items():
        if not np.may_share_memory(made[name], a):
            a[...] = made[name].reshape(a.shape)

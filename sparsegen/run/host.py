"""Host arrays as a back end takes them: flat, in the order in which their elements lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

HostArray = npt.NDArray[Any]
Arrays = Mapping[str, HostArray]


def flat(a: HostArray) -> HostArray:
    """The elements of an array packed by rows or columns, not copied; of any other array those of a packed copy."""
    turned = a.flags.f_contiguous and not a.flags.c_contiguous
    return (a.T if turned else np.ascontiguousarray(a)).reshape(-1)


@contextmanager
def results(arrays: Arrays) -> Iterator[dict[str, HostArray]]:
    """Flat arrays to write results to; what lies elsewhere is copied to ``arrays`` at the end."""
    made: dict[str, HostArray] = {}
    for name, a in arrays.items():
        packed = a.flags.c_contiguous or a.flags.f_contiguous
        made[name] = flat(a) if packed else np.empty(a.size, a.dtype)
    yield made
    for name, a in arrays.items():
        if not np.may_share_memory(made[name], a):
            a[...] = made[name].reshape(a.shape)

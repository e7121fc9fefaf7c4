"""A scale of one number, as weights have that were quantised as a whole: kernels read one a row."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Final

import numpy as np

from sparsegen.arrays import Expect, describe, empty_like, host_array
from sparsegen.formats.library import FLOATS
from sparsegen.ir.errors import ArrayError
from sparsegen.views import ArrayView

_ONE: Final = ((), (1,))


def everywhere(scale: Any, x: Any, wanted: Expect, stream: object) -> Any:
    """The array [M] of one number, of x's library beside x; what is no such number as it is.

    A number is a real one, an array of one element on the host, or one of x's library beside x and of the dtype that is
    wanted.  ArrayError for a number that the dtype does not hold, and where the array would be written on another
    stream than the call's.
    """
    like, value = describe(x), _number(scale)
    if value is None and not _beside(describe(scale), like, wanted):
        return scale
    if stream is not None and like.layout.device_kind != "host":
        raise ArrayError(
            f"scale is one number, which is written to {wanted.shape[0]} elements on the current stream of "
            f"{like.layout.library}; the call has a stream of its own",
            hint=f"pass an array of shape {wanted.shape}, or make that stream the current one and leave it away",
        )
    with np.errstate(over="ignore"):
        if value is not None and math.isfinite(value) and not np.isfinite(np.array(value).astype(wanted.dtype)):
            raise ArrayError(f"scale is {value}, which {wanted.dtype} does not hold", hint="scale W or x instead")
    made = empty_like(like, wanted.shape, wanted.dtype)
    made[...] = scale if value is None else value
    return made


def _number(scale: Any) -> float | None:
    """A real number, or the element of an array of one on the host; None for anything else."""
    if isinstance(scale, (Real, np.generic)):
        array = np.asarray(scale)
    else:
        view = describe(scale)
        if view.layout.device_kind != "host" or view.layout.problem or view.layout.shape not in _ONE:
            return None
        array = host_array(view)
    real = array.dtype.name in FLOATS or array.dtype.kind in "iu"
    return float(array.reshape(())[()]) if real else None


def _beside(scale: ArrayView, x: ArrayView, wanted: Expect) -> bool:
    """Whether an array of one element is on the GPU where x is."""
    mine, theirs = scale.layout, x.layout
    places = {(layout.library, layout.device_kind, layout.device_index) for layout in (mine, theirs)}
    return not mine.problem and mine.shape in _ONE and mine.dtype == wanted.dtype and len(places) == 1

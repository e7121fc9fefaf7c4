"""Checks of what users pass, with errors that name the argument."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsegen.ir.errors import SparsegenError, StencilError

#: No size, number of steps or seed is larger: it must fit an integer of the host.
MOST = 2**63 - 1


def one_of(value: Any, known: Sequence[str], name: str, error: type[SparsegenError]) -> str:
    """One of the known names, as the user gave it; ``error`` otherwise."""
    if not isinstance(value, str) or value not in known:
        raise error(f"unknown {name} {value!r}", hint=f"one of {', '.join(map(repr, known))}")
    return value


def real(value: Any) -> float | None:
    """The float nearest to a real number; None for anything else.

    That is words, arrays, masked elements, and complex numbers of any library, whose imaginary part float() would drop.
    """
    if isinstance(value, (str, bytes, np.ma.MaskedArray)) or getattr(value, "shape", ()) != ():
        return None
    if isinstance(value, complex) or "complex" in str(getattr(value, "dtype", "")):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


def positive(value: Any, name: str, error: type[SparsegenError] = StencilError, least: int = 1) -> int:
    """A whole number from ``least`` up, given by the user; ``error`` otherwise."""
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise error(f"{name}={value!r} is not a whole number", hint=f"pass a positive int, as in {name}=100") from None
    if count > MOST:
        raise error(f"{name}={count} is beyond {MOST}", hint=f"pass a smaller {name}")
    if count < least:
        what = "there is nothing to do" if least else "it is negative"
        raise error(f"{name}={count}: {what}", hint=f"pass a positive int, as in {name}=100")
    return count

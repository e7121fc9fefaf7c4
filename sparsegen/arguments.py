"""Checks of what users pass, with errors that name the argument."""

from __future__ import annotations

import operator
from typing import Any

from sparsegen.ir.errors import SparsegenError, StencilError


def positive(value: Any, name: str, error: type[SparsegenError] = StencilError) -> int:
    """A positive whole number given by the user; ``error`` otherwise."""
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise error(f"{name}={value!r} is not a whole number", hint=f"pass a positive int, as in {name}=100") from None
    if count < 1:
        raise error(f"{name}={count}: there is nothing to do", hint=f"pass a positive int, as in {name}=100")
    return count

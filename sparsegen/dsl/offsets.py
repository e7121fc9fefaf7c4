"""Offsets from the cell, as users write them between brackets."""

from __future__ import annotations

import operator
from typing import Any, cast

import numpy as np

from sparsegen.dsl.refuse import Refused, fault
from sparsegen.dsl.stencil import MAX_RADIUS


def offset_of(name: str, key: Any) -> tuple[int, ...]:
    """The offset in ``name[key]``; StencilError for what is none."""
    parts: list[Any] = [*key] if isinstance(key, tuple) else [key]
    read = f"{name}[{', '.join(map(shown, parts))}]"
    if not 1 <= len(parts) <= 3:
        raise fault(f"{read} has {len(parts)} offsets", "a stencil has 1, 2 or 3 axes")
    offset: list[int] = []
    for part in parts:
        kind = type(part).__name__
        try:
            if isinstance(part, (bool, np.bool_)):
                raise TypeError
            offset.append(operator.index(part))
        except TypeError:
            raise fault(
                f"the offset {shown(part)} in {read} is not a constant integer but a {kind}",
                f"write offsets from the cell as integers, as in {name}[-1, 0]",
            ) from None
    if (far := max(map(abs, offset))) > MAX_RADIUS:
        raise fault(
            f"{read} reads {far} cells away, over the limit of {MAX_RADIUS}",
            "a stencil this wide is better applied by FFT, or as several narrower ones",
        )
    return tuple(offset)


def shown(part: Any) -> str:
    """What stands between brackets, as a user wrote it."""
    if isinstance(part, slice):
        whole = cast("Any", part)
        ends = [whole.start, whole.stop] if whole.step is None else [whole.start, whole.stop, whole.step]
        return ":".join("" if end is None else str(end) for end in ends)
    return str(part) if isinstance(part, Refused) else repr(part)

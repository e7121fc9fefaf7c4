"""What the tests of wrong calls share: how a refusal must read, and which line it must name."""

from __future__ import annotations

import linecache
from collections.abc import Callable

import pytest

import sparsegen as sg


def refusal(file: str, kind: type[sg.SparsegenError], attempt: Callable[[], object], *says: str) -> None:
    """The attempt is refused with these words, with a remedy, and at a line of ``file`` that is marked ``# here``."""
    with pytest.raises(kind) as caught:
        attempt()
    text = str(caught.value)
    for part in says:
        assert part in text, f"{part!r} is not in:\n{text}"
    assert caught.value.loc is not None and "# here" in linecache.getline(file, caught.value.loc.line), text
    assert caught.value.hint

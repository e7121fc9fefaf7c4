"""Cells of tables: how a number, a size and the absence of both are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Result = dict[str, Any]
Cells = list[list[str]]


def number(value: float | str | None, form: str = ".1f") -> str:
    """A number in a cell; a dash for none."""
    return "–" if value is None else format(value, form) if isinstance(value, (int, float)) else value


def size(row: Mapping[str, Any]) -> str:
    """A row's shape, as in 512×512."""
    return "×".join(map(str, row["shape"]))

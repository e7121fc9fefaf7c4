"""Cells of tables: how a figure of a row, a size and the absence of both are written; tables by columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

Result = dict[str, Any]
Row = Mapping[str, Any]
Cells = list[list[str]]
L = TypeVar("L")
#: What a row has in one column.
Column = Callable[[Row], str]


def number(value: float | str | None, form: str = ".1f") -> str:
    """A number in a cell; a dash for none."""
    return "–" if value is None else format(value, form) if isinstance(value, (int, float)) else value


def micro(seconds: float | None, form: str = ".1f") -> str:
    """Seconds in a cell, as microseconds."""
    return number(None if seconds is None else seconds * 1e6, form)


def ratio(a: float | None, b: float | None) -> str:
    """How often ``b`` goes into ``a``; a dash where one is missing."""
    return number(a / b if a and b else None, ".2f")


def size(row: Row) -> str:
    """A row's shape, as in 512×512."""
    return "×".join(map(str, row["shape"]))


def schedule(row: Row) -> str:
    """A row's schedule in backticks."""
    return f"`{row['schedule']}`" if row["schedule"] else ""


def judged(row: Row, text: str) -> str:
    """What was measured, marked where it is wrong or misses its target."""
    return "failed" if row["failed"] else f"{text}{'' if row['ok'] else ' ✗'}"


def of(key: str, form: str = ".1f", write: Callable[..., str] = number) -> Column:
    """The column of one entry of the rows; nothing where it is missing altogether."""
    return lambda row: write(row.get(key, ""), form)


#: The column of one entry that is seconds, as microseconds.
micros = partial(of, write=micro)


def part(found: Result, name: str) -> list[Row]:
    """The rows of one part of a result."""
    return [row for row in found["rows"] if row["part"] == name]


def table(rows: Iterable[Row], columns: Mapping[str, Column]) -> Cells:
    """A line for each row under the names of the columns."""
    return [[*columns], *([cell(row) for cell in columns.values()] for row in rows)]


def pivot(entries: Iterable[tuple[L, str, str]]) -> tuple[list[str], dict[L, list[str]]]:
    """From line, column and text of each cell: the names of the columns, and the cells of each line."""
    lines: dict[L, dict[str, str]] = {}
    names: dict[str, None] = {}
    for line, name, text in entries:
        lines.setdefault(line, {})[name] = text
        names[name] = None
    return [*names], {line: [cells.get(name, "") for name in names] for line, cells in lines.items()}

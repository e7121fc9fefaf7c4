"""A page as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from sparsegen.explain.page import Page
from sparsegen.explain.sections import Row, Section, sections

#: Columns of the labels at the head and at the end.
_LABEL = 10


def text(page: Page) -> str:
    """The whole page."""
    head, *others = sections(page)
    return "\n\n".join(["\n".join([page.about, _section(head)]), *map(_section, others)])


def _section(section: Section) -> str:
    if not section.title:
        return "\n".join(f"{row.cells[0]:<{_LABEL}} {row.cells[1]}" for row in section.rows)
    lines = map(_sentence, section.rows) if section.sentence else columns(section.rows, section.right)
    return "\n".join([section.title, *(f"  {line}" for line in lines)])


def _sentence(row: Row) -> str:
    first, *others = row.cells
    return f"{first}: {'; '.join(others)}" if others else first


def columns(rows: Sequence[Row], right: frozenset[int]) -> list[str]:
    """Aligned cells; a row of one cell is a line of its own."""
    table = [row.cells for row in rows if len(row.cells) > 1]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines: list[str] = []
    for row in rows:
        if len(row.cells) == 1:
            lines.append(row.cells[0])
            continue
        cells = [
            c.rjust(w) if at in right else c.ljust(w) for at, (c, w) in enumerate(zip(row.cells, widths, strict=True))
        ]
        lines.append("  ".join(cell for cell, width in zip(cells, widths, strict=True) if width).rstrip())
    return lines

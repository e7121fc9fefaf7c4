"""A page for ``rich``, in colours: what ``rich.print(k.explain())`` shows.  The only module that imports it."""

from __future__ import annotations

from typing import Any

from sparsegen.explain.page import Page
from sparsegen.explain.sections import Section, Style, sections

_STYLES: dict[Style, str] = {"chosen": "bold green", "binds": "bold yellow", "quiet": "dim", "": ""}


def render(page: Page) -> Any:
    """A renderable of the whole page."""
    from rich.console import Group
    from rich.text import Text

    blocks: list[Any] = [Text(page.about, style="bold")]
    for section in sections(page):
        if section.title:
            blocks += [Text(), Text(section.title, style="bold cyan")]
        elif section.rows[0].cells[0] != "device":
            blocks.append(Text())
        if any(len(row.cells) > 1 for row in section.rows):
            blocks.append(table(section))
        blocks += (Text(f"  {row.cells[0]}") for row in section.rows if len(row.cells) == 1)
    return Group(*blocks)


def titled(section: Section) -> Any:
    """A renderable of one section under its title."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(section.title, style="bold"), Text(), table(section))


def table(section: Section) -> Any:
    """The rows of a section with several cells; a column that is empty is left out."""
    from rich.table import Table
    from rich.text import Text

    width = len(section.heads)
    rows = [(*row.cells, *[""] * (width - len(row.cells))) for row in section.rows if len(row.cells) > 1]
    kept = [at for at in range(width) if any(row[at].strip() for row in rows)]
    made = Table(box=None, show_header=bool(section.title), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for at in kept:
        first = at == 0 and not section.title
        made.add_column(
            section.heads[at], justify="right" if at in section.right else "left", no_wrap=first or at in section.right,
            style="cyan" if first else "",
        )  # fmt: skip
    for row, cells in zip((r for r in section.rows if len(r.cells) > 1), rows, strict=True):
        made.add_row(*(Text(cells[at].strip()) for at in kept), style=_STYLES[row.style])
    return made

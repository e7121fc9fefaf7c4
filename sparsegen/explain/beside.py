"""Several pages in one table: one stencil on several devices, or a line for each page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from sparsegen.explain.page import Page, Standing
from sparsegen.explain.sections import Row, Section, percent, rated
from sparsegen.explain.text import columns
from sparsegen.explain.units import seconds

#: Characters of a schedule's line in a column.
_WIDTH = 40


class Table(str):
    """A section as text, which ``rich`` shows as a table."""

    __slots__ = ("section",)

    section: Section

    def __new__(cls, section: Section) -> Table:
        """The text of a section."""
        head = [Row(section.heads)] if any(section.heads) else []
        made = super().__new__(cls, "\n".join([section.title, "", *columns([*head, *section.rows], section.right)]))
        made.section = section
        return made

    def __rich__(self) -> Any:
        from sparsegen.explain.richly import titled

        return titled(self.section)


def beside(pages: Sequence[Page]) -> Table:
    """A kernel on several devices, a column each."""
    rows = [
        *_schedules(pages),
        _row("predicted", [f"{seconds(p.prediction.seconds)} a call" for p in pages]),
        _row("rate", [rated(p.prediction.rate, p.rate_unit) for p in pages]),
        _row("bound by", [p.prediction.binds for p in pages], "binds"),
    ]
    if any(p.measurement for p in pages):
        rows.append(_row("measured", [seconds(p.measurement.seconds) if p.measurement else "–" for p in pages]))
    rows.append(_row("terms of", [f"{p.unit}, {seconds(p.prediction.launch)}" for p in pages]))
    rows += [_row(f"  {name}", [_term(p, name) for p in pages], "quiet") for name in _terms(pages)]
    families = dict.fromkeys(s.family for p in pages for s in p.families)
    families |= dict.fromkeys(a.family for p in pages for a in p.absent)
    rows += [_row(f"best {family}", [_best(p, family) for p in pages]) for family in families]
    heads = ("", *(p.device.name + " (costs only)" * p.device.explain_only for p in pages))
    return Table(Section(pages[0].about, heads, tuple(rows)))


def overview(pages: Sequence[Page]) -> Table:
    """A line for each page."""
    rows = tuple(
        Row((p.name, p.device.name, rated(p.prediction.rate, p.rate_unit), p.prediction.binds, p.schedule))
        for p in pages
    )
    return Table(Section("in short", ("what", "device", "predicted", "bound by", "schedule"), rows, frozenset({2})))


def _row(name: str, cells: list[str], style: Any = "") -> Row:
    return Row((name, *cells), style)


def _schedules(pages: Sequence[Page]) -> Iterator[Row]:
    """Their lines, cut into pieces below one another: whole ones would make the table too wide."""
    lines = [wrap(page.schedule + " (given)" * (not page.automatic), _WIDTH) for page in pages]
    for at, pieces in enumerate(zip_longest(*lines, fillvalue="")):
        yield _row("" if at else "schedule", list(pieces), "chosen")


def _terms(pages: Sequence[Page]) -> list[str]:
    """The names of all terms, by the largest share that one has anywhere."""
    largest: dict[str, float] = {}
    for page in pages:
        for term in page.terms:
            largest[term.name] = max(term.share, largest.get(term.name, 0.0))
    return sorted(largest, key=lambda name: -largest[name])


def _term(page: Page, name: str) -> str:
    found = [t for t in page.terms if t.name == name]
    return "".join(f"{seconds(t.seconds)}, {percent(t.share)}{' *' * t.binds}" for t in found) or "–"


def _best(page: Page, family: str) -> str:
    found: Standing | None = next((s for s in page.families if s.family == family), None)
    if found is None:
        return "no legal schedule"
    return f"{rated(found.rate, page.rate_unit)}, {found.ratio:.2f}x, bound by {found.binds}"

"""A page as titled rows of words: what the text and the tables of ``rich`` both show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sparsegen.explain.page import Alternative, Change, Page, Standing
from sparsegen.explain.units import plural, seconds

Style = Literal["", "chosen", "binds", "quiet"]


@dataclass(frozen=True)
class Row:
    """The cells of a row; ``style`` is for colours."""

    cells: tuple[str, ...]
    style: Style = ""


@dataclass(frozen=True)
class Section:
    """Rows under a title (none: the head and the end of a page).

    ``heads``: of the columns.  ``right``: columns whose cells are aligned to the right.  ``sentence``: text joins the
    cells with a colon and semicolons, where columns would be too wide.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    right: frozenset[int] = frozenset()
    sentence: bool = False


def sections(page: Page) -> list[Section]:
    """All of a page, in its order, less its first line (``page.about``)."""
    found = [
        _facts(page), _terms(page), _families(page), _others(page), _refused(page), *_changes(page), _paper(page),
        Section("", ("", ""), tuple(Row((fact.label, fact.text)) for fact in page.rest)),
    ]  # fmt: skip
    return [section for section in found if section.rows]


def _facts(page: Page) -> Section:
    styles: dict[str, Style] = {"schedule": "chosen", "note": "quiet"}
    return Section("", ("", ""), tuple(Row((f.label, f.text), styles.get(f.label, "")) for f in page.facts))


def _terms(page: Page) -> Section:
    rows = (
        Row(
            (t.name, seconds(t.seconds), percent(t.share), "*" if t.binds else " ", t.reason),
            "binds" if t.binds else "",
        )
        for t in page.terms
    )
    heads = ("term", "time", "share", "", "why it is there")
    return Section(f"terms of {page.terms_of}", heads, tuple(rows), frozenset({1, 2}))


def percent(share: float) -> str:
    """A share of the predicted time."""
    return f"{100 * share:.0f} %" if share >= 0.005 else f"{100 * share:.1f} %"


def _families(page: Page) -> Section:
    title = f"best of each family, of {plural(page.legal, 'legal schedule')}"
    if not page.automatic:
        title += " (this one was given, not chosen)"
    rows = [_standing(page, s) for s in page.families]
    rows += [Row((absent.family, "no legal schedule", absent.reason), "quiet") for absent in page.absent]
    return Section(title, ("schedule", "predicted", "verdict"), tuple(rows), sentence=True)


def _standing(page: Page, s: Standing) -> Row:
    cells = (s.schedule, f"{seconds(s.seconds)}, {rated(s.rate, page.rate_unit)}", s.verdict)
    return Row(cells, "chosen" if s.chosen else "")


def rated(rate: float, unit: str) -> str:
    """A rate with as many digits as its unit needs."""
    return f"{rate:.1f} {unit}" if unit == "GS/s" else f"{rate:.2f} {unit}"


def _others(page: Page) -> Section:
    rows = tuple(_standing(page, s) for s in page.others)
    return Section("next best of its family", ("schedule", "predicted", "verdict"), rows, sentence=True)


def _refused(page: Page) -> Section:
    rows = [Row((f"{r.count:>5} like {r.example}", r.reason)) for r in page.refused.groups]
    more = page.refused.kinds - len(rows)
    if more > 0:
        rows.append(Row((f"      and {plural(more, 'more kind')} of reason",), "quiet"))
    title = f"refused: {page.refused.total} schedules that cannot run here"
    return Section(title, ("schedules", "reason"), tuple(rows), sentence=True)


# ------------------------------------------------------------------------------------------------ what would change it
def _changes(page: Page) -> Iterator[Section]:
    by_kind: dict[str, list[Change]] = {}
    for change in page.changes:
        by_kind.setdefault(change.kind, []).append(change)
    told = [c for kind in ("figure", "grid", "steps") for c in by_kind.get(kind, ()) if c.changes]
    rows = [Row((c.what, *filter(None, (c.schedule, _would(page, c))))) for c in told]
    tried = [what for kind, what in (("figure", "no doubled figure of the device"), ("grid", "no larger grid"))
             if kind in by_kind]  # fmt: skip
    if not rows and tried:
        rows = [Row((", and ".join(tried),), "quiet")]
    yield Section("what would change the choice", ("if", "then", ""), tuple(rows), sentence=True)
    titles = {
        "columns": "more columns of x (by a smaller search)",
        "sparsity": "other sparsities (this matrix's statistics, scaled; by a smaller search)",
        "device": "on other GPUs" + " (by a smaller search)" * (page.kind != "update"),
    }
    for kind, title in titles.items():
        heads = ("", page.rate_unit, "time", "", "dense", "schedule", "")
        found = tuple(Row(_there(page, c), "chosen" if c.changes else "") for c in by_kind.get(kind, ()))
        yield Section(title, heads, found, frozenset({1, 2, 4}))


def _would(page: Page, c: Change) -> str:
    if c.seconds is None or c.rate is None:
        return c.note
    return f"{seconds(c.seconds)} a call, {rated(c.rate, page.rate_unit)}; bound by {c.binds}"


def _there(page: Page, c: Change) -> tuple[str, ...]:
    if c.seconds is None or c.rate is None or c.schedule is None:
        return (c.what, "–", "–", "", "", c.note, "")
    dense = "" if c.dense is None else f"dense {seconds(c.dense)}"
    words = ", ".join(filter(None, (c.note, "another choice" if c.changes else "the same choice")))
    return (
        c.what,
        rated(c.rate, page.rate_unit),
        seconds(c.seconds),
        f"bound by {c.binds}",
        dense,
        c.schedule,
        f"({words})",
    )


def _paper(page: Page) -> Section:
    if page.paper is None:
        return Section("", (), ())
    rows = [_alternative(a, page.rate_unit) for a in page.paper.alternatives]
    rows += [Row((remark,)) for remark in page.paper.remarks]
    fused = f"{plural(page.paper.fuse, 'step')} fused, edge {page.paper.edge}"
    whose = f"the paper's are of {page.paper.case} on an A100"
    title = f"ConvStencil's own alternatives, at its schedule ({fused}); gains over the line before, {whose}"
    return Section(title, ("form", "predicted", "gain", "paper", ""), tuple(rows), frozenset({1, 2, 3}))


def _alternative(a: Alternative, unit: str) -> Row:
    if a.rate is None:
        return Row((a.name, "–", "", _gain(a.paper, "paper"), f"refused: {a.refused}"), "quiet")
    return Row((a.name, rated(a.rate, unit), _gain(a.gain, ""), _gain(a.paper, "paper"), f"bound by {a.binds}"))


def _gain(gain: float | None, who: str) -> str:
    return "" if gain is None else f"{who} {100 * gain:+.0f} %".strip()

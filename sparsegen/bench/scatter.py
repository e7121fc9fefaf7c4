"""The picture of suite ``regret``: predicted over measured seconds of every point, both logarithmic.

SVG written by hand, in the colours of the rooflines of ``explain``: a light and a dark form, a colour a family.  A
family's dots on one pixel are one dot, whose ``data-n`` says how many; the chosen schedules have a ring.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from textwrap import wrap
from typing import Any, Final

from sparsegen.bench.cells import Result, size
from sparsegen.bench.picture import Scale
from sparsegen.bench.regret import CHOSEN
from sparsegen.bench.report import caption
from sparsegen.explain.picture import colour, frame, label, line
from sparsegen.explain.units import seconds
from sparsegen.registry import families

EDGE, LEFT, TOP, RIGHT, BELOW = 600, 66, 16, 24, 130  #: of the axes, which are a square, and around them, in pixels
SIZE: Final = (LEFT + EDGE + RIGHT, TOP + EDGE + BELOW)
BAND: Final = 0.3  #: how far off the dashed lines are


def svg(found: Result) -> str:
    """The picture of a result; points without a time are counted, not drawn."""
    rows = [row for row in found["rows"] if row["measured_s"] is not None]
    times = [row[key] for row in rows for key in ("measured_s", "predicted_s")] or [1e-6, 1e-3]
    low, high = min(times) / 1.5, max(times) * 1.5
    x, y = Scale(low, high, LEFT, LEFT + EDGE), Scale(low, high, TOP + EDGE, TOP)
    missing = len(found["rows"]) - len(rows)
    return "\n".join([
        frame(*SIZE), f'<rect class="page" width="{SIZE[0]}" height="{SIZE[1]}"/>', *_axes(x, y), *_lines(x, y),
        *_dots(rows, x, y), *_rings(rows, x, y), *_legend(rows, missing),
        *_caption(found), "</svg>", "",
    ])  # fmt: skip


def _caption(found: Result) -> Iterator[str]:
    lines = wrap(caption(found, "picture"), 125)
    for at, words in enumerate(lines):
        yield label(LEFT, SIZE[1] - 8 - 12 * (len(lines) - 1 - at), words, size=9)


def _family(row: dict[str, Any]) -> str:
    return str(row["schedule"]).partition(" ")[0]


def _axes(x: Scale, y: Scale) -> Iterator[str]:
    bottom = TOP + EDGE
    for power in range(math.ceil(math.log10(x.low)), math.floor(math.log10(x.high)) + 1):
        value = 10.0**power
        yield line("grid", x(value), TOP, x(value), bottom)
        yield label(x(value), bottom + 16, seconds(value), "middle")
        yield line("grid", LEFT, y(value), LEFT + EDGE, y(value))
        yield label(LEFT - 6, y(value) + 4, seconds(value), "end")
    yield f'<rect class="edge" x="{LEFT}" y="{TOP}" width="{EDGE}" height="{EDGE}"/>'
    yield label(LEFT + EDGE / 2, bottom + 34, "measured time of a call", "middle")
    yield label(14, TOP + EDGE / 2, "predicted time of a call", "middle", turn=True)


def _lines(x: Scale, y: Scale) -> Iterator[str]:
    """Where predicted is measured, and where it is BAND more or less."""
    for factor in (1 - BAND, 1.0, 1 + BAND):
        first, last = max(x.low, x.low / factor), min(x.high, x.high / factor)
        yield line("roof", x(first), y(first * factor), x(last), y(last * factor), factor != 1)
    yield label(LEFT + 8, TOP + 18, f"dashed: {BAND:.0%} more or less than measured", size=11)


def _dots(rows: Sequence[dict[str, Any]], x: Scale, y: Scale) -> Iterator[str]:
    count = Counter((_family(row), round(x(row["measured_s"])), round(y(row["predicted_s"]))) for row in rows)
    for (family, px, py), n in count.items():
        many = f' data-n="{n}"' if n > 1 else ""
        yield f'<circle class="dot {colour(family)}" cx="{px}" cy="{py}" r="3"{many}/>'


def _rings(rows: Sequence[dict[str, Any]], x: Scale, y: Scale) -> Iterator[str]:
    """Round the chosen schedules; a pointer on one is told what it is."""
    for row in rows:
        if row["picked"] == CHOSEN:
            px, py = round(x(row["measured_s"])), round(y(row["predicted_s"]))
            told = (
                f"{row['case']}, {size(row)} {row['dtype']}, {row['schedule']}: measured {seconds(row['measured_s'])}"
            )
            told = escape(f"{told}, predicted {seconds(row['predicted_s'])}")
            yield f'<circle class="ring" cx="{px}" cy="{py}" r="5"><title>{told}</title></circle>'


def _legend(rows: Sequence[dict[str, Any]], missing: int) -> Iterator[str]:
    count = Counter(map(_family, rows))
    place, top = LEFT, TOP + EDGE + 56
    entries = [
        (colour(family), f"{family} ({count[family]})")
        for family in (*families("stencil"), *families("spmm"))
        if count[family]
    ]
    for kind, words in [*entries, ("ring", f"chosen ({sum(row['picked'] == CHOSEN for row in rows)})")]:
        if place + 18 + 6.5 * len(words) > SIZE[0]:
            place, top = LEFT, top + 18
        yield f'<circle class="{kind}" cx="{place + 5}" cy="{top - 4}" r="5"/>'
        yield label(place + 15, top, words, size=11)
        place += round(28 + 6.5 * len(words))
    if missing:
        yield label(LEFT, top + 18, f"without a time, so not here: {missing}", size=11)

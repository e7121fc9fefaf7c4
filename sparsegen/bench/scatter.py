"""The picture of suite ``regret``: predicted over measured seconds of every point, both logarithmic.

A colour a family, as in the rooflines of ``explain``; the chosen schedules have a ring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

from sparsegen.bench.cells import Result, size
from sparsegen.bench.regret import CHOSEN
from sparsegen.bench.report import caption
from sparsegen.explain import chart
from sparsegen.explain.chart import Box, Scale, axes, circle, colour, frame, label, legend, line, powers
from sparsegen.explain.units import seconds
from sparsegen.registry import families

EDGE, LEFT, TOP, RIGHT, BELOW = 600, 66, 16, 24, 130  #: of the axes, which are a square, and around them, in pixels
BOX: Final = Box(LEFT, TOP, EDGE, EDGE)
SIZE: Final = (LEFT + EDGE + RIGHT, TOP + EDGE + BELOW)
BAND: Final = 0.3  #: how far off the dashed lines are


def svg(found: Result) -> str:
    """The picture of a result; points without a time are counted, not drawn."""
    rows = [row for row in found["rows"] if row["measured_s"] is not None]
    times = [row[key] for row in rows for key in ("measured_s", "predicted_s")] or [1e-6, 1e-3]
    low, high = min(times) / 1.5, max(times) * 1.5
    x, y = BOX.scales((low, high), (low, high))
    across, up = ([(axis(value), seconds(value)) for value in powers(axis)] for axis in (x, y))
    dots = ((_family(row), x(row["measured_s"]), y(row["predicted_s"])) for row in rows)
    return "\n".join([
        frame(*SIZE), f'<rect class="page" width="{SIZE[0]}" height="{SIZE[1]}"/>',
        *axes(BOX, across, up, ("measured time of a call", "predicted time of a call")), *_lines(x, y),
        *chart.dots(dots, 3), *_rings(rows, x, y), *_legend(rows, len(found["rows"]) - len(rows)), *_caption(found),
        "</svg>", "",
    ])  # fmt: skip


def _caption(found: Result) -> Iterator[str]:
    lines = wrap(caption(found, "picture"), 125)
    for at, words in enumerate(lines):
        yield label(LEFT, SIZE[1] - 8 - 12 * (len(lines) - 1 - at), words, size=9)


def _family(row: dict[str, Any]) -> str:
    return str(row["schedule"]).partition(" ")[0]


def _lines(x: Scale, y: Scale) -> Iterator[str]:
    """Where predicted is measured, and where it is BAND more or less."""
    for factor in (1 - BAND, 1.0, 1 + BAND):
        first, last = max(x.low, x.low / factor), min(x.high, x.high / factor)
        yield line("roof", x(first), y(first * factor), x(last), y(last * factor), factor != 1)
    yield label(LEFT + 8, TOP + 18, f"dashed: {BAND:.0%} more or less than measured", size=11)


def _rings(rows: Sequence[dict[str, Any]], x: Scale, y: Scale) -> Iterator[str]:
    """Round the chosen schedules; a pointer on one is told what it is."""
    for row in (row for row in rows if row["picked"] == CHOSEN):
        measured, predicted = row["measured_s"], row["predicted_s"]
        told = f"{row['case']}, {size(row)} {row['dtype']}, {row['schedule']}: "
        told += f"measured {seconds(measured)}, predicted {seconds(predicted)}"
        yield circle("ring", round(x(measured)), round(y(predicted)), 5, told)


def _legend(rows: Sequence[dict[str, Any]], missing: int) -> Iterator[str]:
    count = Counter(map(_family, rows))
    known = [family for family in (*families("stencil"), *families("spmm")) if count[family]]
    entries = [(colour(family), f"{family} ({count[family]})") for family in known]
    chosen = ("ring", f"chosen ({sum(row['picked'] == CHOSEN for row in rows)})")
    yield from legend([*entries, chosen], LEFT, TOP + EDGE + 56, SIZE[0])
    if missing:
        yield label(LEFT, TOP + EDGE + 92, f"without a time, so not here: {missing}", size=11)

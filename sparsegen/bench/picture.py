"""The picture of the sweep: GS/s over the cells of a field, both logarithmic, one panel for each number of axes.

Written as SVG by hand, so that a result can be drawn wherever it can be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from sparsegen.bench.cells import Result
from sparsegen.bench.report import caption

WIDTH, HEIGHT = 300, 260  #: of a panel's axes, in pixels
LEFT, TOP, GAP, BELOW = 56, 40, 24, 82
COLOURS: Final = ("#0b6fa4", "#c8501e", "#3c8c3c", "#7a4fa3")
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" '
    'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#222">'
)


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis: values from ``low`` to ``high`` become pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)


def decades(low: float, high: float) -> list[int]:
    """Powers of ten from ``low`` to ``high``."""
    return [10**n for n in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]


def svg(found: Result, part: str = "sweep") -> str:
    """The picture of a part's rows that have numbers: measured as points on a line, the model's as a dashed line."""
    rows = [row for row in found["rows"] if row["part"] == part and row["gs_per_s"]]
    panels: dict[int, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (len(row["shape"]), math.prod(row["shape"]))):
        panels.setdefault(len(row["shape"]), []).append(row)
    rates = [rate for row in rows for rate in (row["gs_per_s"], row["predicted_gs"]) if rate]
    rates = rates or [1.0]
    low, high = (10.0 ** edge(math.log10(limit(rates))) for edge, limit in ((math.floor, min), (math.ceil, max)))
    width, height = LEFT + len(panels) * (WIDTH + GAP), TOP + HEIGHT + BELOW
    body = [HEAD.format(w=width, h=height), f'<rect width="{width}" height="{height}" fill="white"/>']
    for at, (axes, each) in enumerate(panels.items()):
        left = LEFT + at * (WIDTH + GAP)
        body += _panel(each, axes, left, Scale(low, max(high, 10 * low), TOP + HEIGHT, TOP), numbers=at == 0)
    body.append(label(LEFT, height - 8, caption(found, part), "start", 10))
    body.append(label(14, TOP + HEIGHT / 2, "GS/s", "middle", turn=True))
    return "\n".join([*body, "</svg>", ""])


def _panel(rows: Sequence[Mapping[str, Any]], axes: int, left: int, y: Scale, numbers: bool) -> Iterable[str]:
    cells = [math.prod(row["shape"]) for row in rows]
    x = Scale(min(cells) / 2, max(cells) * 2, left, left + WIDTH)
    bottom = TOP + HEIGHT
    yield label(left + WIDTH / 2, TOP - 12, f"{axes}-D, {rows[0]['dtype']}, {rows[0]['boundary']}", "middle", 13)
    for value in decades(y.low, y.high):
        yield line([(left, y(value)), (left + WIDTH, y(value))], "#ddd")
        if numbers:
            yield label(left - 6, y(value) + 4, f"{value:,}", "end")
    for value in decades(x.low, x.high):
        yield line([(x(value), TOP), (x(value), bottom)], "#ddd")
        power = str(round(math.log10(value))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        yield label(x(value), bottom + 16, f"10{power}", "middle")
    yield f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>'
    yield label(left + WIDTH / 2, bottom + 32, "cells", "middle")
    names = list(dict.fromkeys(row["case"] for row in rows))
    for at, name in enumerate(names):
        colour = COLOURS[at % len(COLOURS)]
        own = [(x(n), row) for n, row in zip(cells, rows, strict=True) if row["case"] == name]
        measured = [(px, y(row["gs_per_s"])) for px, row in own]
        yield line([(px, y(row["predicted_gs"])) for px, row in own if row["predicted_gs"]], colour, "4 3")
        yield line(measured, colour)
        for (px, py), (_, row) in zip(measured, own, strict=True):
            what = f"{name}, {'×'.join(map(str, row['shape']))}: {row['gs_per_s']:.0f} GS/s, {row['schedule']}"
            yield f'<circle cx="{px}" cy="{py}" r="3.5" fill="{colour}"><title>{escape(what)}</title></circle>'
        place = left + at * WIDTH / max(2, len(names))
        yield line([(place, bottom + 48), (place + 20, bottom + 48)], colour)
        yield f'<circle cx="{place + 10}" cy="{bottom + 48}" r="3.5" fill="{colour}"/>'
        yield label(place + 25, bottom + 52, f"{name} (model dashed)", "start", 10)


def line(points: Sequence[tuple[float, float]], colour: str, dashes: str = "") -> str:
    """A line through points, in pixels."""
    path = " ".join(f"{px},{py}" for px, py in points)
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{style}/>'


def label(x: float, y: float, text: str, anchor: str, size: int = 12, turn: bool = False, colour: str = "") -> str:
    """Words at a place: ``anchor`` says which part of them is there; ``turn``: upwards."""
    style = f' transform="rotate(-90 {x} {y})"' if turn else ""
    style += f' fill="{colour}"' if colour else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}"{style}>{escape(text)}</text>'

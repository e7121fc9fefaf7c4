"""The picture of the sweep: GS/s over the cells of a field, both logarithmic, one panel for each number of axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparsegen.bench.cells import Result, size
from sparsegen.bench.report import caption
from sparsegen.explain.chart import Box, axes, circle, curve, frame, label, powers

WIDTH, HEIGHT = 300, 260  #: of a panel's axes, in pixels
LEFT, TOP, GAP, BELOW = 70, 40, 24, 82


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
    body = [frame(width, height), f'<rect class="page" width="{width}" height="{height}"/>']
    for at, (ndim, each) in enumerate(panels.items()):
        box = Box(LEFT + at * (WIDTH + GAP), TOP, WIDTH, HEIGHT)
        body += _panel(each, ndim, box, (low, max(high, 10 * low)), first=at == 0)
    body.append(label(LEFT, height - 8, caption(found, part), size=10))
    return "\n".join([*body, "</svg>", ""])


def _panel(
    rows: Sequence[Mapping[str, Any]], ndim: int, box: Box, rates: tuple[float, float], first: bool
) -> Iterable[str]:
    cells = [math.prod(row["shape"]) for row in rows]
    x, y = box.scales((min(cells) / 2, max(cells) * 2), rates)
    yield label(box.left + WIDTH / 2, TOP - 12, f"{ndim}-D, {rows[0]['dtype']}, {rows[0]['boundary']}", "middle", 13)
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    across = [(x(value), f"10{str(round(math.log10(value))).translate(raised)}") for value in powers(x)]
    up = [(y(value), f"{value:,.0f}" if first else "") for value in powers(y)]
    yield from axes(box, across, up, ("cells", "GS/s" if first else ""))
    names = list(dict.fromkeys(row["case"] for row in rows))
    for at, name in enumerate(names):
        own = [(x(n), row) for n, row in zip(cells, rows, strict=True) if row["case"] == name]
        yield curve(f"s{at}", [(px, y(row["predicted_gs"])) for px, row in own if row["predicted_gs"]], dashed=True)
        yield curve(f"s{at}", [(px, y(row["gs_per_s"])) for px, row in own])
        for px, row in own:
            told = f"{name}, {size(row)}: {row['gs_per_s']:.0f} GS/s, {row['schedule']}"
            yield circle(f"f{at}", px, y(row["gs_per_s"]), 3.5, told)
        place, below = box.left + at * WIDTH / max(2, len(names)), box.bottom + 48
        yield curve(f"s{at}", [(place, below), (place + 20, below)])
        yield circle(f"f{at}", place + 10, below, 3.5)
        yield label(place + 25, below + 4, f"{name} (model dashed)", size=10)

"""The pictures of suite ``unstructured``, one a kind of matrix: how many times as fast as each library ``auto`` is, by
the share of elements that are entries.

A row of panels a type, a panel a number of columns; all panels have the same axes, both logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from sparsegen.bench.beside import of_library
from sparsegen.bench.cells import Result, Row, micro
from sparsegen.bench.chosen import family, measured
from sparsegen.bench.report import caption
from sparsegen.bench.unstructured import AUTO, LIBRARIES
from sparsegen.explain.chart import Box, Scale, axes, circle, frame, label, legend, line

WIDTH, HEIGHT = 210, 150  #: of a panel's axes, in pixels
LEFT, TOP, GAP, BELOW = 62, 56, 18, 30
DOWN: Final = 34  #: between rows of panels
#: Numbers on an axis within a power of ten, the most of them that have room.
STEPS: Final = ((1, 2, 5), (1, 3), (1,))
_TITLES: Final = tuple(LIBRARIES.values())
#: Pixels of a letter, and of a line.
LETTER, LINE = 6.5, 14.0


def svg(found: Result, kind: str) -> str:
    """The picture of the products with matrices of a kind; those that a library was not measured for are left out."""
    rows = [row for row in measured(found) if row["kind"] == kind]
    types, columns = (sorted({*each}) for each in zip(*((r["dtype"], r["shape"][-1]) for r in rows), strict=True))
    across = _range([1 - row["sparsity"] for row in rows])
    up = _range([1.0, *(ratio for row in rows for _, ratio in _ratios(row))])
    width = LEFT + len(columns) * (WIDTH + GAP)
    height = TOP + len(types) * (HEIGHT + DOWN) + BELOW
    body = [frame(width, height), f'<rect class="page" width="{width}" height="{height}"/>']
    body.append(
        label(LEFT, 18, f"{kind} matrices: speed of what auto takes over that of a library", size=13, bold=True)
    )
    there = sorted({at for row in rows for at, _ in _ratios(row)})
    body += legend(((f"f{at}", f"over {_TITLES[at]}") for at in there), LEFT, 36, width)
    for i, dtype in enumerate(types[::-1]):
        for j, n in enumerate(columns):
            box = Box(LEFT + j * (WIDTH + GAP), TOP + i * (HEIGHT + DOWN), WIDTH, HEIGHT)
            own = [row for row in rows if (row["dtype"], row["shape"][-1]) == (dtype, n)]
            body += _panel(own, box, box.scales(across, up), (f"{dtype}, {n} columns", j == 0, i == len(types) - 1))
    body.append(label(LEFT, height - 8, caption(found, AUTO), size=9))
    return "\n".join([*body, "</svg>", ""])


def _ratios(row: Row) -> Iterator[tuple[int, float]]:
    """Of each library that stands beside: which it is, and how often the chosen one's time goes into its."""
    for at, name in enumerate(LIBRARIES):
        if took := of_library(row, name):
            yield at, took / row["hot_s"]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From what to what an axis goes."""
    return min(values) / 1.6, max(values) * 1.6


def _numbers(scale: Scale, room: Callable[[float], float]) -> list[float]:
    """Round numbers on an axis, as many as fit where each needs so many pixels."""
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    found: list[float] = []
    for steps in STEPS:
        every = (step * 10.0**power for power in range(first, last + 1) for step in steps)
        found = [value for value in every if scale.low <= value <= scale.high]
        if all(abs(scale(b) - scale(a)) >= room(a) for a, b in pairwise(found)):
            break
    return found


def _percent(value: float) -> str:
    return f"{100 * value:.6g} %"


def _panel(rows: Sequence[Row], box: Box, scales: tuple[Scale, Scale], said: tuple[str, bool, bool]) -> Iterator[str]:
    """A panel; ``said``: its title, and whether it is the first of its row, and in the last row, which have numbers."""
    (x, y), (title, first, last) = scales, said
    across = [(x(v), _percent(v) if last else "") for v in _numbers(x, lambda v: LETTER * len(_percent(v)))]
    up = [(y(v), f"{v:g}" if first else "") for v in _numbers(y, lambda _: LINE)]
    yield from axes(box, across, up, ("entries" if last else "", "times as fast" if first else ""))
    yield label(box.left + 6, box.top + 14, title, size=11)
    yield line("roof", box.left, y(1), box.left + box.width, y(1), dashed=True)
    for row in rows:
        for at, ratio in _ratios(row):
            told = f"{row['case']}: {family(row)} {micro(row['hot_s'])} µs, {_TITLES[at]} "
            told += micro(row["hot_s"] * ratio)
            yield circle(f"f{at}", x(1 - row["sparsity"]), y(ratio), 3, told)

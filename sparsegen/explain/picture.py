"""The roofline: a device's limits, and every schedule of a ranking as a dot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sparsegen.explain import chart
from sparsegen.explain.chart import Box, Scale, axes, circle, colour, frame, label, legend, line, powers
from sparsegen.explain.page import Page, Roof
from sparsegen.explain.roofline import Dot
from sparsegen.explain.units import seconds

WIDTH, HEIGHT = 560, 380  #: of the axes, in pixels
LEFT, TOP, RIGHT, BELOW = 66, 58, 24, 116
BOX: Final = Box(LEFT, TOP, WIDTH, HEIGHT)
SIZE: Final = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW)


def svg(page: Page, dots: Sequence[Dot]) -> str:
    """The picture of a page."""
    return f"{frame(*SIZE)}\n{panel(page, dots)}\n</svg>\n"


def together(pages: Sequence[tuple[Page, Sequence[Dot]]]) -> str:
    """Pictures of several pages side by side."""
    width, height = SIZE
    body = [f'<svg x="{at * width}" y="0" width="{width}" height="{height}">{panel(*each)}</svg>'
            for at, each in enumerate(pages)]  # fmt: skip
    return "\n".join([frame(width * len(pages), height), *body, "</svg>", ""])


def panel(page: Page, dots: Sequence[Dot]) -> str:
    """The picture without its frame."""
    x, y = _scales(page, dots)
    families = list(dict.fromkeys([*(mark.family for mark in page.roofline.marks), *(dot.family for dot in dots)]))
    return "\n".join([
        f'<rect class="page" width="{SIZE[0]}" height="{SIZE[1]}"/>', *_axes(page, x, y),
        *_roofs(page.roofline.roofs, x, y), *chart.dots(((d.family, x(d.intensity), y(d.flops)) for d in dots), 2.5),
        *_marks(page, x, y), *_legend(page, dots, families),
    ])  # fmt: skip


def _scales(page: Page, dots: Sequence[Dot]) -> tuple[Scale, Scale]:
    across, up = [dot.intensity for dot in dots], [dot.flops for dot in dots]
    compute = [roof.value for roof in page.roofline.roofs if roof.kind == "compute"]
    ridges = [max(compute) / roof.value for roof in page.roofline.roofs if roof.kind == "bandwidth"]
    x = min([*across, *ridges]) / 2, max([*across, *ridges]) * 2
    return BOX.scales(x, (min(up) / 2, max([*compute, *up]) * 2))


def _axes(page: Page, x: Scale, y: Scale) -> Iterator[str]:
    title = f"{page.name} on {page.device.name}"
    yield label(LEFT, 22, title, size=15)
    yield label(LEFT, 42, page.about.partition("; ")[2] or page.about, size=11)
    across = [(x(value), f"{value:g}") for value in powers(x)]
    up = [(y(value), _flops(value)) for value in powers(y)]
    yield from axes(BOX, across, up, (page.roofline.across, page.roofline.up))


def _flops(value: float) -> str:
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:g} {unit}"
    return f"{value:g}"


def _roofs(roofs: Iterable[Roof], x: Scale, y: Scale) -> Iterator[str]:
    """A bandwidth rises until it meets the highest compute roof; a compute roof begins where DRAM reaches it."""
    roofs = list(roofs)
    top = max(roof.value for roof in roofs if roof.kind == "compute")
    slowest = min(roof.value for roof in roofs if roof.kind == "bandwidth")
    fastest = max(roof.value for roof in roofs if roof.kind == "bandwidth")
    for roof in roofs:
        if roof.kind == "bandwidth":
            low, high = max(x.low, y.low / roof.value), min(x.high, top / roof.value)
            if low >= high:
                continue
            yield line("roof", x(low), y(low * roof.value), x(high), y(high * roof.value), roof.value != slowest)
            angle = math.degrees(math.atan2(y(high * roof.value) - y(low * roof.value), x(high) - x(low)))
            at = math.exp(0.94 * math.log(low) + 0.06 * math.log(high))
            words = f"{roof.name} {roof.value / 1e12:.3g} TB/s"
            yield label(x(at), y(at * roof.value) - 5, words, "start", 11, angle)
        else:
            start = max(x.low, roof.value / fastest)
            yield line("roof", x(start), y(roof.value), x(x.high), y(roof.value))
            yield label(x(x.high) - 6, y(roof.value) - 5, f"{roof.name} {roof.value / 1e12:.3g} TFLOP/s", "end", 11)


def _marks(page: Page, x: Scale, y: Scale) -> Iterator[str]:
    times = {standing.schedule: standing for standing in page.families}
    for mark in page.roofline.marks:
        px, py = x(mark.intensity), y(mark.flops)
        found = times.get(mark.schedule)
        told = f"{mark.schedule}: {mark.flops / 1e12:.3g} TFLOP/s"
        told += f", {seconds(found.seconds)} a call, bound by {found.binds}" if found else ""
        kind = f"best {colour(mark.family)}"
        yield circle(kind, px, py, 5, told)
        if mark.chosen:
            anchor, side = ("end", -13) if px > LEFT + WIDTH * 0.6 else ("start", 13)
            who = "chosen" if page.automatic else "given"
            yield circle("ring", px, py, 9)
            yield label(px + side, py + 4, f"{who}: {mark.family}", anchor, 12, bold=True)


def _legend(page: Page, dots: Sequence[Dot], families: Sequence[str]) -> Iterator[str]:
    count = Counter(dot.family for dot in dots)
    entries = [(colour(family), f"{family} ({count[family]})") for family in families]
    yield from legend(entries, LEFT, TOP + HEIGHT + 56, SIZE[0])
    yield label(LEFT, SIZE[1] - 22, f"{page.schedule}", size=10)
    yield label(LEFT, SIZE[1] - 8, page.roofline.note, size=9)

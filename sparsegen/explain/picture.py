"""The roofline as SVG, written by hand: a device's limits, and every schedule of a ranking as a dot.

Colours are classes of a style sheet that has a light and a dark form; dots that fall on one pixel are one dot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from sparsegen.bench.picture import Scale, decades
from sparsegen.explain.page import Page, Roof
from sparsegen.explain.roofline import Dot
from sparsegen.explain.units import seconds
from sparsegen.registry import families

WIDTH, HEIGHT = 560, 380  #: of the axes, in pixels
LEFT, TOP, RIGHT, BELOW = 66, 58, 24, 116
SIZE: Final = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW)
#: Colours of families, in light and in dark mode: those of stencils, then those of products.
COLOURS: Final = (
    ("#0b6fa4", "#4db3e6"), ("#c8501e", "#f0824f"), ("#3c8c3c", "#6cc36c"), ("#7a4fa3", "#b58ade"),
    ("#a3273f", "#e8657e"), ("#8a6d00", "#d4b13c"), ("#00796b", "#3dc0b0"), ("#5d4037", "#b3937f"),
    ("#c2259c", "#ef7ad2"), ("#5a6470", "#9aa5b1"),
)  # fmt: skip
_LIGHT: Final = {"ink": "#222", "page": "#fff", "grid": "#ddd", "edge": "#888", "roof": "#555"}
_DARK: Final = {"ink": "#ddd", "page": "#15181c", "grid": "#343a41", "edge": "#777", "roof": "#aaa"}


def svg(page: Page, dots: Sequence[Dot]) -> str:
    """The picture of a page."""
    return f"{frame(*SIZE)}\n{panel(page, dots)}\n</svg>\n"


def together(pages: Sequence[tuple[Page, Sequence[Dot]]]) -> str:
    """Pictures of several pages side by side."""
    width, height = SIZE
    body = [f'<svg x="{at * width}" y="0" width="{width}" height="{height}">{panel(*each)}</svg>'
            for at, each in enumerate(pages)]  # fmt: skip
    return "\n".join([frame(width * len(pages), height), *body, "</svg>", ""])


def frame(width: int, height: int) -> str:
    """The head of a picture, with its style sheet."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="Helvetica, Arial, sans-serif" font-size="12">\n{_style()}'
    )


def _style() -> str:
    def rules(colours: dict[str, str], dark: int) -> str:
        own = "".join(f".f{at}{{fill:{pair[dark]}}}" for at, pair in enumerate(COLOURS))
        return (
            f"text{{fill:{colours['ink']}}}.page{{fill:{colours['page']}}}.grid{{stroke:{colours['grid']}}}"
            f".edge{{stroke:{colours['edge']}}}.roof{{stroke:{colours['roof']}}}.ring{{stroke:{colours['ink']}}}{own}"
        )

    fixed = ".edge,.roof,.ring,.grid{fill:none}.roof{stroke-width:1.5}.ring{stroke-width:2}.dot{fill-opacity:.45}"
    return f"<style>{fixed}{rules(_LIGHT, 0)}@media(prefers-color-scheme:dark){{{rules(_DARK, 1)}}}</style>"


def panel(page: Page, dots: Sequence[Dot]) -> str:
    """The picture without its frame."""
    x, y = _scales(page, dots)
    families = list(dict.fromkeys([*(mark.family for mark in page.roofline.marks), *(dot.family for dot in dots)]))
    return "\n".join([
        f'<rect class="page" width="{SIZE[0]}" height="{SIZE[1]}"/>', *_axes(page, x, y),
        *_roofs(page.roofline.roofs, x, y), *_dots(dots, x, y), *_marks(page, x, y),
        *_legend(page, dots, families),
    ])  # fmt: skip


def _scales(page: Page, dots: Sequence[Dot]) -> tuple[Scale, Scale]:
    across, up = [dot.intensity for dot in dots], [dot.flops for dot in dots]
    compute = [roof.value for roof in page.roofline.roofs if roof.kind == "compute"]
    ridges = [max(compute) / roof.value for roof in page.roofline.roofs if roof.kind == "bandwidth"]
    x = Scale(min([*across, *ridges]) / 2, max([*across, *ridges]) * 2, LEFT, LEFT + WIDTH)
    return x, Scale(min(up) / 2, max([*compute, *up]) * 2, TOP + HEIGHT, TOP)


def _axes(page: Page, x: Scale, y: Scale) -> Iterator[str]:
    title = f"{page.name} on {page.device.name}"
    yield label(LEFT, 22, title, size=15)
    yield label(LEFT, 42, page.about.partition("; ")[2] or page.about, size=11)
    bottom = TOP + HEIGHT
    for value in _powers(x):
        yield line("grid", x(value), TOP, x(value), bottom)
        yield label(x(value), bottom + 16, f"{value:g}", "middle")
    for value in _powers(y):
        yield line("grid", LEFT, y(value), LEFT + WIDTH, y(value))
        yield label(LEFT - 6, y(value) + 4, _flops(value), "end")
    yield f'<rect class="edge" x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"/>'
    yield label(LEFT + WIDTH / 2, bottom + 34, page.roofline.across, "middle")
    yield label(14, TOP + HEIGHT / 2, page.roofline.up, "middle", turn=True)


def _powers(scale: Scale) -> list[float]:
    if scale.low >= 1:
        return [float(value) for value in decades(scale.low, scale.high)]
    return [10.0**n for n in range(math.ceil(math.log10(scale.low)), math.floor(math.log10(scale.high)) + 1)]


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


def _dots(dots: Iterable[Dot], x: Scale, y: Scale) -> Iterator[str]:
    """``data-n``: how many schedules a dot stands for."""
    count = Counter((dot.family, round(x(dot.intensity)), round(y(dot.flops))) for dot in dots)
    for (family, px, py), n in count.items():
        many = f' data-n="{n}"' if n > 1 else ""
        yield f'<circle class="dot {colour(family)}" cx="{px}" cy="{py}" r="2.5"{many}/>'


def _marks(page: Page, x: Scale, y: Scale) -> Iterator[str]:
    times = {standing.schedule: standing for standing in page.families}
    for mark in page.roofline.marks:
        px, py = x(mark.intensity), y(mark.flops)
        found = times.get(mark.schedule)
        told = f"{mark.schedule}: {mark.flops / 1e12:.3g} TFLOP/s"
        told += f", {seconds(found.seconds)} a call, bound by {found.binds}" if found else ""
        kind = f"best {colour(mark.family)}"
        yield f'<circle class="{kind}" cx="{px}" cy="{py}" r="5"><title>{escape(told)}</title></circle>'
        if mark.chosen:
            anchor, side = ("end", -13) if px > LEFT + WIDTH * 0.6 else ("start", 13)
            who = "chosen" if page.automatic else "given"
            yield f'<circle class="ring" cx="{px}" cy="{py}" r="9"/>'
            yield label(px + side, py + 4, f"{who}: {mark.family}", anchor, 12, bold=True)


def _legend(page: Page, dots: Sequence[Dot], families: Sequence[str]) -> Iterator[str]:
    count, place = Counter(dot.family for dot in dots), LEFT
    top = TOP + HEIGHT + 56
    for family in families:
        words = f"{family} ({count[family]})"
        if place + 18 + 6.5 * len(words) > LEFT + WIDTH + RIGHT:
            place, top = LEFT, top + 18
        yield f'<circle class="{colour(family)}" cx="{place + 5}" cy="{top - 4}" r="5"/>'
        yield label(place + 15, top, words, size=11)
        place += round(28 + 6.5 * len(words))
    yield label(LEFT, SIZE[1] - 22, f"{page.schedule}", size=10)
    yield label(LEFT, SIZE[1] - 8, page.roofline.note, size=9)


def colour(family: str) -> str:
    """The class of a family, the same in every picture."""
    known = [*families("stencil"), *families("spmm")]
    return f"f{known.index(family) % len(COLOURS)}"


def line(kind: str, x1: float, y1: float, x2: float, y2: float, dashed: bool = False) -> str:
    """A line of a class."""
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"{dashes}/>'


def label(
    x: float, y: float, words: str, anchor: str = "start", size: int = 12, angle: float = 0, turn: bool = False,
    bold: bool = False,
) -> str:  # fmt: skip
    """Words at a place: ``anchor`` says which part of them is there; ``turn``: upwards."""
    angle = -90 if turn else angle
    style = f' transform="rotate({angle:.1f} {x:.1f} {y:.1f})"' if angle else ""
    style += ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{style}>{escape(words)}</text>'

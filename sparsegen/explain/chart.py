"""Charts as SVG, written by hand, so that a result can be drawn wherever it can be read: scales, axes, marks, legends.

Colours are classes of a style sheet that has a light and a dark form.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple

from sparsegen.registry import families

#: Colours of families, in light and in dark mode: those of stencils, then those of products.
COLOURS: Final = (
    ("#0b6fa4", "#4db3e6"), ("#c8501e", "#f0824f"), ("#3c8c3c", "#6cc36c"), ("#7a4fa3", "#b58ade"),
    ("#a3273f", "#e8657e"), ("#8a6d00", "#d4b13c"), ("#00796b", "#3dc0b0"), ("#5d4037", "#b3937f"),
    ("#c2259c", "#ef7ad2"), ("#5a6470", "#9aa5b1"), ("#1f3f99", "#8aa3f2"), ("#5f7d1e", "#b3d15a"),
)  # fmt: skip
_LIGHT: Final = {"ink": "#222", "page": "#fff", "grid": "#ddd", "edge": "#888", "roof": "#555"}
_DARK: Final = {"ink": "#ddd", "page": "#15181c", "grid": "#343a41", "edge": "#777", "roof": "#aaa"}


class Box(NamedTuple):
    """Where the axes of a chart are, in pixels."""

    left: float
    top: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        """Where the axis across is."""
        return self.top + self.height

    def scales(self, x: tuple[float, float], y: tuple[float, float]) -> tuple[Scale, Scale]:
        """The axes from the lowest to the highest value of each."""
        return Scale(*x, self.left, self.left + self.width), Scale(*y, self.bottom, self.top)


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


def powers(scale: Scale) -> list[float]:
    """The powers of ten that are on a scale."""
    first, last = math.ceil(math.log10(scale.low) - 1e-9), math.floor(math.log10(scale.high) + 1e-9)
    return [10.0**n for n in range(first, last + 1)]


def frame(width: int, height: int) -> str:
    """The head of a picture, with its style sheet."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="Helvetica, Arial, sans-serif" font-size="12">\n{_style()}'
    )


def _style() -> str:
    def rules(colours: dict[str, str], dark: int) -> str:
        own = "".join(f".f{at}{{fill:{c[dark]}}}.s{at}{{stroke:{c[dark]}}}" for at, c in enumerate(COLOURS))
        return (
            f"text{{fill:{colours['ink']}}}.page{{fill:{colours['page']}}}.grid{{stroke:{colours['grid']}}}"
            f".edge{{stroke:{colours['edge']}}}.roof{{stroke:{colours['roof']}}}.ring{{stroke:{colours['ink']}}}{own}"
        )

    fixed = "polyline,.edge,.roof,.ring,.grid{fill:none}polyline{stroke-width:1.5}"
    fixed += ".roof{stroke-width:1.5}.ring{stroke-width:2}.dot{fill-opacity:.45}"
    return f"<style>{fixed}{rules(_LIGHT, 0)}@media(prefers-color-scheme:dark){{{rules(_DARK, 1)}}}</style>"


def axes(
    box: Box, across: Iterable[tuple[float, str]], up: Iterable[tuple[float, str]], names: tuple[str, str]
) -> Iterator[str]:
    """A box with a line of the grid at each place of a number across and up, and what the axes are called."""
    left, top, width, height = box
    for at, words in across:
        yield line("grid", at, top, at, box.bottom)
        yield label(at, box.bottom + 16, words, "middle")
    for at, words in up:
        yield line("grid", left, at, left + width, at)
        yield label(left - 6, at + 4, words, "end")
    yield f'<rect class="edge" x="{left}" y="{top}" width="{width}" height="{height}"/>'
    yield label(left + width / 2, box.bottom + 34, names[0], "middle")
    yield label(14, top + height / 2, names[1], "middle", turn=True)


def dots(points: Iterable[tuple[str, float, float]], radius: float) -> Iterator[str]:
    """Dots of families; those of one on one pixel are one, whose ``data-n`` says how many."""
    for (family, px, py), n in Counter((family, round(px), round(py)) for family, px, py in points).items():
        many = f' data-n="{n}"' if n > 1 else ""
        yield f'<circle class="dot {colour(family)}" cx="{px}" cy="{py}" r="{radius:g}"{many}/>'


def legend(entries: Iterable[tuple[str, str]], left: float, top: float, right: float) -> Iterator[str]:
    """Classes and words side by side, in as many lines as it takes."""
    place = left
    for kind, words in entries:
        if place + 18 + 6.5 * len(words) > right:
            place, top = left, top + 18
        yield circle(kind, place + 5, top - 4, 5)
        yield label(place + 15, top, words, size=11)
        place += round(28 + 6.5 * len(words))


def circle(kind: str, x: float, y: float, radius: float, title: str = "") -> str:
    """A circle of a class, and what a pointer on it is told."""
    told = f"><title>{escape(title)}</title></circle>" if title else "/>"
    return f'<circle class="{kind}" cx="{x}" cy="{y}" r="{radius:g}"{told}'


def curve(kind: str, points: Sequence[tuple[float, float]], dashed: bool = False) -> str:
    """A line of a class through points."""
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<polyline class="{kind}" points="{" ".join(f"{x},{y}" for x, y in points)}"{dashes}/>'


def colour(family: str) -> str:
    """The class of a family, the same in every picture."""
    ops = ("stencil", "spmm", "sddmm", "attention", "update")
    known = list(dict.fromkeys(family for op in ops for family in families(op)))
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

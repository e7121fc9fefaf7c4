"""The picture of compression: dense bytes over stored ones, over the share of zeros; figure 3 of SpInfer, and ours.

Lines are the formulas of :mod:`sparsegen.formats.ratio`, points are real matrices that are really encoded.  Written as
SVG by hand, so that it is the same text wherever it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sparsegen.bench.picture import COLOURS, HEAD, Scale, label, line
from sparsegen.formats import ratio

WIDTH, HEIGHT, LEFT, TOP, BESIDE, BELOW = 460, 300, 56, 40, 110, 44  #: of the axes and around them, in pixels
SHAPE: Final = (1024, 1024)
POINTS: Final = tuple(n / 10 for n in range(1, 10))  #: shares of zeros
TICKS: Final = (0.5, 1, 2, 4, 8)
_LOW, _HIGH = 0.3, 9.0


def svg(shape: tuple[int, int] = SHAPE) -> str:
    """The picture for matrices of ``shape``, whose columns are a multiple of 4."""
    y = Scale(_LOW, _HIGH, TOP + HEIGHT, TOP)
    width, height = LEFT + WIDTH + BESIDE, TOP + HEIGHT + BELOW
    body = [HEAD.format(w=width, h=height), f'<rect width="{width}" height="{height}" fill="white"/>']
    body.append(label(LEFT + WIDTH / 2, TOP - 14, f"{shape[0]}×{shape[1]}, 16-bit weights", "middle", 13))
    for value in TICKS:
        body.append(line([(LEFT, y(value)), (LEFT + WIDTH, y(value))], "#888" if value == 1 else "#ddd"))
        body.append(label(LEFT - 6, y(value) + 4, f"{value:g}", "end"))
    for share in POINTS:
        body.append(label(_across(share), TOP + HEIGHT + 16, f"{100 * share:.0f} %", "middle"))
    body.append(f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>')
    body.append(label(LEFT + WIDTH / 2, TOP + HEIGHT + 34, "zeros", "middle"))
    body.append(label(14, TOP + HEIGHT / 2, "dense bytes / stored bytes", "middle", turn=True))
    real = [ratio.counted(ratio.random_weights(*shape, share)) for share in POINTS]
    colours = dict(zip(ratio.FORMULAS, (*COLOURS, "#111"), strict=True))
    ends: list[tuple[float, str]] = []
    for name, colour in colours.items():
        body += _format(name, shape, [found[name] for found in real], colour, y)
        ends.append((y(ratio.ratio(name, *shape, POINTS[-1])), name))
    for at, name in _apart(ends):
        body.append(label(LEFT + WIDTH + 8, at + 4, name, "start", colour=colours[name]))
    return "\n".join([*body, "</svg>", ""])


def _across(share: float) -> float:
    return round(LEFT + WIDTH * share / 0.92, 1)


def _format(name: str, shape: tuple[int, int], real: Sequence[float], colour: str, y: Scale) -> Iterable[str]:
    shares = [n / 100 for n in range(0, 91, 2)]
    curve = [(share, ratio.ratio(name, *shape, share)) for share in shares]
    yield line([(_across(share), y(value)) for share, value in curve if value >= _LOW], colour)
    for share, value in zip(POINTS, real, strict=True):
        what = f"{name}, {100 * share:.0f} %: {value:.2f}"
        yield f'<circle cx="{_across(share)}" cy="{y(value)}" r="3" fill="{colour}"><title>{what}</title></circle>'


def _apart(ends: Sequence[tuple[float, str]]) -> Iterable[tuple[float, str]]:
    """Names beside the ends of their lines, pushed down where they would lie on one another."""
    last = float("-inf")
    for at, name in sorted(ends):
        last = max(at, last + 14)
        yield last, name

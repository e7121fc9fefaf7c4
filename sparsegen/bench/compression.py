"""The picture of compression: dense bytes over stored ones, over the share of zeros; figure 3 of SpInfer, and ours.

Lines are the formulas of :mod:`sparsegen.formats.ratio`, points are real matrices that are really encoded.
"""

from __future__ import annotations

from typing import Final

from sparsegen.explain.chart import Box, axes, circle, curve, frame, label, line
from sparsegen.formats import ratio

BOX: Final = Box(56, 40, 460, 300)
SIZE: Final = (626, 384)
SHAPE: Final = (1024, 1024)
POINTS: Final = tuple(n / 10 for n in range(1, 10))  #: shares of zeros
TICKS: Final = (0.5, 1, 2, 4, 8)
_LOW, _HIGH = 0.3, 9.0


def svg(shape: tuple[int, int] = SHAPE) -> str:
    """The picture for matrices of ``shape``, whose columns are a multiple of 4."""
    _, y = BOX.scales((1, 2), (_LOW, _HIGH))
    body = [frame(*SIZE), f'<rect class="page" width="{SIZE[0]}" height="{SIZE[1]}"/>']
    body.append(label(BOX.left + BOX.width / 2, 26, f"{shape[0]}×{shape[1]}, 16-bit weights", "middle", 13))
    across = [(_across(share), f"{100 * share:.0f} %") for share in POINTS]
    body += axes(BOX, across, [(y(value), f"{value:g}") for value in TICKS], ("zeros", "dense bytes / stored bytes"))
    body.append(line("edge", BOX.left, y(1), BOX.left + BOX.width, y(1)))
    real = [ratio.counted(ratio.random_weights(*shape, share)) for share in POINTS]
    for at, name in enumerate(ratio.FORMULAS):
        values = [(share, ratio.ratio(name, *shape, share)) for share in (n / 100 for n in range(0, 91, 2))]
        body.append(curve(f"s{at}", [(_across(share), y(value)) for share, value in values if value >= _LOW]))
        for share, found in zip(POINTS, real, strict=True):
            told = f"{name}, {100 * share:.0f} %: {found[name]:.2f}"
            body.append(circle(f"f{at}", _across(share), y(found[name]), 3, told))
    last = float("-inf")  # names beside the ends of their lines, pushed down where they would lie on one another
    ends = [(y(ratio.ratio(name, *shape, POINTS[-1])), at, name) for at, name in enumerate(ratio.FORMULAS)]
    for end, at, name in sorted(ends):
        last = max(end, last + 14)
        body.append(circle(f"f{at}", BOX.left + BOX.width + 12, last, 4))
        body.append(label(BOX.left + BOX.width + 20, last + 4, name))
    return "\n".join([*body, "</svg>", ""])


def _across(share: float) -> float:
    return round(BOX.left + BOX.width * share / 0.92, 1)

"""The picture of a matrix before and after its rows were put in another order: where entries lie, and dense tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparsegen.callsite import located, user_loc
from sparsegen.explain.chart import frame, label, legend
from sparsegen.files import write_as
from sparsegen.formats.rows import Rows
from sparsegen.ir.errors import FormatError

#: Pixels that the longer side of a matrix takes, and cells along it at most.
EDGE, CELLS = 384, 96
LEFT, TOP, GAP, BELOW = 20, 40, 28, 44
#: Shades: a cell has the first that is no lighter than its entries over those of the fullest cell.
SHADES: Final = (0.15, 0.3, 0.5, 0.75, 1.0)
#: Classes of the style sheet: of cells most of whose entries lie in dense tiles, and of others.
CLASSES: Final = {"f1": "in dense tiles", "f0": "elsewhere"}


class Plan(str):
    """What became of a matrix, as text; ``svg()`` is its picture, which notebooks show."""

    __slots__ = ("_draw",)

    _draw: Callable[[], str]

    def __new__(cls, text: str, draw: Callable[[], str]) -> Plan:
        """The plan with a text, and what draws it."""
        made = super().__new__(cls, text)
        made._draw = draw
        return made

    def __reduce__(self) -> Any:
        """A pickle has the picture itself."""
        return Plan, (str(self), partial(str, self.svg()))

    def svg(self) -> str:
        """The matrix before and after: darker cells hold more, those of dense tiles have a colour of their own."""
        return self._draw()

    def _repr_svg_(self) -> str:
        return self.svg()

    def save(self, path: str | Path) -> Path:
        """Write the text (.txt) or the picture (.svg); FormatError for another suffix."""
        with located(user_loc()):
            return write_as(path, {".txt": lambda: f"{self}\n", ".svg": self.svg}, "a plan", FormatError)


def density(rows: Rows, order: Any, side: int, kept: Any = None) -> Any:
    """Entries of each piece ``side`` x ``side`` of a matrix of NumPy with its rows in an order, new -> old, as [pieces
    down, pieces across]; ``kept``: a mask of the entries that count."""
    row, col = _placed(rows, order), rows.idx
    field = np.zeros([-(-extent // side) for extent in rows.shape], np.int64)
    np.add.at(field, (row // side, col // side), 1 if kept is None else kept)
    return field


def svg(rows: Rows, order: Any, tile: int, delta: float) -> str:
    """The matrix of NumPy as it is and with its rows in an order: a cell is a tile, or some of a large matrix."""
    side = tile * max(1, -(-max(rows.shape) // (tile * CELLS)))
    pixels = EDGE / -(-max(rows.shape) // side)
    wide, high = (round(-(-extent // side) * pixels) for extent in reversed(rows.shape))
    size = (LEFT + 2 * (max(wide, 150) + GAP), TOP + high + BELOW)
    body = [frame(*size), f'<rect class="page" width="{size[0]}" height="{size[1]}"/>']
    body.append(label(LEFT, 16, f"{rows.shape[0]:,} x {rows.shape[1]:,}, {rows.nnz:,} nonzeros", size=13))
    for at, (title, each) in enumerate({"before": np.arange(rows.shape[0]), "after": order}.items()):
        left = LEFT + at * (max(wide, 150) + GAP)
        dense = _in_dense_tiles(rows, each, tile, delta)
        body.append(label(left, TOP - 6, f"{title}: {dense.sum() / max(1, rows.nnz):.1%} in dense tiles", size=11))
        body.append(f'<g transform="translate({left} {TOP}) scale({pixels:.4g})">')
        body += _cells(density(rows, each, side), density(rows, each, side, dense))
        body += ["</g>", f'<rect class="edge" x="{left}" y="{TOP}" width="{wide}" height="{high}"/>']
    words = f"a cell: {side} x {side}; dense: more than {delta:g} of a tile {tile} x {tile}"
    body += legend(CLASSES.items(), LEFT, TOP + high + 18, size[0])
    body.append(label(LEFT, TOP + high + 36, words, size=10))
    return "\n".join([*body, "</svg>", ""])


def _cells(every: Any, dense: Any) -> Iterator[str]:
    """The cells as one path for each class and shade, in units of a cell."""
    shade = np.searchsorted(SHADES, every / max(1, every.max(initial=0)) - 1e-9)
    for kind, own in zip(CLASSES, (2 * dense > every, 2 * dense <= every), strict=True):
        for level, opacity in enumerate(SHADES):
            places = np.argwhere(own & (every > 0) & (shade == level))
            if len(places):
                path = "".join(f"M{x} {y}h1v1h-1z" for y, x in places.tolist())
                yield f'<path class="{kind}" fill-opacity="{opacity:g}" d="{path}"/>'


def _in_dense_tiles(rows: Rows, order: Any, tile: int, delta: float) -> Any:
    """Which entries lie in tiles that hold more than the share ``delta`` of their elements."""
    keys = _placed(rows, order) // tile * -(-rows.shape[1] // tile) + rows.idx // tile
    _, at, held = np.unique(keys, return_inverse=True, return_counts=True)
    return held[at] > delta * tile**2


def _placed(rows: Rows, order: Any) -> Any:
    """The new row of each entry."""
    place = np.empty(rows.shape[0], np.int64)
    place[order] = np.arange(rows.shape[0])
    return place[rows.of_entries()]

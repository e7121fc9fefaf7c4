"""ConvStencil's memory table, counted: how much less stencil2row writes than im2row.

    python examples/memory.py --picture memory.png

Both turn a stencil into a matrix product.  im2row writes a row of all its points for every output; stencil2row writes
two matrices, A and B, of k columns for every k + 1 cells of a row: 2k / (k + 1) elements a cell, whatever the points.
The paper's Table 3 gives the saving as a formula.  Here the elements are counted: of the layouts, over a strip of the
grid, and of the copies of a compiled kernel, whose tile of 32 x 64 outputs has a halo that the formula leaves out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options

import sparsegen as sg
from sparsegen.bench.report import columns
from sparsegen.bench.stencils import stencil
from sparsegen.cost.equations import memory_saving
from sparsegen.ir.layout import Layout, stencil2row_a, stencil2row_b
from sparsegen.ir.node import walk
from sparsegen.ir.parse import parse_module
from sparsegen.ir.tile import Copy

NAMES = ("Heat-2D", "Box-2D9P", "Star-2D13P", "Box-2D49P")
GROUPS = 8  # of k + 1 columns in the strip: what one m8n8k4 product works on


def im2row(weights: Any, rows: int, cols: int) -> int:
    """Elements of the im2row matrix of a window: for each output the cells that its points read."""
    windows = np.lib.stride_tricks.sliding_window_view(np.zeros((rows, cols), bool), weights.shape)
    return int(windows[..., weights != 0].size)


def stored(maps: Sequence[Layout]) -> int:
    """Elements that layouts store, none of them twice."""
    assert all(each.injective() for each in maps)
    return sum(int(each.mask().sum()) for each in maps)


def of_kernel(st: sg.Stencil) -> tuple[int, int]:
    """Elements of a tile in a compiled kernel: im2row's, and those of the A and B that it copies its window to."""
    schedule = "stencil2row mma=f64.m8n8k4 fuse=1 tile=32x64 stages=1"
    k = sg.compile(st, shape=(256, 256), device="a100", backend="emulator", schedule=schedule)
    (copy,) = (op for func in parse_module(k.ir("tile")).funcs for op in walk(func) if isinstance(op, Copy))
    return im2row(st.weights, copy.rows, copy.cols), stored(copy.maps)


def main(argv: Sequence[str] | None = None) -> int:
    """1 where the count over the strip is not the formula's."""
    args = options(__doc__, size=10240).parse_args(argv)
    rows = args.size
    cells = [["stencil", "k", "im2row", "A and B", "saved", "formula", "in a tile"]]
    found: dict[str, tuple[float, float, float]] = {}
    wrong = False
    for name in NAMES:
        st = stencil(name)
        k = st.weights.shape[0]
        maps = (stencil2row_a(k, GROUPS, rows), stencil2row_b(k, GROUPS, rows))
        plain, ours = im2row(st.weights, *maps[0].extents), stored(maps)
        tile_plain, tile_ours = of_kernel(st)
        formula = memory_saving(k, np.count_nonzero(st.weights))
        found[name] = (1 - ours / plain, formula, 1 - tile_ours / tile_plain)
        inner = (rows - k + 1) / rows  # without the strip's own halo, which is all that the formula leaves out
        wrong |= not np.isclose(ours / plain * inner, 1 - formula, rtol=1e-12)
        cells.append([name, f"{k}", f"{plain:,}", f"{ours:,}", *(f"{-saved:.1%}" for saved in found[name])])
    print(f"Elements of im2row and of stencil2row, for a strip of {rows} rows and {GROUPS} groups of k + 1 outputs:\n")
    print(columns(cells))
    print("\nShare of im2row's memory that stencil2row takes:")
    for name, (saved, _, _) in found.items():
        print(f"  {name:<12} {'#' * round(60 * (1 - saved))}{'.' * round(60 * saved)}")

    def paint(figure: Any) -> None:
        axis = figure.add_subplot(ylabel="elements, im2row = 1", title="stencil2row against im2row")
        for at, label in enumerate(("counted over a strip", "formula", "counted in a tile")):
            axis.bar(np.arange(len(found)) + 0.27 * at, [1 - row[at] for row in found.values()], 0.25, label=label)
        axis.set_xticks(np.arange(len(found)) + 0.27, list(found))
        axis.legend()

    draw(args.picture, paint, 7)
    if wrong:
        print("the counts are not the formula's")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

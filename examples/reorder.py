"""What another order of rows makes of a matrix (BSA-SpMM), before and after, and where it is worth it.

    python examples/reorder.py --picture reorder.png

Three matrices whose rows stand in no order: clusters that touch the same blocks of columns, a band, and entries
anywhere.  The paper's reordering brings the clusters back together, so that tensor cores find dense tiles; in the last
matrix there is nothing to find.  With the folder of patterns in SPARSEGEN_DATA its .smtx and .mtx files are looked at
as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options, shades

import sparsegen as sg
from sparsegen.bench.generated import banded, clustered, uniform
from sparsegen.bench.report import columns
from sparsegen.formats.rows import rows_of
from sparsegen.reordering.picture import density

TILE = 32


def generated(rows: int) -> Iterator[tuple[str, Any]]:
    """Matrices of so many rows and columns."""
    made = {
        "clustered": clustered(rows, rows, group=64, blocks=max(1, rows // 256), noise=0.002),
        "banded": banded(rows, 20, 40),
        "uniform": uniform(rows, rows, 20),
    }
    for name, pattern in made.items():
        w = np.zeros(pattern.shape, np.float32)
        w[pattern.of_entries(), pattern.idx] = 1
        yield name, w


def given() -> Iterator[tuple[str, Any]]:
    """Those of the folder SPARSEGEN_DATA, if it is set."""
    if folder := os.environ.get("SPARSEGEN_DATA"):
        for file in sorted(Path(folder).rglob("*.smtx")):
            yield file.stem, sg.load_smtx(file)
        for file in sorted(Path(folder).rglob("*.mtx")):
            yield file.stem, sg.load_mtx(file, duplicates="first")


def main(argv: Sequence[str] | None = None) -> int:
    """1 where hidden clusters were not found, or something was in entries anywhere."""
    args = options(__doc__, rows=1024).parse_args(argv)
    orders, fields = {}, {}
    cells = [["matrix", "size", "nonzeros", "clusters", "in dense tiles", "nonzeros a vector", "gain", "advised"]]
    for name, a in (*generated(args.rows), *given()):
        order = orders[name] = sg.reorder(a, tile=TILE)
        places = rows_of(a)
        fields[name] = [density(places, p, TILE) / TILE**2 for p in (np.arange(a.shape[0]), order.permutation)]
        before, after = order.before, order.after
        share, each = ([f"{x:{form}}" for x in pair] for pair, form in (
            ([f.dense / order.nnz for f in (before, after)], ".0%"),
            ([order.nnz / f.vectors for f in (before, after)], ".2f"),
        ))  # fmt: skip
        cells.append([
            name, f"{a.shape[0]}x{a.shape[1]}", f"{order.nnz:,}", f"{order.clusters:,}", " -> ".join(share),
            " -> ".join(each), f"{order.gain:.2f}", "yes" if order.advised else "no",
        ])  # fmt: skip
    print(orders["clustered"].report())
    for title, field in zip(("before", "after"), fields["clustered"], strict=True):
        print(f"\nclustered, {title}: darker tiles hold more\n{shades(field, 0, 1)}")
    print(f"\n{columns(cells)}")

    def paint(figure: Any) -> None:
        axes = figure.subplots(2, len(fields), squeeze=False)
        for at, (name, both) in enumerate(fields.items()):
            for row, (title, field) in enumerate(zip(("before", "after"), both, strict=True)):
                axes[row, at].imshow(field, cmap="Blues", vmin=0, vmax=max(1e-9, both[1].max()), aspect="auto")
                axes[row, at].set_title(f"{name[-24:]}, {title}", fontsize=8)
                axes[row, at].axis("off")

    draw(args.picture, paint, 3 * len(fields), 5)
    if not orders["clustered"].advised or orders["uniform"].advised:
        print("the clusters were not found, or there are some where none were made")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

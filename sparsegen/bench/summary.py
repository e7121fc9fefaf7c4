"""The table of README: a few lines that a stranger understands, ours beside the best that others have published.

Products are lines of the table of papers; stencils stand beside the fastest code of others, timed by hand once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sparsegen.bench import papers
from sparsegen.bench.cells import Cells, part, ratio, size
from sparsegen.explain.chart import Box, axes, circle, frame, label, line

#: What stands in documents for the table and for its picture.
NAME, PICTURE = "summary", "summary.svg"
#: Products that are shown, where sparsegen is faster and where it is not: what the table of papers calls them, and what
#: who has not read the papers does.
PRODUCTS: Final = {
    ("60% zeros", "28672×8192×1", "f16"): "pruned weights, 60 % zeros, 1 token",
    ("60% zeros", "28672×8192×16", "f16"): "pruned weights, 60 % zeros, 16 tokens",
    ("4:32, 128 rows alike", "4096×4096×4096", "f16"): "4 of each 32 columns, by 128 rows",
    ("16:32, 128 rows alike", "4096×4096×4096", "f16"): "16 of each 32 columns, by 128 rows",
    ("16:32, single rows", "4096×4096×4096", "f16"): "16 of each 32 columns, by single rows",
    ("spmm, V=8, 90 % zeros", "4096×4096×256", "L8-R8"): "vectors of 8 integers, 90 % zeros",
    ("spmm, V=8, 50 % zeros", "4096×4096×256", "L8-R8"): "vectors of 8 integers, 50 % zeros",
    ("attention, 4 heads, 90 % zeros", "4096×4096×64", "8b-8b"): "attention, 90 % masked",
    ("rows alike in no order, 96.8 % zeros", "8192×8192×128", "f16"): "hidden blocks, 96.8 % zeros",
    ("a pruned layer, 90 % zeros", "2048×512×512", "f32"): "a small layer, 90 % zeros",
    ("a pruned layer, 90 % zeros", "2048×512×512", "f16"): "a small layer, 90 % zeros",
}
#: Types of integers that the suites name by both operands.
_TYPES: Final = {"L8-R8": "int8", "8b-8b": "int8"}
HEAD: Final = ["problem", "size", "type", "sparsegen", "beside", "its", "times as fast"]
#: The picture: how wide, how high a line is, where the axis begins, its lowest value, and what its highest is over the
#: largest that is shown, with room for the words beside it.
_WIDTH, _LINE, _LEFT, _LOW, _OVER = 800, 22, 290, 0.22, 4.0
Peers = Mapping[str, Any]


def table(found: papers.Results, peers: Peers) -> Cells:
    """A line for each stencil of ``peers``, and for each of PRODUCTS that was measured."""
    lines = [*_stencils(found, peers)]
    of_papers = {(what, shape, dtype): cells for _, what, shape, dtype, *cells in papers.table(found)[1:]}
    for key, called in PRODUCTS.items():
        if key in of_papers:
            ours, without, its, times, *_ = of_papers[key]
            _, shape, dtype = key
            lines.append([called, shape, _TYPES.get(dtype, dtype), f"{ours} µs", without, f"{its} µs", times])
    return [HEAD, *lines]


def _stencils(found: papers.Results, peers: Peers) -> list[list[str]]:
    rows = part(found["stencil"], "targets") if "stencil" in found else ()
    measured = {row["case"]: row for row in rows if not row["failed"] and row["gs_per_s"]}
    lines = []
    for peer in peers.get("stencils", ()):
        if row := measured.get(peer["case"]):
            ours, its = row["gs_per_s"], peer["gs_per_s"]
            what = f"{peer['case']}, a step"
            lines.append(
                [what, size(row), row["dtype"], f"{ours:.0f} GS/s", peer["code"], f"{its} GS/s", ratio(ours, its)]
            )
    return lines


def notes(peers: Peers) -> list[str]:
    """Where the figures of others are from."""
    return [peers["of_stencils"]] if "of_stencils" in peers else []


def svg(cells: Cells) -> str:
    """The last column as dots on a logarithmic axis, each with what it is beside."""
    _, *lines = cells
    box = Box(_LEFT, 40, _WIDTH - _LEFT - 40, _LINE * max(1, len(lines)))
    high = _OVER * max((float(times) for *_, times in lines), default=1.0)
    x, _ = box.scales((_LOW, high), (1, 2))
    width, height = _WIDTH, int(box.bottom) + 56
    body = [frame(width, height), f'<rect class="page" width="{width}" height="{height}"/>']
    body.append(label(_LEFT, 24, "times as fast as the best that others have published", size=13))
    ticks = [(x(value), f"{value:g}") for value in (0.5, 1, 2, 4, 8, 16) if value < high]
    body += axes(box, ticks, [], ("", ""))
    body.append(line("roof", x(1), box.top, x(1), box.bottom))
    for number, (what, _, dtype, ours, beside, its, times) in enumerate(lines):
        y = box.top + _LINE * (number + 0.5)
        body.append(label(_LEFT - 10, y + 4, f"{what} ({dtype})", "end"))
        faster, at, words = float(times) >= 1, x(float(times)), f"{times} × {beside}"
        body.append(circle("f0" if faster else "f1", at, y, 5, f"{ours}; {beside}: {its}"))
        body.append(label(at + 10, y + 4, words, size=10) if faster else label(at - 10, y + 4, words, "end", 10))
    return "\n".join([*body, "</svg>", ""])

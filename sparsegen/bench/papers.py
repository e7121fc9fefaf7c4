"""The table of papers: where what each of them is about is faster than what is done without it, and where it is not.

Its lines are rows of several results, picked so that both sides are seen; every figure is of the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparsegen.bench import magicube, nm
from sparsegen.bench.beside import of_library, zeros
from sparsegen.bench.bitmaps import COLD, LARGE, best
from sparsegen.bench.cells import Cells, Result, Row, micro, part, ratio, size
from sparsegen.bench.chosen import of_ours
from sparsegen.bench.unstructured import AUTO, CUBLAS, LIBRARIES

#: How far shares of zeros may be apart that are called the same.
ALIKE: Final = 5e-3
#: The results that lines are of, by name.
Results = Mapping[str, Result]


class Sides(NamedTuple):
    """What is compared: seconds of ours, what is done without it, and its seconds."""

    ours: float
    without: str
    its: float


@dataclass(frozen=True)
class Line:
    """A row of a result, and what it is called; ``share``: of zeros, where rows differ in that alone."""

    paper: str
    suite: str
    part: str
    case: str
    shape: tuple[int, ...]
    dtype: str = "f16"
    share: float | None = None
    called: str = ""

    def row(self, found: Results) -> Row | None:
        """The row; None where it was not measured."""
        for row in part(found[self.suite], self.part) if self.suite in found else ():
            same = (row["case"], tuple(row["shape"]), row["dtype"]) == (self.case, self.shape, self.dtype)
            if same and not row["failed"] and (self.share is None or abs(row["sparsity"] - self.share) < ALIKE):
                return row
        return None


# ------------------------------------------------------------------------------------------------------------ products
_SQUARE, _WIDE, _LAYER = (4096, 4096, 4096), (4096, 4096, 256), "transformer-magnitude-0.9-ffn_conv1"
_CLUSTERED: Final = "clustered_8192_c256_b16_d0.5"
LINES: Final = (
    Line("SpInfer", "bitmap", "targets", "60% zeros", (*LARGE, 1)),
    *(Line("SpInfer", "bitmap", "targets", f"{share}% zeros", (*LARGE, 16)) for share in (50, 60, 70)),
    Line("SpInfer", "bitmap", "targets", "60% zeros", (*LARGE, 64)),
    Line("nmSPARSE", "nm", "narrow", "16:32, single rows", (8192, 8192, 1)),
    Line("nmSPARSE", "nm", "decoded", "16:32, single rows", _SQUARE),
    Line("nmSPARSE", "nm", "wide", "16:32, 32 rows alike", _SQUARE),
    Line("nmSPARSE", "nm", "wide", "16:32, 128 rows alike", _SQUARE),
    Line("nmSPARSE", "nm", "wide", "4:32, 128 rows alike", _SQUARE),
    *(Line("Magicube", "magicube", "spmm", "spmm, V=8", _WIDE, "L8-R8", share) for share in (0.5, 0.7, 0.9)),
    Line("Magicube", "magicube", "short", "spmm, V=2", _WIDE, "L8-R8", 0.9),
    Line("Magicube", "magicube", "sddmm", "sddmm, V=8", (4096, 512, 4096), "L8-R8", 0.9),
    Line("Magicube", "magicube", "attention", "attention, 4 heads", (4096, 4096, 64), "8b-8b", 0.9),
    *(Line("BSA-SpMM", "unstructured", "clustered", _CLUSTERED, (8192, 8192, n), called="rows alike in no order")
      for n in (128, 512)),
    *(Line("BSA-SpMM", "unstructured", AUTO, _LAYER, (2048, 512, 512), dtype, called="a pruned layer")
      for dtype in ("f16", "f32")),
    Line("BSA-SpMM", "unstructured", "graphs", "cora", (2708, 2708, 128), called="a graph, cora"),
)  # fmt: skip


def _bitmap(row: Row) -> Sides:
    return Sides(row["median_s"], LIBRARIES[CUBLAS], best(row["cublas"], COLD))


def _nm(row: Row) -> Sides:
    return Sides(nm.in_state(row) or math.inf, LIBRARIES[CUBLAS], row["dense"][row["state"]])


def _magicube(row: Row) -> Sides:
    titles = magicube.LIBRARIES.get(row["part"], magicube.LIBRARIES["products"])
    its, name = min((of_library(row, name) or math.inf, name) for name in row["beside"])
    return Sides(row["hot_s"], titles[name], its)


def _unstructured(row: Row) -> Sides:
    ours = min(of_ours(row).values(), default=row["hot_s"])  # none of ours beside a chosen dense product: that itself
    return Sides(ours, LIBRARIES[CUBLAS], of_library(row, CUBLAS) or math.inf)


_SIDES: Final[dict[str, Callable[[Row], Sides]]] = {
    "bitmap": _bitmap, "nm": _nm, "magicube": _magicube, "unstructured": _unstructured,
}  # fmt: skip


def _product(line: Line, row: Row) -> list[str]:
    """The cells of a product; that of the paper's own code has its microseconds, and how often ours go into them."""
    ours, without, its = _SIDES[line.suite](row)
    told = row["case"] if line.suite in ("bitmap", "nm") else f"{line.called or row['case']}, {zeros(row)} zeros"
    code = (row.get("peers") or {}).get(line.paper)
    own = f"{code} ({ratio(float(code) * 1e-6, ours)})" if code else "–"
    return [line.paper, told, size(row), row["dtype"], *_compared(ours, without, its), own]


def _compared(ours: float, without: str, its: float) -> list[str]:
    return [micro(ours), without, micro(its), ratio(its, ours), "ours" if ours <= its else without]


# ------------------------------------------------------------------------------------------------------------ stencils
CONV: Final = "ConvStencil"
#: Those with many points and with few, on the field that all suites have.
STENCILS: Final = ("Box-2D49P", "Box-2D9P", "Heat-2D")
FIELD: Final = (10240, 10240)


def _stencil(name: str, found: Results) -> list[str] | None:
    """The cells of a stencil: a time step by the fastest schedule for tensor cores, beside that for CUDA cores."""
    rows = [*part(found["stencil"], "targets")] if "stencil" in found else []
    rows += found["spine"]["rows"] if "spine" in found else []
    fastest: dict[bool, float] = {}
    for row in rows:
        known = row["case"].partition(",")[0], tuple(row["shape"]), row["boundary"], row["dtype"]
        if known == (name, FIELD, "periodic", "f64") and row["gs_per_s"]:
            cores = any(word.startswith("mma=") and word != "mma=none" for word in row["schedule"].split())
            took = math.prod(FIELD) / row["gs_per_s"] * 1e-9
            fastest[cores] = min(took, fastest.get(cores, took))
    if len(fastest) < 2:
        return None
    size = "×".join(map(str, FIELD))
    return [CONV, f"{name}, a step", size, "f64", *_compared(fastest[True], "CUDA cores", fastest[False]), "–"]


# --------------------------------------------------------------------------------------------------------------- table
HEAD: Final = ["paper", "product", "size", "type", "µs", "without", "its µs", "times as fast", "wins", "paper's code"]


def table(found: Results) -> Cells:
    """A line for each of STENCILS and LINES that was measured."""
    lines = [_stencil(name, found) for name in STENCILS]
    rows = ((line, line.row(found)) for line in LINES)
    lines += [_product(line, row) for line, row in rows if row is not None]
    return [HEAD, *(cells for cells in lines if cells is not None)]


#: The results that are read.
SUITES: Final = ("stencil", "spine", *dict.fromkeys(line.suite for line in LINES))


def caption(found: Results) -> str:
    """Where and of what the numbers are: the commits of each suite's parts."""
    devices, commits = dict[str, None](), dict[str, None]()
    for suite, name in dict.fromkeys([("stencil", "targets"), ("spine", ""), *((s.suite, s.part) for s in LINES)]):
        if suite in found:
            head = found[suite].get("parts", {}).get(name, found[suite])
            devices[head["device"]] = commits[f"{suite} {(head['commit'] or 'unknown')[:10]}"] = None
    return f"{', '.join(devices)}; of the suites' commits {', '.join(commits)}"

"""The tables of part ``auto`` of suite ``unstructured``: what was chosen, over the best of all that was tried."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sparsegen.bench.beside import of_library, zeros
from sparsegen.bench.cells import Cells, Column, Result, Row, judged, micro, number, of, part, schedule, size, table
from sparsegen.bench.mixture import GRAPH, NETWORK
from sparsegen.bench.unstructured import AUTO, CUBLAS, CUSPARSE, LIBRARIES

#: What share of the best one's speed the chosen one must have, in what share of cases, and in all.
WITHIN, SHARE, WORST = 0.97, 0.95, 0.85
#: The family of libraries' dense products.
DENSE: Final = "dense"
#: Geometric means that are wanted: over cuSPARSE, and in f32 over cuBLAS by the share of zeros, with what is aimed at.
OVER_CUSPARSE: Final = 1.5
OVER_CUBLAS: Final = {0.8: (1.07, 1.15), 0.9: (1.48, 1.6), 0.95: (1.85, 2.0)}
#: Cases that the table of the worst ones shows.
SHOWN: Final = 20
#: Whose speeds, and from which rows: None where they have none.
Measure = Callable[[Sequence[Row]], float | None]


def family(row: Row) -> str:
    """The family of the chosen schedule."""
    return str(row["schedule"]).partition(" ")[0]


def best(row: Row) -> tuple[float, str]:
    """Seconds and name of the fastest of all: the chosen one, each family's cheapest, and libraries.

    Where a library's dense product was chosen, cuBLAS is no other way: it is the same call, ``torch.mm(w, x, out=y)``,
    measured a second time.
    """
    libraries = {title: of_library(row, name) for name, title in LIBRARIES.items()
                 if not (name == CUBLAS and family(row) == DENSE)}  # fmt: skip
    every = {"chosen": row["hot_s"], **(row["families"] or {}), **libraries}
    return min((took, name) for name, took in every.items() if took)


def of_best(row: Row) -> float:
    """The chosen one's speed over that of the best: at most 1."""
    share: float = best(row)[0] / row["hot_s"]
    return share


def mean(ratios: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing."""
    logs = [math.log(each) for each in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else None


def over(library: str) -> Measure:
    """The geometric mean of our speed over a library's, of the rows that it stands beside."""
    return lambda rows: mean(took / row["hot_s"] for row in rows if (took := of_library(row, library)))


def _measured(found: Result) -> list[Row]:
    return [row for row in part(found, AUTO) if row["hot_s"]]


def _within(rows: Sequence[Row]) -> float | None:
    return sum(of_best(row) >= WITHIN for row in rows) / len(rows) if rows else None


def _worst(rows: Sequence[Row]) -> float | None:
    return min(map(of_best, rows), default=None)


def _from(dtype: str, share: float) -> Measure:
    def of_those(rows: Sequence[Row]) -> float | None:
        return over(CUBLAS)([row for row in rows if row["dtype"] == dtype and row["sparsity"] >= share])

    return of_those


def _same(rows: Sequence[Row]) -> float | None:
    """What our calls of the library's dense product take beside those of the library: 1, or they launch more."""
    return over(CUBLAS)([row for row in rows if family(row) == DENSE])


def summary(found: Result) -> Cells:
    """A line a quantity: what is wanted, of all cases, of the patterns of files, and of matrices that were made."""
    rows = _measured(found)
    files, made = ([row for row in rows if (row["kind"] in (NETWORK, GRAPH)) == given] for given in (True, False))
    groups = (rows, files, made)
    quantities: list[tuple[str, float | None, float | None, str, Measure]] = [
        (f"cases with at least {WITHIN} of the best", SHARE, None, ".1%", _within),
        ("the worst, of the best", WORST, None, ".2f", _worst),
        ("over cuSPARSE", OVER_CUSPARSE, None, ".2f", over(CUSPARSE)),
        *(
            (f"f32 over cuBLAS, from {share:.0%} zeros on", least, aim, ".2f", _from("f32", share))
            for share, (least, aim) in OVER_CUBLAS.items()
        ),
        *((f"f16 over cuBLAS, from {share:.0%} zeros on", None, None, ".2f", _from("f16", share))
          for share in OVER_CUBLAS),
        ("`dense` over cuBLAS, the same call", WITHIN, None, ".2f", _same),
    ]  # fmt: skip
    body = [["cases", "–", "–", *(str(len(group)) for group in groups)]]
    for name, least, aim, form, measure in quantities:
        values = [measure(group) for group in groups]
        missed = least is not None and values[0] is not None and values[0] < least
        cells = [number(value, form) for value in values]
        cells[0] += " ✗" * missed
        body.append([name, number(least, "g"), number(aim, "g"), *cells])
    return [["quantity", "at least", "aim", "all", "of files", "made"], *body]


def classes(found: Result) -> Cells:
    """A line for each kind of matrix, type and number of columns: geometric means, and which families were chosen."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in _measured(found):
        groups.setdefault((row["kind"], row["dtype"], row["shape"][-1]), []).append(row)
    body = []
    for (kind, dtype, n), rows in groups.items():
        families = Counter(map(family, rows))
        chosen = ", ".join(f"{name} {count}" for name, count in families.most_common())
        figures = (mean(map(of_best, rows)), _worst(rows), over(CUSPARSE)(rows), over(CUBLAS)(rows))
        body.append([kind, dtype, str(n), str(len(rows)), *(number(each, ".2f") for each in figures), chosen])
    head = ["pattern", "type", "columns", "cases", "of the best", "worst", "over cuSPARSE", "over cuBLAS", "schedule"]
    return [head, *body]


_LINES: Final[dict[str, Column]] = {
    "pattern": of("case"), "size": size, "type": of("dtype"), "zeros": zeros,
    "µs": lambda row: judged(row, micro(row["hot_s"])), "best": lambda row: best(row)[1],
    "its µs": lambda row: micro(best(row)[0]), "of the best": lambda row: number(of_best(row), ".2f"),
    "model": lambda row: micro(row["predicted_s"]), "schedule": schedule,
}  # fmt: skip


def worst(found: Result) -> Cells:
    """The cases that are the furthest from the best."""
    return table(sorted(_measured(found), key=of_best)[:SHOWN], _LINES)

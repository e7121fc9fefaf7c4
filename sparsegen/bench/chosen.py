"""The tables of part ``auto`` of suite ``unstructured``: what was chosen, over the best of all that was tried."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from sparsegen.bench.beside import of_library, zeros
from sparsegen.bench.cells import Cells, Column, Result, Row, judged, micro, number, of, part, schedule, size, table
from sparsegen.bench.mixture import GRAPH, NETWORK
from sparsegen.bench.unstructured import AUTO, CUBLAS, CUSPARSE, LIBRARIES
from sparsegen.registry import families

#: What share of the best one's speed the chosen one must have, in what share of cases, and in all.
WITHIN, SHARE, WORST = 0.97, 0.95, 0.85
#: The chosen one's time over that of the fastest: what the median may be, and what the worst.
REGRET: Final = (1.05, 1.25)
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


def regret(row: Row) -> float:
    """The chosen one's time over that of the best."""
    return 1 / of_best(row)


def of_ours(row: Row) -> dict[str, float]:
    """Seconds of our families, each its cheapest schedule, the chosen one among them if it is ours."""
    return {**(row["families"] or {}), **({} if family(row) == DENSE else {family(row): row["hot_s"]})}


def regret_of_ours(row: Row) -> float | None:
    """The same without libraries: of our families the one that the model has as the cheapest, over the fastest of them.

    Infinite where the result of that one was wrong; None where no times of the model are kept to say which it is.
    """
    took, own, predicted = of_ours(row), family(row), row.get("predicted")
    if own == DENSE:  # else the chosen one is the cheapest of ours too
        if not predicted:
            return None
        own = min(predicted, key=lambda name: predicted[name] * families("spmm")[name].doubt)
    return took.get(own, math.inf) / min(took.values())


def mean(ratios: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing."""
    logs = [math.log(each) for each in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else None


def over(library: str) -> Measure:
    """The geometric mean of our speed over a library's, of the rows that it stands beside."""
    return lambda rows: mean(took / row["hot_s"] for row in rows if (took := of_library(row, library)))


def measured(found: Result) -> list[Row]:
    """The rows of the part that have times."""
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


def _regrets(of: Callable[[Row], float | None], summed: Callable[[list[float]], float]) -> Measure:
    """What is made of the regrets of some rows; None where those of some are not known."""

    def of_those(rows: Sequence[Row]) -> float | None:
        every = [of(row) for row in rows]
        known = [each for each in every if each is not None]
        return summed(known) if known and len(known) == len(every) else None

    return of_those


@dataclass(frozen=True)
class Quantity:
    """A line of the summary: how it is written and worked out, what it must be at least or at most, and what is aimed
    at.  ``study``: what is asked for is asked of the matrices that were made, as no model was fitted to them."""

    name: str
    form: str
    measure: Measure
    least: float | None = None
    aim: float | None = None
    most: float | None = None
    study: bool = False

    @property
    def wanted(self) -> str:
        """What it must be, in a cell."""
        return f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}" if self.least is not None else "–"

    def missed(self, value: float | None) -> bool:
        """Whether a value is not what it must be."""
        low, high = self.least or 0, math.inf if self.most is None else self.most
        return value is not None and not low <= value <= high


QUANTITIES: Final = (
    Quantity(f"cases with at least {WITHIN} of the best", ".1%", _within, SHARE),
    Quantity("the worst, of the best", ".2f", _worst, WORST),
    *(
        Quantity(f"regret{among}, {name}", ".3f", _regrets(of, summed), most=most, study=True)
        for among, of in (("", regret), (" without libraries", regret_of_ours))
        for name, summed, most in (("median", median, REGRET[0]), ("worst", max, REGRET[1]))
    ),
    Quantity("over cuSPARSE", ".2f", over(CUSPARSE), OVER_CUSPARSE),
    *(
        Quantity(f"{dtype} over cuBLAS, from {share:.0%} zeros on", ".2f", _from(dtype, share), *goals)
        for dtype, wanted in (("f32", OVER_CUBLAS), ("f16", dict.fromkeys(OVER_CUBLAS, (None, None))))
        for share, goals in wanted.items()
    ),
    Quantity("`dense` over cuBLAS, the same call", ".2f", _same, WITHIN),
)


def summary(found: Result) -> Cells:
    """A line a quantity: what is wanted, of all cases, of the patterns of files, and of matrices that were made."""
    rows = measured(found)
    files, made = ([row for row in rows if (row["kind"] in (NETWORK, GRAPH)) == given] for given in (True, False))
    groups = (rows, files, made)
    body = [["cases", "–", "–", *(str(len(group)) for group in groups)]]
    for one in QUANTITIES:
        values = [one.measure(group) for group in groups]
        cells = [number(value, one.form) for value in values]
        asked = len(groups) - 1 if one.study else 0
        cells[asked] += " ✗" * one.missed(values[asked])
        body.append([one.name, one.wanted, number(one.aim, "g"), *cells])
    return [["quantity", "wanted", "aim", "all", "of files", "made"], *body]


def classes(found: Result) -> Cells:
    """A line for each kind of matrix, type and number of columns: geometric means, and which families were chosen."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in measured(found):
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
    return table(sorted(measured(found), key=of_best)[:SHOWN], _LINES)

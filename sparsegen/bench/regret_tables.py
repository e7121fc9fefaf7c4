"""The tables of suite ``regret``: ``summary``, its figures over all problems, and for each part a line a problem.

Every point of a problem counts, chosen, top and random alike; points without a time are counted in ``summary`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sparsegen.bench.cells import Cells, Result, number, size
from sparsegen.bench.regret import CHOSEN, PARTS, Finding, findings

#: What the study must reach: (quantity, at most or at least).
LIMITS: Final = {
    "regret, median": 1.03, "regret, worst": 1.15, "error, median": 0.12, "error, 90 %": 0.30,
    "rank correlation, median": 0.9,
}  # fmt: skip


def quantities(found: Sequence[Finding]) -> dict[str, float]:
    """The figures of LIMITS over some problems; errors are those of all their points.  Empty without any problem."""
    if not found:
        return {}
    errors = np.abs([e for f in found for e in f.errors])
    regrets = [f.regret for f in found]
    values = (np.median(regrets), max(regrets), np.median(errors), np.percentile(errors, 90),
              np.median([f.correlation for f in found]))  # fmt: skip
    return dict(zip(LIMITS, map(float, values), strict=True))


def reached(quantity: str, value: float) -> bool:
    """Whether a figure keeps its limit."""
    return value >= LIMITS[quantity] if "correlation" in quantity else value <= LIMITS[quantity]


def _part(found: Result, part: str) -> list[dict[str, Any]]:
    return [row for row in found["rows"] if row["part"] == part]


def _summary(found: Result) -> Cells:
    """One line a quantity: over all problems, and over those of each part; a missed limit is marked."""
    groups = {"all": found["rows"], **{part: _part(found, part) for part in PARTS}}
    values = {name: quantities(findings(rows)) for name, rows in groups.items()}
    counts = {name: len(findings(rows)) for name, rows in groups.items()}
    cells = [["quantity", "wanted", *(f"{name} ({counts[name]} problems)" for name in groups)]]
    for quantity, limit in LIMITS.items():
        form = ".1%" if "error" in quantity else ".3f"
        sign = "≥" if "correlation" in quantity else "≤"
        body = []
        for name in groups:
            value = values[name].get(quantity)
            miss = "" if value is None or reached(quantity, value) else " ✗"
            body.append(f"{number(value, form)}{miss}")
        cells.append([quantity, f"{sign} {limit:{'.0%' if 'error' in quantity else 'g'}}", *body])
    timed = [f"{sum(row['measured_s'] is not None for row in rows)} of {len(rows)}" for rows in groups.values()]
    return [*cells, ["schedules timed", "all", *timed]]


def _details(part: str) -> Callable[[Result], Cells]:
    own: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "stencils": {"stencil": lambda row: row.get("stencil", ""), "boundary": lambda row: row["boundary"],
                     "steps": lambda row: number(row["steps"], "d")},
        "products": {"x": lambda row: row["boundary"], "zeros": lambda row: number(row["sparsity"], ".1%")},
    }[part]  # fmt: skip

    def table(found: Result) -> Cells:
        cells = [["problem", "size", "type", *own, "µs", "predicted", "regret", "error, median", "rank", "schedule",
                  "best"]]  # fmt: skip
        rows = _part(found, part)
        known = {f.case: f for f in findings(rows)}
        for row in (row for row in rows if row["picked"] == CHOSEN):
            head = [row["case"], size(row), row["dtype"], *(cell(row) for cell in own.values())]
            if row["case"] not in known:
                cells.append([*head, "failed", number(row["predicted_s"] * 1e6), *[""] * 3, f"`{row['schedule']}`", ""])
                continue
            timed = [r for r in rows if r["case"] == row["case"] and r["measured_s"] is not None]
            f, best = known[row["case"]], min(timed, key=lambda r: r["measured_s"])
            cells.append(
                [*head, number(row["measured_s"] * 1e6), number(row["predicted_s"] * 1e6), number(f.regret, ".3f"),
                 number(float(np.median(np.abs(f.errors))), ".1%"), number(f.correlation, ".2f"),
                 f"`{row['schedule']}`", "the same" if best is row else f"`{best['schedule']}`"]
            )  # fmt: skip
        return cells

    return table


#: view -> its table.
VIEWS: Final[dict[str, Callable[[Result], Cells]]] = {
    "summary": _summary, **{part: _details(part) for part in PARTS},
}  # fmt: skip

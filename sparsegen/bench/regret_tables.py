"""The tables of suite ``regret``: ``summary``, of updates ``fields``, of pruned weights ``weights`` and of integers
``vectors``: the figures over all problems of some parts; and for each part a line a problem.

Every point of a problem counts, chosen, top and random alike; points without a time are counted in ``summary`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from sparsegen.bench.cells import Cells, Column, Result, Row, micro, micros, number, of, part, schedule, size, table
from sparsegen.bench.regret import CHOSEN, PARTS, UPDATES, VECTORS, Finding, findings, own

#: What the study must reach: (quantity, at most or at least).
LIMITS: Final = {
    "regret, median": 1.03, "regret, worst": 1.15, "error, median": 0.12, "error, 90 %": 0.30,
    "rank correlation, median": 0.9,
}  # fmt: skip
#: Of vectors of integers.
OF_VECTORS: Final = {**LIMITS, "regret, median": 1.05, "regret, worst": 1.2}
#: Of pruned weights.
OF_WEIGHTS: Final = {
    **LIMITS, "regret, median": 1.02, "regret, worst": 1.12, "rank correlation, median": 0.93,
}  # fmt: skip
#: Of updates, and of small fields.
OF_UPDATES: Final = {**LIMITS, "regret, median": 1.04, "regret, worst": 1.2}
WEIGHTS: Final = ("products",)
FLOATS: Final = tuple(name for name in PARTS if name not in (*VECTORS, *WEIGHTS, *UPDATES))


def quantities(found: Sequence[Finding]) -> dict[str, float]:
    """The figures of LIMITS over some problems; errors are those of all their points.  Empty without any problem."""
    if not found:
        return {}
    errors = np.abs([e for f in found for e in f.errors])
    regrets = [f.regret for f in found]
    values = (np.median(regrets), max(regrets), np.median(errors), np.percentile(errors, 90),
              np.median([f.correlation for f in found]))  # fmt: skip
    return dict(zip(LIMITS, map(float, values), strict=True))


def reached(quantity: str, value: float, limit: float) -> bool:
    """Whether a figure keeps its limit."""
    return value >= limit if "correlation" in quantity else value <= limit


def _summary(names: Sequence[str], limits: Mapping[str, float], found: Result) -> Cells:
    """One line a quantity: over all problems of some parts, those of each, and where there may be a dense product
    without it; misses are marked."""
    parts = {name: rows for name in names if (rows := part(found, name))}
    whole = {"all": [row for rows in parts.values() for row in rows]} if len(names) > 1 else {}
    groups = {**whole, **parts}
    others = {name: own(rows) for name, rows in parts.items()}
    groups |= {f"{name} without dense": left for name, left in others.items()
               if name in ("products", "patterns") or len(left) < len(parts[name])}  # fmt: skip
    values = {name: quantities(findings(rows)) for name, rows in groups.items()}
    counts = {name: len(findings(rows)) for name, rows in groups.items()}
    cells = [["quantity", "wanted", *(f"{name} ({counts[name]} problems)" for name in groups)]]
    for quantity, limit in limits.items():
        form = ".1%" if "error" in quantity else ".3f"
        sign = "≥" if "correlation" in quantity else "≤"
        body = []
        for name in groups:
            value = values[name].get(quantity)
            miss = "" if value is None or reached(quantity, value, limit) else " ✗"
            body.append(f"{number(value, form)}{miss}")
        cells.append([quantity, f"{sign} {limit:{'.0%' if 'error' in quantity else 'g'}}", *body])
    timed = [f"{sum(row['measured_s'] is not None for row in rows)} of {len(rows)}" for rows in groups.values()]
    return [*cells, ["schedules timed", "all", *timed]]


_OWN: Final[dict[str, dict[str, Column]]] = {
    "stencils": {"stencil": of("stencil"), "boundary": of("boundary"), "steps": of("steps", "d")},
    **{name: {"formula": of("stencil"), "boundary": of("boundary"), "steps": of("steps", "d")} for name in UPDATES},
    "products": {"x": of("boundary"), "zeros": of("sparsity", ".1%")},
    "patterns": {"x": of("boundary"), "pattern": of("pattern")},
    "integers": {"x": of("boundary"), "pattern": of("pattern")},
    "sampled": {"pattern": of("pattern")},
    "attention": {"pattern": of("pattern")},
}


def _details(name: str, found: Result) -> Cells:
    """A line a problem: the chosen schedule, and the fastest one where that is another."""
    rows = part(found, name)
    known = {f.case: f for f in findings(rows)}
    best = {case: min((row for row in rows if row["case"] == case and row["measured_s"] is not None),
                      key=lambda row: row["p10"]) for case in known}  # fmt: skip

    def told(tell: Callable[[Finding], str]) -> Column:
        return lambda row: tell(known[row["case"]]) if row["case"] in known else ""

    def fastest(row: Row) -> str:
        other = best.get(row["case"])
        return "the same" if other is row else schedule(other) if other else ""

    return table([row for row in rows if row["picked"] == CHOSEN], {
        "problem": of("case"), "size": size, "type": of("dtype"), **_OWN[name],
        "µs": lambda row: micro(row["measured_s"]) if row["case"] in known else "failed",
        "predicted": micros("predicted_s"), "regret": told(lambda f: number(f.regret, ".3f")),
        "error, median": told(lambda f: number(float(np.median(np.abs(f.errors))), ".1%")),
        "rank": told(lambda f: number(f.correlation, ".2f")), "schedule": schedule, "best": fastest,
    })  # fmt: skip


#: view -> its table.
VIEWS: Final[dict[str, Callable[[Result], Cells]]] = {
    "summary": partial(_summary, FLOATS, LIMITS), "weights": partial(_summary, WEIGHTS, OF_WEIGHTS),
    "fields": partial(_summary, UPDATES, OF_UPDATES), "vectors": partial(_summary, VECTORS, OF_VECTORS),
    **{name: partial(_details, name) for name in PARTS},
}  # fmt: skip

"""The tables that a result makes: cells with their head, for each suite by the name of a view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sparsegen.bench import ablation, bitmap_tables, bitmaps, csr_tables, graphs, regret, regret_tables, stencils
from sparsegen.bench.cells import Cells, Result, number, size
from sparsegen.cost.devices import load_profile

#: Suites that are measured in parts.
PARTS: Final = {
    "ablation": ablation.PARTS, "stencil": stencils.PARTS, "bitmap": bitmaps.PARTS, "regret": regret.PARTS,
    "csr": graphs.PARTS,
}  # fmt: skip


def _targets(found: Result) -> Cells:
    """One line a form and size, one column a boundary; a value below its target is marked."""
    rows = [row for row in found["rows"] if row["target"] is not None]
    kinds = list(dict.fromkeys(row["boundary"] for row in rows))
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        groups.setdefault((row["case"], size(row), row["schedule"]), {})[row["boundary"]] = row
    cells = [["stencil", "size", "schedule", "at least", *kinds]]
    for (case, shape, schedule), by_kind in groups.items():
        least = next(iter(by_kind.values()))["target"]
        values = [_judged(by_kind[kind]) if kind in by_kind else "" for kind in kinds]
        cells.append([case, shape, f"`{schedule}`", number(least, "g"), *values])
    return cells


def _judged(row: Mapping[str, Any]) -> str:
    if row["failed"]:
        return "failed"
    return f"{number(row['gs_per_s'], '.0f')}{'' if row['ok'] else ' ✗'}"


def _forms(found: Result) -> Cells:
    """Every form at the first size and boundary, the fastest first of each stencil."""
    rows = [row for row in found["rows"] if not row["failed"]]
    rows = [row for row in rows if (row["shape"], row["boundary"]) == (rows[0]["shape"], rows[0]["boundary"])]
    names = list(dict.fromkeys(row["case"].partition(",")[0] for row in rows))
    rows.sort(key=lambda row: (names.index(row["case"].partition(",")[0]), -(row["gs_per_s"] or 0)))
    cells = [["stencil", "schedule", "GS/s", "model", "bound by", "registers", "shared memory", "error"]]
    for row in rows:
        cells.append(
            [row["case"], f"`{row['schedule']}`", _judged(row), number(row["predicted_gs"], ".0f"), str(row["bound"]),
             number(row["regs"], "d"), number(row["smem"], "d"), number(row["error"], ".0e")]
        )  # fmt: skip
    return cells


def _forms_of(part: str) -> Callable[[Result], Cells]:
    """The ablation of one stencil, measured and by the model of the paper's device."""

    def table(found: Result) -> Cells:
        models = {"model, A100": ablation.predicted(part, load_profile("a100"))}
        return ablation.table(part, ablation.of_result(found, part), models)

    return table


def _overhead(found: Result) -> Cells:
    cells = [["call", "host time, µs", "10 %", "90 %", "at most"]]
    for row in found["rows"]:
        times = [number(None if row[key] is None else row[key] * 1e6) for key in ("median_s", "p10", "p90")]
        case = f"{row['case']}, {size(row)}, {row['steps']} step"
        cells.append([case, *times, number(row["limit_s"] * 1e6, "g")])
    return cells


# ------------------------------------------------------------------------------------------------- suite ``stencil``
def _part(found: Result, part: str) -> list[dict[str, Any]]:
    return [row for row in found["rows"] if row["part"] == part]


def _goals(found: Result) -> Cells:
    """The shapes at their sizes, against the figures to reach and what was written by hand."""
    cells = [["stencil", "size", "at least", "aim", "GS/s", "sustained", "of floor", "model", "bound by", "error",
              "schedule"]]  # fmt: skip
    for row in _part(found, "targets"):
        cells.append(
            [row["case"], size(row), number(row["target"], "g"), number(row["aim"], "g"), _judged(row),
             number(row["sustained_gs"], ".0f"), number(_over(row, "floor"), ".2f"), number(row["predicted_gs"], ".0f"),
             row["bound"] or "", number(row["error"], ".0e"), f"`{row['schedule']}`"]
        )  # fmt: skip
    return cells


_SHARES: Final = ("boundaries", "odd", "f32", "single")


def _shares(found: Result) -> Cells:
    """One line a shape, one column for each thing that its rate is compared with another one by."""
    names = {"odd": "odd size", "f32": "f32", "single": "one step"}
    rows: list[tuple[dict[str, Any], str]] = [
        (row, names.get(part) or row["boundary"]) for part in _SHARES for row in _part(found, part) if row["share"]
    ]
    heads = list(dict.fromkeys(head for _, head in rows))
    least = {head: number(row["share"], "g") for row, head in rows}
    by_case: dict[str, dict[str, str]] = {}
    for row, head in rows:
        over = _over(row, "target")
        value = number(over and over * row["share"], ".2f")
        by_case.setdefault(row["case"], {})[head] = "failed" if row["failed"] else f"{value}{'' if row['ok'] else ' ✗'}"
    body = [[case, *(part.get(head, "") for head in heads)] for case, part in by_case.items()]
    return [["stencil", *heads], ["at least", *(least[head] for head in heads)], *body]


def _over(row: Mapping[str, Any], key: str) -> float | None:
    return row["gs_per_s"] / row[key] if row["gs_per_s"] and row[key] else None


def _details(part: str) -> Callable[[Result], Cells]:
    def table(found: Result) -> Cells:
        cells = [["stencil", "size", "boundary", "type", "GS/s", "10 to 90 %", "model", "bound by",
                  "at least", "reached", "of floor", "error", "schedule"]]  # fmt: skip
        for row in _part(found, part):
            least = number(row["target"], ".0f" if row["share"] else "g")
            if row["share"]:
                least += f" ({row['share']:g} of {row['of']})"
            work = row["median_s"] and row["gs_per_s"] * row["median_s"]
            span = f"{work / row['p90']:.0f} to {work / row['p10']:.0f}" if work else ""
            cells.append(
                [row["case"], size(row), row["boundary"], row["dtype"], _judged(row), span,
                 number(row["predicted_gs"], ".0f"), row["bound"] or "", least,
                 number(_over(row, "target"), ".2f"), number(_over(row, "floor"), ".2f"),
                 number(row["error"], ".0e"), f"`{row['schedule']}`"]
            )  # fmt: skip
        return cells

    return table


#: suite -> view -> its table; the first is the one shown where none is named.
VIEWS: Final[dict[str, dict[str, Callable[[Result], Cells]]]] = {
    "spine": {"targets": _targets, "forms": _forms},
    "ablation": {part: _forms_of(part) for part in ablation.PARTS},
    "overhead": {"table": _overhead},
    "stencil": {"goals": _goals, "shares": _shares, **{part: _details(part) for part in stencils.PARTS}},
    "bitmap": bitmap_tables.VIEWS,
    "csr": csr_tables.VIEWS,
    "regret": regret_tables.VIEWS,
}


def parts_of(found: Result, view: str) -> list[str]:
    """The parts of a result that a view shows; none for a suite without parts."""
    shown = {"goals": ("targets",), "shares": _SHARES, "picture": ("sweep", *regret.PARTS), "summary": regret.PARTS,
             "graphs": graphs.PARTS}  # fmt: skip
    return [part for part in shown.get(view, (view,)) if part in found.get("parts", {})]

"""The tables that a result makes: cells with their head, for each suite by the name of a view."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sparsegen.bench import (
    ablation,
    auto,
    bitmaps,
    chosen,
    distributed,
    graphs,
    magicube,
    models,
    nm,
    product_tables,
    regret,
    regret_tables,
    stencils,
    unstructured,
    updates,
)  # fmt: skip
from sparsegen.bench.cells import (
    Cells,
    Column,
    Result,
    Row,
    judged,
    micros,
    number,
    of,
    part,
    pivot,
    ratio,
    schedule,
    size,
    table,
)  # fmt: skip
from sparsegen.bench.notes import mark
from sparsegen.cost.devices import load_profile

#: Suites that are measured in parts.
PARTS: Final = {
    "ablation": ablation.PARTS, "stencil": stencils.PARTS, "bitmap": bitmaps.PARTS, "regret": regret.PARTS,
    "csr": graphs.PARTS, "nm": nm.PARTS, "magicube": magicube.PARTS,
    "unstructured": unstructured.PARTS, "updates": updates.PARTS, "models": models.PARTS,
}  # fmt: skip
_SHARES: Final = {"boundaries": "", "odd": "odd size", "f32": "f32", "single": "one step"}


def _rate(row: Row) -> str:
    return judged(row, number(row["gs_per_s"], ".0f"))


def _over(key: str) -> Column:
    return lambda row: ratio(row["gs_per_s"], row[key])


def _span(row: Row) -> str:
    """GS/s of the slow and of the fast calls."""
    work = row["median_s"] and row["gs_per_s"] * row["median_s"]
    return f"{work / row['p90']:.0f} to {work / row['p10']:.0f}" if work else ""


def _least(row: Row) -> str:
    if row["share"]:
        return f"{number(row['target'], '.0f')} ({row['share']:g} of {row['of']})"
    return number(row["target"], "g")


def _schedule(row: Row) -> str:
    return mark(row, schedule(row), "now")


#: Figures of a stencil that several tables show.
_MODEL: Final[dict[str, Column]] = {
    "model": lambda row: mark(row, of("predicted_gs", ".0f")(row), "fitted"), "bound by": of("bound"),
}  # fmt: skip
_OVERHEAD: Final[dict[str, Column]] = {
    "call": lambda row: f"{row['case']}, {size(row)}, {row['steps']} step", "host time, µs": micros("median_s"),
    "10 %": micros("p10"), "90 %": micros("p90"), "at most": micros("limit_s", "g"),
}  # fmt: skip
_GOALS: Final[dict[str, Column]] = {
    "stencil": of("case"), "size": size, "at least": of("target", "g"), "aim": of("aim", "g"), "GS/s": _rate,
    "sustained": of("sustained_gs", ".0f"), "of floor": _over("floor"), **_MODEL, "error": of("error", ".0e"),
    "schedule": _schedule,
}  # fmt: skip
_DETAILS: Final[dict[str, Column]] = {
    "stencil": of("case"), "size": size, "boundary": of("boundary"), "type": of("dtype"), "GS/s": _rate,
    "10 to 90 %": _span, **_MODEL, "at least": _least, "reached": _over("target"), "of floor": _over("floor"),
    "error": of("error", ".0e"), "schedule": _schedule,
}  # fmt: skip


def _targets(found: Result) -> Cells:
    """One line a form and size, one column a boundary; a value below its target is marked."""
    rows = [(row, (row["case"], size(row), schedule(row))) for row in found["rows"] if row["target"] is not None]
    least = {form: number(row["target"], "g") for row, form in rows[::-1]}  # of the first boundary
    names, lines = pivot((form, row["boundary"], _rate(row)) for row, form in rows)
    body = [[*form, least[form], *cells] for form, cells in lines.items()]
    return [["stencil", "size", "schedule", "at least", *names], *body]


def _ablation(name: str, found: Result) -> Cells:
    """The ablation of one stencil, measured and by the model of the paper's device."""
    models = {"model, A100": ablation.predicted(name, load_profile("a100"))}
    return ablation.table(name, ablation.of_result(found, name), models)


def _shares(found: Result) -> Cells:
    """One line a shape, one column for each thing that its rate is compared with another one by."""
    rows = [(row, name or row["boundary"]) for at, name in _SHARES.items() for row in part(found, at) if row["share"]]
    least = {name: number(row["share"], "g") for row, name in rows}

    def reached(row: Row) -> str:
        return judged(row, ratio(row["gs_per_s"] and row["gs_per_s"] * row["share"], row["target"]))

    names, lines = pivot((row["case"], name, reached(row)) for row, name in rows)
    body = [[case, *cells] for case, cells in lines.items()]
    return [["stencil", *names], ["at least", *(least[name] for name in names)], *body]


def _details(name: str, found: Result) -> Cells:
    return table(part(found, name), _DETAILS)


#: suite -> view -> its table; the first is the one shown where none is named.
VIEWS: Final[dict[str, dict[str, Callable[[Result], Cells]]]] = {
    "spine": {"targets": _targets, "rows": lambda found: table(found["rows"], _DETAILS)},
    "ablation": {name: partial(_ablation, name) for name in ablation.PARTS},
    "overhead": {"table": lambda found: table(found["rows"], _OVERHEAD)},
    "stencil": {
        "goals": lambda found: table(part(found, "targets"), _GOALS),
        "shares": _shares,
        **{name: partial(_details, name) for name in stencils.PARTS},
    },
    "bitmap": product_tables.BITMAP,
    "csr": product_tables.CSR,
    "nm": {"headline": nm.headline, **{name: partial(nm.view, name) for name in nm.PARTS}},
    "magicube": {"headline": magicube.headline, **{name: partial(magicube.view, name) for name in magicube.PARTS}},
    "unstructured": {
        **{name: partial(unstructured.view, name) for name in unstructured.PARTS},
        unstructured.AUTO: chosen.summary,
        "classes": chosen.classes,
        "worst": chosen.worst,
    },
    "updates": {name: partial(_details, name) for name in updates.PARTS},
    "auto": {"table": auto.view},
    "batches": {"table": lambda found: table(found["rows"], _DETAILS)},
    "models": {**{name: partial(models.view, name) for name in models.PARTS}, "split": models.split},
    "regret": regret_tables.VIEWS,
    distributed.NAME: {name: partial(distributed.view, name) for name in distributed.PARTS},
}


def parts_of(found: Result, view: str) -> list[str]:
    """The parts of a result that a view shows; none for a suite without parts."""
    shown = {"goals": ("targets",), "shares": _SHARES, "picture": ("sweep", *regret.PARTS, unstructured.AUTO),
             "summary": regret_tables.FLOATS, "weights": regret_tables.WEIGHTS, "vectors": regret.VECTORS,
             "fields": regret.UPDATES,
             "graphs": (*graphs.PARTS, "graphs"), "classes": (unstructured.AUTO,), "worst": (unstructured.AUTO,),
             "headline": (*nm.PARTS, *magicube.FIXED), "split": models.PARTS}  # fmt: skip
    return [name for name in shown.get(view, (view,)) if name in found.get("parts", {})]

"""The tables of the suites of weight formats; times in microseconds, those of the better order of x and y."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sparsegen.bench.bitmaps import COLD, PARTS, READ, WARM, best
from sparsegen.bench.cells import (
    Cells,
    Column,
    Result,
    Row,
    judged,
    micro,
    micros,
    number,
    of,
    part,
    ratio,
    schedule,
    size,
    table,
)  # fmt: skip
from sparsegen.bench.csr_run import fastest
from sparsegen.bench.notes import mark


# ------------------------------------------------------------------------------------------------------------- bitmap
def _time(row: Row) -> str:
    return "skipped" if "skipped" in (row["failed"] or "") else judged(row, micro(row["median_s"]))


def _least(row: Row) -> str:
    if not row["of"]:
        return micro(row["target"], "g")
    share = "" if row["share"] == 1 else f"{row['share']:g} of "
    return f"{micro(row['target'])} ({share}{row['of']})"


def _aim(row: Row) -> str:
    return micro(row["aim"], ".1f" if row["of"] else "g")


def _state(state: str) -> Column:
    return lambda row: micro(row["times"][row["x"]][state]) if row["times"] else "–"


def _cublas(row: Row, state: str = COLD) -> float | None:
    return best(row["cublas"], state) if row["cublas"] else None


def _peer(name: str) -> Column:
    """Microseconds of somebody else's kernel, which the notes of a table bring."""
    return lambda row: (row.get("peers") or {}).get(name, "–")


def _model(row: Row) -> str:
    return mark(row, micro(row["predicted_s"]), "fitted")


def _schedule(row: Row) -> str:
    return mark(row, schedule(row), "now")


def _orders(row: Row) -> str:
    times = row["times"] or {}
    return " / ".join(micro(times[order][COLD]) if order in times else "–" for order in ("rows", "columns"))


def _auto(row: Row) -> str:
    """What ``format="auto"`` takes by the model."""
    if row["predicted_s"] is None or row["dense_s"] is None:
        return ""
    return "dense" if row["dense_s"] < row["predicted_s"] else "bitmap"


def _of_dense(row: Row) -> str:
    return number(row["nbytes"] and row["nbytes"] / (2 * row["shape"][0] * row["shape"][1]), ".1%")


#: Columns that several tables have: our time over another one's, above 1 ours is less.
_CUBLAS: Final[dict[str, Column]] = {"cuBLAS": lambda row: micro(_cublas(row))}
_OVER_CUBLAS: Final[dict[str, Column]] = {"over cuBLAS": lambda row: ratio(_cublas(row), row["median_s"])}
_OVER_FLOOR: Final[dict[str, Column]] = {"over floor": lambda row: ratio(row["floor_s"], row["median_s"])}
_ERROR: Final = of("error", ".0e")
_GOALS: Final[dict[str, Column]] = {
    "weights": of("case"), "size": size, "at least": _least, "aim": _aim, "x": lambda row: row["x"] or "",
    "µs": lambda row: mark(row, _time(row), "now"), "hot": _state(WARM), "model": _model, **_CUBLAS, **_OVER_CUBLAS,
    **_OVER_FLOOR, "SpInfer": _peer("SpInfer"), "Flash-LLM": _peer("Flash-LLM"), "error": _ERROR,
}  # fmt: skip
_DETAILS: Final[dict[str, Column]] = {
    "weights": of("case"), "size": size, "type": of("dtype"), "x": lambda row: row["x"] or "", "µs": _time,
    "10 to 90 %": lambda row: "" if row["p10"] is None else f"{micro(row['p10'])} to {micro(row['p90'])}",
    "read": _state(READ), "hot": _state(WARM), "rows / columns": _orders, "model": _model, "bound by": of("bound"),
    "at least": _least, **_CUBLAS, "cuBLAS, hot": lambda row: micro(_cublas(row, WARM)), **_OVER_CUBLAS, "auto": _auto,
    "floor": micros("floor_s"), **_OVER_FLOOR, "registers": of("regs", "d"), "spills": of("spills", "d"),
    "shared memory": of("smem", "d"), "error": _ERROR, "schedule": _schedule,
}  # fmt: skip
_ENCODE: Final[dict[str, Column]] = {
    "encode": lambda row: row["case"].removeprefix("encode, "), "weights": lambda row: f"{row['sparsity']:.0%} zeros",
    "size": size, "ms": lambda row: judged(row, number(row["median_s"] and row["median_s"] * 1e3)),
    "at most": lambda row: number(row["target"] * 1e3, "g"), "bytes": of("nbytes", ","), "of dense": _of_dense,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- csr
def _peers(state: str) -> Column:
    def cell(row: Row) -> str:
        found = fastest(row, state)
        return micro(found and found[0])

    return cell


def _over(state: str, ours: str) -> Column:
    """How often our time goes into that of cuSPARSE's fastest algorithm: above 1 ours is less."""
    return lambda row: ratio((fastest(row, state) or (None,))[0], row[ours])


_GRAPHS: Final[dict[str, Column]] = {
    "graph": of("case"), "entries": of("entries", ","), "columns": lambda row: str(row["shape"][-1]),
    "type": of("dtype"), "µs, hot": lambda row: judged(row, micro(row["hot_s"])), "cuSPARSE": _peers("hot"),
    "over cuSPARSE": _over("hot", "hot_s"), "at least": of("ahead", "g"), "µs, cold": micros("median_s"),
    "cuSPARSE, cold": _peers("cold"), "over cuSPARSE, cold": _over("cold", "median_s"), "model": _model,
    "bound by": of("bound"), "registers": of("regs", "d"), "error": _ERROR, "schedule": schedule,
}  # fmt: skip


def _part(name: str, found: Result) -> Cells:
    return table(part(found, name), _ENCODE if name == "encode" else _DETAILS)


#: view -> its table; the first is the one shown where none is named.
BITMAP: Final[dict[str, Callable[[Result], Cells]]] = {
    "goals": lambda found: table(part(found, "targets"), _GOALS),
    **{name: partial(_part, name) for name in PARTS},
}
CSR: Final[dict[str, Callable[[Result], Cells]]] = {"graphs": lambda found: table(found["rows"], _GRAPHS)}

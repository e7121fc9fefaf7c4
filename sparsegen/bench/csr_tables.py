"""The table that suite ``csr`` makes; times in microseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparsegen.bench.cells import Cells, Result, number
from sparsegen.bench.csr_run import fastest


def _micro(seconds: float | None) -> str:
    return number(None if seconds is None else seconds * 1e6, ".1f")


def _over(row: dict[str, Any], state: str, ours: float | None) -> str:
    """How often our time goes into that of cuSPARSE's fastest algorithm: above 1 ours is less."""
    peer = fastest(row, state)
    return number(peer[0] / ours if peer and ours else None, ".2f")


def _graphs(found: Result) -> Cells:
    cells = [["graph", "entries", "columns", "type", "µs, hot", "cuSPARSE", "over cuSPARSE", "at least", "µs, cold",
              "cuSPARSE, cold", "over cuSPARSE, cold", "model", "bound by", "registers", "error",
              "schedule"]]  # fmt: skip
    for row in found["rows"]:
        hot, cold = (fastest(row, state) for state in ("hot", "cold"))
        ours = "failed" if row["failed"] else f"{_micro(row['hot_s'])}{'' if row['ok'] else ' ✗'}"
        cells.append(
            [row["case"], number(row["entries"], ","), str(row["shape"][-1]), row["dtype"], ours,
             _micro(hot and hot[0]), _over(row, "hot", row["hot_s"]), number(row["ahead"], "g"),
             _micro(row["median_s"]), _micro(cold and cold[0]), _over(row, "cold", row["median_s"]),
             _micro(row["predicted_s"]), row["bound"] or "", number(row["regs"], "d"), number(row["error"], ".0e"),
             row["schedule"] and f"`{row['schedule']}`"]
        )  # fmt: skip
    return cells


#: view -> its table.
VIEWS: Final[dict[str, Callable[[Result], Cells]]] = {"graphs": _graphs}

"""The tables that suite ``bitmap`` makes; times in microseconds, those of the better order of x and y."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sparsegen.bench.bitmaps import COLD, LARGE, MIDDLE, PARTS, READ, SMALL, SQUARE, WARM, best
from sparsegen.bench.cells import Cells, Result, number, size

#: Microseconds of SpInfer's (best split-K) and Flash-LLM's kernels for f16, N = 16, with cold L2 after a 256 MB memset:
#: their published code on an H200, measured once for the issue that set the targets, not in the call of a table.
#: Flash-LLM's result at 50 % was wrong.
PEERS: Final[dict[tuple[tuple[int, int, int], float], tuple[str, str]]] = {
    ((*LARGE, 16), 0.5): ("183", "171 (wrong)"),
    ((*LARGE, 16), 0.6): ("181", "142"),
    ((*LARGE, 16), 0.7): ("179", "109"),
    ((*MIDDLE, 16), 0.6): ("125", "104"),
    ((*SQUARE, 16), 0.6): ("61.7", "56"),
    ((*SMALL, 16), 0.6): ("24", "26"),
}
Row = Mapping[str, Any]


def _rows(found: Result, part: str) -> list[Row]:
    return [row for row in found["rows"] if row["part"] == part]


def _micro(seconds: float | None, form: str = ".1f") -> str:
    return number(None if seconds is None else seconds * 1e6, form)


def _judged(row: Row) -> str:
    if row["failed"]:
        return "skipped" if "skipped" in row["failed"] else "failed"
    return f"{_micro(row['median_s'])}{'' if row['ok'] else ' ✗'}"


def _least(row: Row) -> str:
    if not row["of"]:
        return _micro(row["target"], "g")
    share = "" if row["share"] == 1 else f"{row['share']:g} of "
    return f"{_micro(row['target'])} ({share}{row['of']})"


def _state(row: Row, state: str) -> str:
    return _micro(row["times"][row["x"]][state]) if row["times"] else "–"


def _cublas(row: Row, state: str = COLD) -> float | None:
    return best(row["cublas"], state) if row["cublas"] else None


def _over(other: float | None, row: Row) -> str:
    """How often the row's time goes into another one: above 1 the row is faster."""
    return number(other / row["median_s"] if other and row["median_s"] else None, ".2f")


def _peers(row: Row) -> tuple[str, str]:
    if row["dtype"] != "f16":
        return "–", "–"
    return PEERS.get((tuple(row["shape"]), round(row["sparsity"], 2)), ("–", "–"))


def _goals(found: Result) -> Cells:
    """The targets, against the figures to reach, cuBLAS, what was written by hand, and the peers."""
    cells = [["weights", "size", "at least", "aim", "x", "µs", "hot", "model", "cuBLAS", "over cuBLAS", "over floor",
              "SpInfer", "Flash-LLM", "error"]]  # fmt: skip
    for row in _rows(found, "targets"):
        cublas = _cublas(row)
        cells.append(
            [row["case"], size(row), _least(row), _micro(row["aim"], "g"), row["x"] or "", _judged(row),
             _state(row, WARM), _micro(row["predicted_s"]), _micro(cublas), _over(cublas, row),
             _over(row["floor_s"], row), *_peers(row), number(row["error"], ".0e")]
        )  # fmt: skip
    return cells


def _details(part: str) -> Callable[[Result], Cells]:
    def table(found: Result) -> Cells:
        cells = [["weights", "size", "type", "x", "µs", "10 to 90 %", "read", "hot", "rows / columns", "model",
                  "bound by", "at least", "cuBLAS", "cuBLAS, hot", "over cuBLAS", "auto", "floor", "over floor",
                  "registers", "spills", "shared memory", "error", "schedule"]]  # fmt: skip
        for row in _rows(found, part):
            cublas, times = _cublas(row), row["times"] or {}
            both = [_micro(times[order][COLD]) if order in times else "–" for order in ("rows", "columns")]
            span = "" if row["p10"] is None else f"{_micro(row['p10'])} to {_micro(row['p90'])}"
            cells.append(
                [row["case"], size(row), row["dtype"], row["x"] or "", _judged(row), span, _state(row, READ),
                 _state(row, WARM), " / ".join(both), _micro(row["predicted_s"]), row["bound"] or "", _least(row),
                 _micro(cublas), _micro(_cublas(row, WARM)), _over(cublas, row), _auto(row), _micro(row["floor_s"]),
                 _over(row["floor_s"], row), number(row["regs"], "d"), number(row["spills"], "d"),
                 number(row["smem"], "d"), number(row["error"], ".0e"), row["schedule"] and f"`{row['schedule']}`"]
            )  # fmt: skip
        return cells

    return table


def _auto(row: Row) -> str:
    """What ``format="auto"`` takes by the model."""
    if row["predicted_s"] is None or row["dense_s"] is None:
        return ""
    return "dense" if row["dense_s"] < row["predicted_s"] else "bitmap"


def _encode(found: Result) -> Cells:
    cells = [["encode", "weights", "size", "ms", "at most", "bytes", "of dense"]]
    for row in _rows(found, "encode"):
        bytes_ = row["nbytes"]
        share = bytes_ and bytes_ / (2 * row["shape"][0] * row["shape"][1])
        time = "failed" if row["failed"] else f"{number(row['median_s'] * 1e3)}{'' if row['ok'] else ' ✗'}"
        cells.append(
            [row["case"].removeprefix("encode, "), f"{row['sparsity']:.0%} zeros", size(row), time,
             number(row["target"] * 1e3, "g"), number(bytes_, ","), number(share, ".1%")]
        )  # fmt: skip
    return cells


#: view -> its table; the first is the one shown where none is named.
VIEWS: Final[dict[str, Callable[[Result], Cells]]] = {
    "goals": _goals, **{part: _details(part) for part in PARTS if part != "encode"}, "encode": _encode,
}  # fmt: skip

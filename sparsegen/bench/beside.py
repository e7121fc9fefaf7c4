"""Rows that stand beside a floor and libraries, each measured with cold and with warm L2: their columns, and how they
are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparsegen.bench import floors
from sparsegen.bench.bitmaps import COLD, WARM
from sparsegen.bench.cells import (
    Cells,
    Column,
    Row,
    judged,
    micro,
    micros,
    number,
    of,
    ratio,
    schedule,
    size,
    table,
)  # fmt: skip
from sparsegen.bench.harness import C, R
from sparsegen.bench.lab import REST
from sparsegen.bench.products import ProductRow, Products

#: Calls of a graph, and how often it is replayed for a median.
LAUNCHES, REPEATS = 30, 9
#: States of L2 in the words of floors.
L2: Final = {COLD: "cold", WARM: "hot"}
#: From this share of zeros on two digits more are shown.
_NEARLY_ALL: Final = 0.995


@dataclass(frozen=True, kw_only=True)
class BesideRow(ProductRow):
    """One problem; ``hot_s``: seconds of a call with warm L2, ``median_s`` with cold; ``target`` and ``aim`` are of
    ``hot_s``; ``floor`` and ``beside`` (by library): the others' times by state of L2."""

    sparsity: float
    target: float | None = None
    aim: float | None = None
    hot_s: float | None = None
    floor: Mapping[str, float] | None = None
    floor_by: str = ""
    beside: Mapping[str, Mapping[str, float]] | None = None


class Beside(Products[C, R]):
    """Products and the like, timed as floors are."""

    def hot(self, call: Callable[[], object]) -> float:
        """Seconds of a call among many of a CUDA graph."""
        return self.replayed(call, LAUNCHES, REPEATS, REST)

    def replayed(self, call: Callable[[], object], launches: int, repeats: int, rest: float) -> float:
        """Seconds of a call among ``launches`` of a CUDA graph: the median of so many replays, after a rest."""
        replay = self.captured(call, launches)
        time.sleep(rest)
        times = self.lab.times(replay, 0.0, None, 1, repeats, repeats)
        return sorted(times)[len(times) // 2] / launches

    def of_floor(self, name: str) -> dict[str, Any]:
        """What a row says of the fastest floor with this name, by state of L2."""
        found = {state: floors.best(self.floors, f"{name}, {words}") for state, words in L2.items()}
        times = {state: 1 / floor.rate for state, floor in found.items() if floor}
        return {"floor": times or None, "floor_by": str(found[WARM] or "")}


def line(row: BesideRow) -> str:
    """A row as a line of progress."""
    what = f"{row.case}, {'x'.join(map(str, row.shape))} {row.dtype}, {row.sparsity:.3f}"
    if row.hot_s is None:
        return f"{what}: {row.failed}"
    beside = {"floor": row.floor or {}, **(row.beside or {})}
    others = ", ".join(f"{name} {times[WARM] * 1e6:.1f}" for name, times in beside.items() if times)
    cold = "" if row.median_s is None else f", {row.median_s * 1e6:.2f} cold"
    told = f"{row.hot_s * 1e6:.2f} us hot{cold}; {others}; error {row.error:.1e}"
    return f"{what}: {told}{'' if row.ok else ', NOT OK'}; {row.schedule}"


# ------------------------------------------------------------------------------------------------------------- tables
def of_library(row: Row, library: str) -> float | None:
    """Seconds of a library with warm L2; None where it stands not beside."""
    found: float | None = (row["beside"] or {}).get(library, {}).get(WARM)
    return found


def zeros(row: Row) -> str:
    """The share of zeros."""
    return number(row["sparsity"] * 100, ".3g" if row["sparsity"] < _NEARLY_ALL else ".2f") + " %"


def _floor(row: Row, state: str) -> float | None:
    found: float | None = (row["floor"] or {}).get(state)
    return found


def _library(name: str) -> Column:
    return lambda row: micro(of_library(row, name))


def _over(name: str) -> Column:
    """How often our hot time goes into a library's: above 1 ours is less."""
    return lambda row: ratio(of_library(row, name), row["hot_s"])


#: The columns before and behind those of libraries.
_FIRST: Final[dict[str, Column]] = {
    "pattern": of("case"), "size": size, "type": of("dtype"), "zeros": zeros, "at least": micros("target", "g"),
    "aim": micros("aim", "g"), "µs": lambda row: judged(row, micro(row["hot_s"])),
    "floor": lambda row: micro(_floor(row, WARM)), "over floor": lambda row: ratio(_floor(row, WARM), row["hot_s"]),
}  # fmt: skip
_LAST: Final[dict[str, Column]] = {
    "cold": micros("median_s"), "floor, cold": lambda row: micro(_floor(row, COLD)), "model": micros("predicted_s"),
    "bound by": of("bound"), "registers": of("regs", "d"), "spills": of("spills", "d"), "error": of("error", ".1g"),
    "schedule": schedule,
}  # fmt: skip


def view(rows: Iterable[Row], libraries: Mapping[str, str]) -> Cells:
    """The table of some rows, with those of ``libraries`` (their titles by name) that stand beside any of them."""
    rows = list(rows)
    there = {key for row in rows for key in row["beside"] or {}}
    titles = {key: title for key, title in libraries.items() if key in there}
    times: dict[str, Column] = {title: _library(key) for key, title in titles.items()}
    ratios: dict[str, Column] = {f"over {title}": _over(key) for key, title in titles.items()}
    return table(rows, {**_FIRST, **times, **ratios, **_LAST})

"""The predicted times of N:M products beside those of kernels on one H200."""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from sparsegen.cost.devices import load_profile
from sparsegen.ir.numbers.strips import TILES
from sparsegen.products import decode_cost, fours_cost, gather_cost, nm_cost, outer_cost, strips_cost, windows_cost
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import SpmmSchedule

DATA = Path(__file__).parent / "data" / "nm.csv"
H200 = load_profile("h200")
MODELS = {
    "nm_lanes": nm_cost, "nm_gather": gather_cost, "nm_decode": decode_cost, "nm_outer": outer_cost,
    "nm_strips": strips_cost, "nm_24": fours_cost, "nm_windows": windows_cost,
}  # fmt: skip


def numbers(row: dict[str, str]) -> NmNumbers:
    """A product in numbers, without its matrix: vectors of fewer rows share a tile with others, whose columns they keep
    as well; in the turn with the most that is two deviations more."""
    m, k, kept, window, n = (int(row[name]) for name in ("m", "k", "kept", "window", "n"))
    vector, wide = (int(side) for side in (row["vector"] + "x1").split("x")[:2])  # rows, or rows x columns of a block

    def share(rows: int) -> float:
        return 1 - (1 - kept / window) ** max(1, rows // vector) if vector > 1 else 1.0

    turns, unions = [-(-round(k * share(rows)) // 64) for rows in (64, 128)], []
    for rows, windows in product(TILES, range(1, 17)):
        columns, s = windows * window, share(rows)
        unions.append((rows, windows, min(columns, round(columns * s + 2 * (columns * s * (1 - s)) ** 0.5))))
    pattern = (kept, window, vector, wide)
    return NmNumbers(m, k, n, row["dtype"], pattern, 0, 0, (turns[0], turns[1]), unions=tuple(unions))


@pytest.mark.parametrize(("family", "kernels", "median", "ninth"), [
    ("nm_lanes", 67, 0.05, 0.13), ("nm_gather", 67, 0.09, 0.18), ("nm_decode", 44, 0.05, 0.11),
    ("nm_outer", 44, 0.03, 0.07), ("nm_strips", 44, 0.06, 0.13), ("nm_24", 15, 0.06, 0.12),
    ("nm_windows", 44, 0.04, 0.09),
])  # fmt: skip
def test_predictions_are_close_to_what_was_measured(family: str, kernels: int, median: float, ninth: float) -> None:
    model, errors = MODELS[family], []
    for row in csv.DictReader(DATA.read_text().splitlines()):
        if row["schedule"].split()[0] == family:
            p, s = numbers(row), SpmmSchedule.parse(row["schedule"])
            predicted = model.price(p, s, H200, model.shape_of(p, s, H200)).time  # type: ignore[attr-defined]
            errors.append(abs(predicted / (float(row["microseconds"]) * 1e-6) - 1))
    assert len(errors) >= kernels
    assert np.median(errors) <= median and np.quantile(errors, 0.9) <= ninth


@pytest.mark.parametrize("line", [
    "nm_lanes cols=4 warps=1x16", "nm_gather rows=128 cols=64 stages=3", "nm_decode rows=64 cols=64 stages=3 teams=2",
    "nm_outer rows=64 cols=64 each=8 deep=64 stages=3",
    "nm_strips strip=32 warps=4x2 cols=64 kept=32 stages=3", "nm_24 rows=256 cols=32 stages=3",
    "nm_windows cols=4 warps=8 layout=windows",
])  # fmt: skip
def test_the_formula_is_the_time(line: str) -> None:
    s, model = SpmmSchedule.parse(line), MODELS[line.split()[0]]
    p = NmNumbers(1000, 4096, 70, "f16", (8, 32, 128, 1), 0, 0, (16, 16))
    c = model.price(p, s, H200, model.shape_of(p, s, H200))  # type: ignore[attr-defined]
    assert float(c.formula.xreplace(c.substitution())) == pytest.approx(c.time, rel=1e-12)


@pytest.mark.parametrize("k, n, columns, anew", [
    (4096, 64, False, set()), (4096, 70, False, {"nm_gather", "nm_decode"}), (4096, 64, True, {"nm_gather"}),
    (4090, 64, True, {"nm_gather", "nm_decode"}), (4090, 64, False, set()),
])  # fmt: skip
def test_who_writes_x_anew(k: int, n: int, columns: bool, anew: set[str]) -> None:
    """Where x comes by columns, as a linear layer has it, or in rows that are no whole pieces."""
    p = NmNumbers(1024, k, n, "f16", (8, 32, 128, 1), 0, 0, (16, 16), columns)
    for line in ("nm_gather rows=128 cols=64 stages=3", "nm_decode rows=64 cols=64 stages=3 teams=2"):
        s, model = SpmmSchedule.parse(line), MODELS[line.split()[0]]
        terms = model.price(p, s, H200, model.shape_of(p, s, H200)).terms  # type: ignore[attr-defined]
        assert (terms["turn"] > 0) == (s.family in anew)

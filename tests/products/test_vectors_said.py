"""What is said of products of integers, and made of them: levels, explanations, files, random arrays, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.ir.errors import ScheduleError
from sparsegen.products import ring_cost, vectors_cost
from tests.nm_kit import formulas_hold, listed
from tests.vectors_kit import exact, kernel, quantized

FAMILIES = {"vector_strip": vectors_cost.REASONS, "vector_gather": ring_cost.REASONS}
TYPES = [("i8", "i8"), ("i4", "i4"), ("i16", "u16"), ("u4", "u4"), ("i12", "i8")]


def product(kind: str = "i8", x_kind: str = "i8", **how: Any) -> Any:
    return sg.spmm(quantized((40, 70), kind), n=19, x_dtype=x_kind, **how)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("kind", "x_kind"), TYPES)
def test_everything_that_a_kernel_says(kind: str, x_kind: str, family: str, tmp_path: Path) -> None:
    k = kernel(product(kind, x_kind), family)
    for level, says in (
        ("op", "x_type"),
        ("tile", "tile.multiply_vectors"),
        ("warp", "warp.mma"),
        ("warp", "ldmatrix"),
    ):
        assert says in k.ir(level)
    assert str(k.schedule) in k.source() and f"on emulator: {family}" in repr(k)
    told, page = str(k.explain()), k.explain().data
    assert f"W 40x70 {kind}, x {x_kind}, y i32" in told and "integers have none" in told
    assert {term["name"] for term in page["terms"]} <= set(FAMILIES[family])
    assert sum(n for name, n in k.counts().items() if name.startswith("mma.")) > 0
    header = Path(k.export(tmp_path / "product.cu")).with_suffix(".h").read_text()
    assert ("in: x, 70x19, two elements a byte; 700 elements" in header) == (x_kind[1:] == "4")


@pytest.mark.parametrize(("kind", "x_kind"), TYPES)
def test_random_arrays_are_of_all_values(kind: str, x_kind: str) -> None:
    k = kernel(product(kind, x_kind))
    x = k.random(1)["x"]
    assert k.check().ok and k.check(x).ok and int(x.max()) - int(x.min()) > 0.95 * 2 ** (8 * x.itemsize)
    if x_kind[1:] == "4":
        both = np.stack((x & 15, x >> 4), -1).reshape(70, 20)[:, :19].astype("i4")
        x = both - 16 * (both > 7) * (x_kind == "i4")
    assert np.array_equal(k(k.random(1)["x"]), exact(k.product.w, x))


@pytest.mark.parametrize("device", ["h200", "a100"])
def test_the_formulas_are_what_is_chosen_by(device: str) -> None:
    """Worked out with sympy they give the times, and their terms have reasons."""
    for of in (product(), product("i16", "i4", y_dtype="f16", scale=True)):
        for family in FAMILIES:
            costs = listed(of, device, family)
            assert costs
            formulas_hold(costs[:: max(1, len(costs) // 4)])


@pytest.mark.parametrize(
    ("line", "device", "says", "hint"),
    [
        ("vector_strip", "v100", "which NVIDIA V100 (sm_70) has not", "from Ampere on"),
        ("vector_strip wide=48", "h200", "wide=48", "32, 64, 128"), ("vector_strip warps=33", "h200", "warps=33", "32"),
        ("vector_strip parts=5", "h200", "parts=5", "from 1 to 4"), ("vector_strip stages=2", "h200", "stages", "wide"),
        ("vector_gather", "v100", "which NVIDIA V100 (sm_70) has not", "from Ampere on"),
        ("bitmap", "h200", "is a schedule for bitmap, W is in sr_bcrs", "encode W again"),
    ],
)  # fmt: skip
def test_schedules_that_cannot_be(line: str, device: str, says: str, hint: str) -> None:
    with pytest.raises(ScheduleError) as e:
        kernel(product(), line, device)
    assert says in str(e.value) and hint in (e.value.hint or "")


def test_a_strip_that_does_not_fit() -> None:
    tall = sg.spmm(quantized((8, 9000), kept=0.01), n=64)
    with pytest.raises(ScheduleError, match="a strip of 9000 rows of 32 bytes") as e:
        kernel(tall, "vector_strip wide=32")
    assert e.value.hint and kernel(tall).schedule.family == "vector_gather"

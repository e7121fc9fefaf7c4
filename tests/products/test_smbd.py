"""SpInfer's own product: right for all words of its schedules, and what each word changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.smbd import COLS, place
from sparsegen.problems.product import Variant
from sparsegen.products import smbd_cost
from sparsegen.products.smbd import starts
from sparsegen.products.weights import host_arrays
from tests.nm_kit import formulas_hold
from tests.products_kit import EPILOGUES, ORDERS, agrees, called, matrix, operands, turned_first, weights

#: Every word, and words together.
LINES = (
    "smbd cols=16 splits=1", "smbd cols=8 warps=1 splits=2", "smbd cols=32 warps=2 buffers=1",
    "smbd cols=64 groups=1 splits=1", "smbd cols=16 buffers=1 groups=1 splits=3", "smbd cols=32 two_phase=off",
    "smbd cols=16 ldmatrix=off warps=2 splits=1", "smbd cols=8 two_phase=off ldmatrix=off buffers=1 splits=2",
)  # fmt: skip


def nested(m: int, k: int, sparsity: float = 0.6, dtype: str = "f16") -> sg.SparseMatrix:
    return matrix(m, k, sparsity, dtype, format="tca_bme")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("line", LINES)
def test_all_words_are_right(line: str, dtype: str) -> None:
    counts = called(sg.spmm(nested(100, 200, dtype=dtype), n=24), schedule=line, device="a100").counts()
    assert not counts["conflicts.shared"] and not counts["conflicts.cp_async"]


@pytest.mark.parametrize(*ORDERS)
@pytest.mark.parametrize("line", ["smbd cols=16 splits=1", "smbd cols=8 ldmatrix=off splits=2 buffers=1"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (64, 64, 8), (65, 129, 17), (40, 320, 9), (136, 72, 40)])
def test_any_size_and_order(m: int, k: int, n: int, line: str, x_order: str, y_order: str) -> None:
    line = line.replace("splits=2", f"splits={min(2, -(-k // 64))}")
    called(sg.spmm(nested(m, k), n=n), x_order, y_order, line)


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.95, 1.0])
def test_any_sparsity(sparsity: float) -> None:
    for line in LINES[:2]:
        called(sg.spmm(nested(130, 200, sparsity), n=16), schedule=line)


@pytest.mark.parametrize(*EPILOGUES)
@pytest.mark.parametrize("splits", [1, 3])
def test_epilogues(activation: Any, operands: tuple[str, ...], splits: int) -> None:
    for order in ("row", "column"):
        product = sg.spmm(nested(72, 200), n=16, activation=activation, **dict.fromkeys(operands, True))
        called(product, order, order, f"smbd cols=16 splits={splits}")


def test_x_is_turned_only_where_it_has_no_whole_pieces() -> None:
    for n in (16, 17):
        turned_first(sg.spmm(nested(64, 136), n=n), "smbd", ("row", "row"), n == 16)
    for k in (136, 137):  # by columns these are the whole pieces
        made = called(sg.spmm(nested(64, k), n=17), "column", "row", "smbd")
        variant = Variant("column", "row", 8 if k == 136 else 1)
        assert len(made._programs.get(1, variant).warp.launches) == (1 if k == 136 else 2)


def test_nothing_outside_reaches_a_sum() -> None:
    """W has no rows of x beyond its columns: what shared memory holds there does not matter, be it NaN."""
    w = nested(40, 72)
    k = sg.compile(sg.spmm(w, n=8), device="h200", backend="emulator", schedule="smbd buffers=1 splits=1")
    x = np.ones((72, 8), np.float16)
    x[70, 3] = np.nan
    y = k(x)
    assert np.isnan(y[:, 3]).all() and np.isfinite(np.delete(y, 3, axis=1)).all()


def test_splits_are_added_in_order_and_counters_end_at_zero() -> None:
    product = sg.spmm(nested(70, 400), n=24)
    k = sg.compile(product, device="h200", backend="emulator", schedule="smbd splits=3 cols=16")
    given = operands(product)
    first = k(given["x"])
    for _ in range(2):
        assert np.array_equal(k(given["x"]), first)
    agrees(first, product, given)
    assert k.workspace_nbytes == 4 * 2 * 2 * (3 * 64 * 16 + 1)


def test_what_a_kernel_reads_is_the_format() -> None:
    w = nested(100, 200)
    k = sg.compile(sg.spmm(w, n=8), device="h200", backend="emulator", schedule="smbd")
    made = host_arrays(w, k.schedule.rules.arrays(k.schedule))
    assert np.array_equal(made["bitmaps"], w.arrays["bitmaps"].reshape(-1))
    assert np.array_equal(made["values"], w.arrays["values"]) and made["starts"].dtype == np.uint32
    assert np.array_equal(made["starts"][::4], w.arrays["offsets"])
    dense = np.zeros((128, 256), bool)
    dense[:100, :200] = w.to_dense() != 0
    kept = dense.reshape(2, 4, 16, 4, 64).sum((2, 4)).transpose(0, 2, 1)  # of each group tile and strip
    found = np.diff(starts(w).astype(np.int64)).reshape(kept.shape)
    assert np.array_equal(found[..., :3], kept[..., :3])
    assert np.array_equal(-(-kept.sum(-1) // 8) * 8, found.sum(-1))  # zeros fill up the last strip's values


# ------------------------------------------------------------------------------------------------ what words change
def counted(line: str) -> dict[str, int]:
    """Counts of a product of 2 x 4 group tiles and 16 columns of x."""
    k = sg.compile(sg.spmm(nested(128, 256), n=16), device="h200", backend="emulator", schedule=f"smbd cols=16 {line}")
    return dict(k.counts())


@pytest.mark.parametrize("warps", [1, 2, 4])
def test_a_bitmap_takes_two_population_counts(warps: int) -> None:
    """Section 4.2.4: all of a bitmap, and the bits below a lane's; nobody asks how many the last one of a warp has."""
    tiles, bitmaps = 8, 64
    two, three = (counted(f"splits=1 warps={warps} two_phase={word}") for word in ("on", "off"))
    assert two["popc"] == tiles * (2 * bitmaps - warps)
    assert three["popc"] == tiles * (3 * bitmaps - warps)
    assert two["mma.f16.m16n8k16"] == tiles * 4 * 4 * 2


def test_two_groups_of_copies_and_two_slots() -> None:
    """Of a turn: two groups of copies, each waited for, and met for; with one slot a barrier more, before it is filled
    again; with two the first turn's copies come before the walk."""
    turns, warps, rows = 4, 4, 2
    for buffers in (1, 2):
        for groups in (1, 2):
            n = counted(f"splits=1 buffers={buffers} groups={groups}")
            times = (turns + (buffers == 2)) * groups * warps * rows
            assert (n["cp_commit"], n["cp_wait"]) == (times, times)
            assert n["barrier"] == times + turns * warps * rows * (buffers == 1)


def test_ldmatrix_replaces_loads() -> None:
    on, off = (counted(f"splits=1 ldmatrix={word}") for word in ("on", "off"))
    mma = on["mma.f16.m16n8k16"]
    assert on["ldmatrix"] == mma // 2 and not off.get("ldmatrix", 0)
    assert off["ld.shared"] - on["ld.shared"] == 4 * mma  # two pairs of elements, one by one, of each


def test_slots_of_x_have_no_bank_conflicts() -> None:
    for cols in COLS:
        for order in ("row", "column"):
            assert place(cols, order).injective() and place(cols, order).size() == 64 * cols


# ------------------------------------------------------------------------------------------------ the rest of the house
def test_everything_that_a_kernel_says(tmp_path: Path) -> None:
    product = sg.spmm(nested(100, 200), n=20)
    k = sg.compile(product, device="h200", backend="emulator", schedule="smbd")
    assert "tile.decode_nested" in k.ir("tile") and "popc" in k.source()
    told = str(k.explain())
    for part in ("rows of group tiles", "M N / (M / CR + N)", "bitmap", "population counts"):
        assert part in told
    assert {term["name"] for term in k.explain().data["terms"]} == set(smbd_cost.REASONS)
    header = Path(k.export(tmp_path / "product.cu")).with_suffix(".h").read_text()
    assert "starts in sparsegen/products/smbd.py" in header


def test_it_is_chosen_only_where_it_is_named() -> None:
    """A matrix in the paper's format is read in bitmap tiles by itself; no other matrix is read in the paper's."""
    assert called(sg.spmm(nested(100, 200), n=16)).schedule.family == "bitmap"
    other = sg.spmm(sg.sparse(weights(100, 200, 0.6), format="auto"), n=16)
    assert "smbd" not in {c.schedule.family for c in sg.schedules(other, device="h200")}
    with pytest.raises(ScheduleError, match="is a schedule for tca_bme, W is in bitmap"):
        sg.compile(sg.spmm(matrix(100, 200), n=16), device="h200", backend="emulator", schedule="smbd")


@pytest.mark.parametrize("device", ["h200", "a100", "rtx4090"])
def test_the_formulas_are_what_is_chosen_by(device: str) -> None:
    product = sg.spmm(nested(256, 512), n=20)
    costs = [sg.compile(product, device=device, backend="emulator", schedule=line).cost for line in LINES]
    formulas_hold(costs)


def test_each_idea_is_predicted_to_gain() -> None:
    product = sg.spmm(nested(1024, 1024), n=16)

    def seconds(words: str) -> float:
        line = f"smbd cols=16 splits=1 {words}"
        return sg.compile(product, device="h200", backend="emulator", schedule=line).cost.time

    assert seconds("") < seconds("groups=1") < seconds("buffers=1 groups=1")
    assert seconds("") < seconds("two_phase=off")
    assert seconds("") <= seconds("ldmatrix=off")


@pytest.mark.parametrize(
    ("line", "device", "says", "hint"),
    [
        ("smbd", "v100", "smbd copies asynchronously, which NVIDIA V100", "from Ampere on"),
        ("smbd splits=9", "h200", "a row has 4 group tiles of 64 columns", "lower splits"),
        ("smbd cols=64 warps=1 splits=1", "h200", "316 registers a thread do not fit an SM", "raise warps"),
        ("smbd cols=24", "h200", "cols=24", "8, 16, 32, 64"),
        ("smbd warps=3", "h200", "warps=3", "1, 2, 4"),
    ],
)
def test_schedules_that_cannot_be(line: str, device: str, says: str, hint: str) -> None:
    with pytest.raises(ScheduleError) as e:
        sg.compile(sg.spmm(nested(100, 200), n=16), device=device, backend="emulator", schedule=line)
    assert says in str(e.value) and hint in (e.value.hint or "")

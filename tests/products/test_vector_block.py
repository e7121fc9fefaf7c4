"""Magicube's own product: exact for all types and words of its schedules, and what each word changes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.vectors import digits
from sparsegen.products import strided_cost
from sparsegen.products.strided import columns, plane_words
from tests.mutation.harness import score
from tests.nm_kit import formulas_hold
from tests.nvcc_kit import library, needs_nvcc
from tests.products.test_vectors import called
from tests.vectors_kit import exact, integers, kernel, launched, pairs, quantized

#: All pairs of the paper (section 4.4.3, table 4), and others that its digits make.
PAIRS = [
    ("i16", "i16"), ("i16", "i8"), ("i16", "i4"), ("i12", "i4"), ("i8", "i8"), ("i8", "i4"), ("i4", "i4"),
    ("u16", "i8"), ("u8", "u4"), ("i12", "u8"), ("u4", "i4"), ("i8", "i16"),
]  # fmt: skip
LINES = (
    "vector_block wide=32", "vector_block wide=64 prefetch=off", "vector_block wide=128 pad=off",
    "vector_block pad=off prefetch=off",
)  # fmt: skip


def drawn(kinds: tuple[str, str], shape: tuple[int, int, int], height: int = 8, **how: Any) -> tuple[Any, Any]:
    """A matrix and an x of these types; m, k and n."""
    m, k, n = shape
    x = integers(np.random.default_rng(k), kinds[1], (k, n), extreme=how.get("extreme", False))
    return quantized((m, k), kinds[0], height=height, seed=m, **how), x


@pytest.mark.parametrize(("kinds", "line"), list(product(PAIRS, LINES)))
def test_all_types_and_schedules_are_exact(kinds: tuple[str, str], line: str) -> None:
    w, x = drawn(kinds, (19, 150, 65))
    assert np.array_equal(called(w, x, line, "a100", x_dtype=kinds[1]), exact(w, x))


@pytest.mark.parametrize("kinds", [("i8", "i8"), ("i16", "i4"), ("i4", "i4")])
@pytest.mark.parametrize("height", [2, 4, 8])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 9, 1), (16, 33, 17), (37, 101, 40)])
def test_any_size_and_height(shape: tuple[int, int, int], height: int, kinds: tuple[str, str]) -> None:
    """With extreme values, whose sums wrap as on the hardware."""
    w, x = drawn(kinds, shape, height, kept=0.7 * height, extreme=True)
    assert np.array_equal(called(w, x, "vector_block", x_dtype=kinds[1]), exact(w, x))


@pytest.mark.parametrize(("kinds", "height"), list(product([("u16", "i8"), ("u16", "u16"), ("u8", "i4")], (2, 4))))
def test_digits_that_share_an_mma(kinds: tuple[str, str], height: int) -> None:
    """They take a half of the mma, or a quarter; sums are the same ones, and in f32 too."""
    w, x = drawn(kinds, (21, 90, 33), height)
    for line in ("vector_block stack=on", "vector_block stack=on prefetch=off pad=off"):
        assert np.array_equal(called(w, x, line, "a100", x_dtype=kinds[1]), exact(w, x))
    bias = np.arange(21, dtype="f4")
    y = called(w, x, "vector_block stack=on", "a100", x_dtype=kinds[1], y_dtype="f32", bias=bias, activation="relu")
    want = np.maximum(w.to_dense().astype("f8") @ x.astype("f8") + bias[:, None], 0)
    assert np.allclose(y, want, rtol=1e-6)

    def mma(stack: str) -> int:
        counts = kernel(sg.spmm(w, n=33, x_dtype=kinds[1]), f"vector_block wide=32 stack={stack}", "a100").counts()
        return sum(n for name, n in counts.items() if name.startswith("mma."))

    assert mma("off") == 2 * mma("on")


@pytest.mark.parametrize("height", [2, 4])
def test_digits_with_a_sign_share_an_mma(height: int) -> None:
    """As far as W has no number that they do not make: of 12 bits and x of 4, up to 7 * 273."""
    rng = np.random.default_rng(3)
    dense = rng.integers(-2048, 1912, (16, 70)).astype("i2")
    x = integers(rng, "i4", (70, 32))
    dense[0, :2] = -2048, 1911
    w = sg.sparse(dense, format="sr_bcrs", height=height, dtype="i12")
    assert np.array_equal(called(w, x, "vector_block stack=on", "a100", x_dtype="i4"), exact(w, x))
    dense[0, 0] = 1912
    more = sg.sparse(dense, format="sr_bcrs", height=height, dtype="i12")
    with pytest.raises(ScheduleError, match="make numbers up to 1911; W's largest is 1912"):
        kernel(sg.spmm(more, n=32, x_dtype="i4"), "vector_block stack=on", "a100")
    assert np.array_equal(called(more, x, "vector_block", "a100", x_dtype="i4"), exact(more, x))


def test_no_vector_and_rows_of_all_lengths() -> None:
    x = integers(np.random.default_rng(6), "i8", (400, 20))
    for line in LINES:
        empty = quantized((24, 400), kept=0)
        assert empty.nnz == 0 and not called(empty, x, line).any()
        dense = integers(np.random.default_rng(7), "i8", (40, 400))
        share = np.array([0.9, 0, 0.3, 0, 0.02])[:, None]
        dense[~np.repeat(np.random.default_rng(8).random((5, 400)) < share, 8, axis=0)] = 0
        w = sg.sparse(dense, format="sr_bcrs", height=8)
        assert np.array_equal(called(w, x, line), exact(w, x))


def test_more_columns_than_16_bits_count() -> None:
    dense = np.zeros((8, 70000), "i1")
    dense[:, [3, 65535, 65536, 69999]] = [[1], [-2], [3], [-128], [5], [6], [7], [127]]
    w = sg.sparse(dense, format="sr_bcrs", height=8)
    x = integers(np.random.default_rng(14), "i8", (70000, 16))
    k = kernel(sg.spmm(w, n=16), "vector_block wide=32")
    assert np.array_equal(k(x), exact(w, x)) and "const unsigned* __restrict__ idx" in k.source()


@pytest.mark.parametrize("order", ["row", "column"])
def test_orders_of_x_and_y_and_the_epilogue(order: str) -> None:
    rng, laid = np.random.default_rng(9), "C" if order == "row" else "F"
    w, x = quantized((24, 64), "i16", seed=7), integers(rng, "i8", (64, 34))
    scale, bias = rng.random(24, np.float32), rng.random(24, np.float32)
    residual = np.asarray(rng.random((24, 34), np.float32), order=laid)
    y = called(
        w, np.asarray(x, order=laid), "vector_block", scale=scale, bias=bias, residual=residual, y_dtype="f32",
        activation="silu",
    )  # fmt: skip
    v = scale[:, None] * (w.to_dense().astype("f8") @ x) + bias[:, None]
    with np.errstate(over="ignore"):
        assert np.allclose(y, v / (1 + np.exp(-v)) + residual, rtol=2e-5)


def test_two_elements_a_byte() -> None:
    w, x = quantized((24, 64), "i8", seed=7), integers(np.random.default_rng(8), "i4", (64, 32))
    assert np.array_equal(called(w, pairs(x), "vector_block", "a100", n=32, x_dtype="i4"), exact(w, x))


# ------------------------------------------------------------------------------------------------ what words change
def counted(kinds: tuple[str, str], line: str) -> dict[str, int]:
    """Counts of a product of 16 steps and 64 bytes of x's rows."""
    w = quantized((64, 64), kinds[0], kept=8.0)
    n = 64 * 8 // int(kinds[1][1:])
    return dict(kernel(sg.spmm(w, n=n, x_dtype=kinds[1]), f"vector_block wide=64 {line}", "a100").counts())


@pytest.mark.parametrize("kinds", [("i8", "i8"), ("i4", "i4")])
def test_padding_takes_four_way_conflicts_away(kinds: tuple[str, str]) -> None:
    """Section 4.2.2: eight words behind the rows that a lane turns."""
    plain, padded = (counted(kinds, f"pad={pad}") for pad in ("off", "on"))
    reads = {"i8": 32 * 2 * 4, "i4": 16 * 2 * 8}[kinds[0]]  # steps, warps, words of a lane
    assert plain["conflicts.shared"] == 3 * reads and padded.get("conflicts.shared", 0) == 0
    assert plain["mma." + {"i8": "s8.m8n8k16", "i4": "s4.m8n8k32"}[kinds[0]]] == reads // 4 * 4


def test_the_shuffle_turns_digits_of_4_bits_at_once() -> None:
    """Section 4.2.3: 8 operations for 16 digits, in the order 0, 2, 4, 6, 1, 3, 5, 7 of columns."""

    def operations(line: str) -> int:
        return sum(
            n for name, n in counted(("i4", "i4"), line).items() if name in ("and.u32", "or.u32", "shl.u32", "shr.u32")
        )

    sixteen = 16 * 2 * 4  # steps, warps, words of a lane's eight rows two by two
    assert operations("shuffle=on") == 8 * sixteen
    assert operations("shuffle=off") > 5 * operations("shuffle=on")
    w = quantized((8, 64), "i4", kept=8.0)
    assert columns(w, 4, True)[:8].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert columns(w, 4, False).tolist() == list(range(64))


def test_the_prefetch_hides_a_wait() -> None:
    on, off = (counted(("i8", "i8"), f"prefetch={word}") for word in ("on", "off"))
    steps, warps, rows = 4, 2, 8
    assert off["barrier"] == 2 * steps * warps * rows and on["barrier"] == (2 * steps + 1) * warps * rows
    costs = [
        kernel(sg.spmm(quantized((64, 640)), n=64), f"vector_block prefetch={word}").cost for word in ("on", "off")
    ]
    assert costs[0].terms["chain"] < costs[1].terms["chain"]


def test_values_are_those_of_sr_bcrs() -> None:
    """A matrix with that stride is read as it is: digits of 8 bits of W of 8 are its own bytes."""
    dense = integers(np.random.default_rng(4), "i8", (16, 48))
    w = sg.sparse(dense, format="sr_bcrs", height=8, stride=16)
    assert np.array_equal(plane_words(w, digits(w.kind)).view("i1"), w.values)
    other = sg.sparse(dense, format="sr_bcrs", height=8, stride=64)
    assert np.array_equal(plane_words(other, digits(w.kind)), plane_words(w, digits(w.kind)))


# ------------------------------------------------------------------------------------------------ the rest of the house
@pytest.mark.parametrize("kinds", [("i8", "i8"), ("i12", "i4"), ("i4", "i4")])
def test_everything_that_a_kernel_says(kinds: tuple[str, str], tmp_path: Path) -> None:
    k = kernel(sg.spmm(quantized((40, 70), kinds[0]), n=20, x_dtype=kinds[1]), "vector_block", "a100")
    assert "tile.multiply_step" in k.ir("tile") and str(k.schedule) in k.source()
    told = str(k.explain())
    assert "blocks of a vector row of 8 rows" in told
    assert {term["name"] for term in k.explain().data["terms"]} <= set(strided_cost.REASONS)
    assert "SR-BCRS" in Path(k.export(tmp_path / "product.cu")).with_suffix(".h").read_text()


def test_it_is_chosen_only_where_it_is_named() -> None:
    what = sg.spmm(quantized((64, 64)), n=64)
    assert (
        kernel(what).schedule.family != "vector_block"
        and kernel(what, "vector_block").schedule.family == "vector_block"
    )
    assert "vector_block" not in str(kernel(what).explain())


@pytest.mark.parametrize("device", ["h200", "a100"])
def test_the_formulas_are_what_is_chosen_by(device: str) -> None:
    for kinds in (("i8", "i8"), ("i16", "i4")):
        what = sg.spmm(quantized((40, 70), kinds[0]), n=20, x_dtype=kinds[1], y_dtype="f16")
        formulas_hold(kernel(what, line, device).cost for line in LINES)


@pytest.mark.parametrize(
    ("kinds", "height", "line", "device", "says", "hint"),
    [
        (("i8", "i8"), 8, "vector_block bits=4", "h200", "x of 8 bits has digits of 8", "bits=8"),
        (("i4", "i8"), 8, "vector_block", "h200", "W of 4 is none", "x_dtype='i4'"),
        (("i8", "i8"), 8, "vector_block", "v100", "which NVIDIA V100 (sm_70) has not", "cost model"),
        (("i8", "i8"), 8, "vector_block shuffle=on", "h200", "is for x of 4 bits", "shuffle=off"),
        (("u16", "i8"), 8, "vector_block stack=on", "h200", "W has 2 of 8 rows, an mma 8", "stack=off"),
        (("i8", "i8"), 4, "vector_block stack=on", "h200", "W has 1 of 4 rows", "stack=off"),
        (("i8", "i8"), 4, "vector_block wide=48", "h200", "wide=48", "32, 64, 128"),
    ],
)  # fmt: skip
def test_schedules_that_cannot_be(
    kinds: tuple[str, str], height: int, line: str, device: str, says: str, hint: str
) -> None:
    what = sg.spmm(quantized((16, 32), kinds[0], height), n=16, x_dtype=kinds[1])
    with pytest.raises(ScheduleError) as e:
        kernel(what, line, device)
    assert says in str(e.value) and hint in (e.value.hint or "")


@pytest.mark.parametrize(("prefetch", "many"), [("on", 3), ("off", 2)])
def test_nothing_that_orders_is_redundant(prefetch: str, many: int) -> None:
    what: Any = sg.spmm(quantized((16, 70), kept=4.0), n=64)
    func, arguments, wanted = launched(what, f"vector_block wide=64 prefetch={prefetch}")
    killed, survivors = score(func, arguments, {"y": wanted}, rtol=0)
    print(f"{killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == many and not survivors


@needs_nvcc
@pytest.mark.parametrize(("device", "arch"), [("a100", "sm_80"), ("rtx4090", "sm_89"), ("h200", "sm_90a")])
def test_no_spills(device: str, arch: str, tmp_path: Path) -> None:
    for i, (kinds, height, line) in enumerate((
        (("i16", "i16"), 8, "vector_block wide=128"), (("i16", "i4"), 4, "vector_block wide=64 shuffle=off"),
        (("u16", "u4"), 2, "vector_block stack=on"),
    )):  # fmt: skip
        w = quantized((64, 256), kinds[0], height, kept=4.0)
        k = kernel(sg.spmm(w, n=256, x_dtype=kinds[1], y_dtype="f16", bias=True), line, device)
        library(k.export(tmp_path / f"k{i}.cu"), arch)

"""Schedules of sparse products: text there and back, words left out, which schedule is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.families.spmm.dense import DENSE
from sparsegen.products.geometry import COLUMNS, MMA
from sparsegen.registry import families
from sparsegen.schedule import SpmmSchedule
from tests.products_kit import matrix


def numbers(name: str) -> st.SearchStrategy[int | None]:
    word = families("spmm")["bitmap"].by_name[name]
    return st.none() | st.integers(word.low, word.high)


SCHEDULES = st.one_of(
    st.just(DENSE),
    st.builds(
        SpmmSchedule, st.just("bitmap"), st.sampled_from([None, *(s for s in MMA if s != "none")]),
        st.sampled_from([None, *COLUMNS]), st.none() | st.tuples(st.integers(1, 4), st.integers(1, 8)),
        numbers("rows"), numbers("stages"), numbers("splits"),
    ),
)  # fmt: skip


@given(SCHEDULES)
def test_text_there_and_back(s: SpmmSchedule) -> None:
    assert SpmmSchedule.parse(str(s)) == s and SpmmSchedule.parse(f"  {s}  ") == s
    assert s.complete == (s == DENSE or str(s).count("=") == 6)


def test_the_words_of_a_line() -> None:
    line = "bitmap mma=f16.m16n8k16 cols=16 warps=2x8 rows=7 stages=2 splits=1"
    s = SpmmSchedule.parse(line)
    assert str(s) == line and s.complete and s.threads == 512
    assert str(SpmmSchedule.parse("bitmap stages=3 cols=8")) == "bitmap cols=8 stages=3"
    assert str(SpmmSchedule.parse("bitmap mma=none cols=1")) == "bitmap mma=none cols=1"


@pytest.mark.parametrize("line", ["bitmap", "bitmap rows=2", "bitmap cols=8 warps=3x2 splits=2", "bitmap stages=5"])
def test_the_model_chooses_what_a_line_leaves_out(line: str) -> None:
    product = sg.spmm(matrix(300, 500), n=20)
    k = sg.compile(product, device="h200", backend="emulator", schedule=line)
    assert k.schedule.complete and set(line.split()) <= set(str(k.schedule).split())
    assert sg.compile(product, device="h200", backend="emulator", schedule=str(k.schedule)).schedule == k.schedule
    if line == "bitmap":
        automatic = sg.compile(product, device="h200", backend="emulator")
        assert automatic.schedule == k.schedule and "chosen" in automatic.explain()


def test_the_weights_choose_the_mma() -> None:
    for dtype in ("f16", "bf16"):
        k = sg.compile(sg.spmm(matrix(64, 64, dtype=dtype), n=8), device="h200", backend="emulator")
        assert k.schedule.mma == f"{dtype}.m16n8k16"


def test_schedules_are_listed_cheapest_first() -> None:
    product = sg.spmm(matrix(400, 500), n=16)
    costs = sg.schedules(product, device="h200")
    assert [round(c.time, 9) for c in costs] == sorted(round(c.time, 9) for c in costs)
    best = next(c for c in costs if c.schedule != DENSE)
    assert sg.compile(product, device="h200", backend="emulator").schedule == best.schedule


def test_dense_where_the_format_leaves_it_open() -> None:
    """No zeros and many columns: dense is faster. Only ``format="auto"`` lets the model choose it."""
    shape, n = (2048, 2048), 256
    fixed = sg.compile(sg.spmm(matrix(*shape, 0.0), n=n), device="h200", backend="emulator")
    assert fixed.schedule.family in ("bitmap", "bitmap_block")
    assert "dense is " in fixed.explain() and "format='auto'" in fixed.explain()
    free = sg.compile(sg.spmm(matrix(*shape, 0.0, format="auto"), n=n), device="h200", backend="emulator")
    assert str(free.schedule) == "dense" and free.workspace_nbytes == 0
    text = free.explain()
    assert "dense was chosen as the faster one" in text and "bitmap" in text and free.cost.time < fixed.cost.time
    named = sg.compile(sg.spmm(matrix(*shape, 0.0), n=n), device="h200", backend="emulator", schedule="dense")
    assert "given, not chosen" in named.explain()
    sparse = sg.compile(sg.spmm(matrix(2048, 2048, 0.6, format="auto"), n=8), device="h200", backend="emulator")
    assert sparse.schedule.family == "bitmap" and "times faster" in sparse.explain()


def test_a_saved_matrix_still_leaves_it_open(tmp_path: Path) -> None:
    for format in ("auto", "bitmap"):
        w = matrix(20, 70, format=format)
        w.save(tmp_path / "w")
        assert w.format == "bitmap" and w.auto == sg.load(tmp_path / "w").auto == (format == "auto")

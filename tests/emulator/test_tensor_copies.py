"""Copies of boxes of a matrix: what lands where, zeros outside, and what must stand around them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulator_kit import faulty, glob, kernel, shared

from sparsegen.backends.emulator import ALL, run
from sparsegen.ir import warp as w
from sparsegen.ir.expr import Const
from sparsegen.ir.swizzle import k_major, tile_bytes
from sparsegen.ir.tensor_copy import TensorCopy, TensorMap
from sparsegen.ir.types import f16, f32, u64
from sparsegen.ir.verify import verify
from tests.programs.mutants import deletions, symptoms, weaker
from tests.programs.run import on_emulator
from tests.programs.tensor_copies import PROGRAMS, Boxes

SMALL = PROGRAMS["f16_64"]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", PROGRAMS)
def test_boxes(name: str, seed: int) -> None:
    case = PROGRAMS[name].case(seed)
    verify(case.func)
    assert not case.wrong(on_emulator(case, seed=seed))


def test_what_is_counted() -> None:
    """Copies by their instructions; bytes that come from the matrix, zeros left out."""
    boxes = Boxes(TensorMap(20, 40, 40, (16, 32), 64), row=-6, down=13, turns=2, grid=2)
    report = run(boxes.func(), boxes.case().fresh())
    assert report.counts["tensor_copy"] == 4
    assert report.counts["bytes.tensor"] == (10 + 13) * 2 * (24 + 24)


def test_a_box_is_the_tile_of_a_product() -> None:
    """A swizzled box of 64 columns of k lies as the descriptor of a product reads it."""
    (places,) = TensorMap(64, 64, 64, (64, 64), 128).layout(2).tables()
    for step in range(4):
        found = tile_bytes(64, k_major(128), "k", 32 * step) // 2
        assert (found == places[:, 16 * step : 16 * step + 16]).all()


def test_nothing_can_be_left_out() -> None:
    case = SMALL.case()
    for name, func in (*deletions(case.func), *weaker(case.func)):
        assert symptoms(case, func), name


@pytest.mark.parametrize(("part", "kind", "message"), [
    ("init", "async", "a tensor copy uses @full[0], whose initialisation is not fenced"),
    ("wait", "async", "while a bulk copy into it is in flight"),
    ("barrier", "race", "tensor copy of @ring"),
])  # fmt: skip
def test_what_must_stand_there(part: str, kind: str, message: str) -> None:
    case = replace(SMALL, without=frozenset({part})).case()
    report = run(case.func, case.fresh())
    assert kind in report.kinds() and any(message in e.message for e in report.errors), str(report)


def test_bytes_land_late_and_zeros_count() -> None:
    """Without the wait nothing is there yet; a box of zeros alone ends its phase as any other."""
    case = replace(SMALL, without=frozenset({"wait"}), turns=2).case()
    args = case.fresh()
    assert run(case.func, args, checks=ALL - {"async", "uninit", "race"}).ok
    assert np.isnan(args["out"]).all()
    outside = replace(SMALL, row=60, grid=1, turns=1).case()
    assert not outside.want["out"].any() and not outside.wrong(on_emulator(outside))


MAP = TensorMap(16, 32, 32, (8, 16), 32)


def one(at: int = 0, bar: int = 0, col: int = 0, align: int = 256, *, wait: bool = True, stores: bool = False) -> Any:
    """A kernel of one warp, whose lane 0 copies a box."""
    full, ring = shared("full", u64, 1, 8), shared("ring", f16, 256, align)

    def body(b: Any, v: Any) -> None:
        for i in range(8 if stores else 0):
            b.st(ring, v.lane + 32 * i, b.const(f16, 1.0))
        if stores:
            b.sync()
        with b.if_(v.lane.eq(0)):
            b.emit(w.MbarInit(full, Const(0), 1))
            b.fence("mbar_init")
            b.emit(w.MbarArrive(full, Const(0), Const(256)))
            b.emit(TensorCopy(ring, v.lane + at, glob("x", f16, 512), Const(0), v.lane + col, full, v.lane + bar, MAP))
        b.sync()
        if wait:
            b.mbar_wait(full, 0, 0)

    return kernel(body, (glob("x", f16, 512),), (full, ring))


@pytest.mark.parametrize(("how", "kind", "remedy"), [
    ({"at": 64}, "bounds", "places of boxes to 256 bytes"),
    ({"at": 256, "wait": False}, "bounds", "enlarge the buffer"),
    ({"bar": 1, "wait": False}, "bounds", "enlarge the buffer"),
    ({"align": 128}, "bounds", "align the buffer"),
    ({"wait": False}, "async", "wait for its mbarrier"),
    ({"stores": True}, "async", "fence async after the stores"),
])  # fmt: skip
def test_errors_and_remedies(how: dict[str, Any], kind: str, remedy: str) -> None:
    verify(one())
    assert run(one(), {"x": np.zeros(512, np.float16)}).ok
    faulty(one(**how), kind, remedy)


def test_an_array_at_no_multiple_of_16_bytes() -> None:
    faulty(one(), "bounds", "multiple of 16 bytes", align={"x": 8})


def test_a_column_at_no_multiple_of_16_bytes() -> None:
    faulty(one(col=4), "bounds", "let boxes begin at such columns")


def test_lanes_that_copy_to_one_place() -> None:
    """Two lanes, two copies of the same place: a race, and more bytes than are expected."""
    full, ring, x = shared("full", u64, 1, 8), shared("ring", f32, 64, 256), glob("x", f32, 256)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.lane.eq(0)):
            b.emit(w.MbarInit(full, Const(0), 1))
            b.fence("mbar_init")
            b.emit(w.MbarArrive(full, Const(0), Const(512)))
        b.sync()
        with b.if_(v.lane.lt(2)):
            b.emit(TensorCopy(ring, Const(0), x, Const(0), Const(0), full, Const(0), TensorMap(16, 16, 16, (8, 8), 32)))
        b.mbar_wait(full, 0, 0)

    report = run(kernel(body, (x,), (full, ring)), {"x": np.zeros(256, np.float32)})
    assert report.kinds() == {"race"}, str(report)

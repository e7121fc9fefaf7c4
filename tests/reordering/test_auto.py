"""``alpha="auto"`` and ``delta="auto"``, what a plan expects, and its picture."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench.generated import clustered, uniform
from sparsegen.formats import Hybrid, load
from sparsegen.formats.hybrid import hybrid
from sparsegen.formats.rows import rows_of
from sparsegen.ir.errors import DeviceError, FormatError
from sparsegen.products.tiling import ALPHAS, DELTAS, expected
from sparsegen.reordering.picture import density
from tests.refusals import refusal
from tests.reordering.matrices import dense

W = dense(clustered(1024, 1024, group=32, blocks=3, fill=0.6, noise=0.004)).astype(np.float16)
PLAIN = dense(uniform(512, 640, 8)).astype(np.float16)


def made(w: Any, **options: Any) -> Hybrid:
    found = sg.sparse(w, "hybrid", **options)
    assert isinstance(found, Hybrid)
    return found


def shares(w: Hybrid) -> tuple[float, float]:
    said = dict(w.spec.options)
    return said["alpha"], said["delta"]


# ---------------------------------------------------------------------------------------------------------- the choice
@pytest.mark.parametrize(("columns", "device"), [(128, "h200"), (512, "a100")])
def test_no_shares_that_are_tried_are_expected_sooner(columns: int, device: str) -> None:
    chosen = made(W, alpha="auto", delta="auto", columns=columns, device=device)
    every = {
        (alpha, delta): expected(made(W, alpha=alpha, delta=delta), columns, device).seconds["hybrid"]
        for alpha in ALPHAS
        for delta in DELTAS
    }
    own = expected(chosen, columns, device).seconds["hybrid"]
    assert own == every[shares(chosen)] == min(every.values()) < 0.99 * max(every.values())
    assert np.array_equal(chosen.to_dense(), W)
    chosen.check()


def test_what_is_given_stays() -> None:
    for given in ({"alpha": 0.4}, {"delta": 0.25}):
        left: Any = {"alpha": "auto", "delta": "auto", **given}
        alpha, delta = shares(made(W, **left))
        assert {"alpha": alpha, "delta": delta}.items() >= given.items()
        assert (alpha in (0.4, *ALPHAS)) and (delta in (0.25, *DELTAS))


def test_columns_and_device_decide() -> None:
    """Tiles that are hardly filled pay for many columns only; and Ampere's balance is another one."""
    w = dense(clustered(1024, 2048, group=8, blocks=8, fill=0.3, noise=0.003)).astype(np.float16)
    few, many = (made(w, delta="auto", columns=n, device="h200") for n in (128, 512))
    assert few.tiles != many.tiles
    assert shares(made(w, delta="auto", columns=512)) == shares(many)
    assert dict(many.spec.options)["columns"] == 512


def test_reorder_chooses_the_same() -> None:
    chosen = made(W, alpha="auto", delta="auto", device="h200")
    order = sg.reorder(W, alpha="auto", delta="auto", device="h200")
    assert (order.alpha, order.delta) == shares(chosen)
    assert np.array_equal(order.permutation, chosen.order) and order.permutation.dtype == np.int64
    plain = sg.reorder(W, alpha=order.alpha, delta=order.delta)
    assert (plain.clusters, plain.after) == (order.clusters, order.after)
    assert order.report() == f"{plain.report()}\n{order.expected}"
    assert order.expected == chosen.plan(device="h200").split("rest: ")[1].partition("\n")[2]
    assert sg.reorder(W.astype(np.float32), alpha="auto", delta="auto", device="h200").report() == order.report()


def test_other_methods_have_a_delta_to_choose() -> None:
    order = sg.reorder(W, "none", delta="auto", device="h200")
    assert order.delta in DELTAS and order.permutation.tolist() == list(range(1024))


def test_where_no_tile_pays_the_report_says_so() -> None:
    order, w = sg.reorder(PLAIN, alpha="auto", delta="auto"), made(PLAIN, alpha="auto", delta="auto")
    assert w.tiles == 0 and "no dense tile pays: csr takes 0." in order.report()
    assert w.plan().splitlines()[-1] == order.expected.splitlines()[-1]
    assert "dense tiles pay" not in order.report()
    big = dense(clustered(4096, 4096, group=64, blocks=6, fill=0.7)).astype(np.float16)
    assert re.search(r"dense tiles pay: (csr|dense) takes [2-4]\.\d+ times as long$", made(big).plan(512, "h200"))


def test_matrices_without_entries() -> None:
    w = made(np.zeros((40, 50), np.float16), alpha="auto", delta="auto")
    assert w.tiles == w.rest == 0 and "no dense tile pays" in w.plan()
    assert sg.reorder(np.zeros((40, 50)), delta="auto").expected


def test_files_hold_what_was_chosen(tmp_path: Path) -> None:
    w = made(W, alpha="auto", delta="auto", columns=64)
    w.save(tmp_path / "w")
    for again in (load(tmp_path / "w"), pickle.loads(pickle.dumps(w))):
        assert isinstance(again, Hybrid) and again.spec == w.spec and again.plan() == w.plan()
        assert "expected with 64 columns" in again.plan()
    order = sg.reorder(W, delta="auto")
    order.save(tmp_path / "order")
    assert sg.Reordering.load(tmp_path / "order").report() == order.report()


def test_a_file_that_leaves_the_choice_open_is_refused(tmp_path: Path) -> None:
    w = made(W)
    w.spec = hybrid(w.kind, delta="auto")
    w.save(tmp_path / "w")
    with pytest.raises(FormatError, match="still to be chosen"):
        load(tmp_path / "w")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"alpha": "Auto"}, FormatError, "alpha='Auto' is outside 0..1"),
        ({"delta": "best"}, FormatError, "delta='best' is outside 0..1"),
        ({"device": "h200"}, FormatError, "device='h200' says whose cost model chooses"),
        ({"columns": 0}, FormatError, "columns=0"),
        ({"delta": "auto", "columns": 1.5}, FormatError, "columns=1.5"),
        ({"delta": "auto", "device": "h2000"}, DeviceError, "h2000"),
        ({"delta": "auto", "tile": 8}, FormatError, "dense tiles of 8 x 8"),
        ({"delta": "auto", "device": "v100"}, FormatError, "V100"),
    ],
)
def test_bad_options(options: dict[str, Any], error: Any, says: str) -> None:
    refusal(__file__, error, lambda: sg.sparse(W, "hybrid", **options), says)  # here
    refusal(__file__, error, lambda: sg.reorder(W, **options), says)  # here


def test_f32_is_expected_to_keep_what_it_has() -> None:
    """Shares are chosen for products without a word of precision, which cost more than in tf32, and the plan has their
    time."""
    w = made(W.astype(np.float32), tile=32, delta="auto", device="h200")
    exact, rounded = (
        min(c.time for c in sg.schedules(sg.spmm(w, 128, **how), device="h200") if c.schedule.family == "hybrid")
        for how in ({}, {"precision": "tf32"})
    )
    assert w.tiles and expected(w, 128, "h200").seconds["hybrid"] == exact > rounded
    assert "on NVIDIA H200: hybrid " in w.plan(device="h200") and "precision" not in w.plan()


# ------------------------------------------------------------------------------------------------------------- the plan
def test_plan_says_what_is_expected() -> None:
    pytest.importorskip("scipy.sparse")
    w = made(W)
    said = w.plan(columns=512, device="a100")
    assert "expected with 512 columns on NVIDIA A100: hybrid " in said and said != w.plan(128, "h200")
    found = expected(w, 512, "a100").seconds
    lists = sg.sparse(w.to_scipy(), format="csr", dtype="f16")
    for name, product in (("hybrid", sg.spmm(w, 512)), ("csr", sg.spmm(lists, 512))):
        costs = sg.schedules(product, device="a100")
        assert found[name] == min(cost.time for cost in costs if cost.schedule.family != "dense")
        assert found["dense"] == min(cost.time for cost in costs if cost.schedule.family == "dense")
    refusal(__file__, FormatError, lambda: w.plan(columns=0), "columns=0")  # here
    refusal(__file__, DeviceError, lambda: w.plan(device="none"), "none")  # here


def cells(picture: str, kind: str) -> list[int]:
    """How many cells of a class each of the two panels has."""
    panels = re.findall(r"<g [^>]*>(.*?)</g>", picture, re.DOTALL)
    return [sum(path.count("M") for path in re.findall(f'class="{kind}"[^>]* d="([^"]*)"', each)) for each in panels]


def test_picture_marks_dense_tiles(tmp_path: Path) -> None:
    w = made(W)
    plan = w.plan()
    picture = plan.svg()
    rows = rows_of(W)
    before, after = (density(rows, order, 32) for order in (np.arange(1024), w.order))
    assert (before == W.reshape(32, 32, 32, 32).sum((1, 3))).all()
    limit = 0.3 * 32 * 32
    assert cells(picture, "f1") == [int((field > limit).sum()) for field in (before, after)] == [0, w.tiles]
    assert cells(picture, "f0") == [int(((field > 0) & (field <= limit)).sum()) for field in (before, after)]
    assert str(plan) == plan and plan._repr_svg_() == picture and "1,024 x 1,024" in picture
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan and again.svg() == picture and minidom.parseString(picture)
    assert plan.save(tmp_path / "w.svg").read_text(encoding="utf-8") == picture
    assert plan.save(tmp_path / "w.txt").read_text(encoding="utf-8") == f"{plan}\n"
    refusal(__file__, FormatError, lambda: plan.save(tmp_path / "w.png"), "as .png", ".svg")  # here


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (5000, 7), (3, 20000), (4, 4)])
def test_pictures_of_odd_shapes(shape: tuple[int, int]) -> None:
    w = np.zeros(shape, np.float16)
    empty = made(w).plan().svg()
    assert cells(empty, "f0") == cells(empty, "f1") == [0, 0]
    w[-1, -1] = w[0, 0] = 1
    picture = made(w, delta=1.0).plan().svg()
    assert cells(picture, "f1") == [0, 0] and all(1 <= count <= 2 for count in cells(picture, "f0"))

"""Suite ``stencil``: its cases, and the tables and the picture that its results make."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import cli
from sparsegen.bench import picture, report, stencil_run, stencils, tables
from sparsegen.bench.stencil_run import COPIES, Case, Row, labels
from sparsegen.ir.errors import ArrayError

HEAD: report.Result = {
    "device": "NVIDIA X", "driver": "1.2", "nvcc": "13.0", "python": "3.12", "sparsegen": "0.1",
    "commit": "0123456789abcdef", "dirty": False, "sources": "feed", "date": "2026-11-20 12:00 UTC", "seconds": 0.1,
    "cold": False, "seed": 1, "tolerance": {"f64": 1e-12, "f32": 1e-5},
}  # fmt: skip


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Case]]:
    return {part: stencils.cases([part]) for part in stencils.PARTS}


def rate(case: Case) -> float:
    """What a made-up GPU reaches: copies 250, f32 twice f64, a border 80 %, else the figure to reach plus 1."""
    if case.schedule in COPIES:
        return 250.0 + COPIES.index(case.schedule)
    if case.steps == 1:
        return 240.0
    forms = (*stencils.FORMS, stencils.WIDE)
    form = next(f for f in forms if f.name == case.name.partition(",")[0])
    share = {"f32": 2.0, "f64": 1.0}[case.stencil.dtype] * (1.0 if case.stencil.boundary == sg.periodic else 0.8)
    return (case.target or form.least + 1) * share


def measured(cases: list[Case]) -> list[Row]:
    rows, rates = [], dict[Case, float]()
    for case in cases:
        rates[case] = value = rate(case)
        now = stencil_run.relative(case, rates)
        time = math.prod(case.shape) * case.steps / value / 1e9
        row = Row(**labels(now, case.schedule), median_s=time, p10=time * 0.9, p90=time * 1.1, gs_per_s=value)
        ok = now.target is None or value >= now.target
        rows.append(replace(row, predicted_gs=value * 1.1, bound="fma", error=1e-15, ok=ok))
    return rows


@pytest.fixture(scope="module")
def found(cases: dict[str, list[Case]]) -> report.Result:
    rows = [row for part in cases.values() for row in measured(part)]
    rows[0] = replace(rows[0], floor=4000.0, floor_by="by_hand v", sustained_gs=4321.0)
    return report.result("stencil", rows, HEAD)


def test_the_targets_are_the_issues(cases: dict[str, list[Case]]) -> None:
    rows = [(c.name, c.shape, c.target, c.aim) for c in cases["targets"]]
    line, square, cube = (102_400_000,), (10240, 10240), (768, 768, 768)
    assert rows == [
        ("Heat-1D", line, 4500, 6000), ("1D5P", line, 2250, 3000), ("Heat-2D", square, 1250, 1800),
        ("Box-2D9P", square, 870, 1250), ("Star-2D13P", square, 445, 620), ("Box-2D49P", square, 220, 290),
        ("Heat-3D", cube, 545, 750), ("Box-3D27P", cube, 260, 380), ("Box-2D9P, tensor cores", square, 780, None),
    ]  # fmt: skip
    assert "mma=" in cases["targets"][-1].schedule and cases["targets"][-1].floor == "stencil_tc_floor:Box-2D9P"
    assert {c.schedule for part in cases.values() for c in part} == {"auto", *COPIES, cases["targets"][-1].schedule}


def test_every_shape_has_its_points_and_general_weights() -> None:
    points = {"Heat-1D": 3, "1D5P": 5, "Heat-2D": 5, "Box-2D9P": 9, "Star-2D13P": 13, "Box-2D49P": 49, "Heat-3D": 7,
              "Box-3D27P": 27}  # fmt: skip
    for form in stencils.FORMS:
        st = stencils.stencil(form.name)
        w = st.weights
        assert st.points == points[form.name] and (w >= 0).all() and w.sum() == pytest.approx(1, abs=1e-15)
        assert len(np.unique(w[w > 0])) == st.points
        assert st.kind == ("star" if form.star else "box")


def test_what_a_case_is_compared_with_differs_in_one_thing(cases: dict[str, list[Case]]) -> None:
    counts = {part: sum(c.share is not None for c in each) for part, each in cases.items()}
    assert counts == {"targets": 0, "boundaries": 24, "odd": 8, "f32": 8, "single": 8, "wide": 0, "sweep": 0}
    for part, each in cases.items():
        for case in each:
            assert case.part == part and (case.check == 100 or case.schedule in COPIES)
            if case.share is None:
                continue
            assert case.target is None and all(each.index(other) < each.index(case) for other in case.share.of)
            for other in case.share.of:
                same = {key for key in ("name", "shape", "steps") if getattr(case, key) == getattr(other, key)}
                same |= {key for key in ("dtype", "sides") if getattr(case.stencil, key) == getattr(other.stencil, key)}
                differs = {"boundaries": {"sides"}, "odd": {"shape"}, "f32": {"dtype"}, "single": {"name"}}[part]
                assert {"name", "shape", "steps", "dtype", "sides"} - same == differs


@pytest.mark.parametrize("name", [f.name for f in stencils.FORMS if len(f.edges) == 2])
def test_the_cases_compile_in_whole_passes(name: str, cases: dict[str, list[Case]]) -> None:
    for part in ("targets", "single"):
        for case in (c for c in cases[part] if c.name == name):
            k = sg.compile(case.stencil, case.shape, case.steps, "h200", "emulator", case.schedule)
            assert case.steps % k.schedule.steps == 0


def test_the_sweep_goes_from_small_to_large(cases: dict[str, list[Case]]) -> None:
    shapes = [(c.name, c.shape) for c in cases["sweep"]]
    assert ("Heat-2D", (256, 256)) in shapes and ("Box-2D9P", (16384, 16384)) in shapes and len(set(shapes)) == 28
    assert {s for n, s in shapes if n == "Heat-1D"} == {(2**n,) for n in range(14, 29, 2)}
    assert {s for n, s in shapes if n == "Heat-3D"} == {(2**n,) * 3 for n in range(5, 11)}


# ------------------------------------------------------------------------------------------------------------- results
def test_the_command_line_knows_the_parts() -> None:
    assert set(stencils.PARTS) <= {*tables.VIEWS["stencil"]}
    args = cli.parser().parse_args(["bench", "--suite", "stencil", "--part", "odd", "--part", "f32", "--floor", "a b"])
    assert (args.part, args.floor) == (["odd", "f32"], ["a b"])


def test_a_part_replaces_its_own_rows_only(cases: dict[str, list[Case]], found: report.Result) -> None:
    later = {**HEAD, "commit": "f" * 40, "date": "2026-12-01 12:00 UTC"}
    new = report.result("stencil", measured(cases["odd"])[:3], later)
    both = report.merged(found, new)
    assert set(both["parts"]) == set(stencils.PARTS) and both["commit"] == "f" * 40
    assert [r for r in both["rows"] if r["part"] == "odd"] == new["rows"]
    assert [r for r in both["rows"] if r["part"] != "odd"] == [r for r in found["rows"] if r["part"] != "odd"]
    assert "commit ffffffffff, 2026-12-01" in report.markdown(both, "odd")
    assert report.markdown(both, "goals").splitlines()[-1] == report.markdown(found, "goals").splitlines()[-1]
    assert report.markdown(both, "shares").count("commit") == 2
    assert report.merged(new, found)["rows"] == found["rows"]
    with pytest.raises(ArrayError, match="result of stencil is there"):
        report.merged(found, {**new, "suite": "spine"})


def test_goals(found: report.Result) -> None:
    head, *body = tables.VIEWS["stencil"]["goals"](found)
    assert body[0][:8] == ["Heat-1D", "102400000", "4500", "6000", "4500", "4321", "1.12", "4950"]
    assert len(body) == 9 and body[-1][0] == "Box-2D9P, tensor cores" and len({len(row) for row in [head, *body]}) == 1


def test_shares(found: report.Result) -> None:
    head, least, *body = tables.VIEWS["stencil"]["shares"](found)
    assert head == ["stencil", "frozen", "dirichlet(0.5)", "neumann", "odd size", "f32", "one step"]
    assert least == ["at least", "0.85", "0.85", "0.85", "0.9", "1.7", "0.9"]
    assert body[2] == ["Heat-2D", "0.80 ✗", "0.80 ✗", "0.80 ✗", "1.00", "2.00", "0.96"]  # 240 of the faster copy
    assert [row[0] for row in body] == [form.name for form in stencils.FORMS]


def test_details_and_failures(cases: dict[str, list[Case]], found: report.Result) -> None:
    text = report.markdown(found, "boundaries")
    assert "1001 ✗" in text and "1063 (0.85 of periodic)" in text
    broken = [Row(**labels(case, case.schedule), failed="ValueError: no") for case in cases["single"]]
    lost = report.merged(found, report.result("stencil", broken, HEAD))
    assert report.text(lost).count("ValueError: no") == 14 and "failed" in report.markdown(lost, "shares")


def test_the_result_is_json(found: report.Result, tmp_path: Path) -> None:
    report.save(found, tmp_path / "stencil.json")
    again = report.load(tmp_path / "stencil.json")
    assert again == json.loads(json.dumps(found)) and report.text(again) == report.text(found)


# ------------------------------------------------------------------------------------------------------------- picture
def numbers(points: str) -> list[tuple[float, float]]:
    pairs = (pair.split(",") for pair in points.split())
    return [(float(x), float(y)) for x, y in pairs]


def test_the_picture_has_every_point_at_its_place(cases: dict[str, list[Case]]) -> None:
    rows = [replace(row, gs_per_s=10.0 ** (1 + len(row.shape)), predicted_gs=10.0) for row in measured(cases["sweep"])]
    text = picture.svg(report.result("stencil", rows, HEAD))
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    titled = [c for c in root.iter(f"{space}circle") if c.find(f"{space}title") is not None]
    assert len(titled) == 28 and "commit 0123456789" in text and text.count("1-D, f64, periodic") == 1
    heights = {float(c.attrib["cy"]) for c in titled}
    assert heights == {round(picture.TOP + picture.HEIGHT * share, 1) for share in (0, 1 / 3, 2 / 3)}
    lines = [numbers(p.attrib["points"]) for p in root.iter(f"{space}polyline") if "stroke-dasharray" in p.attrib]
    assert [len(line) for line in lines] == [8, 7, 7, 6]
    assert {y for line in lines for _, y in line} == {float(picture.TOP + picture.HEIGHT)}  # the model's 10 GS/s
    for line in lines:  # sizes are powers of one number: equal steps
        steps = np.diff([x for x, _ in line])
        assert steps.min() > 0 and np.ptp(steps) < 0.3
    assert all(0 <= x <= float(root.attrib["width"]) for line in lines for x, _ in line)


def test_the_picture_of_nothing_is_a_picture_too(found: report.Result) -> None:
    empty: dict[str, Any] = {**found, "rows": [r for r in found["rows"] if r["part"] != "sweep"]}
    assert ElementTree.fromstring(picture.svg(empty)) is not None


def test_documents_link_to_the_picture(found: report.Result, tmp_path: Path) -> None:
    mark = "<!-- bench:stencil picture -->\nold\n<!-- end -->\n"
    folder = tmp_path / "docs" / "bench"
    assert "Not measured" in report.render(mark, folder, tmp_path)
    report.save(found, folder / "stencil.json")
    link = re.compile(r"!\[[^]]+\]\(([^)]+)\)")
    assert link.findall(report.render(mark, folder, tmp_path)) == ["docs/bench/stencil.svg"]
    assert link.findall(report.render(mark, folder, folder)) == ["stencil.svg"]

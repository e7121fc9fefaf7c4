"""Results: their JSON, the tables made from it, and that README shows the committed ones."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import sparsegen as sg
from sparsegen.bench import ablation, harness, models, report, suites
from sparsegen.bench.lab import Timing
from sparsegen.bench.stencil_run import Case, Row, labels
from sparsegen.ir.errors import ArrayError

ROOT = Path(__file__).resolve().parents[2]


def row(case: Case, rate: float = 300.0, error: float = 1e-16) -> Row:
    measured = Row(**labels(case, case.schedule), median_s=1e-3, p10=0.9e-3, p90=1.2e-3, repeats=100, gs_per_s=rate)
    ok = error <= 1e-12 and (case.target is None or rate >= case.target)
    return replace(measured, predicted_gs=310.0, bound="hbm", regs=64, spills=0, smem=1024, error=error, ok=ok)


def result(suite: str, rows: list[Row]) -> report.Result:
    found = dict.fromkeys(report.KEYS)
    found |= {"format": report.FORMAT, "suite": suite, "device": "NVIDIA X", "driver": "1.2", "nvcc": "13.0"}
    found |= {"sparsegen": "0.1", "commit": "0123456789abcdef", "dirty": False, "sources": "feed", "cold": False}
    return {**found, "date": "2026-11-20 12:00 UTC", "rows": [r.as_json() for r in rows]}


@pytest.fixture
def spine() -> report.Result:
    rows = [row(case, 300 if case.target and case.target < 300 else 250) for case in suites.spine(quick=True)]
    return result("spine", [*rows, Row(**labels(suites.spine()[0], "direct"), failed="ValueError: no")])


def test_json_round_trip(spine: report.Result, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "spine.json"
    report.save(spine, file)
    found = report.load(file)
    assert set(found) == set(report.KEYS)
    assert all(set(r) == set(Row.__dataclass_fields__) for r in found["rows"])
    assert report.text(found) == report.text(json.loads(json.dumps(spine)))


def test_a_broken_result_is_json_too(tmp_path: Path) -> None:
    broken = row(suites.spine(True)[0], error=math.inf)
    assert not broken.ok
    report.save(result("spine", [broken]), tmp_path / "r.json")
    text = report.text(report.load(tmp_path / "r.json"))
    assert "inf" in text and "✗" in text


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"format": 0}'])
def test_what_is_no_result_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(ArrayError):
        report.load(tmp_path / "r.json")


def test_origin_says_what_is_not_known() -> None:
    assert str(report.Origin(None, None, "abc")) == "no commit known, sources abc"
    assert "uncommitted" in str(report.Origin("f" * 40, True, "abc"))
    assert "uncommitted" not in str(report.Origin("f" * 40, False, "abc"))
    here = report.origin()
    assert len(here.sources) == 16 and (here.commit is None or len(here.commit) == 40)


def test_tables(spine: report.Result) -> None:
    text = report.markdown(spine)
    lines = text.splitlines()
    assert lines[0] == "| stencil | size | schedule | at least | periodic |"
    assert lines[2].startswith("| Heat-2D | 10240×10240 | `tiled ") and lines[2].endswith("| 245 | 300 |")
    assert "250 ✗" in text  # a target that was missed
    assert "commit 0123456789, 2026-11-20" in lines[-1]
    assert "10 to 90 %" in report.markdown(spine, "rows")
    with pytest.raises(ArrayError, match="no view"):
        report.markdown(spine, "nothing")


def test_render_replaces_what_stands_between_the_marks(spine: report.Result, tmp_path: Path) -> None:
    report.save(spine, tmp_path / "spine.json")
    old = "a\n<!-- bench:spine -->\nold\n<!-- end -->\nb\n<!-- bench:spine rows -->\n<!-- end -->\n"
    old += "<!-- bench:none -->\n<!-- end -->\n"
    new = report.render(old, tmp_path)
    assert "old" not in new and "| stencil |" in new and "Not measured yet" in new and new.startswith("a\n")
    assert report.render(new, tmp_path) == new


@pytest.mark.parametrize("file", report.results(ROOT / "docs" / "bench").values(), ids=lambda p: p.name)
def test_committed_results_are_whole(file: Path) -> None:
    found = report.load(file)
    assert found["device"] and found["commit"], "measure again, from a commit"
    of = {**found["tolerance"], **dict.fromkeys(("i8", "e4m3"), found["tolerance"].get("f16"))}  # their y is f16
    of["u8"] = 1 / 255  # a byte may be rounded to its neighbour
    whole = models.TOLERANCE if file.name == "models.json" else 0.0  # f16 rounds after each layer of a whole model
    compared = [r for r in found["rows"] if r.get("part") not in ("weak", "link") or found["suite"] != "distributed"]
    assert compared and all(float(r["error"]) <= max(of[r["dtype"]], whole) for r in compared)
    assert found["tolerance"] and found["tolerance"].get("f64", 1e-12) == 1e-12


def test_every_case_has_a_legal_schedule() -> None:
    cases = [*suites.spine(), *ablation.cases()]
    assert len(cases) == 55
    for case in {(case.stencil.weights.shape, case.schedule): case for case in cases}.values():
        k = sg.compile(case.stencil, case.shape, case.steps, "h200", "emulator", case.schedule)
        assert case.steps % k.schedule.fuse == 0  # every pass does the same
    targets = [case for case in cases if case.target is not None]
    assert len(targets) == 5 * 2 * 4
    assert min(c.target or 0 for c in targets) == pytest.approx(138 * 0.81, abs=0.1)


def test_ablation_table() -> None:
    from sparsegen.cost.devices import load_profile

    for part, paper in {"Heat-1D": "+4%", "Box-2D9P": "+19%", "Box-3D27P": "+13%"}.items():
        model = ablation.predicted(part, load_profile("a100"))
        table = ablation.table(part, [100.0, 250.0, None, 400.0, 500.0], {"model": model})
        assert [len(r) for r in table] == [6] * 6
        assert table[2][:3] == ["implicit stencil2row", "250", "+150%"]
        assert table[3][1:3] == ["–", ""] and table[5][2] == "+25%" and table[5][-1] == paper
        assert "measured" not in ablation.table(part, [], {"model": model})[0][1]


def test_each_part_of_the_ablation_has_its_table() -> None:
    """Measured anew, a part replaces its own rows only; a part that was not measured is in no table."""
    rows = {part: [row(case, 300.0 + at) for case in ablation.cases([part])] for at, part in enumerate(ablation.PARTS)}
    heads = {part: {**result("ablation", []), "date": f"2026-11-2{at}"} for at, part in enumerate(rows)}
    first, second = "Heat-1D", "Box-3D27P"
    results = {part: {**result("ablation", rows[part]), "parts": {part: heads[part]}} for part in (first, second)}
    both = report.merged(results[first], results[second])
    assert "302" in report.markdown(both, second) and "2026-11-22" in report.markdown(both, second)
    assert "300" in report.markdown(both, first) and "2026-11-20" in report.markdown(both, first)
    text = report.text(both)
    assert first in text and second in text and "Box-2D9P" not in text


def test_the_example_prints_the_tables() -> None:
    script = ROOT / "examples" / "ablation.py"
    done = subprocess.run([sys.executable, str(script), "--model"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    last = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("+ dirty bits")]
    assert last == ["+4%", "+19%", "+13%"]


def test_timing_and_suites() -> None:
    t = Timing.of([float(n) for n in range(1, 12)])
    assert (t.median, t.p10, t.p90, t.repeats) == (6.0, 2.0, 10.0, 11)
    assert harness.TOLERANCE["f64"] == 1e-12


def test_a_result_may_be_compressed(tmp_path: Path) -> None:
    spine = result("spine", [])
    for name in ("a.json", "b.json.xz"):
        report.save(spine, tmp_path / name)
        assert report.load(tmp_path / name) == spine
    assert report.results(tmp_path) == {"a": tmp_path / "a.json", "b": tmp_path / "b.json.xz"}
    assert (tmp_path / "b.json.xz").read_bytes()[1:5] == b"7zXZ"
    (tmp_path / "b.json.xz").write_text("{}")
    with pytest.raises(ArrayError, match="is no result"):
        report.load(tmp_path / "b.json.xz")

"""The page: every section in the text, the same numbers as JSON, what would change the choice, and with little work."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile, names
from sparsegen.cost.total import total_time
from sparsegen.explain import page
from sparsegen.explain.explanation import Explanation
from sparsegen.explain.page import VERSION
from sparsegen.explain.units import seconds
from sparsegen.families.spmm.bitmap import BitmapOptions
from sparsegen.families.spmm.bitmap_block import FAMILY as BLOCK
from sparsegen.products.cost import dense_cost
from sparsegen.products.product import BitmapNumbers
from tests.explain.kit import SQUARE, check, heat, pages, product, stencil, update
from tests.products_kit import matrix
from tests.work import calls

ALL = pytest.mark.parametrize("name", ["stencil", "given", "v100", "a100", "3d", "product", "product, v100", "update",
                                       "update, v100"])  # fmt: skip


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "explain.md"


def changes(found: Explanation, kind: str) -> list[dict[str, Any]]:
    return [c for c in found.data["changes"] if c["kind"] == kind]


# ------------------------------------------------------------------------------------------------------------ the text
@ALL
def test_the_text_has_every_section(name: str) -> None:
    found = pages()[name]
    data = found.data
    for part in ("device ", "backend ", "schedule ", "predicted ", "terms of ", "best of each family", "bound by",
                 "on other GPUs", "workspace ", "nonfinite ", "arrays "):  # fmt: skip
        assert part in found, part
    assert isinstance(found, str) and found.startswith(data["about"]) and data["schedule"] in found
    for term in data["terms"]:
        assert term["reason"] in found and seconds(term["seconds"]) in found
    for s in (*data["families"], *data["others"]):
        assert f"{s['schedule']}: {seconds(s['seconds'])}" in found and s["verdict"] in found
    for a in data["absent"]:
        assert f"{a['family']}: no legal schedule; {a['reason']}" in found
    if data["kind"] != "update":
        assert data["refused"]["total"] and f"refused: {data['refused']['total']} schedules" in found
        assert all(r["example"] in found and r["reason"] in found for r in data["refused"]["groups"])


def test_all_families_are_on_the_page() -> None:
    from sparsegen.registry import families

    for name in ("stencil", "v100", "3d"):
        data = pages()[name].data
        assert {s["family"] for s in (*data["families"], *data["absent"])} == {*families("stencil"), "resident"}
        assert [s["seconds"] for s in data["families"]] == sorted(s["seconds"] for s in data["families"])
        assert all("bound by" in s["verdict"] for s in data["families"] if not s["chosen"])
    reasons = {a["family"]: a["reason"] for a in pages()["v100"].data["absent"]}
    assert "takes fields of 3 axes" in reasons["column"] and "needs sm_80" in reasons["stream"]


def test_given_is_not_chosen() -> None:
    data = pages()["given"].data
    assert not data["automatic"] and "this one was given, not chosen" in pages()["given"]
    assert min(s["ratio"] for s in data["families"]) < 1
    assert "stencil2row" in data["schedule"] and data["roofline"]["marks"]


# ------------------------------------------------------------------------------------------------------------ the JSON
@ALL
def test_the_json_is_of_its_form_and_comes_back(name: str) -> None:
    found = pages()[name]
    check(found.data)
    assert json.loads(found.json()) == json.loads(found.json(indent=None)) == found.data
    assert found.data["version"] == VERSION


@ALL
def test_shares_are_of_the_predicted_time(name: str) -> None:
    data = pages()[name].data
    for term in data["terms"]:
        assert term["share"] == pytest.approx(term["seconds"] / data["prediction"]["launch"])
    assert [s["schedule"] for s in data["families"] if s["chosen"]] == [data["schedule"]]
    binding = [t for t in data["terms"] if t["binds"]]
    assert [t["name"] for t in binding] == [data["prediction"]["binds"]]
    assert data["terms"] == sorted(data["terms"], key=lambda t: -t["seconds"])


def test_the_documents_have_every_field() -> None:
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    told = {name: words for names, words in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(told) == {f.name for f in dataclasses.fields(page.Page)}
    parts = {"prediction": page.Prediction, "measurement": page.Measurement, "terms": page.Term,
             "families": page.Standing, "absent": page.Absent, "changes": page.Change, "rest": page.Fact}  # fmt: skip
    for name, part in parts.items():
        assert {f.name for f in dataclasses.fields(part)} <= set(re.findall(r"`(\w+)`", told[name])), name
    assert f"`version` is {VERSION}" in DOCUMENT.read_text(encoding="utf-8")


def test_the_example_of_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, "explain.md", "exec"), {})
    assert (tmp_path / "box.svg").is_file()


def test_the_numbers_are_the_kernels() -> None:
    for k, call in ((stencil(), total_time(stencil().cost, 100)), (product(), product().cost.time)):
        data = k.explain().data
        assert data["prediction"]["launch"] == k.cost.time and data["prediction"]["seconds"] == call
        assert {t["name"]: t["seconds"] for t in data["terms"]} == k.cost.terms
        (own,) = [s for s in data["families"] if s["chosen"]]
        assert own["schedule"] == str(k.schedule) and own["ratio"] == 1
    data = update().explain().data
    assert data["prediction"]["seconds"] == pytest.approx(update().problem.seconds(update().cost, 9))


def test_saving(tmp_path: Path) -> None:
    found = pages()["stencil"]
    assert found.save(tmp_path / "a.txt").read_text(encoding="utf-8") == f"{found}\n"
    assert json.loads(found.save(tmp_path / "a.json").read_text(encoding="utf-8")) == found.data
    assert found.save(str(tmp_path / "a.svg")).read_text(encoding="utf-8") == found.roofline()
    for name, what in (("a.png", "as .png"), ("a", "without a suffix")):
        with pytest.raises(sg.ArrayError, match=what):
            found.save(tmp_path / name)
    with pytest.raises(sg.ArrayError, match="cannot write"):
        found.save(tmp_path / "no" / "a.txt")


def test_an_explanation_can_be_copied() -> None:
    for found in (pages()["stencil"], pages()["product"]):
        for again in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
            assert again == found and again.data == found.data and again.roofline() == found.roofline()


# ------------------------------------------------------------------------------------------------------ what changes it
@pytest.mark.parametrize("name", ["stencil", "v100", "product", "update"])
def test_every_other_gpu_is_there(name: str) -> None:
    data = pages()[name].data
    others = {load_profile(n).name for n in names()} - {data["device"]["name"]}
    found = changes(pages()[name], "device")
    assert {c["what"] for c in found} == others
    assert all(c["seconds"] > 0 and c["binds"] and c["schedule"] in pages()[name] for c in found)
    assert all(("costs only" in c["note"]) == load_profile("v100").name.endswith(c["what"]) for c in found)


@pytest.mark.parametrize(("edge", "steps"), [(3, 1), (7, 6), (3, 100), (7, 100)])
def test_the_smaller_search_finds_what_compile_finds(steps: int, edge: int) -> None:
    st = sg.Stencil.from_weights(np.random.default_rng(edge).random((edge, edge)))
    k = sg.compile(st, (4096, 4096), steps, "h200", "emulator")
    for there in changes(k.explain(), "device"):
        (name,) = (n for n in names() if load_profile(n).name == there["what"])
        full = sg.compile(st, (4096, 4096), steps, name, "emulator")
        assert there["seconds"] <= 1.05 * total_time(full.cost, steps), (name, there["schedule"], str(full.schedule))


def test_exact_schedules_stay_exact_elsewhere() -> None:
    box = sg.Stencil.from_weights(np.random.default_rng(0).random((7, 7)))
    exact = sg.compile(box, SQUARE, 6, "h200", "emulator", nonfinite="exact")
    for name in ("stencil2row", "patches", "lowrank"):
        assert all(not (c["schedule"] or "").startswith(name) for c in exact.explain().data["changes"])


def test_a_larger_grid_has_no_more_cells_than_indices_reach() -> None:
    assert {c["what"] for c in changes(pages()["stencil"], "grid")} == {
        "a grid of 20480x20480",
        "a grid of 40960x40960",
    }
    whats = {c["what"] for c in changes(pages()["update"], "grid")}
    assert "a grid of 8192x8192" in whats
    assert "more than 2 steps a call: time steps can be fused" in sg.compile(heat, (64, 64), 2, "h200").explain()


def test_larger_n_of_a_product() -> None:
    found = changes(pages()["product"], "columns")
    assert [c["what"] for c in found] == ["n=32", "n=64", "n=128"]
    for c in found:
        n = int(c["what"].removeprefix("n="))
        p = BitmapNumbers.of(product(n=n).product)
        own = BitmapOptions(p, {}, product().device).best, BLOCK.every(p, product().device, {}).best
        costs = [(c.time * c.schedule.rules.doubt, c.time) for c in own if c]
        full = min((*costs, (dense := dense_cost(p, product().device).time, dense)))[1]
        assert c["seconds"] == full
        assert (
            c["dense"] == pytest.approx(dense_cost(p, product().device).time)
            and f"dense {seconds(c['dense'])}" in pages()["product"]
        )
    wide = changes(product(n=128).explain(), "columns")
    assert [c["what"] for c in wide] == ["n=256"]


def test_other_sparsities_of_a_product() -> None:
    found = changes(pages()["product"], "sparsity")
    assert [c["what"].split("%")[0] for c in found] == ["40", "50", "60", "70", "80", "90"]
    assert all("hypothetical" in c["what"] for c in found)
    times = [c["seconds"] for c in found]
    assert times == sorted(times, reverse=True)
    assert times[2] == pytest.approx(product().cost.time, rel=0.05)  # 60 % zeros, as it has


def test_a_product_where_dense_wins_says_so() -> None:
    found = product("v100").explain()
    assert found.data["absent"][0]["family"] == "bitmap" and "dense" in found.data["schedule"]


# ------------------------------------------------------------------------------------------------------------ measured
def test_predicted_against_measured() -> None:
    kernels: list[Any] = [
        sg.compile(heat, (512, 512), 4, "h200", "emulator"),
        sg.compile(heat, (512, 512), 4, "h200", "emulator", "direct"),
        sg.compile(product().product, device="h200", backend="emulator"),
        sg.compile(update().update, (512, 512), 3, "h200", "emulator"),
    ]  # fmt: skip
    for k in kernels:
        before = k.explain()
        assert k.measured is None and before.data["measurement"] is None and "measured " not in before
        k.measured = before.data["prediction"]["seconds"] / 0.96
        page = k.explain()
        told = page.data["measurement"]
        assert told["off"] == pytest.approx(-0.04) and told["seconds"] == k.measured
        line = f"{seconds(k.measured)}, predicted {seconds(told['predicted'])} (-4 %)"
        assert f"measured   {line}" in page


def test_bench_on_a_gpu_is_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "api"))
    import fake_gpu

    class Timer:
        def start(self, stream: Any = None) -> None: ...
        def stop(self, stream: Any = None) -> None: ...
        def seconds(self) -> float:
            return 3e-6

    fake_gpu.install(monkeypatch)
    monkeypatch.setattr(fake_gpu.FakeRuntime, "timer", lambda self: Timer(), raising=False)
    kernels: list[Any] = [
        sg.compile(heat, (40, 64), 2, backend="cuda", schedule="direct"),
        sg.compile(update().update, (40, 64), 2, backend="cuda"),
        sg.compile(sg.spmm(matrix(64, 128), n=8), backend="cuda", schedule="bitmap"),
    ]
    for k in kernels:
        if k is kernels[0]:
            k.bench(repeats=1, steps=4)
            assert k.measured is None  # of other steps than it was compiled for
        k.bench(repeats=2)
        assert k.measured == 3e-6 and "measured   3 µs, predicted" in k.explain()


def test_bench_on_the_host_measures_no_gpu() -> None:
    k = sg.compile(heat, (64, 64), 2, "h200", "emulator", "direct")
    k.bench(repeats=1)
    assert k.measured is None


# ---------------------------------------------------------------------------------------------------------- the budget
@pytest.mark.parametrize("make", [stencil, product, update])
def test_it_is_little_work(make: Any) -> None:
    """A second of calls; the reasons of what is refused are most of them."""
    make().explain()  # what is known of the schedules from now on
    assert calls(make().explain) < 3_000_000

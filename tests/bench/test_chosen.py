"""The tables and pictures of part ``auto`` of suite ``unstructured``: what was chosen, over the best of all."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sparsegen.bench import chosen, gains, report, tables
from sparsegen.bench.bitmaps import WARM
from sparsegen.bench.mixture import NETWORK, POWER
from sparsegen.bench.unstructured import AUTO, CUBLAS, CUSPARSE, SparseRow
from sparsegen.explain.chart import Scale
from tests.bench.test_bitmaps import HEAD
from tests.bench.test_unstructured import BLOCKS, SCATTERED, SMALL, made


def test_what_was_chosen() -> None:
    """Of six products one is half as fast as hybrid, one failed; f32 has fewer zeros in one of three."""
    network = replace(SMALL, part=AUTO, least=None, matrix=replace(SCATTERED, kind=NETWORK))
    single = replace(network, dtype="f32")
    rows = [
        made(network, 0), made(network, 1, families={"hybrid": 5e-6}, ok=False),
        made(replace(network, matrix=BLOCKS), 2, beside={CUSPARSE: {WARM: 24e-6}}, schedule="hybrid cols=16"),
        made(single, 3), made(single, 4, sparsity=0.8, beside={CUBLAS: {WARM: 5e-6}}, ok=False),
        made(single, 5, hot_s=None, failed="why", beside=None, families=None, ok=False),
    ]  # fmt: skip
    assert chosen.best(rows[1].as_json()) == (5e-6, "hybrid") and chosen.best(rows[4].as_json())[1] == "cuBLAS"
    assert chosen.of_best(rows[0].as_json()) == 1
    library = replace(rows[4], schedule="dense")  # cuBLAS's product, so no other way than what was chosen
    assert chosen.best(library.as_json()) == (pytest.approx(10e-6), "chosen")
    assert chosen.best(replace(library, families={"csr": 8e-6}).as_json()) == (8e-6, "csr")
    found = report.result("unstructured", rows, HEAD)
    head, *body = tables.VIEWS["unstructured"]["auto"](found)
    assert head == ["quantity", "wanted", "aim", "all", "of files", "made"]
    lines = {row[0]: row[1:] for row in body}
    assert lines["cases"] == ["–", "–", "5", "4", "1"]
    assert lines["cases with at least 0.97 of the best"] == ["≥ 0.95", "–", "60.0% ✗", "50.0%", "100.0%"]
    assert lines["the worst, of the best"] == ["≥ 0.85", "–", "0.50 ✗", "0.50", "1.00"]
    assert lines["over cuSPARSE"][2:] == [f"{(27 * 2.4) ** 0.25:.2f}", "3.00", "2.40"]
    assert lines["f32 over cuBLAS, from 80% zeros on"] == ["≥ 1.07", "1.15", "1.00 ✗", "1.00", "–"]
    assert lines["f32 over cuBLAS, from 90% zeros on"] == ["≥ 1.48", "1.6", "2.00", "2.00", "–"]
    assert lines["f32 over cuBLAS, from 95% zeros on"] == ["≥ 1.85", "2", "–", "–", "–"]
    assert lines["`dense` over cuBLAS, the same call"] == ["≥ 0.97", "–", "–", "–", "–"]
    slow = report.result("unstructured", [library, replace(library, hot_s=4e-6)], HEAD)
    last = tables.VIEWS["unstructured"]["auto"](slow)[-1]
    assert last == ["`dense` over cuBLAS, the same call", "≥ 0.97", "–", "0.79 ✗", "0.79", "–"]
    head, *body = tables.VIEWS["unstructured"]["classes"](found)
    assert body[0] == ["network", "f16", "16", "2", "0.71", "0.50", "3.00", "2.00", "csr 2"] and len(body) == 3
    head, first, *rest = tables.VIEWS["unstructured"]["worst"](found)
    of = dict(zip(head, first, strict=True))
    assert (of["best"], of["its µs"], of["of the best"], of["µs"]) == ("hybrid", "5.0", "0.50", "10.0 ✗")
    assert len(rest) == 4 and "failed" not in str(rest)
    assert report.caption(found, "worst") == report.caption(found, "auto") and "summary" not in report.text(found)
    empty = report.result("unstructured", rows[-1:], HEAD)
    assert all(tables.VIEWS["unstructured"][view](empty) for view in ("auto", "classes", "worst"))


def test_a_picture_of_each_kind(tmp_path: Path) -> None:
    """A dot for each library of each product, at its speed over the library's; documents link to all of them."""
    of = {
        kind: replace(SMALL, part=AUTO, least=None, matrix=replace(SCATTERED, kind=kind)) for kind in (NETWORK, POWER)
    }
    rows = [
        made(of[NETWORK], 0), made(replace(of[NETWORK], dtype="f32"), 1), made(of[NETWORK], 2, hot_s=None),
        made(replace(of[POWER], n=512), 3, sparsity=0.9999, beside={CUSPARSE: {WARM: 5e-6}}, schedule="csr_strip a=1"),
    ]  # fmt: skip
    found = report.result("unstructured", rows, HEAD)
    assert report.pictures(found) == {NETWORK: "unstructured-network.svg", POWER: "unstructured-power-law.svg"}
    texts = {kind: gains.svg(found, kind) for kind in of}
    marks = {kind: [each for each in ElementTree.fromstring(text).iter() if each.tag.endswith("circle") and len(each)]
             for kind, text in texts.items()}  # fmt: skip
    assert [each.get("class") for each in marks[NETWORK]] == ["f0", "f1"] * 2
    up = Scale(1 / 1.6, 3 * 1.6, gains.TOP + gains.HEIGHT, gains.TOP)  # all axes have room around 1 to 3
    assert [each.get("cy") for each in marks[NETWORK]][:2] == [str(up(2)), str(up(3))]  # f32 above
    (one,) = marks[POWER]
    assert one[0].text == "scattered: csr_strip 10.0 µs, cuSPARSE 5.0" and "over cuBLAS" not in texts[POWER]
    even = re.findall(r'class="roof"[^>]* y1="([\d.]+)"', texts[POWER])
    assert len(even) == 1 and float(even[0]) < float(one.get("cy", ""))  # slower, so below
    report.save(found, tmp_path / "unstructured.json")
    said = report.render("<!-- bench:unstructured picture -->\n<!-- end -->\n", tmp_path, tmp_path.parent)
    assert said.count("![") == 2 and f"power law]({tmp_path.name}/unstructured-power-law.svg)" in said


def test_regret() -> None:
    """Over the fastest of all; without libraries of the cheapest of ours by the model, over the fastest of ours.  What
    is asked for is asked of the matrices that were made."""
    network = replace(SMALL, part=AUTO, least=None, matrix=replace(SCATTERED, kind=NETWORK))
    anywhere = replace(network, matrix=SCATTERED)
    times = {"csr": 12e-6, "hybrid": 8e-6, "bitmap": 16e-6}
    dense: dict[str, Any] = {"schedule": "dense", "families": times, "beside": {CUBLAS: {WARM: 10e-6}}}
    model = {"csr": 9e-6, "hybrid": 11e-6, "bitmap": 20e-6}
    rows = [
        made(anywhere, 0, predicted={}), made(anywhere, 1, **dense, predicted=model),
        made(anywhere, 2, families={"hybrid": 9e-6}, predicted={"hybrid": 11e-6}, beside={CUSPARSE: {WARM: 5e-6}}),
        made(network, 3, families={"hybrid": 4e-6}, predicted={"hybrid": 11e-6}, beside={CUSPARSE: {WARM: 5e-6}}),
    ]  # fmt: skip
    one = rows[1].as_json()
    assert chosen.regret(one) == pytest.approx(10 / 8) and chosen.regret_of_ours(one) == pytest.approx(12 / 8)
    wrong = {**one, "families": {"hybrid": 8e-6}}
    assert chosen.regret_of_ours(wrong) == float("inf") and chosen.regret_of_ours({**one, "predicted": None}) is None

    def lines(rows: list[SparseRow]) -> dict[str, list[str]]:
        _, *body = tables.VIEWS["unstructured"]["auto"](report.result("unstructured", rows, HEAD))
        return {name: cells for name, *cells in body if "regret" in name}

    assert lines(rows) == {
        "regret, median": ["≤ 1.05", "–", "1.625", "2.500", "1.250 ✗"],
        "regret, worst": ["≤ 1.25", "–", "2.500", "2.500", "2.000 ✗"],
        "regret without libraries, median": ["≤ 1.05", "–", "1.306", "2.500", "1.111 ✗"],
        "regret without libraries, worst": ["≤ 1.25", "–", "2.500", "2.500", "1.500 ✗"],
    }
    assert lines([rows[0], rows[3]])["regret, worst"] == ["≤ 1.25", "–", "2.500", "2.500", "1.000"]
    old = lines([rows[0], replace(rows[1], predicted=None)])
    assert old["regret without libraries, worst"][2:] == ["–"] * 3 and old["regret, worst"][2] == "1.250"

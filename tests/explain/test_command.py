"""``sparsegen explain``: devices side by side, one JSON document, one picture, products, the V100."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from sparsegen import cli
from sparsegen.explain.beside import beside
from sparsegen.explain.page import VERSION
from sparsegen.explain.units import seconds
from tests.explain.kit import check, pages

FILE = """\
import numpy as np
import sparsegen as sg

@sg.stencil(boundary=sg.frozen)
def heat(u):
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])

w = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float16)
w[np.random.default_rng(1).random(w.shape) < 0.6] = 0
layer = sg.spmm(sg.sparse(w, format="bitmap"), n=16)
"""
SMALL = ("--shape", "512x512", "--steps", "8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "both.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert cli.main(["explain", *args]) == cli.OK
    return capsys.readouterr().out


def test_side_by_side() -> None:
    found = [pages()["a100"], pages()["stencil"], pages()["v100"]]
    table = beside([e.page for e in found])
    heads = table.splitlines()[2]
    assert [heads.index(name) for name in ("NVIDIA A100", "NVIDIA H200", "NVIDIA V100 (costs only)")] == sorted(
        heads.index(name) for name in ("NVIDIA A100", "NVIDIA H200", "NVIDIA V100 (costs only)")
    )
    rows = {line[: heads.index("NVIDIA A100")].strip(): line for line in table.splitlines()[3:]}
    for e in found:
        data = e.data
        assert f"{seconds(data['prediction']['seconds'])} a call" in rows["predicted"]
        assert f"{data['prediction']['rate']:.1f} GS/s" in rows["rate"]
        assert data["prediction"]["binds"] in rows["bound by"]
        for term in data["terms"]:
            assert seconds(term["seconds"]) in rows[term["name"]]
        for s in data["families"]:
            assert f"{s['rate']:.1f} GS/s, {s['ratio']:.2f}x, bound by {s['binds']}" in rows[f"best {s['family']}"]
        for absent in data["absent"]:
            assert "no legal schedule" in rows[f"best {absent['family']}"]
    assert max(map(len, table.splitlines())) < 180


def test_three_devices(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "both.py:heat", *SMALL, "--device", "a100", "--device", "h200", "--device", "v100")
    table, *found = out.split("-" * 100)
    assert len(found) == 3 and "NVIDIA V100 (costs only)" in table
    assert "costs and explanations only: no code is generated" in found[2]
    assert "NVIDIA V100" in found[0] and "on other GPUs" in found[2]


def test_one_device_has_no_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "both.py:heat", *SMALL, "--device", "h200")
    assert out.startswith("heat: 5-point star") and "-" * 100 not in out


def test_one_json_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "both.py", "--steps", "8", "--device", "a100", "--device", "v100", "--json")
    document = json.loads(out)
    assert document["version"] == VERSION and document["file"] == "both.py"
    names = [(p["defined_as"], p["device"]["name"], p["kind"]) for p in document["pages"]]
    assert names == [
        ("heat", "NVIDIA A100", "stencil"), ("heat", "NVIDIA V100", "stencil"),
        ("layer", "NVIDIA A100", "product"), ("layer", "NVIDIA V100", "product"),
    ]  # fmt: skip
    for page in document["pages"]:
        check({key: value for key, value in page.items() if key != "defined_as"})
    assert document["pages"][1]["device"]["explain_only"]


def test_one_picture(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "both.py:heat", *SMALL, "--device", "a100", "--device", "h200", "--picture", "heat.svg")
    root = ET.parse(folder / "heat.svg").getroot()
    assert len([e for e in root if e.tag.endswith("}svg")]) == 2
    assert cli.main(["explain", "both.py:heat", *SMALL, "--picture", "no/heat.svg"]) == cli.WRONG
    assert "cannot write no/heat.svg" in capsys.readouterr().err


def test_products(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "both.py:layer", "--device", "h200", "--device", "a100")
    assert "W @ x, W 256x512 f16" in out and "more columns of x" in out and "best bitmap" in out and "best dense" in out
    v100 = said(capsys, "both.py:layer", "--device", "v100")
    assert "schedule   dense" in v100 and "bitmap: no legal schedule" in v100
    assert cli.main(["explain", "both.py:layer", "--shape", "8x8"]) == cli.WRONG
    assert "W and n say a product's size" in capsys.readouterr().err


def test_a_file_with_both_ends_with_a_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "both.py", "--steps", "8", "--device", "h200")
    *_, heat, layer = out.rstrip().splitlines()
    assert heat.startswith("heat ") and layer.startswith("spmm ") and "GS/s" in heat and "TB/s" in layer


def test_other_commands_with_products(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gen", "both.py:layer", "--device", "h200", "--level", "op"]) == cli.OK
    assert "op.spmm" in capsys.readouterr().out
    assert cli.main(["check", "both.py:layer", "--device", "h200"]) == cli.OK
    assert "0 errors" in capsys.readouterr().out
    assert cli.main(["run", "both.py:layer", "--device", "h200", "--backend", "emulator"]) == cli.OK
    assert capsys.readouterr().out.count("min ") == 2  # x and y

"""The picture: an SVG in which every ranked schedule is a dot, below the roof that limits it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.explain.picture import together
from sparsegen.explain.roofline import fastest_mma, fma_rate, mma_rate, roofs
from tests.explain.kit import pages, product, stencil

SVG = "{http://www.w3.org/2000/svg}"
ALL = pytest.mark.parametrize("name", ["stencil", "given", "v100", "a100", "3d", "product", "product, v100", "update"])


def circles(root: ET.Element, kind: str) -> list[ET.Element]:
    return [c for c in root.iter(f"{SVG}circle") if kind in c.get("class", "").split()]


@ALL
def test_every_schedule_is_a_dot(name: str) -> None:
    found = pages()[name]
    root = ET.fromstring(found.roofline())
    dots = circles(root, "dot")
    assert sum(int(c.get("data-n", "1")) for c in dots) == len(found.dots) >= found.data["legal"]
    places = [(c.get("cx"), c.get("cy"), c.get("class")) for c in dots]
    assert len(set(places)) == len(places)
    marks = found.data["roofline"]["marks"]
    assert len(circles(root, "best")) == len(marks) and len(circles(root, "ring")) == 1
    assert [m["schedule"] for m in marks if m["chosen"]] == [found.data["schedule"]]
    assert {s["schedule"] for s in found.data["families"]} <= {m["schedule"] for m in marks}
    words = [t.text for t in root.iter(f"{SVG}text")]
    data = found.data
    assert f"{data['name']} on {data['device']['name']}" in words
    who = "chosen" if data["automatic"] else "given"
    assert any(w == f"{who}: {data['schedule'].split()[0]}" for w in words)
    assert all(any((w or "").startswith(roof["name"]) for w in words) for roof in data["roofline"]["roofs"])
    assert "prefers-color-scheme:dark" in found.roofline() and len(found.roofline()) < 400_000


@ALL
def test_dots_lie_inside_the_axes(name: str) -> None:
    root = ET.fromstring(pages()[name].roofline())
    edge = next(r for r in root.iter(f"{SVG}rect") if r.get("class") == "edge")
    x, y, w, h = (float(edge.get(key, "")) for key in ("x", "y", "width", "height"))
    for c in root.iter(f"{SVG}circle"):
        if c.get("class", "").split()[0] in ("dot", "best", "ring"):
            assert x <= float(c.get("cx", "")) <= x + w and y <= float(c.get("cy", "")) <= y + h


@pytest.mark.parametrize("name", ["stencil", "v100", "a100", "3d", "product", "update"])
def test_no_schedule_moves_more_bytes_than_the_memory_can(name: str) -> None:
    found = pages()[name]
    (dram,) = (roof["value"] for roof in found.data["roofline"]["roofs"] if roof["name"] == "DRAM")
    assert all(dot.flops <= dot.intensity * dram * 1.001 for dot in found.dots)


def test_the_numbers_of_a_dot() -> None:
    k = stencil()
    (mark,) = (m for m in k.explain().data["roofline"]["marks"] if m["chosen"])
    useful = 2 * 5 * 10240**2 * k.cost.steps_per_launch
    assert mark["flops"] == pytest.approx(useful / k.cost.time)
    assert mark["intensity"] == pytest.approx(useful / (k.cost.terms["hbm"] * k.device.bw_global))
    p = product()
    (mark,) = (m for m in p.explain().data["roofline"]["marks"] if m["chosen"])
    assert mark["flops"] == pytest.approx(p.cost.flops)


def test_fields_that_stay_in_l2_have_an_intensity() -> None:
    small = sg.compile(sg.Stencil.from_weights([[0.25, 0.5, 0.25]]), (64, 64), 4, "h200", "emulator").explain()
    assert "stay in L2" in small.data["roofline"]["note"]
    assert all(0 < dot.intensity < 1000 for dot in small.dots) and ET.fromstring(small.roofline()) is not None


def test_the_roofs_are_the_devices() -> None:
    h200, v100 = load_profile("h200"), load_profile("v100")
    shape = fastest_mma(h200, "f64")
    assert shape and shape.startswith("f64.m16n8k") and mma_rate(h200, shape) > 1.9 * mma_rate(h200, "f64.m8n8k4")
    assert fma_rate(h200, "f64") == 2 * h200.f64_fma_per_clk_sm * h200.sms * h200.clock
    assert fastest_mma(v100, "f64") is None and len([*roofs(v100, "f64")]) == 4
    assert {r.name for r in roofs(h200, "f64")} == {"DRAM", "L2", "shared memory", "FP64 FMA", f"tensor cores, {shape}"}
    assert "FP32 FMA" in {r.name for r in roofs(h200, "f16")} and fastest_mma(h200, "f32") is None


def test_pictures_side_by_side() -> None:
    found = [pages()["a100"], pages()["stencil"], pages()["v100"]]
    root = ET.fromstring(together([(e.page, e.dots) for e in found]))
    assert len(list(root.iter(f"{SVG}svg"))) == 4 and len(circles(root, "ring")) == 3

"""What a notebook shows: HTML that is well formed and says what the text says."""

from __future__ import annotations

import base64
import copy
import pickle
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import notebook

HEAT = sg.Stencil.from_weights(np.array([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]]), name="heat")
W = sg.sparse(sg.prune(np.random.default_rng(0).standard_normal((64, 128)).astype(np.float16), "vector", sparsity=0.6))
KERNELS: dict[str, Any] = {
    "stencil": lambda: sg.compile(HEAT, (64, 128), 4, device="h200", backend="emulator"),
    "product": lambda: sg.compile(sg.spmm(W, n=8), device="h200", backend="emulator"),
    "update": lambda: sg.compile(HEAT.as_update(), (64, 128), 4, device="h200", backend="emulator"),
}


def words(html: str) -> str:
    """The text of HTML that is well formed."""
    return " ".join("".join(ElementTree.fromstring(html).itertext()).split())


@pytest.mark.parametrize("kind", KERNELS)
def test_a_kernel_and_its_schedule(kind: str) -> None:
    k = KERNELS[kind]()
    said = words(k._repr_html_())
    assert str(k.schedule) in said and k.device.name in said and k.backend in said and k.cost.binds in said
    assert all(name in words(k.schedule._repr_html_()) for name in k.schedule.values)


@pytest.mark.parametrize("kind", KERNELS)
def test_an_explanation_has_its_tables_and_its_picture(kind: str) -> None:
    page = KERNELS[kind]().explain()
    html = page._repr_html_()
    found = words(html)
    assert page.page.about in found
    assert all(t.name in found and t.reason in found for t in page.page.terms)
    (picture,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', html)
    assert base64.b64decode(picture).decode() == page.roofline()


def test_a_matrix() -> None:
    said = words(W._repr_html_())
    assert W.format in said and "64 × 128" in said and f"{W.nbytes:,}" in said and "% zeros" in said


def test_a_list_of_schedules_is_short() -> None:
    found = sg.schedules(HEAT, (4096, 4096), device="h200")
    assert len(found) > 100 and len(repr(found)) < 200 and str(found[0].schedule) in repr(found)
    said = words(found._repr_html_())
    assert str(found[0].schedule) in said and f"and {len(found) - 20} more" in said
    assert isinstance(found, list) and found[:2] == list(found)[:2]


def test_code_is_text_and_in_colours() -> None:
    pytest.importorskip("pygments")
    k = KERNELS["stencil"]()
    source = k.source()
    assert isinstance(source, str) and source.startswith("//") and "__global__" in source
    shown = words(source._repr_html_())
    assert " ".join(source.split())[:200] in shown
    assert words(k.ir("op")._repr_html_()).startswith(k.ir("op").split()[0])
    for again in (pickle.loads(pickle.dumps(source)), copy.copy(source)):
        assert again == source and again.language == "cuda"


def test_code_without_pygments_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pygments", None)
    assert notebook.Code("a < b && c", "cuda")._repr_html_() == "<pre>a &lt; b &amp;&amp; c</pre>"


def test_what_is_written_is_escaped() -> None:
    html = notebook.facts("<b>", [("a & b", "<script>")])
    assert "<script>" not in html and words(html) == "<b>a & b<script>"


def test_empty_columns_are_left_out() -> None:
    html = notebook.table(("a", "b", "c"), [("1", " ", "2"), ("whole",)], right=(2,), bold=(0,))
    (head, first, last) = ElementTree.fromstring(html)
    assert [cell.text for cell in head] == ["a", "c"] and [cell.text for cell in first] == ["1", "2"]
    assert [cell.get("colspan") for cell in last] == ["2"]

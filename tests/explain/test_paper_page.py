"""ConvStencil's own alternatives on the page, and why another order or another family is the faster one."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.explain.page import Paper
from sparsegen.explain.paper import FORMS
from tests.explain.kit import SQUARE, pages, stencil


def paper(st: sg.Stencil, shape: tuple[int, ...], device: str, steps: int = 12) -> Paper | None:
    return sg.compile(st, shape, steps, device, "emulator").explain().page.paper


def test_the_forms_and_their_gains() -> None:
    found = pages()["a100"].page.paper
    assert found and [a.name for a in found.alternatives] == [name for name, _ in FORMS]
    assert found.fuse == 3 and found.edge == 7
    assert [a.paper for a in found.alternatives] == [None, 1.70, 0.68, 0.14, 0.19]
    rates = [a.rate for a in found.alternatives]
    for before, now in zip(found.alternatives, found.alternatives[1:], strict=False):
        assert before.rate and now.rate and now.gain == pytest.approx(now.rate / before.rate - 1)
    assert found.as_published == (rates == sorted(rates, key=lambda rate: rate or 0.0))
    text = pages()["a100"]
    assert "ConvStencil's own alternatives" in text and "paper +170 %" in text and all(r in text for r in found.remarks)


def test_on_the_h200_the_papers_mma_gains_nothing_over_fma() -> None:
    text = pages()["stencil"]
    assert "f64.m8n8k4 does" in text and "no faster than FP64 FMA on the CUDA cores" in text
    assert "of the rate of f64.m16n8k" in text
    assert "f64.m8n8k4 does" not in pages()["a100"]


def test_temporal_blocking_beats_them_and_says_why() -> None:
    for name in ("a100", "stencil"):
        text, k = pages()[name], stencil("a100" if name == "a100" else "h200")
        assert k.schedule.family == "stream"
        assert f"stream beats them all, {k.cost.rate:.0f} GS/s against" in text
        assert f"it reads and writes DRAM once for {k.cost.steps_per_launch} steps" in text


def test_a_step_that_does_not_gain_has_a_reason() -> None:
    """With other figures of a device: nothing there waits, so padding and dirty bits save nothing."""
    import dataclasses

    from sparsegen.cost.devices import load_profile

    a100 = load_profile("a100")
    slow = tuple((name, 100 * c if name == "f64.m8n8k4" else c) for name, c in a100.cpi_table)
    k = sg.compile(stencil().stencil, SQUARE, 12, dataclasses.replace(a100, cpi_table=slow), "emulator")
    found = k.explain().page.paper
    assert found and not found.as_published
    assert any("not the paper's order: on the NVIDIA A100 tensor cores gains nothing" in r and "tensor grows" in r
               for r in found.remarks)  # fmt: skip


def test_where_there_is_nothing_to_compare() -> None:
    box = np.full((3, 3), 1 / 9)
    assert paper(sg.Stencil.from_weights(box), SQUARE, "v100") is None
    assert paper(sg.Stencil.from_weights(box, dtype="f32"), SQUARE, "h200") is None
    assert paper(sg.Stencil.from_weights(np.full((9, 9), 1 / 81)), SQUARE, "h200") is None
    one = paper(sg.Stencil.from_weights(box), SQUARE, "h200", steps=1)
    assert one and one.fuse == 1 and one.edge == 3


def test_on_three_axes_every_form_has_its_rate() -> None:
    found = pages()["3d"].page.paper
    assert found and all(a.rate and not a.refused for a in found.alternatives)
    first, second = (a.rate for a in found.alternatives[:2])
    assert first and second and found.alternatives[1].gain == pytest.approx(second / first - 1)

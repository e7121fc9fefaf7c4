"""The time loop: how steps become passes, and where each pass reads and writes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.execute import ALIGN, Plan, buffer_of

heat = sg.Stencil.from_weights(np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8.0, name="heat")


def plan(line: str, steps: int, shape: tuple[int, int] = (64, 64), compiled: int = 100) -> Plan:
    return sg.compile(heat, shape, steps=compiled, backend="emulator", schedule=line)._plan(steps)


@pytest.mark.parametrize(
    ("line", "steps", "passes"),
    [
        ("direct", 1, [(1, 1)]),
        ("direct", 5, [(1, 5)]),
        ("tiled fuse=2", 10, [(2, 5)]),
        ("tiled fuse=2", 11, [(1, 1), (2, 5)]),
        ("tiled fuse=3", 11, [(2, 1), (3, 3)]),
        ("tiled fuse=3", 2, [(2, 1)]),
        ("stencil2row fuse=3 tile=32x64", 100, [(1, 1), (3, 33)]),
    ],
)
def test_steps_become_passes(line: str, steps: int, passes: list[tuple[int, int]]) -> None:
    p = plan(line, steps)
    assert [(program.steps, n) for program, n in p.parts] == passes
    assert sum(program.steps * n for program, n in p.parts) == steps
    assert p.passes == sum(n for _, n in passes)


@pytest.mark.parametrize("passes", range(1, 8))
def test_buffers_take_turns_and_the_last_is_out(passes: int) -> None:
    goes = [buffer_of(passes, i) for i in range(passes)]
    assert goes[-1] == "out"
    assert all(a != b for a, b in pairwise(goes))
    assert set(goes) <= {"out", "field"} and ("field" in goes) == (passes > 1)


def test_workspace() -> None:
    one, many = plan("direct", 1), plan("direct", 9)
    assert one.workspace_nbytes == 0 and one.workspaces == {}
    assert many.workspaces == {"field": 64 * 64 * 8} and many.workspace_nbytes == 64 * 64 * 8
    odd = plan("direct", 2, shape=(33, 35))
    assert odd.workspaces == {"field": 33 * 35 * 8} and odd.workspace_nbytes == -(-33 * 35 * 8 // ALIGN) * ALIGN
    assert sg.compile(heat, (64, 64), backend="emulator", schedule="direct").workspace_nbytes == 0
    explicit = plan("stencil2row transform=explicit", 1)
    assert (
        "field" not in explicit.workspaces and explicit.workspace_nbytes > 1.5 * 64 * 64 * 8
    )  # 2k / (k + 1) elements a point


def test_widest_access_sets_the_alignment() -> None:
    assert plan("direct", 1).alignment == 8
    assert plan("tiled stages=2", 1).alignment == 16
    assert plan("tiled stages=2", 1, shape=(63, 63)).alignment == 8

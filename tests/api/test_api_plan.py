"""The time loop: how steps become passes, and where each pass reads and writes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.calls.stencil import PADDED
from sparsegen.pipelines import Program
from sparsegen.plan import ALIGN, IN, OUT, Plan
from sparsegen.run import emulator
from sparsegen.sizes import padded_pitch

heat = sg.Stencil.from_weights(np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8.0, name="heat")


def pitches(program: Program) -> tuple[int, ...]:
    """Elements from row to row of input and output."""
    return tuple(emulator.pitches(program).values())


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
    assert [(program.steps, n) for program, n in p.programs] == passes
    assert sum(program.steps * n for program, n in p.programs) == steps
    assert p.passes == sum(n for _, n in passes)


@pytest.mark.parametrize("cols", [64, 63])
@pytest.mark.parametrize("passes", range(1, 8))
def test_buffers_take_turns_and_the_last_is_out(passes: int, cols: int) -> None:
    p = plan("direct", passes, shape=(64, cols))
    goes = [dict(step.arrays)[OUT] for step in p.run()]
    comes = [dict(step.arrays)[IN] for step in p.run()]
    assert comes == [IN, *goes[:-1]]
    assert goes[-1] == "out" and all(a != b for a, b in pairwise(goes))
    padded = cols == 63 and passes >= 3
    assert bool(p.padded) == padded
    assert set(goes) == ({"out", *PADDED} if padded else {"out", "field"} if passes > 1 else {"out"})
    assert set(goes) - {"out"} == set(p.workspaces)


@pytest.mark.parametrize(
    ("line", "steps", "parts"),
    [
        ("direct", 2, [(1, 2, (63, 63))]),
        ("direct", 3, [(1, 1, (63, 64)), (1, 1, (64, 64)), (1, 1, (64, 63))]),
        ("direct", 9, [(1, 1, (63, 64)), (1, 7, (64, 64)), (1, 1, (64, 63))]),
        ("tiled fuse=3", 6, [(3, 2, (63, 63))]),
        ("tiled fuse=3", 8, [(2, 1, (63, 64)), (3, 1, (64, 64)), (3, 1, (64, 63))]),
        ("tiled fuse=3", 13, [(1, 1, (63, 64)), (3, 3, (64, 64)), (3, 1, (64, 63))]),
    ],
)
def test_odd_rows_are_padded_between_the_passes(line: str, steps: int, parts: list[tuple[int, int, object]]) -> None:
    p = plan(line, steps, shape=(64, 63))
    assert [(program.steps, n, pitches(program)) for program, n in p.programs] == parts
    if p.padded:
        assert p.workspaces == dict.fromkeys(PADDED, (np.dtype("f8"), 64 * 64, False)) and pitches(p.main) == (64, 64)


def test_when_rows_are_padded() -> None:
    assert padded_pitch((9, 9999), 8, 9999, 3) == 10000 and padded_pitch((9, 9999), 8, 9999, 2) == 0
    assert padded_pitch((9, 9998), 8, 9998, 3) == 0  # 16 bytes divide it
    assert padded_pitch((9, 9998), 4, 9998, 3) == 10016 and padded_pitch((9, 10000), 4, 10000, 3) == 0
    assert padded_pitch((9, 64), 8, 65, 3) == 64  # packed rows that the user laid out oddly
    assert padded_pitch((9, 64), 8, 6400, 2) == 64  # a block of columns: no workspace as wide as that
    assert padded_pitch((46341, 46339), 8, 46339, 3) == 0  # indices are 32 bits wide


def test_arrays_with_a_pitch() -> None:
    k = sg.compile(heat, (64, 64), steps=9, backend="emulator", device="h200", schedule="stencil2row stages=2")
    same = k._plan(9, (64, 64))
    assert [n for _, n in same.programs] == [9] and k._plan(9, (66, 64)).programs[1] == (same.programs[0][0], 8)
    assert [pitches(p) for p, _ in k._plan(1, (66, 70)).programs] == [(66, 70)]
    assert k._plan(1, (66, 70)).alignment == {IN: 16, OUT: 16} and k._plan(1, (65, 70)).alignment == {IN: 8, OUT: 16}
    assert k._plan(1, (66, 67)).alignment == {IN: 16, OUT: 8}


def test_workspace() -> None:
    one, many = plan("direct", 1), plan("direct", 9)
    assert one.workspace_nbytes == 0 and one.workspaces == {}
    assert many.workspaces == {"field": (np.dtype("f8"), 64 * 64, False)} and many.workspace_nbytes == 64 * 64 * 8
    odd = plan("direct", 2, shape=(33, 35))
    assert (
        odd.workspaces == {"field": (np.dtype("f8"), 33 * 35, False)}
        and odd.workspace_nbytes == -(-33 * 35 * 8 // ALIGN) * ALIGN
    )
    assert sg.compile(heat, (64, 64), backend="emulator", schedule="direct").workspace_nbytes == 0
    explicit = plan("stencil2row transform=explicit", 1)
    assert (
        "field" not in explicit.workspaces and explicit.workspace_nbytes > 1.5 * 64 * 64 * 8
    )  # 2k / (k + 1) elements a point


def test_widest_access_sets_the_alignment() -> None:
    assert plan("direct", 1).alignment == {IN: 8, OUT: 8}
    assert plan("stencil2row stages=2", 1).alignment == plan("stencil2row stages=2", 2).alignment == {IN: 16, OUT: 16}
    assert plan("stencil2row stages=2", 1, shape=(63, 63)).alignment == {IN: 8, OUT: 8}
    assert plan("stencil2row stages=2", 9, shape=(63, 63)).alignment == {IN: 8, OUT: 8}
    assert plan("tiled", 1).alignment == {IN: 8, OUT: 16}  # its tiles begin one column to the left

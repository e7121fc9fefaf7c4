"""Each op that orders is needed where fields stay in registers, and so is each cell that blocks hand to one another.

Several seeds: blocks run in many orders, and some cells come late.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.cost.update_resident import numbers
from sparsegen.cost.update_windows import swapped
from sparsegen.dsl.update import Update
from sparsegen.ir import warp as w
from sparsegen.ir.expr import Const
from sparsegen.ir.module import Module
from sparsegen.ir.node import Op, rewrite, walk
from sparsegen.ir.numbers.held import Held
from sparsegen.ir.warp_tagged import LdTagged, StTagged
from sparsegen.pipelines import lower
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE
from tests.mutation.harness import ORDER, mutants
from tests.schedules import kernels, with_kernel
from tests.updates import TOLERANCE, arrays, emulated_pass, error, gray_scott, heat, made, reference_pass, wave


def around(**options: Any) -> Update:
    """It reads all cells around one, so that corners of halos matter too."""

    def around(u: Any) -> Any:
        cells = [u[dy, dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        return 0.1 * sum(cells[1:], cells[0]) + 0.05 * u[0, 0] ** 2

    return made(around, **options)


def along(**options: Any) -> Update:
    """It reads along the first of three axes alone: warps show one another nothing."""

    def along(u: Any) -> Any:
        return 0.4 * u[0, 0, 0] + 0.3 * u[1, 0, 0] + 0.3 * u[-1, 0, 0] + 0.05 * u[0, 0, 0] ** 2

    return made(along, **options)


H200 = load_profile("h200")
#: Odd seeds have cells that come late.
SEEDS, MANY = range(5), range(24)
#: An update, its type, a schedule: three rounds and five, one step and more between exchanges, four blocks and nine.
CASES: list[tuple[Callable[..., Update], str, str]] = [
    (wave, "f64", "tiles=2x2 rows=5 cols=2 warps=5 every=2"),
    (wave, "f32", "tiles=2x2 rows=5 cols=2 warps=5 every=1"),
    (gray_scott, "f32", "tiles=3x3 rows=4 cols=1 warps=5 every=2"),
    (heat, "f64", "tiles=2x2x1 planes=7 rows=2 cols=1 warps=5 every=1"),
    (along, "f64", "tiles=3x1x1 planes=5 rows=7 cols=1 warps=2 every=1"),
    (wave, "f64", "tiles=2x2 rows=1 cols=2 warps=21 every=1"),
]
#: Of fields on two axes, and on three.
SHAPES: dict[int, tuple[int, ...]] = {2: (37, 70), 3: (9, 14, 32)}
STEPS = 5


class Calls:
    """Two calls of a kernel, one after the other, and what each has to give."""

    def __init__(self, make: Callable[..., Update], dtype: str, line: str) -> None:
        sides = [sg.periodic, (sg.neumann, sg.dirichlet(0.5)), sg.periodic][: 1 + line.split()[0].count("x")]
        self.update = make(dtype=dtype, boundary=dict(enumerate(sides)))
        self.shape = SHAPES[self.update.ndim]
        schedule = UpdateSchedule.parse(f"resident {line}")
        self.schedule = schedule if schedule.planes else schedule.but(planes=1)
        self.module = lower(UpdateProblem(self.update, self.shape), self.schedule, H200, STEPS).warp
        self.given = [arrays(self.update, self.shape, seed) for seed in (0, 1)]
        self.want = [reference_pass(self.update, found, STEPS) for found in self.given]

    def findings(self, module: Module, seed: int) -> list[str]:
        """What the emulator says, and the arrays that are wrong."""
        kept: dict[str, Any] = {}
        for call, (given, want) in enumerate(zip(self.given, self.want, strict=True)):
            got, said = emulated_pass(self.update, module, given, seed=seed, kept=kept)
            said += [f"{key} is wrong" for key, a in got.items() if error(a, want[key]) > STEPS * self.tolerance]
            if said:
                return [f"call {call}: {text}" for text in said]
        return ["the counter of blocks is not zero"] if kept["workspace.counter"].any() else []

    @property
    def held(self) -> Held:
        """Which cells are whose."""
        return numbers(self.update, self.shape, self.schedule)

    @property
    def by(self) -> str:
        """How blocks exchange cells."""
        return self.held.by(swapped(self.update), ITEMSIZE[self.update.dtype])

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.update.dtype]

    def noticed(self, module: Module) -> bool:
        return any(self.findings(module, seed) for seed in SEEDS)


def changed(module: Module, rule: Callable[[Op], Op | None]) -> Module:
    """The module with another kernel; it differs."""
    (func,) = kernels(module).values()
    body = rewrite(func.body, rule)
    assert body != func.body
    return with_kernel(module, dataclasses.replace(func, body=body))


@pytest.mark.parametrize(("make", "dtype", "line"), CASES)
def test_nothing_that_orders_is_redundant(make: Callable[..., Update], dtype: str, line: str) -> None:
    """Barriers: one in a step, else one at the end, and two around an exchange by way of images; and the fences around
    the count of blocks at the end.  What no block gives is stored in no case."""
    calls = Calls(make, dtype, line)
    for seed in SEEDS:
        assert not calls.findings(calls.module, seed)
    (func,) = kernels(calls.module).values()
    tried = list(mutants(func, (*ORDER, StTagged)))
    left = [m for m in tried if not calls.noticed(with_kernel(calls.module, m.func))]
    stores, held = len([op for op in walk(func.body) if isinstance(op, StTagged)]), calls.held
    assert len(tried) == (3 if calls.by == "images" else 1) + 2 + stores
    never = 0
    if calls.by == "cells":  # of lines only those that some warp gives are looked at
        given = np.unpackbits(held.cell_bits[:, :, 0].view(np.uint8), axis=-1, bitorder="little").any((0, 1))
        never = (prod(held.share) - given.sum()) * stores // prod(held.share)
    assert len(left) == never and all("st_tagged" in str(m) for m in left), left


@pytest.mark.parametrize(("make", "dtype", "line"), CASES)
def test_tags_say_of_which_round_a_cell_is(make: Callable[..., Update], dtype: str, line: str) -> None:
    """Who stores another tag, or looks for another one, waits for ever."""
    calls = Calls(make, dtype, line)

    def later(op: Op) -> Op:
        return dataclasses.replace(op, tag=op.vals[0]) if isinstance(op, StTagged) else op

    assert calls.noticed(changed(calls.module, later))


@pytest.mark.parametrize(("make", "dtype", "line"), CASES)
def test_two_places_take_turns(make: Callable[..., Update], dtype: str, line: str) -> None:
    """With one place a block that is ahead overwrites what others have yet to take."""
    calls = Calls(make, dtype, line)

    def one_place(op: Op) -> Op:
        half = isinstance(op, w.Let) and op.out[0].name.startswith("half")
        return dataclasses.replace(op, expr=Const(0)) if half else op

    module = changed(calls.module, one_place)
    assert any(calls.findings(module, seed) for seed in MANY)  # such a block has to be far ahead


@pytest.mark.parametrize(("make", "dtype", "line"), [case for case in CASES if "every=2" in case[2]])
def test_the_next_launch_goes_on_with_other_tags(make: Callable[..., Update], dtype: str, line: str) -> None:
    """An epoch that stays behind makes cells of the launch before pass for new ones.

    Of more than two exchanges no place keeps its old tag until that is looked for.
    """
    calls = Calls(make, dtype, line)

    def stays(op: Op) -> Op | None:
        return None if isinstance(op, w.St) and op.buf.name == "epoch" else op

    module = changed(calls.module, stays)
    assert any(calls.findings(module, seed) for seed in MANY)


@pytest.mark.parametrize("line", ["tiles=2x2 rows=5 cols=2 warps=5 every=2", "tiles=3x3 rows=8 cols=1 warps=2 every=1"])
@pytest.mark.parametrize("table", ["given", "taken"])
def test_each_cell_is_listed_for_a_reason(line: str, table: str) -> None:
    """Without any one of the lists' cells the result is wrong, or somebody waits for ever."""
    calls = Calls(around, "f64", line)
    (role,) = (name for name in calls.module.constants if name.endswith(f".{table}"))
    whole = np.array(calls.module.constants[role])
    rng = np.random.default_rng(3)
    for at in rng.choice(np.flatnonzero(whole[..., 0].reshape(-1) >= 0), 6, replace=False):
        less = whole.copy()
        less.reshape(-1, 2)[at] = -1
        assert calls.noticed(dataclasses.replace(calls.module, constants={**calls.module.constants, role: less})), at


@pytest.mark.parametrize("which", ["gives", "takes"])
def test_each_bit_is_set_for_a_reason(which: str) -> None:
    """A thread that does not give one of its cells, or does not take one, is noticed."""
    calls = Calls(around, "f64", "tiles=3x3 rows=5 cols=1 warps=3 every=1")
    assert calls.by == "cells"
    (role,) = (name for name in calls.module.constants if name.endswith(".bits"))
    whole = np.array(calls.module.constants[role])
    set_ones = np.argwhere(whole[:, :, ("gives", "takes").index(which), 0])
    for block, thread in np.random.default_rng(3).choice(set_ones, 6, replace=False):
        less, at = whole.copy(), (block, thread, ("gives", "takes").index(which), 0)
        less[at] &= less[at] - 1  # without its lowest one
        assert calls.noticed(dataclasses.replace(calls.module, constants={**calls.module.constants, role: less})), at


def test_all_loads_of_cells_stand_in_loops_that_ask_again() -> None:
    calls = Calls(*CASES[0])
    (func,) = kernels(calls.module).values()
    asked = [op for loop in walk(func.body) if isinstance(loop, w.Loop) for op in walk(loop.body)]
    loads = [op for op in walk(func.body) if isinstance(op, LdTagged)]
    assert loads
    assert all(any(op is other for other in asked) for op in loads)

"""Each op that orders is needed where a general update makes several planes a turn, and so is each slot of their rings.

The fields are small, but rings go round: each walk has more turns than the longest ring has slots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.cost.layer_levels import numbers
from sparsegen.dsl.update import Update
from sparsegen.ir.errors import IRError
from sparsegen.ir.module import Module
from sparsegen.ir.numbers.layer_levels import LayerLevels, Ring
from sparsegen.ir.numbers.layers import Array
from sparsegen.pipelines import lower
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from tests.mutation.harness import mutants, weaker
from tests.schedules import kernels, with_kernel
from tests.updates import H200, TOLERANCE, arrays, emulated_pass, error, heat, made, reference_pass


def corners(**options: Any) -> Update:
    """It reads rows of the planes above and below, so that a step is two planes behind another; and an older level."""

    def corners(u: sg.Field(levels=2)) -> Any:  # type: ignore[valid-type]
        rows = u[1, 1, 0] + u[-1, -1, 1] + u[0, 1, -1]  # type: ignore[index]
        return 0.2 * (u[0, 0, 0] + rows + u.prev[1, -1, 0])  # type: ignore[index, attr-defined]

    return made(corners, **options)


BOUNDARIES: dict[str, Any] = {
    "periodic": sg.periodic,
    "mixed": {0: (sg.neumann, sg.dirichlet(1.5)), 1: (sg.dirichlet(0.5), sg.neumann), 2: (sg.neumann, sg.frozen)},
}
#: An update, a schedule, and how many ops order: a group of copies in the loop and one for each plane ahead, the wait
#: for it, the barrier of a turn.
CASES = [(heat, "levels=2 stages=2", 4), (heat, "levels=3 stages=3", 5), (corners, "levels=2 stages=3", 5)]
SEEDS = (0, 1)


class Pass:
    """A pass of an update on a small field, and what it has to give."""

    def __init__(self, make: Callable[..., Update], line: str, boundary: str) -> None:
        self.update, self.shape = make(boundary=BOUNDARIES[boundary]), (12, 8, 70)
        self.schedule = UpdateSchedule.parse(f"column {line} lines=2 warps=3 planes=8")
        self.given = arrays(self.update, self.shape)
        self.want = reference_pass(self.update, self.given, self.schedule.levels)
        self.numbers = numbers(self.update, self.schedule, self.schedule.planes)

    def lowered(self) -> Module:
        return lower(UpdateProblem(self.update, self.shape), self.schedule, H200, self.schedule.levels).warp

    def noticed(self, module: Module) -> bool:
        """Whether the emulator has something to say, or an array is wrong."""
        for seed in SEEDS:
            got, said = emulated_pass(self.update, module, self.given, seed=seed)
            most = self.schedule.levels * TOLERANCE[self.update.dtype]
            if said or any(error(a, self.want[key]) > most for key, a in got.items()):
                return True
        return False


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("make", "line", "many"), CASES)
def test_nothing_that_orders_is_redundant(make: Callable[..., Update], line: str, many: int, boundary: str) -> None:
    case = Pass(make, line, boundary)
    module = case.lowered()
    assert not case.noticed(module)
    (func,) = kernels(module).values()
    deleted = [(str(m), m.func) for m in mutants(func)]
    left = [what for what, less in (*deleted, *weaker(func)) if not case.noticed(with_kernel(module, less))]
    assert len(deleted) == many and not left


@pytest.mark.parametrize("kind", ["came", "made"])
@pytest.mark.parametrize(("make", "line"), [case[:2] for case in CASES])
def test_each_slot_is_needed(
    make: Callable[..., Update], line: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Pass(make, line, "periodic")
    for source, ring in getattr(case.numbers, kind).items():
        assert case.numbers.turns > ring.slots
        right = getattr(LayerLevels, f"_{kind}")

        def wrong(n: LayerLevels, of: Array, source: Array = source, right: Any = right) -> Ring:
            found: Ring = right(n, of)
            return dataclasses.replace(found, slots=found.slots - 1) if of == source else found

        with monkeypatch.context() as patch:
            patch.setattr(LayerLevels, f"_{kind}", wrong)
            try:
                assert case.noticed(case.lowered()), source
            except IRError as refused:  # a ring of one slot holds nothing, one of a walk has its stages
                assert "stages, its walk" in str(refused) or ring.slots == 1

"""Each op that orders is needed where a general update does several steps a pass, and each row that waits has its slot.

The fields are small, but rings go round: each walk has more turns than the longest ring has slots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.cost.update_stream import numbers
from sparsegen.dsl.update import Update
from sparsegen.ir.errors import IRError
from sparsegen.ir.module import Module
from sparsegen.ir.numbers.rows import Rows, Waiting
from sparsegen.pipelines import lower
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from tests.mutation.harness import mutants, weaker
from tests.schedules import kernels, with_kernel
from tests.updates import TOLERANCE, arrays, emulated_pass, error, gray_scott, made, reference_pass, wave


def older(**options: Any) -> Update:
    """It reads an older level at two rows: rows of the level wait, and a result has a ring of its own."""

    def older(u: sg.Field(levels=3)) -> Any:  # type: ignore[valid-type]
        before = u.prev  # type: ignore[attr-defined]
        return 0.25 * (u[0, 0] + before[1, 0] + before[-1, 0] + before.prev[0, 1])  # type: ignore[index]

    return made(older, **options)


def tall(**options: Any) -> Update:
    """It reads a coefficient farther up than the field, so that rows have to come before the halo's first."""

    def tall(u: Any, c: sg.Coef) -> Any:
        around = u[-1, 0] + u[1, 0] + u[0, 1]
        return 0.5 * u[0, 0] + 0.1 * around + 0.2 * (c[-3, 0] + c[2, 0] * u[0, -1])  # type: ignore[index]

    return made(tall, **options)


BOUNDARIES: dict[str, Any] = {
    "periodic": sg.periodic, "mixed": {0: (sg.frozen, sg.dirichlet(1.5)), 1: (sg.neumann, sg.frozen)}
}  # fmt: skip
#: An update, its type, columns of the field, a schedule, and how many ops order: a group of copies in the loop and one
#: for each row ahead, the wait for it; where lanes share what they copy, a point where a warp meets, and one a result.
CASES: list[tuple[Callable[..., Update], str, int, str, int]] = [
    (wave, "f64", 70, "levels=2 cols=4", 8),
    (wave, "f64", 70, "levels=3 cols=2", 5),
    (wave, "f64", 71, "levels=3 cols=4 stages=2", 6),
    (gray_scott, "f64", 70, "levels=2 cols=4 stages=3", 7),
    (gray_scott, "f32", 72, "levels=3 cols=4", 5),
    (older, "f64", 70, "levels=2 cols=4", 8),
    (older, "f64", 71, "levels=3 cols=2 stages=2", 7),
    (tall, "f64", 70, "levels=2 cols=4", 7),
    (tall, "f64", 70, "levels=3 cols=2 stages=3", 4),
]
PASSES = [case[:4] for case in CASES]
WAITING = [case for case in PASSES if case[0] is not gray_scott]
H200 = load_profile("h200")
SEEDS = (0, 1)


class Pass:
    """A pass of an update on a small field, and what it has to give."""

    def __init__(self, make: Callable[..., Update], dtype: str, columns: int, line: str, boundary: str) -> None:
        self.update, self.shape = make(dtype=dtype, boundary=BOUNDARIES[boundary]), (24, columns)
        self.schedule = UpdateSchedule.parse(f"stream {line} rows=12 warps=2")
        self.given = arrays(self.update, self.shape)
        self.want = reference_pass(self.update, self.given, self.schedule.levels)
        self.numbers = numbers(self.update, self.schedule, self.schedule.rows)

    def lowered(self) -> Module:
        return lower(UpdateProblem(self.update, self.shape), self.schedule, H200, self.schedule.levels).warp

    def findings(self, module: Module, seed: int) -> list[str]:
        """What the emulator says, and the arrays that are wrong."""
        got, said = emulated_pass(self.update, module, self.given, seed=seed)
        most = self.schedule.levels * TOLERANCE[self.update.dtype]
        return said + [f"{key} is wrong" for key, a in got.items() if error(a, self.want[key]) > most]

    def noticed(self, module: Module) -> bool:
        return any(self.findings(module, seed) for seed in SEEDS)

    def changed(self, monkeypatch: pytest.MonkeyPatch, source: tuple[str, int], **fields: int) -> Module:
        """The pass with other numbers of an array that waits."""
        right = Rows._waiting

        def wrong(rows: Rows, of: tuple[str, int]) -> Waiting:
            waiting = right(rows, of)
            return dataclasses.replace(waiting, **fields) if of == source else waiting

        with monkeypatch.context() as patch:
            patch.setattr(Rows, "_waiting", wrong)
            patch.setattr("sparsegen.families.update.stream.numbers", numbers.__wrapped__)  # which remembers nothing
            return self.lowered()


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("make", "dtype", "columns", "line", "many"), CASES)
def test_nothing_that_orders_is_redundant(
    make: Callable[..., Update], dtype: str, columns: int, line: str, many: int, boundary: str
) -> None:
    case = Pass(make, dtype, columns, line, boundary)
    module = case.lowered()
    for seed in SEEDS:
        assert not case.findings(module, seed)
    (func,) = kernels(module).values()
    deleted = [(str(m), m.func) for m in mutants(func)]
    tried = [*deleted, *weaker(func)]
    left = [what for what, less in tried if not case.noticed(with_kernel(module, less))]
    print(f"{line}: {len(tried) - len(left)} of {len(tried)} noticed" + "".join(f"\n  {what}" for what in left))
    ahead = case.schedule.stages - 1
    loops = 3 if boundary == "mixed" else 1  # the turns at the ends of the rows have loops of their own
    assert len(deleted) == ahead + loops * (many - ahead) and not left


@pytest.mark.parametrize(("make", "dtype", "columns", "line"), PASSES)
def test_rings_go_round(make: Callable[..., Update], dtype: str, columns: int, line: str) -> None:
    """Each slot is used again; and the cases are those that they are meant to be."""
    n = Pass(make, dtype, columns, line, "periodic").numbers
    assert n.turns > max([n.stages, *(w.slots for w in n.waiting.values())])
    assert (max([0, *(w.longest for w in n.waiting.values())]) > 0) == (make is not gray_scott)
    assert any(not n.through(*made) for made in n.outputs) == (make is older)
    assert (n.above > n.below) == (make is tall)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("make", "dtype", "columns", "line"), WAITING)
def test_rows_that_wait_need_each_slot(
    make: Callable[..., Update], dtype: str, columns: int, line: str, boundary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rings in which nothing waits, the walk itself says how many slots they have."""
    case = Pass(make, dtype, columns, line, boundary)
    for source, waiting in case.numbers.waiting.items():
        less = {"slots": waiting.slots - 1}
        if waiting.longest:
            assert case.noticed(case.changed(monkeypatch, source, **less)), source
        else:
            with pytest.raises(IRError, match="stages, its walk"):
                case.changed(monkeypatch, source, **less)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("make", "dtype", "columns", "line"), WAITING)
def test_rows_come_from_where_the_numbers_say(
    make: Callable[..., Update], dtype: str, columns: int, line: str, boundary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a row later nor a row earlier; and the halo has all rows that the first level needs, none too few."""
    case = Pass(make, dtype, columns, line, boundary)
    for source, waiting in case.numbers.waiting.items():
        others = [{"ahead": waiting.ahead - 1}, {"ahead": waiting.ahead + 1}]
        if waiting.early > 0:
            others += [{"early": 0}, {"early": waiting.early - 1}]
        for other in others:
            assert case.noticed(case.changed(monkeypatch, source, **other)), (source, other)

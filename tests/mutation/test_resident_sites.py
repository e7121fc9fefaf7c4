"""What happens at sites of fields that stay in registers has its order and its place, and each table says what it has
to: sources before receivers, after the step; a source's cell in every window that has it; each cell that is seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends import emulator
from sparsegen.cost.devices import load_profile
from sparsegen.ir.module import Module
from sparsegen.ir.node import Op, rewrite, walk
from sparsegen.ir.passes import Manager
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.tile_held import HeldSteps
from sparsegen.ir.tile_sites import AddSources
from sparsegen.ir.types import Buffer
from sparsegen.ir.warp import Func
from sparsegen.pipelines import Program, lower
from sparsegen.plan import launches
from sparsegen.problems.update import UpdateProblem
from sparsegen.run.emulator import poisoned
from sparsegen.schedule import UpdateSchedule
from tests.mutation.harness import ORDER, mutants
from tests.schedules import kernels, with_kernel
from tests.updates import wave

H200 = load_profile("h200")
#: Four blocks of windows that overlap by two cells: three rounds, of two steps and of one.
LINE, SHAPE, STEPS = "tiles=2x2 planes=1 rows=5 cols=2 warps=5 every=2", (37, 70), 5
#: Odd seeds have cells that come late.
SEEDS = range(4)
#: The last column of the left blocks, which is in the halo of the right ones; a source and a receiver of it.
SEAM = [[9.0, 34.0]]


class Calls:
    """A call of a kernel, and what it has to give."""

    def __init__(self) -> None:
        more = sg.Source([[20.5, 30.25], [20.5, 30.25], [3.0, 69.0]], field="u")
        seen = sg.Receiver([*SEAM, [9.5, 34.5], [30.25, 7.0]], field="u")
        boundary = {0: sg.periodic, 1: (sg.neumann, sg.dirichlet(0.5))}
        self.update = wave(dtype="f64", boundary=boundary).with_sites(shot=sg.Source(SEAM), more=more, seen=seen)
        k = sg.compile(self.update, SHAPE, STEPS, backend="reference")
        self.calls, given = k._calls, k.random()
        self.given = self.calls.given({**given, "shot": given["shot"] + 1})
        self.want = self.calls.results(k(**{**given, "shot": given["shot"] + 1}))

    @cached_property
    def program(self) -> Program:
        return lower(UpdateProblem(self.update, SHAPE), UpdateSchedule.parse(f"resident {LINE}"), H200, STEPS)

    def findings(self, module: Module, seed: int) -> list[str]:
        """What the emulator says, and the arrays that are wrong."""
        arrays: dict[str, Any] = {}
        for bound in launches(module):
            args: dict[str, Any] = {}
            for param, role in bound.roles:
                assert isinstance(param, Buffer)
                name = {"out.u": "out.u.0"}.get(role, role)
                if name not in arrays:
                    found = module.constants.get(name, self.given.get(name))
                    made = poisoned(param.size, param.dtype.numpy(), name) if found is None else np.array(found)
                    arrays[name] = made.reshape(-1)
                args[param.name] = arrays[name]
            said = [str(finding) for finding in emulator.run(bound.func, args, seed=seed).errors]
            if said:
                return said
        return [
            f"{name} is wrong" for name, want in self.want.items()
            if not np.abs(arrays[name].reshape(want.shape) - want).max() <= 1e-12
        ]  # fmt: skip

    def noticed(self, module: Module) -> bool:
        return any(self.findings(module, seed) for seed in SEEDS)


@pytest.fixture(scope="module")
def calls() -> Calls:
    return Calls()


def lowered(module: Module) -> Module:
    return Manager((ToWarp(), Simplify(), Dce()), shared_limit=H200.smem_block).run(module)


def turned(module: Module, change: Callable[[HeldSteps], HeldSteps]) -> Module:
    """The tile program with other steps, lowered."""

    def rule(op: Op) -> Op:
        return change(op) if isinstance(op, HeldSteps) else op

    return lowered(dataclasses.replace(module, funcs=rewrite(module.funcs, rule)))


def test_nothing_that_orders_is_redundant(calls: Calls) -> None:
    """A barrier in a step, two around an exchange by way of images, and the fences around the count of blocks."""
    module = calls.program.warp
    for seed in SEEDS:
        assert not calls.findings(module, seed)
    func: Func = kernels(module)["wave"]
    tried = list(mutants(func, ORDER))
    assert len(tried) == 5
    left = [mutant for mutant in tried if not calls.noticed(with_kernel(module, mutant.func))]
    assert not left, left


def test_sources_come_before_receivers_and_both_after_the_step(calls: Calls) -> None:
    tile = calls.program.tile
    assert not calls.noticed(turned(tile, lambda op: op))
    other = {
        "receivers first": lambda op: dataclasses.replace(op, after=op.after[::-1]),
        "before the step": lambda op: dataclasses.replace(op, before=(*op.before, *op.after), after=()),
        "sources before the step": lambda op: dataclasses.replace(
            op, before=(*op.before, *op.after[:2]), after=op.after[2:]
        ),
    }
    for what, change in other.items():
        assert calls.noticed(turned(tile, change)), what


def test_a_signal_is_that_of_its_step(calls: Calls) -> None:
    """A source that has no signal fetched for it adds what the one before has left."""
    (_, fetch) = next(op for op in walk(calls.program.tile.funcs) if isinstance(op, HeldSteps)).before
    assert calls.noticed(
        turned(calls.program.tile, lambda op: dataclasses.replace(op, before=tuple(o for o in op.before if o != fetch)))
    )
    adds = [op for op in walk(calls.program.tile.funcs) if isinstance(op, AddSources)]
    assert [op.count for op in adds] == [1, 3]


def test_a_source_is_in_every_window_that_needs_its_cell(calls: Calls) -> None:
    """Of two windows that have the cell, one in its halo, neither may leave it out."""
    module = calls.program.warp
    (role,) = (name for name in module.constants if name.endswith(".shot_weights"))
    weights = np.array(module.constants[role])
    assert weights.tolist() == [1.0, 1.0]
    for entry in range(2):
        less = weights.copy()
        less[entry] = 0
        assert calls.noticed(dataclasses.replace(module, constants={**module.constants, role: less})), entry


def test_each_cell_is_seen_for_a_reason(calls: Calls) -> None:
    """A cell that no thread stores is missed, and one that is stored in another's place is, too."""
    module = calls.program.warp
    for table in ("bits", "begin"):
        (role,) = (name for name in module.constants if name.endswith(f".seen_{table}"))
        (bits,) = (np.array(a) for name, a in module.constants.items() if name.endswith(".seen_bits"))
        whole = np.array(module.constants[role])
        for thread in np.flatnonzero(bits.any(1)):
            other = whole.copy()
            if table == "bits":
                other[thread] &= other[thread] - 1  # without its lowest one
            else:
                other[thread] -= 1 if other[thread] else -1
            assert calls.noticed(dataclasses.replace(module, constants={**module.constants, role: other})), thread

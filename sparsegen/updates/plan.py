"""The time loop of general updates: which program makes each step, and between which arrays.

A field of n levels is kept in a ring of n + 1 arrays: the n that a call gives back, and one of the workspace.  Each
step reads n of them and writes the one that holds the oldest level; the last n steps write what is given back.  The
first steps read the arrays of the user, which are never written.  With fewer steps than levels some of what is given
back are copies of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import lcm
from threading import Lock
from typing import Any

import numpy as np

from sparsegen.boundary import periodic
from sparsegen.dsl.standin import Parameter
from sparsegen.dsl.update import Update
from sparsegen.ir.errors import IRError
from sparsegen.ir.op_update import parameters
from sparsegen.pipelines import Program
from sparsegen.schedule import ITEMSIZE
from sparsegen.updates.pipelines import lower
from sparsegen.updates.schedule import UpdateSchedule

#: Elements from row to row of each array, by its name.
Pitches = Mapping[str, int]


def inputs(update: Update) -> tuple[str, ...]:
    """Names of the arrays that a call is given: ``in.u.0`` (the newest level), ``in.u.1``, ..., ``in.c.0``."""
    return tuple(f"in.{name}.{level}" for name, level in parameters(update.fields, update.coefs))


def outputs(update: Update) -> tuple[str, ...]:
    """Names of the arrays that a call gives back: ``out.u.0`` (the newest level), ``out.u.1``, ..."""
    return tuple(f"out.{name}.{level}" for name, level in parameters(update.fields, ()))


def roles(update: Update) -> tuple[str, ...]:
    """The roles of the program's launch, in the order of its pitches."""
    return (*inputs(update), *(f"out.{name}" for name, _ in update.fields))


@dataclass(frozen=True)
class Step:
    """One launch: a program, and the array that is bound to each of its roles."""

    program: Program
    arrays: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class UpdatePlan:
    """What one call runs: ``count`` time steps, then ``copies`` of levels of the input to the result.

    ``head`` are the first steps, which read the input; the others repeat with a period: ``cycle[i]`` are those with i
    steps left, modulo the period.
    """

    count: int
    head: tuple[Step, ...]
    cycle: tuple[Step, ...]
    copies: tuple[Step, ...]
    workspaces: dict[str, int]

    def at(self, now: int) -> Step:
        """Time step ``now``, from 1."""
        return self.head[now - 1] if now <= len(self.head) else self.cycle[(self.count - now) % len(self.cycle)]

    def run(self) -> Iterator[Step]:
        """All launches in order."""
        yield from (self.at(now) for now in range(1, self.count + 1))
        yield from self.copies

    @property
    def main(self) -> Program:
        """The program that stands for the plan: that of the last time step."""
        return self.at(self.count).program

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of all workspace arrays."""
        return sum(self.workspaces.values())

    @property
    def passes(self) -> int:
        """Launches in all."""
        return self.count + len(self.copies)

    @cached_property
    def parts(self) -> tuple[tuple[Program, int], ...]:
        """Each program, in the order of first use, and how often it runs."""
        times: Counter[int] = Counter(id(s.program) for s in (*self.head, *self.copies))
        programs = {id(s.program): s.program for s in (*self.head, *self.cycle, *self.copies)}
        rest = self.count - len(self.head)
        for i, s in enumerate(self.cycle):
            times[id(s.program)] += len(range(i, rest, len(self.cycle)))
        return tuple((program, times[key]) for key, program in programs.items() if times[key])


def ring(name: str, levels: int, time: int, last: int) -> str:
    """The array that holds a field's level of a time (0: the newest input), when ``last`` is the time of the result."""
    if time <= 0:
        return f"in.{name}.{-time}"
    place = (last - time) % (levels + 1)
    return f"out.{name}.{place}" if place < levels else f"ws.{name}"


@dataclass
class UpdatePrograms:
    """The programs of one kernel, lowered when first needed, one for each set of pitches."""

    update: Update
    shape: tuple[int, ...]
    schedule: UpdateSchedule
    _known: dict[tuple[Any, ...], Program] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)

    def get(self, pitch: tuple[int, ...], *, copy: bool = False) -> Program:
        """The program of a time step (or of a copy) for arrays of these pitches, in the order of its roles."""
        with self._lock:
            key = (copy, pitch)
            if key not in self._known:
                update = identity(self.update) if copy else self.update
                self._known[key] = lower(update, self.shape, self.schedule, pitch)
            return self._known[key]

    def plan(self, steps: int, pitches: Pitches | None = None) -> UpdatePlan:
        """The launches of ``steps`` time steps; ``pitches`` of inputs and outputs (packed ones if not given)."""
        update = self.update
        apart = dict(pitches or dict.fromkeys((*inputs(update), *outputs(update)), self.shape[-1]))
        apart |= {f"ws.{name}": apart[f"out.{name}.0"] for name, _ in update.fields}

        def step(now: int) -> Step:
            bound = {f"in.{c}.0": f"in.{c}.0" for c in update.coefs}
            for name, levels in update.fields:
                bound |= {f"in.{name}.{k}": ring(name, levels, now - 1 - k, steps) for k in range(levels)}
                bound[f"out.{name}"] = ring(name, levels, now, steps)
            return self._step(roles(update), bound, apart)

        most, period = max(n for _, n in update.fields), lcm(*(n + 1 for _, n in update.fields))
        head = tuple(step(now) for now in range(1, min(most, steps) + 1))
        cycle = tuple(step(steps - left) for left in range(min(period, steps - len(head))))
        one = update.fields[0][0]  # copies take its roles
        copies = tuple(
            self._step(
                (f"in.{one}.0", f"out.{one}"),
                {f"in.{one}.0": f"in.{name}.{k - steps}", f"out.{one}": f"out.{name}.{k}"}, apart, copy=True,
            )
            for name, levels in update.fields for k in range(steps, levels)
        )  # fmt: skip
        used = {array for s in (*head, *cycle) for _, array in s.arrays if array.startswith("ws.")}
        cells = {name: int(np.prod(self.shape[:-1], dtype=np.int64)) * apart[name] for name in sorted(used)}
        return UpdatePlan(steps, head, cycle, copies, {n: c * ITEMSIZE[update.dtype] for n, c in cells.items()})

    def _step(self, names: tuple[str, ...], bound: dict[str, str], apart: Pitches, *, copy: bool = False) -> Step:
        program = self.get(tuple(apart[bound[role]] for role in names), copy=copy)
        (launch,) = program.warp.launches
        if launch.args != names:
            raise IRError(f"the launch of {launch.symbol!r} has the roles {launch.args}, not {names}")
        return Step(program, tuple(bound.items()))


def identity(update: Update) -> Update:
    """The update that copies a field; it takes the roles of the first one."""
    zero = (0,) * update.ndim
    sides = ((periodic, periodic),) * update.ndim
    name = update.fields[0][0]
    return Update((Parameter(name),), (("read", name, 0, zero),), (0,), update.dtype, (sides,), f"{update.name}_copy")

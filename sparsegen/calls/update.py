"""Calls of a general update's kernels.

A pass of T steps writes the min(n, T) newest levels of a field of n.  Such a field is kept in a ring of n + min(n, T)
arrays: the n that a call gives back, and the others of the workspace.  Each pass reads the n that were written last and
writes those that hold the oldest levels; the last ones written are what is given back.  Where rows do not start at
16-byte boundaries, all but the first and the last passes go between arrays of the workspace whose rows are padded, with
ghosts of the cells across a border where rows wrap; and coefficients, which every pass reads, are copied to such arrays
first.

The first passes read the arrays of the user, which are never written.  With fewer steps than levels some of what is
given back are copies of them.  Steps that do not fill a pass are made first, in one of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import gcd, lcm
from typing import Any, ClassVar

import numpy as np

from sparsegen.backends.reference.update import AtSites, run
from sparsegen.boundary import periodic
from sparsegen.calls.base import HostArrays
from sparsegen.calls.grid import GridCalls
from sparsegen.calls.numbers import alike, each, some, table
from sparsegen.cost.devices import DeviceProfile
from sparsegen.dsl.operands import Parameter
from sparsegen.dsl.stencil import DTYPES
from sparsegen.dsl.update import Update
from sparsegen.families.update.base import family
from sparsegen.ir import formula
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.op_sites import TIMED, apart
from sparsegen.ir.op_update import ALL_SCALARS, SCALARS, parameters, written
from sparsegen.ir.types import Buffer, cell_type
from sparsegen.memo import Memo
from sparsegen.pipelines import Program, lower
from sparsegen.plan import Part, Plan, Step, launches, with_tables
from sparsegen.problems.update import CopyProblem, Layouts, UpdateProblem
from sparsegen.run.host import HostArray
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import MAX_CELLS, VECTOR, padded_pitch


class UpdateCalls(GridCalls):
    """An array for each parameter, or a tuple of its levels; they are called ``in.u.0``, ``out.u.0``, ..."""

    kind: ClassVar[str] = "UpdateKernel"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    problem: UpdateProblem
    #: Arrays with a row for each time step; a pass has those of its steps.
    timed: tuple[str, ...] = ()

    def __init__(self, problem: UpdateProblem, backend: str) -> None:
        update = problem.what
        levels = {**dict(update.fields), **dict.fromkeys(update.coefs, 1)}
        given = {
            p.name: tuple(f"in.{p.name}.{k}" for k in range(levels[p.name])) for p in update.parameters if not p.number
        }
        fields = {name: tuple(f"out.{name}.{k}" for k in range(levels)) for name, levels in update.fields}
        super().__init__(problem, backend, given, fields)
        self.named = tuple(p.name for p in update.numbers)
        self.masks = tuple(p.name for p in update.parameters if p.mask)
        #: What a call of plain numbers gives, and their type; empty where the time is to be worked out.
        self._plain = () if any(p.number == "time" for p in update.numbers) else formula.scalars(update.code)
        self._sums = cell_type(problem.kind).numpy()
        #: The roles of a pass: every level that it reads, fields before coefficients, and those that it may write.
        self.roles = (
            *(array for name in levels for array in given[name]),
            *(written(*f) for f in parameters(update.fields, ())),
        )

    def scalars(self, values: Mapping[str, Any], steps: int) -> HostArray | None:
        if not self.problem.what.numbers:
            return None
        quick = alike(self._plain, self._sums, values, steps) if self._plain else None
        return table(self.problem.what, each(self.problem.what, values, steps), steps) if quick is None else quick

    def each_step(self, values: Mapping[str, Any], steps: int) -> dict[str, HostArray]:
        return each(self.problem.what, values, steps)

    def some_scalars(self, steps: int) -> dict[str, Any]:
        return some(self.problem.what, steps)

    def program(
        self, schedule: UpdateSchedule, device: DeviceProfile, steps: int, variant: Any, copied: Update | None = None,
        shared: bool = False, apart: bool = False,
    ) -> Program:  # fmt: skip
        """Of a pass, or of the update ``copied`` that copies an array, perhaps one ``shared`` by a batch, and makes no
        step, for the pitches of its roles; ``apart``: to rows that lie otherwise."""
        if copied:
            kind = CopyProblem if apart else UpdateProblem
            problem = kind(copied, self.problem.shape, batch=None if shared else self.problem.batch)
            return replace(lower(problem, UpdateSchedule("direct"), device, 1, variant), steps=0)
        return lower(self.problem, schedule, device, steps, variant)

    def plan(self, programs: Memo[Program], schedule: UpdateSchedule, steps: int, variant: Any) -> Plan:
        """Passes that read the input, periods of the rings, copies; ``variant``: of every array."""
        update, cols = self.problem.what, self.problem.shape[-1]
        if family(schedule).whole:
            return self._whole(programs, steps, variant)
        apart = dict(zip(self.arguments, variant or (cols,) * len(self.arguments), strict=True))
        passes, rest = divmod(steps, schedule.levels)
        ends = [*([rest] if rest else []), *(rest + schedule.levels * (i + 1) for i in range(passes))]
        sizes = [end - start for start, end in pairwise((0, *ends))]
        grid = (1, *self.problem.shape)[-max(2, len(self.problem.shape)) :]
        every, size = (self.problem.items, *grid), self.dtype.itemsize
        beside = self._ghosts(schedule)
        wide = padded_pitch(every, size, cols, len(sizes), beside) if family(schedule).pieces else 0
        rings = {name: Ring(name, levels, sizes, apart=bool(wide)) for name, levels in update.fields}
        coefs = {f"in.{c}.0": f"in.{c}.0" for c in update.coefs}
        moved = {name: f"ws.{name[3:]}" for name in coefs if wide and apart[name] * size % VECTOR}

        def pitch(array: str) -> int:
            of, name, _ = array.split(".")
            return int((wide or apart[f"out.{name}.0"]) if of == "ws" else apart[array])

        def bound(size: int, roles: Sequence[str], arrays: Mapping[str, str], *copied: Any) -> Step:
            variant = tuple(pitch(arrays[r]) if r in arrays else cols for r in roles)
            own = tuple(arrays.get(r, r).startswith("ws.") for r in roles) if wide else ()
            ghosts = tuple(beside * one for one in own) if beside else ()
            layouts = Layouts(variant, ghosts, () if beside else own) if any(own) else variant
            return Step.of(programs.get(size, layouts, *copied), arrays)

        def copy(source: str, to: str, *how: Any) -> Part:  # copies take the roles of the first field
            one = update.fields[0][0]
            arrays = {f"in.{one}.0": source, f"out.{one}": to}
            return Part((bound(1, tuple(arrays), arrays, identity(update, one), *how),))

        def step(i: int) -> Step:
            arrays = {**coefs, **moved, **{name: name for name in self.timed}}
            for name, ring in rings.items():
                arrays |= {f"in.{name}.{k}": array for k, array in enumerate(ring.read(i))}
                arrays |= {written(name, k): array for k, array in enumerate(ring.written(i))}
            return bound(sizes[i], self.roles, arrays)

        period, count = lcm(*(ring.period for ring in rings.values())), len(sizes)
        head = min(count, max(ring.head for ring in rings.values()))
        last = max(head, count - max(ring.tail for ring in rings.values()))
        cycle = tuple(step(i) for i in range(head, min(head + period, last)))
        before = [copy(name, to, name in self.problem.shared, True) for name, to in moved.items()]
        copies = [
            copy(f"in.{name}.{k - steps}", f"out.{name}.{k}")
            for name, levels in update.fields for k in range(steps, levels)
        ]  # fmt: skip
        first, end = ([Part((step(i),)) for i in some] for some in (range(head), range(last, count)))
        parts = (*before, *first, *((Part(cycle, last - head),) if cycle else ()), *end, *copies)
        return Plan(
            parts, tuple(self.arguments), step(max(head, last - 1) if cycle else count - 1).program, steps, wide
        )

    def _ghosts(self, schedule: UpdateSchedule) -> int:
        """Ghosts beside a row of the workspace: those that a pass copies across a border, in whole pieces.

        None where rows do not wrap, or do so in whole pieces, and where kernels of sites write cells without them.
        """
        update, (*_, cols), size = self.problem.what, self.problem.shape, self.dtype.itemsize
        ends = (side for sides in (*update.sides, update.coef_sides) for side in sides[-1])
        if update.sites or cols * size % VECTOR == 0 or any(side.kind != "periodic" for side in ends):
            return 0
        found = up(family(schedule).reach(update, schedule), VECTOR // size)
        return found if 2 * found <= cols else 0

    def _whole(self, programs: Memo[Program], steps: int, variant: Any) -> Plan:
        """One launch from the levels of the input to those of the result; their number is all that steps change."""
        apart = dict(zip(self.arguments, variant or (self.problem.shape[-1],) * len(self.arguments), strict=True))
        fields = self.problem.what.fields
        arrays = {role: role for levels in self.parameters.values() for role in levels}
        arrays |= {written(name, level): f"out.{name}.{level}" for name, level in parameters(fields, ())}
        arrays |= {name: name for name in self.timed}
        program = with_steps(programs.get(1, tuple(apart[arrays[role]] for role in self.roles)), steps)
        return Plan((Part((Step.of(program, arrays),)),), tuple(self.arguments), program, steps)

    def notes(self, program: Program) -> list[str]:
        notes = [f"One launch does {program.steps} time step{'s' if program.steps > 1 else ''}."]
        pitch = program.op.funcs[0].pitch  # type: ignore[attr-defined]
        if set(pitch) != {self.problem.shape[-1]}:
            notes.append(f"Elements from row to row of each array, in order: {', '.join(map(str, pitch))}.")
        return notes

    def one(self, arrays: Mapping[str, Any], steps: int) -> HostArrays:
        return self._one(arrays, steps)

    def _one(self, arrays: Mapping[str, Any], steps: int, sites: AtSites | None = None) -> HostArrays:
        update = self.problem.what
        fields = {name: tuple(arrays[f"in.{name}.{k}"] for k in range(levels)) for name, levels in update.fields}
        coefs = {name: arrays[f"in.{name}.0"] for name in update.coefs}
        new = run(self.problem.describe().funcs[0], fields, coefs, steps, arrays.get(SCALARS), sites)  # type: ignore[arg-type]
        return {f"out.{name}.{k}": level for name, levels in new.items() for k, level in enumerate(levels)}


class Ring:
    """The arrays of a field of ``levels`` levels, over passes of so many steps each.

    ``apart``: only what is given back lies in the arrays of a result, everything before it in the workspace.
    """

    def __init__(self, name: str, levels: int, sizes: Sequence[int], *, apart: bool = False) -> None:
        self.name, self.levels, self.apart = name, levels, apart
        new = [min(levels, size) for size in sizes]  # levels that a pass writes
        self._before = [0, *accumulate(new)]  # levels written before a pass
        self.size = levels + max(new)  #: arrays in all, or of the workspace
        #: Passes of the last kind after which the same arrays come again.
        self.period = self.size // gcd(self.size, new[-1])
        #: Passes at the start that read arrays of the user or are not of the last kind, and those at the end that are
        #: not like the others.
        alike = max((i for i, (a, b) in enumerate(pairwise(sizes), 1) if a != b), default=0)  # from there on
        self.head = next((i for i, n in enumerate(self._before[:-1]) if n >= levels and i >= alike), len(sizes))
        self.tail = sum(n > self._before[-1] - levels for n in self._before[1:]) if apart else 0

    def _array(self, number: int) -> str:
        """The array of a level by its number in the order of writing, from 0; -1 is the newest of the input."""
        if number < 0:
            return f"in.{self.name}.{-1 - number}"
        left = self._before[-1] - 1 - number
        if self.apart:
            given = left < self.levels
            return f"out.{self.name}.{left}" if given else f"ws.{self.name}.{number % self.size}"
        place = left % self.size
        return f"{'out' if place < self.levels else 'ws'}.{self.name}.{place}"

    def read(self, i: int) -> list[str]:
        """What pass ``i`` reads, newest level first."""
        return [self._array(self._before[i] - 1 - k) for k in range(self.levels)]

    def written(self, i: int) -> list[str]:
        """What pass ``i`` writes, newest level first."""
        return [self._array(self._before[i + 1] - 1 - k) for k in range(self._before[i + 1] - self._before[i])]


def identity(update: Update, *names: str) -> Update:
    """The update that copies the newest levels of some fields."""
    zero, sides = (0,) * update.ndim, ((periodic, periodic),) * update.ndim
    code = tuple(("read", name, 0, zero) for name in names)
    return Update(
        tuple(map(Parameter, names)), code, tuple(range(len(names))), update.dtype, (sides,) * len(names),
        f"{update.name}_copy",
    )  # fmt: skip


def with_steps(program: Program, steps: int) -> Program:
    """The program of a launch that makes all time steps, for another number of them: all else is the same, but for how
    long tables of scalars and arrays with a row for each step are.  ArrayError for more rows than indices reach."""
    name = f"{program.op.funcs[0].symbol}.steps"  # type: ignore[attr-defined]
    warp, longer, constants = program.warp, dict[str, dict[Buffer, Buffer]](), dict(program.warp.constants)
    for func, roles in launches(warp):
        for param, role in roles:
            if role.startswith(apart("")):
                constants[role] = np.array(warp.constants[role] // program.steps * steps, np.int32)
            elif isinstance(param, Buffer) and role.startswith((ALL_SCALARS, *TIMED)):
                size = param.size // program.steps * steps
                if size > MAX_CELLS:
                    raise ArrayError(
                        f"{role.split('.')[-1]} has {size} numbers for {steps} time steps; indices are 32 bits wide",
                        hint="make fewer time steps a call, as k.run(every=...) does",
                    )
                longer.setdefault(func.symbol, {})[param] = replace(param, size=size)
    constants[name] = np.array([steps], np.int32)
    funcs = tuple(with_tables(f, longer[f.symbol]) if f.symbol in longer else f for f in warp.funcs)  # type: ignore[attr-defined,arg-type]
    return replace(program, steps=steps, warp=replace(warp, funcs=funcs, constants=constants))

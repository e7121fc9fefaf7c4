"""What a call runs: which programs, how often, between which arrays.

Time steps that take turns between two fields, a rest before the main program, padded levels, rings of levels, copies of
levels at the end, a product with its splits: each is a plan, and every back end runs any plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.ir import warp
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Value
from sparsegen.ir.module import Module
from sparsegen.ir.node import rewrite, walk, with_buffers
from sparsegen.ir.op_sites import TIMED, apart
from sparsegen.ir.op_update import ALL_SCALARS, SCALARS
from sparsegen.ir.tensor_copy import TensorCopy
from sparsegen.ir.types import Buffer
from sparsegen.pipelines import Program

#: The roles of a pass's input and output; how those of workspace arrays begin that live as long as a pass.
IN, OUT, SCRATCH = "in", "out", ("ws.", "workspace.")
#: A workspace that counts: zero before the first call, and every call leaves it so.
COUNTER = "workspace.counter"
#: How roles of workspaces begin that are zero before the first call, and then stay as each call leaves them.
KEPT = "workspace.kept."
ALIGN = 256  #: bytes: how workspace arrays are aligned


class Bound(NamedTuple):
    """One launch of a pass: the function, and for each of its parameters the role that is bound to it."""

    func: warp.Func
    roles: tuple[tuple[Buffer | Value, str], ...]


def launches(module: Module) -> tuple[Bound, ...]:
    """The launches of a warp module with their parameters; IRError for a launch that fits no function."""
    funcs = {f.symbol: f for f in module.funcs if isinstance(f, warp.Func)}
    out: list[Bound] = []
    for run in module.launches:
        func = funcs.get(run.symbol)
        if func is None or len(func.params) != len(run.args):
            raise IRError(f"the launch of {run.symbol!r} with {len(run.args)} arguments fits no function")
        out.append(Bound(func, tuple(zip(func.params, run.args, strict=True))))
    return tuple(out)


def constant(module: Module, role: str, param: Buffer | Value) -> npt.NDArray[Any]:
    """The table bound to a parameter, flat and of its type; IRError if the module has none of that name or size."""
    if role not in module.constants:
        raise IRError(f"parameter {param.name!r} is bound to {role!r}, which is no constant of {module.name!r}")
    data = np.ascontiguousarray(module.constants[role]).reshape(-1)
    size = param.size if isinstance(param, Buffer) else 1
    if data.size != size or data.dtype.itemsize != param.dtype.nbytes:
        what = f"constant {role!r} is {data.size} x {data.dtype}"
        raise IRError(f"{what}, parameter {param.name!r} is {size} x {param.dtype}")
    return data


def buffers(module: Module) -> Iterator[tuple[str, Buffer]]:
    """Every array in global memory that launches take, by its role; constants and tables of scalars left out."""
    for bound in launches(module):
        for param, role in bound.roles:
            given = role in module.constants or role == ALL_SCALARS
            if isinstance(param, Buffer) and param.space == "global" and not given:
                yield role, param


def access_bytes(module: Module) -> dict[str, int]:
    """The widest access of any launch to the array of each role, in bytes: its address must be a multiple of it."""
    widest: dict[str, int] = {}
    for bound in launches(module):
        roles = {param.name: role for param, role in bound.roles if isinstance(param, Buffer)}
        found = [(p.name, p.dtype.nbytes) for p, _ in bound.roles]
        for op in walk(bound.func.body):
            if isinstance(op, warp.Ld):
                found.append((op.buf.name, len(op.out) * op.buf.dtype.nbytes))
            elif isinstance(op, warp.St):
                found.append((op.buf.name, len(op.vals) * op.buf.dtype.nbytes))
            elif isinstance(op, warp.CpAsync):
                found.append((op.src.name, op.count * op.src.dtype.nbytes))
            elif isinstance(op, (warp.BulkCopy, TensorCopy)):
                found.append((op.src.name, 16))
        for name, nbytes in found:
            if name in roles:
                widest[roles[name]] = max(nbytes, widest.get(roles[name], 1))
    return widest


class Row(NamedTuple):
    """An array with a row for each time step: the function and the parameter that it is, the elements of a row, and how
    many items of a batch have rows of their own."""

    symbol: str
    param: Buffer
    size: int
    items: int


def rows_of(program: Program) -> dict[str, Row]:
    """The arrays with a row for each time step, by role."""
    tables, found = program.warp.constants, dict[str, Row]()
    for bound in launches(program.warp):
        for param, role in bound.roles:
            if isinstance(param, Buffer) and role.startswith(TIMED):
                items = bound.func.grid[1] if apart(role) in tables else 1
                size = param.size - (items - 1) * (tables[apart(role)].item() if items > 1 else 0)
                found[role] = Row(bound.func.symbol, param, size // program.steps, items)
    return found


def with_rows(program: Program, steps: int) -> Program:
    """The program of a batch for arrays with rows of so many time steps an item; any other one as it is."""
    spaces, larger = dict[str, Any](), dict[str, dict[Buffer, Buffer]]()
    for role, (symbol, param, size, items) in rows_of(program).items():
        if items > 1:
            spaces[apart(role)] = np.array([size * steps], np.int32)
            whole = size * ((items - 1) * steps + program.steps)  # the last item's rows end with the pass
            larger.setdefault(symbol, {})[param] = replace(param, size=whole)
    if not spaces:
        return program
    module = program.warp
    funcs = tuple(with_tables(f, larger[f.symbol]) if f.symbol in larger else f for f in module.funcs)  # type: ignore[attr-defined,arg-type]
    return replace(program, warp=replace(module, funcs=funcs, constants={**module.constants, **spaces}))


def with_tables(func: warp.Func, tables: Mapping[Buffer, Buffer]) -> warp.Func:
    """A function with some arrays in place of others."""
    params = tuple(tables.get(p, p) if isinstance(p, Buffer) else p for p in func.params)
    return replace(func, params=params, body=rewrite(func.body, lambda op: with_buffers(op, tables)))


def _room(steps: int) -> int:
    """The least power of two that is no less."""
    return 1 << (steps - 1).bit_length()


@dataclass(frozen=True)
class Step:
    """One pass: a program, and the array that is bound to each of its roles (constants left out)."""

    program: Program
    arrays: tuple[tuple[str, str], ...]

    @staticmethod
    def of(program: Program, arrays: Mapping[str, str]) -> Step:
        """A step with ``arrays`` by role; a workspace of the pass alone is called as its role is.

        IRError for a role of the program that is none of these.
        """
        bound = dict(arrays)
        for role, param in buffers(program.warp):
            if role not in bound and not role.startswith(SCRATCH):
                raise IRError(f"parameter {param.name!r} is bound to {role!r}, of which there is no array")
            bound.setdefault(role, role)
        return Step(program, tuple(bound.items()))


@dataclass(frozen=True)
class Part:
    """``times`` passes: ``cycle`` from its first step on, again and again."""

    cycle: tuple[Step, ...]
    times: int = 1


class Workspace(NamedTuple):
    """An array that a call needs besides those that it is given; ``counts``: it must be zero before the first call, and
    no call may find it otherwise than the one before it has left it."""

    dtype: np.dtype[Any]
    size: int
    counts: bool = False

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return int(self.size * self.dtype.itemsize)


@dataclass(frozen=True)
class Plan:
    """The passes of a call.

    ``given``: names of the arrays that a call is given, what it writes and the arrays of a matrix among them; ``main``:
    the program that stands for the plan; ``steps``: time steps in all, 0 where there are none; ``padded``: elements
    from row to row of the levels between passes where these have two padded fields, else 0.  ``scalars`` [steps,
    count]: the numbers of each time step that its formula takes, None where it takes none.  ``backwards``: the first
    pass has the last rows of arrays with a row for each time step.
    """

    parts: tuple[Part, ...]
    given: tuple[str, ...]
    main: Program
    steps: int = 0
    padded: int = 0
    scalars: npt.NDArray[Any] | None = None
    backwards: bool = False

    def of(self, scalars: npt.NDArray[Any] | None) -> Plan:
        """The same for other scalars."""
        if scalars is None:
            return self
        for worked_out in ("tabled", "workspaces", "workspace_nbytes", "passes", "alignment"):
            getattr(self, worked_out)  # here, once: every call makes a twin
        twin = object.__new__(Plan)
        twin.__dict__.update(self.__dict__, scalars=scalars)
        return twin

    @property
    def steady(self) -> bool:
        """Whether all time steps have the same scalars, if any, and arrays have no row of their own for each."""
        if self.rows:
            return False
        if self.scalars is None or not self.scalars.strides[0]:  # one row that stands for all
            return True
        return bool((self.scalars == self.scalars[:1]).all())

    @cached_property
    def rows(self) -> dict[str, int]:
        """The bytes of a row, of one item, of each array that has one for each time step: a pass has those of its
        steps."""
        found: dict[str, int] = {}
        for step in self.firsts:
            names = dict(step.arrays)
            for role, row in rows_of(step.program).items():
                found[names[role]] = row.size * row.param.dtype.nbytes
        return found

    def before(self, program: Program, done: int) -> int:
        """How many rows come before those of a pass, after ``done`` time steps."""
        return self.steps - done - program.steps if self.backwards else done

    @cached_property
    def tabled(self) -> bool:
        """Whether launches read the scalars of all steps from a table in global memory."""
        return any(role == ALL_SCALARS for roles in self._taken.values() for role in roles)

    def numbers(self, program: Program, done: int) -> npt.NDArray[Any] | None:
        """The scalars of a pass, flat, after ``done`` time steps; None for a program that takes none."""
        if self.scalars is None or SCALARS not in self._taken[program]:
            return None
        return self.scalars[done : done + program.steps].reshape(-1)

    def renamed(self, names: Mapping[str, str]) -> Plan:
        """The same with some arrays called otherwise."""

        def step(of: Step) -> Step:
            return Step(of.program, tuple((role, names.get(array, array)) for role, array in of.arrays))

        parts = tuple(Part(tuple(map(step, part.cycle)), part.times) for part in self.parts)
        return replace(self, parts=parts, given=tuple(names.get(name, name) for name in self.given))

    @cached_property
    def _taken(self) -> dict[Program, frozenset[str]]:
        """The roles that launches of each program have."""
        return {p: frozenset(role for b in launches(p.warp) for _, role in b.roles) for p, _ in self.programs}

    def run(self) -> Iterator[Step]:
        """All passes in order."""
        for part in self.parts:
            for i in range(part.times):
                yield part.cycle[i % len(part.cycle)]

    @cached_property
    def passes(self) -> int:
        """Passes over the data in all."""
        return sum(part.times for part in self.parts)

    @cached_property
    def programs(self) -> tuple[tuple[Program, int], ...]:
        """Each program, in the order of first use, and how often it runs."""
        times = Counter[Program]()
        for step, n in self._steps():
            times[step.program] += n
        return tuple(times.items())

    @cached_property
    def firsts(self) -> tuple[Step, ...]:
        """The first step of each program."""
        found: dict[Program, Step] = {}
        for step, _ in self._steps():
            found.setdefault(step.program, step)
        return tuple(found.values())

    def of_rows(self) -> Plan:
        """The same for a batch whose items have as many rows of their own as the plan makes steps."""
        known = {p: with_rows(p, self.steps) for p in {step.program for part in self.parts for step in part.cycle}}
        parts = (
            Part(tuple(Step(known[step.program], step.arrays) for step in part.cycle), part.times)
            for part in self.parts
        )
        return replace(self, parts=tuple(parts), main=known[self.main])

    def _steps(self) -> Iterator[tuple[Step, int]]:
        """Every step of a cycle that is run, and how often."""
        for part in self.parts:
            for i, step in enumerate(part.cycle[: part.times]):
                yield step, len(range(i, part.times, len(part.cycle)))

    @cached_property
    def workspaces(self) -> dict[str, Workspace]:
        """What is needed besides the given arrays."""
        sizes: dict[str, Workspace] = {}
        for step, _ in self._steps():
            names = dict(step.arrays)
            for role, param in buffers(step.program.warp):
                name = names[role]
                if name not in self.given and (name not in sizes or sizes[name].nbytes < param.nbytes):
                    # calls of some more steps, or fewer, have workspaces of the same size
                    size = param.size * _room(self.steps) // self.steps if role.startswith(TIMED) else param.size
                    sizes[name] = Workspace(np.dtype(param.dtype.numpy()), size, name.startswith((COUNTER, KEPT)))
        return sizes

    @cached_property
    def workspace_nbytes(self) -> int:
        """All of it in bytes, each array aligned to ALIGN, but for counters."""
        return sum(-(-s.nbytes // ALIGN) * ALIGN if not s.counts else s.nbytes for s in self.workspaces.values())

    @cached_property
    def alignment(self) -> dict[str, int]:
        """Bytes that the address of each given array must be a multiple of: the widest access to it."""
        widths = {program: access_bytes(program.warp) for program, _ in self.programs}
        needed = dict.fromkeys(self.given, 1)
        for step, _ in self._steps():
            for role, name in step.arrays:
                if name in needed:
                    needed[name] = max(needed[name], widths[step.program].get(role, 1))
        return needed

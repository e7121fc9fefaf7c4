"""The plan of a call, all of it, as files that need nothing of sparsegen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import prod

from sparsegen.backends.cuda.export import Argument, Array, Call, Files, Loop, Now, Room, Rows, Scalars, export_files
from sparsegen.calls import Calls
from sparsegen.ir import formula
from sparsegen.ir.expr import Value
from sparsegen.ir.op_update import ALL_SCALARS, SCALARS, Update
from sparsegen.ir.types import Buffer, sum_type
from sparsegen.plan import Plan, Step, buffers, constant, launches, rows_of


def exported(plan: Plan, name: str, calls: Calls, origins: Mapping[str, str], notes: Sequence[str], arch: str) -> Files:
    """The files of a plan, whose launcher is called ``NAME_run``; ``origins``: what the arrays are that no call brings.

    ``notes``: what their heads say besides what is computed.
    """
    bound: dict[str, Buffer] = {}
    for step in (step for part in plan.parts for step in part.cycle):
        names = dict(step.arrays)
        bound |= {names[role]: param for role, param in buffers(step.program.warp)}

    def array(name: str) -> Array:
        if name in origins:
            of, size, about, written = bound[name].dtype, bound[name].size, origins[name], False
        else:
            check = calls.arguments[name]
            size = prod(check.shape) if name in plan.rows else bound[name].size  # a pass has some of its rows
            of, written = bound[name].dtype, check.writable
            about = f"{check.name}, {'x'.join(map(str, check.shape))}"
            about += ", two elements a byte" * (size * of.nbytes < check.nbytes)
        return Array(name, of, size, plan.alignment[name], written, about)

    origins = {name: about for name, about in origins.items() if name in bound}  # a kernel need not read all
    if plan.steps:
        notes = [*notes, f"A call does {_many(plan.steps, 'time step')}: {_passes(plan)}."]
    if origins:
        notes = [*notes, f"k.weights() of the kernel, in Python, are the arrays {', '.join(origins)}."]
    given = [array(name) for name in plan.given if name in bound]
    rooms = [Room(name, space.nbytes, space.counts) for name, space in plan.workspaces.items()]
    scalars = _scalars(plan, calls.backwards)
    if scalars is not None and plan.tabled:
        nbytes = len(scalars.names) * scalars.steps * scalars.dtype.nbytes
        rooms.append(Room(ALL_SCALARS, nbytes, zero=False, scalars=True))
    return export_files(
        name, given, rooms, list(_loops(plan)), title=str(calls.problem), notes=notes, arch=arch, scalars=scalars
    )


def _scalars(plan: Plan, backwards: bool) -> Scalars | None:
    """The numbers that a call of the plan takes for each time step."""
    (op,) = plan.main.op.funcs
    if plan.scalars is None or not isinstance(op, Update):
        return None
    names = formula.scalars(op.code)
    return Scalars(names, plan.steps, sum_type(op.dtype), backwards) if names else None


def _many(count: int, what: str) -> str:
    """Both, with the plural's ending."""
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('s') else 's'}"


def _passes(plan: Plan) -> str:
    """How many passes of how many steps follow one another; copies, which make none, left out."""
    found = list[str]()
    for each, parts in groupby(plan.parts, lambda part: part.cycle[0].program.steps):
        if each:
            found.append(f"{_many(sum(part.times for part in parts), 'pass')} of {_many(each, 'step')}")
    return ", then ".join(found)


def _loops(plan: Plan) -> Iterator[Loop]:
    for part in plan.parts:
        whole, rest = divmod(part.times, len(part.cycle))
        for times, steps in ((whole, part.cycle), (1, part.cycle[:rest])):
            if times and steps:
                each = steps[0].program.steps
                passes = _many(len(steps), "pass")
                about = f"{passes} of {_many(each, 'step')}" if each else passes
                yield Loop(times, tuple(call for step in steps for call in _calls(plan, step)), about)


def _calls(plan: Plan, step: Step) -> Iterator[Call]:
    names, module, steps = {ALL_SCALARS: ALL_SCALARS, **dict(step.arrays)}, step.program.warp, step.program.steps
    rows, every = rows_of(step.program), launches(module)

    def argument(p: Buffer | Value, role: str) -> Argument:
        if role == SCALARS:
            return Now(steps)
        if role in rows:
            return Rows(names[role], rows[role].size, plan.before(step.program, 0) if plan.backwards else None)
        return names[role] if role in names else constant(module, role, p)

    counted = bool(rows) or any(role == SCALARS for _, roles in every for _, role in roles)
    for number, (func, roles) in enumerate(every, 1):
        done = steps if counted and number == len(every) else 0
        yield Call(func, tuple(argument(p, role) for p, role in roles), done)

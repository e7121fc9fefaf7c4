"""The time loop: which programs make the steps, how passes ping-pong between buffers, and how each back end runs them.

``steps`` time steps are ``steps // fuse`` passes of the main program; a rest that does not fill a pass is made *first*,
by a program that fuses just the rest (the steps of one stencil may be grouped in any order).  The input is never
written, and a single pass needs no workspace.

Two ways to keep the levels between passes.  As a rule they alternate between ``out`` and one workspace field whose rows
lie as far apart as those of ``out``, so that the last pass writes ``out``.  Where rows of ``out`` are not a multiple of
16 bytes apart, as with 9999 doubles, wide copies are impossible; then, from three passes on, the levels alternate
between two workspace fields whose rows are padded (:mod:`sparsegen.rows`), and only the first and the last pass see the
arrays of the user.  What lies between padded rows is never used as data and never written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparsegen.compiler import check, edge
from sparsegen.geometry import split, with_steps
from sparsegen.ir.errors import IRError, ScheduleError
from sparsegen.ir.expr import Value
from sparsegen.ir.types import Buffer
from sparsegen.rows import padded_pitch
from sparsegen.schedule import ITEMSIZE

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.ir import warp
    from sparsegen.ir.module import Module
    from sparsegen.pipelines import Program
    from sparsegen.schedule import StencilSchedule

HostField = npt.NDArray[Any]

#: Roles of a pass: its input field, its output field; workspace buffers begin with ``ws.``.
SOURCE, TARGET, WORKSPACE = "in", "out", "ws."
ALIGN = 256  #: bytes: how workspace buffers are aligned
#: Workspace fields for the levels between passes: the one that takes turns with ``out``; the two with padded rows.
FIELD, PADDED = "field", ("padded.0", "padded.1")
Pitch = tuple[int, int]  #: elements from row to row of a pass's input and output


@dataclass(frozen=True)
class Bound:
    """One launch of a pass: the function, and for each of its parameters the role that is bound to it."""

    func: warp.Func
    roles: tuple[tuple[Buffer | Value, str], ...]


def launches(module: Module) -> tuple[Bound, ...]:
    """The launches of a warp module with their parameters; IRError for a launch that fits no function."""
    from sparsegen.ir import warp

    funcs = {f.symbol: f for f in module.funcs if isinstance(f, warp.Func)}
    out = []
    for run in module.launches:
        func = funcs.get(run.symbol)
        if func is None or len(func.params) != len(run.args):
            raise IRError(f"the launch of {run.symbol!r} with {len(run.args)} arguments fits no function")
        out.append(Bound(func, tuple(zip(func.params, run.args, strict=True))))
    return tuple(out)


def workspaces(module: Module) -> dict[str, int]:
    """Bytes of each workspace buffer (role ``ws.NAME``) that a pass uses besides its fields."""
    sizes: dict[str, int] = {}
    for bound in launches(module):
        for param, role in bound.roles:
            if role.startswith(WORKSPACE) and isinstance(param, Buffer):
                sizes[role] = max(param.nbytes, sizes.get(role, 0))
    return sizes


def pitches(program: Program) -> Pitch:
    """Elements from row to row of a program's input and of its output."""
    from sparsegen.ir import op

    (stencil,) = program.op.funcs
    assert isinstance(stencil, op.Stencil)
    return stencil.pitch


@dataclass(frozen=True)
class Plan:
    """What one call runs: (program, how many passes of it), in order.

    ``padded``: elements from row to row of the levels between passes where they have two padded fields; else 0.
    """

    parts: tuple[tuple[Program, int], ...]
    padded: int = 0

    @cached_property
    def passes(self) -> int:
        """Passes over the data in all."""
        return sum(n for _, n in self.parts)

    @property
    def main(self) -> Program:
        """The program that stands for the plan: of most steps a pass, between padded levels where there are such."""
        inner = self.parts[1:-1] if self.padded and len(self.parts) > 2 else self.parts
        return max(inner, key=lambda part: (part[0].steps, part[1]))[0]

    def target(self, index: int) -> str:
        """Where pass ``index`` (from 0) writes: ``out``, or a field of the workspace; the last one writes ``out``."""
        left = self.passes - 1 - index
        if self.padded:
            return PADDED[index % 2] if left else TARGET
        return FIELD if left % 2 else TARGET

    @cached_property
    def workspaces(self) -> dict[str, int]:
        """Bytes of each workspace buffer of the call, fields for the levels between passes first."""
        first = self.parts[0][0].warp
        sizes = {self.target(i): field_bytes(first) for i in range(min(3, self.passes)) if self.target(i) != TARGET}
        for program, _ in self.parts:
            for role, nbytes in workspaces(program.warp).items():
                sizes[role] = max(nbytes, sizes.get(role, 0))
        return sizes

    @property
    def workspace_nbytes(self) -> int:
        """All of it in bytes, each buffer aligned to ALIGN."""
        return sum(-(-nbytes // ALIGN) * ALIGN for nbytes in self.workspaces.values())

    @cached_property
    def alignment(self) -> tuple[int, int]:
        """Bytes that the addresses of input and output must be a multiple of: the widest access to each."""
        first, last = self.parts[0], self.parts[-1]
        out = access_bytes(last[0].warp, TARGET)
        if not self.padded:  # every pass but the first may read it, and any may write it
            reads = self.parts if first[1] > 1 else self.parts[1:]
            out = max([out, *(access_bytes(p.warp, SOURCE) for p, _ in reads),
                       *(access_bytes(p.warp, TARGET) for p, _ in self.parts)])  # fmt: skip
        return access_bytes(first[0].warp, SOURCE), out


def access_bytes(module: Module, wanted: str) -> int:
    """The widest access of any launch to the field of a role, in bytes: its address must be a multiple of it."""
    from sparsegen.ir import warp
    from sparsegen.ir.node import walk

    widest = 1
    for bound in launches(module):
        fields = {p.name: p.dtype.nbytes for p, role in bound.roles if role == wanted}
        widest = max([widest, *fields.values()])
        for op in walk(bound.func.body):
            if isinstance(op, (warp.Ld, warp.St)) and op.buf.name in fields:
                count = len(op.out) if isinstance(op, warp.Ld) else len(op.vals)
                widest = max(widest, count * op.buf.dtype.nbytes)
            elif isinstance(op, warp.CpAsync) and op.src.name in fields:
                widest = max(widest, op.count * op.src.dtype.nbytes)
            elif isinstance(op, warp.BulkCopy) and op.src.name in fields:
                widest = max(widest, 16)
    return widest


def field_bytes(module: Module) -> int:
    """Bytes of the output field of a pass."""
    for bound in launches(module):
        for param, role in bound.roles:
            if role == TARGET and isinstance(param, Buffer):
                return param.nbytes
    raise IRError(f"no launch of {module.name!r} writes the role 'out'")


@dataclass
class Programs:
    """The programs of one kernel, lowered when first needed, one for each number of fused steps."""

    stencil: Stencil
    shape: tuple[int, ...]
    schedule: StencilSchedule
    profile: DeviceProfile
    _known: dict[tuple[int, Pitch], Program] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)

    @property
    def dense(self) -> Pitch:
        """The pitch of packed arrays."""
        return self.shape[-1], self.shape[-1]

    def get(self, fuse: int, pitch: Pitch | None = None) -> Program:
        """The program that does ``fuse`` steps a pass (on packed arrays, if no pitch is given), lowered when first
        needed; ScheduleError if the schedule cannot."""
        from sparsegen.pipelines import lower

        key = (fuse, pitch or self.dense)
        with self._lock:
            if key not in self._known:
                k = edge(self.stencil)
                schedule = with_steps(self.schedule, fuse, k)
                check(self.stencil, self.shape, schedule, self.profile)
                self._known[key] = lower(self.stencil, self.shape, schedule, self.profile, *key)
            return self._known[key]

    def plan(self, steps: int, pitch: Pitch | None = None) -> Plan:
        """The passes of ``steps`` time steps between arrays of this pitch: the rest first, then the main program."""
        try:
            groups = [(s.steps, n) for s, n in split(self.schedule, steps, edge(self.stencil))]
            return self._plan(groups, pitch or self.dense)
        except ScheduleError:  # the rest cannot be done at once: step by step
            passes, rest = divmod(steps, self.schedule.steps)
            if rest < 2:
                raise
            return self._plan([(1, rest)] + [(self.schedule.steps, passes)] * (passes > 0), pitch or self.dense)

    def _plan(self, groups: list[tuple[int, int]], pitch: Pitch) -> Plan:
        """``groups``: steps a pass, and how many such passes, in order."""
        ends = list(accumulate(n for _, n in groups))
        total, (first, last) = ends[-1], pitch
        padded = padded_pitch(self.shape, ITEMSIZE[self.stencil.dtype], last, total)
        between = padded or last
        parts: list[tuple[Program, int]] = []
        for start, end in pairwise(sorted({0, 1, total - 1, total, *ends})):
            fuse = next(fuse for (fuse, _), stop in zip(groups, ends, strict=True) if start < stop)
            program = self.get(fuse, (between if start else first, between if end < total else last))
            if parts and parts[-1][0] is program:
                parts[-1] = (program, parts[-1][1] + end - start)
            else:
                parts.append((program, end - start))
        return Plan(tuple(parts), padded)


def run_reference(stencil: Stencil, u: HostField, out: HostField, steps: int) -> None:
    """The steps in plain NumPy, into ``out``."""
    from sparsegen.backends.reference.stencil import run

    out[...] = run(u, stencil.weights, stencil.sides, steps)


def constant(module: Module, role: str, param: Buffer | Value) -> HostField:
    """The table bound to a parameter, flat and of its type; IRError if the module has none of that name or size."""
    if role not in module.constants:
        raise IRError(f"parameter {param.name!r} is bound to {role!r}, which is no constant of {module.name!r}")
    data = np.ascontiguousarray(module.constants[role]).reshape(-1)
    size = param.size if isinstance(param, Buffer) else 1
    if data.size != size or data.dtype.itemsize != param.dtype.nbytes:
        what = f"constant {role!r} is {data.size} x {data.dtype}"
        raise IRError(f"{what}, parameter {param.name!r} is {size} x {param.dtype}")
    return data

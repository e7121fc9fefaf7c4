"""The time loop: which programs make the steps, how passes ping-pong between buffers, and how each back end runs them.

``steps`` time steps are ``steps // fuse`` passes of the main program; a rest that does not fill a pass is made *first*,
by a program that fuses just the rest (the steps of one stencil may be grouped in any order).  Passes alternate between
``out`` and one workspace field so that the last one writes ``out``; the input is never written, and a single pass
needs no workspace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparsegen.compiler import check, edge, narrowed
from sparsegen.ir.errors import IRError, ScheduleError
from sparsegen.ir.expr import Value
from sparsegen.ir.types import Buffer

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.ir import warp
    from sparsegen.ir.module import Module
    from sparsegen.pipelines import Program
    from sparsegen.schedule import StencilSchedule

HostField = npt.NDArray[Any]

#: Roles of a pass: its input field, its output field; workspace buffers begin with ``ws.``.
SOURCES, TARGET, WORKSPACE = ("u", "in"), "out", "ws."
ALIGN = 256  #: bytes: how workspace buffers are aligned


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


def buffer_of(passes: int, index: int) -> str:
    """Where pass ``index`` (from 0) of ``passes`` writes: ``out`` or ``field``, the workspace; the last writes out."""
    return "out" if (passes - 1 - index) % 2 == 0 else "field"


@dataclass(frozen=True)
class Plan:
    """What one call runs: (program, how many passes of it), in order."""

    parts: tuple[tuple[Program, int], ...]

    @cached_property
    def passes(self) -> int:
        """Passes over the data in all."""
        return sum(n for _, n in self.parts)

    @cached_property
    def workspaces(self) -> dict[str, int]:
        """Bytes of each workspace buffer of the call, ``field`` (the second field) first where it is needed."""
        sizes: dict[str, int] = {}
        for program, _ in self.parts:
            for role, nbytes in workspaces(program.warp).items():
                sizes[role] = max(nbytes, sizes.get(role, 0))
        if self.passes > 1:
            sizes = {"field": field_bytes(self.parts[0][0].warp), **sizes}
        return sizes

    @property
    def workspace_nbytes(self) -> int:
        """All of it in bytes, each buffer aligned to ALIGN."""
        return sum(-(-nbytes // ALIGN) * ALIGN for nbytes in self.workspaces.values())

    @cached_property
    def alignment(self) -> int:
        """Bytes that both fields' addresses must be a multiple of: the widest access of any program."""
        return max(access_bytes(program.warp) for program, _ in self.parts)


def access_bytes(module: Module) -> int:
    """The widest access to a field of any launch, in bytes: a field's address must be a multiple of it."""
    from sparsegen.ir import warp
    from sparsegen.ir.node import walk

    widest = 1
    for bound in launches(module):
        fields = {p.name for p, role in bound.roles if role in SOURCES or role == TARGET}
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
    _known: dict[int, Program] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)

    def get(self, fuse: int) -> Program:
        """The program that does ``fuse`` steps a pass; ScheduleError if the schedule cannot."""
        from sparsegen.pipelines import lower

        with self._lock:
            if fuse not in self._known:
                k = edge(self.stencil)
                schedule = narrowed(self.schedule, k, fuse)
                check(self.stencil, self.shape, schedule, self.profile)
                self._known[fuse] = lower(self.stencil, self.shape, schedule, self.profile, fuse)
            return self._known[fuse]

    def plan(self, steps: int) -> Plan:
        """The passes of ``steps`` time steps: the rest first, then the main program."""
        passes, rest = divmod(steps, self.schedule.fuse)
        parts: list[tuple[Program, int]] = []
        if rest:
            try:
                parts.append((self.get(rest), 1))
            except ScheduleError:
                parts.append((self.get(1), rest))
        if passes:
            parts.append((self.get(self.schedule.fuse), passes))
        return Plan(tuple(parts))


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

"""Running general updates on a GPU: every step a launch with the arrays of its roles, long loops of them as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.backends.cuda.graph import GraphLaunch
from sparsegen.execute import HostField
from sparsegen.execute_cuda import CudaExecutor
from sparsegen.graphs import GRAPH_CHUNK, GRAPH_PASSES, GRAPH_SECONDS
from sparsegen.inspection import Build, BuildCache
from sparsegen.ir.op_update import Update as Op
from sparsegen.memory import DEVICE, room_for
from sparsegen.updates.plan import Step, UpdatePlan, roles

if TYPE_CHECKING:
    from sparsegen.arrays import ArrayView
    from sparsegen.backends.cuda.graph import TimeGraph
    from sparsegen.dsl.update import Update
    from sparsegen.pipelines import Program


class UpdateBuilds(BuildCache):
    """The builds of an update's programs."""

    def get(self, program: Program) -> Build:
        """The build of a program, made once; its notes name the rows of arrays that are not packed."""
        with self._lock:
            if id(program) not in self._known:
                notes = [*self._notes, "One launch does 1 time step."]
                (op,) = program.op.funcs
                assert isinstance(op, Op)
                if set(op.pitch) != {self._cols}:
                    notes.append(f"Elements from row to row of each array, in order: {', '.join(map(str, op.pitch))}.")
                self._known[id(program)] = Build(program, self._profile, self._title, notes)
            return self._known[id(program)]


class UpdateExecutor(CudaExecutor):
    """The programs of one general update on one GPU.  Safe for threads."""

    def __init__(self, device: int, kind: str, builds: BuildCache, seconds: float, update: Update) -> None:
        super().__init__(device, kind, builds, seconds)
        self.ends = roles(update)
        self._chains: dict[Any, tuple[TimeGraph, tuple[str, ...]]] = {}

    def run_update(
        self, plan: UpdatePlan, given: Mapping[str, int], stream: int | None, like: ArrayView | None
    ) -> None:
        """Enqueue the whole plan; asynchronous.  ``given``: the address of each input and output."""
        self.compile([program for program, _ in plan.parts])
        space = self.space(stream)
        with space.lock:  # calls that share a workspace are enqueued one after the other
            where = {**given, **space.provide(plan.workspaces, self.runtime, like, stream)}
            now = 1
            while now <= plan.count:
                chunk = self._graph_steps(plan, now)
                if chunk:
                    repeat = (plan.count + 1 - now) // chunk
                    graph, names = self._chain_of(plan, now, chunk)
                    graph.run([where[name] for name in names], stream, repeat=repeat)
                    now += chunk * repeat
                else:
                    self._step(plan.at(now), where, stream)
                    now += 1
            for step in plan.copies:
                self._step(step, where, stream)

    def _step(self, step: Step, where: Mapping[str, int], stream: int | None) -> None:
        program, bound = self.loaded(step.program), dict(step.arrays)
        table = program.table(tuple(where[bound[role]] if role in bound else 0 for role in self.ends), {})
        self._pass(program, table, stream)

    def _graph_steps(self, plan: UpdatePlan, now: int) -> int:
        """How many steps from ``now`` on a graph should hold, whole periods; 0 where a graph does not pay."""
        left, period = plan.count + 1 - now, len(plan.cycle)
        many = now > len(plan.head) and left >= max(period, GRAPH_PASSES)
        if not many or self.runtime.name != "driver" or self._seconds > GRAPH_SECONDS:
            return 0
        return min(max(1, GRAPH_CHUNK // period), left // period) * period

    def _chain_of(self, plan: UpdatePlan, now: int, chunk: int) -> tuple[TimeGraph, tuple[str, ...]]:
        """The graph of ``chunk`` steps and the arrays whose addresses it takes; made once for each such chain."""
        cycle = tuple((id(s.program), s.arrays) for s in plan.cycle)
        key = (chunk, (plan.count - now) % len(plan.cycle), cycle)
        with self._lock:
            known = self._chains.get(key)
        if known is None:
            steps = [plan.at(now + i) for i in range(chunk)]
            names = tuple(sorted({array for s in steps for _, array in s.arrays}))
            nodes: list[GraphLaunch] = []
            for s in steps:
                bound = dict(s.arrays)
                for r in self.loaded(s.program).launches:
                    buffers = tuple(names.index(bound[self.ends[slot]]) for slot in r.slots)
                    nodes.append(GraphLaunch(r.fn, r.grid, r.block, r.shared, r.args, buffers))
            known = self.time_graph(nodes), names
            with self._lock:
                self._chains[key] = known
        return known

    def update_host(
        self, plan: UpdatePlan, given: Mapping[str, HostField], results: Mapping[str, HostField], stream: int | None
    ) -> None:
        """Copy host arrays in (packed), run, copy the results out; done on return."""
        memory: dict[str, int] = {}
        needed = {name: a.nbytes for name, a in {**given, **results}.items()}
        with room_for(needed | {"workspace": plan.workspace_nbytes}, self.runtime.memory, DEVICE):
            try:
                for name, nbytes in needed.items():
                    memory[name] = self.runtime.alloc(nbytes)
                for name, a in given.items():
                    self.runtime.to_device(memory[name], np.ascontiguousarray(a), stream)
                self.run_update(plan, memory, stream, None)
                for name, a in results.items():
                    packed = a if a.flags.c_contiguous else np.empty(a.shape, a.dtype)
                    self.runtime.to_host(packed, memory[name], stream)
                    if packed is not a:
                        a[...] = packed
            finally:
                for pointer in memory.values():
                    self.runtime.free(pointer)

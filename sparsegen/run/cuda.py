"""Running plans on a GPU: cubins loaded once a device, arguments packed once, a call only writes pointers.

A long loop of short passes goes through a CUDA graph: the host needs a few microseconds a launch, which a small field
does not take to compute.  The graph holds whole cycles of a part of the plan and is replayed; its nodes get new
pointers when a call brings other arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.graph import GraphLaunch, TimeGraph
from sparsegen.backends.cuda.runtime import Launch, Prepared, Runtime, open_runtime
from sparsegen.inspection import Build
from sparsegen.ir.module import Module
from sparsegen.ir.op_update import ALL_SCALARS, SCALARS
from sparsegen.ir.types import Buffer
from sparsegen.ir.verify_launch import waits
from sparsegen.memo import Memo
from sparsegen.memory import DEVICE, room_for
from sparsegen.pipelines import Program
from sparsegen.plan import Bound, Part, Plan, Step, Workspace, constant, launches
from sparsegen.run.host import Arrays, flat, results
from sparsegen.run.workspace import Counted, Rows, Space
from sparsegen.sizes import GRAPH_CHUNK, GRAPH_PASSES, GRAPH_SECONDS
from sparsegen.target import launcher
from sparsegen.views import ArrayView

#: The arrays of a launch by name; a table of constants is its address.
Names = tuple[str | int, ...]


@dataclass(frozen=True)
class Ready:
    """One launch, loaded: its function, its arguments, and of each pointer the role, or the address of a table."""

    fn: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: PackedArgs
    roles: Names
    start: Prepared


class Executor:
    """The programs of one kernel on one GPU, through one way to launch.  Safe for threads.

    ``seconds``: what a pass is predicted to take; ``fixed`` gives the addresses of arrays that no call brings (a
    matrix), by name.
    """

    def __init__(
        self, device: int, kind: str, builds: Memo[Build], seconds: float, fixed: Callable[[Runtime], dict[str, int]]
    ) -> None:
        self.runtime = open_runtime(device, kind)
        self.fixed = fixed(self.runtime)
        self._builds, self._seconds = builds, seconds
        self._lock = Lock()
        self._loaded: dict[int, tuple[Ready, ...]] = {}
        #: Constant tables in device memory, each uploaded once and kept as long as this executor.
        self._tables: dict[bytes, int] = {}
        self._starts: dict[tuple[int, Any], list[tuple[Prepared, Names]]] = {}
        self._graphs: dict[Any, TimeGraph] = {}
        self._chains: dict[Any, tuple[TimeGraph, Names]] = {}
        self._spaces: dict[int, Space] = {}
        self._counted: dict[tuple[tuple[str, Workspace], ...], Counted] = {}
        self._rows = Rows(self.runtime)

    # -------------------------------------------------------------------------------------------- loading
    def compile(self, programs: Sequence[Program]) -> None:
        """nvcc for all programs that are not loaded yet, at the same time: it takes seconds for each."""
        builds = [self._builds.get(program) for program in programs if id(program) not in self._loaded]
        if len(builds) > 1:
            with ThreadPoolExecutor(len(builds)) as pool:
                list(pool.map(Build.compiled, builds))

    def loaded(self, program: Program) -> tuple[Ready, ...]:
        """The launches of a program on this device, compiled and loaded when first needed."""
        found = self._loaded.get(id(program))
        if found is None:
            cubin = self._builds.get(program).compiled().cubin
            with self._lock:
                found = self._loaded.get(id(program))
                if found is None:
                    module = self.runtime.load(cubin)
                    found = tuple(self._ready(module, program.warp, b) for b in launches(program.warp))
                    self._loaded[id(program)] = found
        return found

    def _ready(self, loaded: Any, module: Module, bound: Bound) -> Ready:
        func = bound.func
        args: list[tuple[str, int | float | bytes]] = []
        roles: list[str | int] = []
        numbers: int | None = None
        for param, role in bound.roles:
            if not isinstance(param, Buffer):
                kind = f"{param.dtype.kind[0]}{param.dtype.bits}"
                args.append((kind, constant(module, role, param)[0].item()))
            elif role == SCALARS:
                numbers = len(args)
                args.append((f"bytes@{param.dtype.nbytes}", bytes(param.nbytes)))
            elif param.space == "param":
                args.append((f"bytes@{param.dtype.nbytes}", constant(module, role, param).tobytes()))
            else:
                args.append(("ptr", 0))
                table = role in module.constants
                roles.append(self._table(constant(module, role, param)) if table else role)
        fn = self.runtime.function(loaded, func.symbol, func.shared_bytes)
        packed, block = PackedArgs(args, self.runtime.map_args(func), numbers), (func.threads, 1, 1)
        how = {"overlap": waits(func), "together": func.together}
        start = self.runtime.prepare(fn, func.grid, block, func.shared_bytes, packed.copy(), **how)
        return Ready(fn, func.grid, block, func.shared_bytes, packed, tuple(roles), start)

    def _table(self, data: np.ndarray[Any, Any]) -> int:
        key = data.tobytes()
        if key not in self._tables:
            pointer = self.runtime.alloc(data.nbytes)
            self.runtime.to_device(pointer, data.view(np.uint8))
            self._tables[key] = pointer
        return self._tables[key]

    def _launches(self, step: Step) -> list[tuple[Prepared, Names]]:
        """The launches of a step, each with the names of its arrays."""
        key = (id(step.program), step.arrays)
        found = self._starts.get(key)
        if found is None:
            bound = {ALL_SCALARS: ALL_SCALARS, **dict(step.arrays)}
            found = [(r.start, _names(r, bound)) for r in self.loaded(step.program)]
            self._starts[key] = found
        return found

    def single(self, plan: Plan) -> tuple[Launch, Names] | None:
        """What launches a plan of one pass, and the names of the arrays that it takes; None for any other plan."""
        if plan.passes > 1:
            return None
        (launch, *more) = self._launches(plan.parts[0].cycle[0])
        return _chained([launch, *more]) if more else launch

    # -------------------------------------------------------------------------------------------- running
    def space(self, stream: int | None) -> Space:
        """The workspace that goes with a stream."""
        with self._lock:
            return self._spaces.setdefault(stream or 0, Space())

    def share(self, space: Space) -> None:
        """Take workspace of the default stream from ``space``: for kernels that run there one after the other."""
        with self._lock:
            self._spaces[0] = space

    def kept(self, plan: Plan) -> Mapping[int, tuple[int, ...]] | None:
        """The addresses of a plan's workspaces for each stream; None where each call gets other memory."""
        return self.counted(plan).streams if _counts(plan) else None

    def counted(self, plan: Plan) -> Counted:
        """The workspaces with counters, for all plans of the kernel that have the same: these differ in the layouts of
        given arrays, some of which are written anew first."""
        with self._lock:
            found = self._counted.get(spaces := tuple(plan.workspaces.items()))
            if found is None:
                found = self._counted[spaces] = Counted(self.runtime, plan.workspaces)
            return found

    def run(self, plan: Plan, given: Mapping[str, int], stream: int | None, like: ArrayView | None) -> None:
        """Enqueue the whole plan on a stream; asynchronous.

        ``given``: the address of each array of the call; ``like``: one of them, whose library gives workspace.
        """
        where = {**given, **self.fixed}
        if plan.scalars is None or not plan.tabled:
            self._run(plan, where, stream, like)
            return
        with self._rows.lock:
            self._run(plan, {**where, ALL_SCALARS: self._rows.of(plan.scalars, stream)}, stream, like)

    def _run(self, plan: Plan, where: dict[str, int], stream: int | None, like: ArrayView | None) -> None:
        """The same, with the addresses of all that is no workspace."""
        if not plan.workspaces:
            self._parts(plan, where, stream)
        elif _counts(plan):
            addresses, _held = self.counted(plan).of(stream, like)
            self._parts(plan, {**where, **dict(zip(plan.workspaces, addresses, strict=True))}, stream)
        else:
            self.compile([program for program, _ in plan.programs])
            # One pass takes torch's memory for as long as it is enqueued: the next work on the stream may have it, and
            # a graph keeps none of it.
            passing = plan.passes == 1 and like is not None and like.layout.library == "torch"
            space = Space() if passing else self.space(stream)
            with space.lock:  # chains that share a workspace are enqueued one after the other
                sizes = {name: needed.nbytes for name, needed in plan.workspaces.items()}
                self._parts(plan, where | space.provide(sizes, self.runtime, like, stream), stream)

    def _parts(self, plan: Plan, where: Mapping[str, int], stream: int | None) -> None:
        """A graph's passes have the same scalars in every time step; where these change, or arrays have a row for each
        step, the host starts each pass."""
        steps, steady = 0, plan.steady
        scalars = b"" if plan.scalars is None else plan.scalars[0].tobytes()
        for part in plan.parts:
            done = 0
            while steady and (chunk := self._chunk(part, done, stream)):
                repeat = (part.times - done) // chunk
                graph, names = self._graph(part, chunk)
                graph.run(_pointers(names, where), stream, repeat=repeat, scalars=scalars)
                done += chunk * repeat
            steps += sum(part.cycle[i % len(part.cycle)].program.steps for i in range(done)) if scalars else 0
            for i in range(done, part.times):
                step = part.cycle[i % len(part.cycle)]
                numbers = plan.numbers(step.program, steps)
                first = plan.before(step.program, steps)
                here = {**where, **{name: where[name] + first * nbytes for name, nbytes in plan.rows.items()}}
                steps += step.program.steps
                given = None if numbers is None else numbers.tobytes()
                for ready, (start, names) in zip(self.loaded(step.program), self._launches(step), strict=True):
                    if given is None or ready.args.numbers is None:  # of a pass's launches some may take none
                        start(_pointers(names, here), stream)
                    else:
                        start(_pointers(names, here), stream, given)

    def _chunk(self, part: Part, done: int, stream: int | None) -> int:
        """How many passes a graph of what is left should hold, whole cycles; 0 where a graph does not pay, or the call
        goes into one: it takes the passes themselves."""
        left, cycle = part.times - done, len(part.cycle)
        if left < max(cycle, GRAPH_PASSES - 2) or self.runtime.name != "driver" or self._seconds > GRAPH_SECONDS:
            return 0
        if self.runtime.capturing(stream):
            return 0
        return min(max(1, GRAPH_CHUNK // cycle), left // cycle) * cycle

    def _graph(self, part: Part, chunk: int) -> tuple[TimeGraph, Names]:
        """The graph of the first ``chunk`` passes, and the names of the arrays that it takes."""
        key = (chunk, tuple((id(step.program), step.arrays) for step in part.cycle))
        found = self._chains.get(key)
        if found is None:
            found = self._chains[key] = self._chain(part, chunk)
        return found

    def _chain(self, part: Part, chunk: int) -> tuple[TimeGraph, Names]:
        """Made once for each chain of launches, whatever its arrays are called."""
        chain = [
            (launch, step.program.steps)
            for step in part.cycle
            for launch in zip(self.loaded(step.program), self._launches(step), strict=True)
        ]
        names: Names = tuple(dict.fromkeys(name for (_, (_, taken)), _ in chain for name in taken))
        nodes = [
            GraphLaunch(
                r.fn,
                r.grid,
                r.block,
                r.shared,
                r.args,
                tuple(names.index(name) for name in taken),
                steps if r.args.numbers is not None else 0,
            )
            for (r, (_, taken)), steps in chain
        ]
        key = (chunk, tuple((id(r), node.buffers) for ((r, _), _), node in zip(chain, nodes, strict=True)))
        with self._lock:
            if key not in self._graphs:
                self._graphs[key] = TimeGraph(self.runtime, nodes * (chunk // len(part.cycle)))  # type: ignore[arg-type]
            return self._graphs[key], names

    def run_host(self, plan: Plan, given: Arrays, new: Arrays, labels: Mapping[str, str], stream: int | None) -> None:
        """Copy host arrays in (packed), run, copy the results out; done on return.

        ``labels``: what arrays are called where memory does not suffice.
        """
        sizes = {name: a.nbytes for name, a in {**given, **new}.items()}
        with self.memory(sizes, plan, labels) as where:
            for name, a in given.items():
                self.runtime.to_device(where[name], flat(a), stream)
            self.run(plan, where, stream, None)
            with results(new) as made:
                for name, a in made.items():
                    self.runtime.to_host(a, where[name], stream)

    @contextmanager
    def memory(self, sizes: Mapping[str, int], plan: Plan, labels: Mapping[str, str]) -> Iterator[dict[str, int]]:
        """Device memory for arrays of these sizes in bytes, as long as the block lasts.

        DeviceMemoryError if they and the plan's workspace do not fit.
        """
        needed = {labels.get(name, name): nbytes for name, nbytes in sizes.items()}
        held: dict[str, int] = {}
        with room_for(needed | {"workspace": plan.workspace_nbytes}, self.runtime.memory, DEVICE):
            try:
                for name, nbytes in sizes.items():
                    held[name] = self.runtime.alloc(nbytes)
                yield held
            finally:
                for pointer in held.values():
                    self.runtime.free(pointer)

    def __del__(self) -> None:
        with suppress(Exception):  # never opened, or the context is gone
            for pointer in self._tables.values():
                self.runtime.free(pointer)


def _counts(plan: Plan) -> bool:
    return any(space.counts for space in plan.workspaces.values())


def _chained(launches: Sequence[tuple[Launch, Names]]) -> tuple[Launch, Names]:
    """Several launches, one after the other, as one."""
    names: Names = tuple(dict.fromkeys(name for _, taken in launches for name in taken))
    each = [(start, [names.index(name) for name in taken]) for start, taken in launches]

    def run(pointers: Sequence[int], stream: int | None = None) -> None:
        for start, places in each:
            start([pointers[i] for i in places], stream)

    return run, names


def _names(ready: Ready, bound: Mapping[str, str]) -> Names:
    return tuple(role if isinstance(role, int) else bound[role] for role in ready.roles)


def _pointers(names: Names, where: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([name if isinstance(name, int) else where[name] for name in names])


def executor_kind(device: int, stream: int | None) -> str:
    """The way to launch on a stream: the chosen one, or the driver for a stream that pycuda cannot adopt."""
    kind = launcher()
    if kind == "pycuda" and stream and not open_runtime(device, "pycuda").owns_stream(stream):
        return "driver"
    return kind

"""Running passes on a GPU: cubins loaded once a device, arguments packed once, a call only writes pointers.

A long loop of short passes goes through a CUDA graph: the host needs a few microseconds a launch, which a small field
does not take to compute.  The graph holds an even number of passes from a field back to itself and is replayed; its
nodes get new pointers when a call brings other arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.graph import GraphLaunch, TimeGraph
from sparsegen.backends.cuda.runtime import Launch, Runtime, open_runtime
from sparsegen.execute import SOURCE, TARGET, WORKSPACE, Plan, constant, launches
from sparsegen.graphs import GRAPH_CHUNK, GRAPH_PASSES, GRAPH_SECONDS
from sparsegen.inspection import Build, BuildCache
from sparsegen.ir.types import Buffer
from sparsegen.memory import DEVICE, room_for
from sparsegen.target import launcher

if TYPE_CHECKING:
    from sparsegen.arrays import ArrayView
    from sparsegen.execute import Bound
    from sparsegen.ir.module import Module
    from sparsegen.pipelines import Program

_SOURCE, _TARGET, _FIRST = 0, 1, 2


@dataclass(frozen=True)
class _Ready:
    """One launch, loaded: its function and arguments, and for each pointer its place in the pass's table."""

    fn: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: PackedArgs
    slots: tuple[int, ...]
    start: Launch
    pick: Callable[[Sequence[int]], Sequence[int]]


def _picker(slots: tuple[int, ...]) -> Callable[[Sequence[int]], Sequence[int]]:
    if slots == (_SOURCE, _TARGET):
        return lambda table: (table[0], table[1])
    if len(slots) > 1:
        return itemgetter(*slots)
    return lambda table: tuple(table[s] for s in slots)


class _Loaded:
    """A program on one device: its launches, and the addresses of its constants, which end the pass's table.

    ``ends``: the roles of what a pass is given (its input and its output), which begin the table.
    """

    def __init__(self, runtime: Runtime, build: Build, uploads: _Uploads, ends: Sequence[str]) -> None:
        module = build.program.warp
        self.ends = tuple(ends)
        self.workspaces: list[str] = []
        self.constants: list[int] = []
        loaded = runtime.load(build.compiled().cubin)
        bound = launches(module)
        self.workspaces = sorted({role for b in bound for _, role in b.roles if role.startswith(WORKSPACE)})
        self.launches = [self._ready(runtime, loaded, module, b, uploads) for b in bound]

    def _ready(self, runtime: Runtime, loaded: Any, module: Module, bound: Bound, uploads: _Uploads) -> _Ready:
        func = bound.func
        args: list[tuple[str, int | float | bytes]] = []
        slots: list[int] = []
        for param, role in bound.roles:
            if not isinstance(param, Buffer):
                kind = f"{param.dtype.kind[0]}{param.dtype.bits}"
                args.append((kind, constant(module, role, param)[0].item()))
            elif param.space == "param":
                args.append((f"bytes@{param.align}", constant(module, role, param).tobytes()))
            else:
                args.append(("ptr", 0))
                slots.append(self._slot(module, role, param, uploads))
        fn = runtime.function(loaded, func.symbol, func.shared_bytes)
        block = (func.threads, 1, 1)
        packed = PackedArgs(args)
        start = runtime.prepare(fn, func.grid, block, func.shared_bytes, packed.copy())
        return _Ready(fn, func.grid, block, func.shared_bytes, packed, tuple(slots), start, _picker(tuple(slots)))

    def _slot(self, module: Module, role: str, param: Buffer, uploads: _Uploads) -> int:
        if role in self.ends:
            return self.ends.index(role)
        if role.startswith(WORKSPACE):
            return len(self.ends) + self.workspaces.index(role)
        self.constants.append(uploads.address(constant(module, role, param)))
        return len(self.ends) + len(self.workspaces) + len(self.constants) - 1

    def table(self, ends: tuple[int, ...], space: dict[str, int]) -> tuple[int, ...]:
        """The addresses of one pass, in the order of the slots: those of its ends first."""
        if not self.workspaces:
            return (*ends, *self.constants)
        return (*ends, *(space[role] for role in self.workspaces), *self.constants)


class _Uploads:
    """Constant tables in device memory, each uploaded once and kept as long as the process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[bytes, int] = {}

    def address(self, data: np.ndarray[Any, Any]) -> int:
        key = data.tobytes()
        if key not in self._known:
            pointer = self._runtime.alloc(data.nbytes)
            self._runtime.to_device(pointer, data.view(np.uint8))
            self._known[key] = pointer
        return self._known[key]

    def free(self) -> None:
        for pointer in self._known.values():
            self._runtime.free(pointer)
        self._known.clear()


class Space:
    """Workspace of one kernel on one stream: device memory of the caller's library where that is torch or CuPy."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.sizes: dict[str, int] = {}
        self.addresses: dict[str, int] = {}
        self._owners: list[Any] = []
        self._own: list[tuple[Runtime, int]] = []

    def provide(
        self, sizes: dict[str, int], runtime: Runtime, like: ArrayView | None, stream: int | None
    ) -> dict[str, int]:
        """Addresses of buffers of at least these sizes (bytes), kept from call to call; hold ``lock`` meanwhile.

        DeviceMemoryError where they do not fit.
        """
        for role, nbytes in sizes.items():
            if self.sizes.get(role, -1) < nbytes:
                with room_for({"workspace": sum(sizes.values())}, runtime.memory, DEVICE):
                    self.addresses[role] = self._allocate(nbytes, runtime, like, stream)
                self.sizes[role] = nbytes
        return self.addresses

    def _allocate(self, nbytes: int, runtime: Runtime, like: ArrayView | None, stream: int | None) -> int:
        if like is None or like.layout.library not in ("torch", "cupy"):
            pointer = runtime.alloc(nbytes)
            self._own.append((runtime, pointer))
            return pointer
        from sparsegen.arrays import describe, empty_like

        memory = empty_like(like, (max(1, nbytes),), np.uint8)
        if like.layout.library == "torch":
            _used_on(memory, stream)
        self._owners.append(memory)
        return describe(memory).pointer

    def __del__(self) -> None:
        for runtime, pointer in self._own:
            try:
                runtime.free(pointer)
            except Exception:  # the context may be gone when the interpreter ends
                return


def _used_on(tensor: Any, stream: int | None) -> None:
    """Tell torch's allocator that ``tensor`` is used on a stream that is not torch's current one."""
    import sys

    torch: Any = sys.modules["torch"]
    if stream != torch.cuda.current_stream(tensor.device).cuda_stream and stream:
        tensor.record_stream(torch.cuda.ExternalStream(stream, device=tensor.device))


class CudaExecutor:
    """The programs of one kernel on one GPU, through one way to launch.  Safe for threads.

    ``ends``: the roles of what a pass is given, in the order of its addresses.
    """

    ends: tuple[str, ...] = (SOURCE, TARGET)

    def __init__(self, device: int, kind: str, builds: BuildCache, seconds: float) -> None:
        self.runtime = open_runtime(device, kind)
        self._builds, self._seconds = builds, seconds
        self._lock = Lock()
        self._loaded: dict[int, _Loaded] = {}
        self._uploads = _Uploads(self.runtime)
        self._graphs: dict[tuple[int, int], TimeGraph] = {}
        self._spaces: dict[int, Space] = {}
        self._single: _Loaded | None = None

    def loaded(self, program: Program) -> _Loaded:
        """The program on this device, compiled and loaded when first needed."""
        found = self._loaded.get(id(program))
        if found is None:
            build = self._builds.get(program)
            build.compiled()
            with self._lock:
                found = self._loaded.get(id(program))
                if found is None:
                    found = self._loaded[id(program)] = _Loaded(self.runtime, build, self._uploads, self.ends)
        return found

    def space(self, stream: int | None) -> Space:
        """The workspace that goes with a stream."""
        with self._lock:
            return self._spaces.setdefault(stream or 0, Space())

    def share(self, space: Space) -> None:
        """Take workspace of the default stream from ``space``: for kernels that run there one after the other."""
        with self._lock:
            self._spaces[0] = space

    def single(self, plan: Plan) -> Launch | None:
        """A plan of one launch between two arrays, as something to call with (input, output) and a stream; None for
        any other plan."""
        if plan.passes > 1 or plan.workspaces:
            return None
        (ready, *more) = self.loaded(plan.parts[0][0]).launches
        return None if more or ready.slots != (_SOURCE, _TARGET) else ready.start

    def run(self, plan: Plan, source: int, target: int, stream: int | None, like: ArrayView | None) -> None:
        """Enqueue the whole plan on a stream; asynchronous.  ``like`` is an array whose library gives workspace."""
        sizes = plan.workspaces
        if not sizes:  # one pass
            program = self._loaded.get(id(plan.parts[0][0])) or self.loaded(plan.parts[0][0])
            self._pass(program, program.table((source, target), {}), stream)
            return
        self.compile([program for program, _ in plan.parts])
        loaded = [self.loaded(program) for program, _ in plan.parts]
        space = self.space(stream)
        with space.lock:  # chains that share a workspace are enqueued one after the other
            addresses = space.provide(sizes, self.runtime, like, stream)
            self._chain(plan, loaded, source, target, addresses, stream)

    def compile(self, programs: Sequence[Program]) -> None:
        """nvcc for all programs that are not loaded yet, at the same time: it takes seconds for each."""
        builds = [self._builds.get(program) for program in programs if id(program) not in self._loaded]
        if len(builds) > 1:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(len(builds)) as pool:
                list(pool.map(lambda build: build.compiled(), builds))

    def _chain(
        self, plan: Plan, loaded: list[_Loaded], source: int, target: int, space: dict[str, int], stream: int | None
    ) -> None:
        where = {**space, TARGET: target}
        done = 0
        for program, (_, passes) in zip(loaded, plan.parts, strict=True):
            end = done + passes
            while done < end:
                goes, left = where[plan.target(done)], end - done
                if left > 1 and where[plan.target(done + 1)] == source and (chunk := self._chunk(left)):
                    # there and back, an even number of passes
                    repeat = left // chunk
                    self._graph(program, chunk).run(program.table((source, goes), space), stream, repeat=repeat)
                    done += chunk * repeat
                    continue
                self._pass(program, program.table((source, goes), space), stream)
                source = goes
                done += 1

    def _pass(self, program: _Loaded, table: Sequence[int], stream: int | None) -> None:
        for ready in program.launches:
            ready.start(ready.pick(table), stream)

    def _chunk(self, passes: int) -> int:
        """How many passes a graph of ``passes`` that are left should hold; 0 where a graph does not pay."""
        if self.runtime.name != "driver" or passes < GRAPH_PASSES - 2 or self._seconds > GRAPH_SECONDS:
            return 0
        return min(GRAPH_CHUNK, passes - passes % 2)

    def _graph(self, program: _Loaded, chunk: int) -> TimeGraph:
        key = (id(program), chunk)
        with self._lock:
            if key not in self._graphs:
                nodes = []
                for i in range(chunk):
                    ends = (0, 1) if i % 2 == 0 else (1, 0)  # the table begins with the two fields
                    for r in program.launches:
                        buffers = tuple(ends[s] if s < _FIRST else s for s in r.slots)
                        nodes.append(GraphLaunch(r.fn, r.grid, r.block, r.shared, r.args, buffers))
                self._graphs[key] = self.time_graph(nodes)
            return self._graphs[key]

    def time_graph(self, nodes: Sequence[GraphLaunch]) -> TimeGraph:
        """A chain of launches as a graph."""
        return TimeGraph(self.runtime, nodes)  # type: ignore[arg-type]

    def run_host(self, plan: Plan, u: np.ndarray[Any, Any], out: np.ndarray[Any, Any], stream: int | None) -> None:
        """Copy a host field in (packed), run, copy the result out; done on return."""
        packed = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        with self.fields(plan, u.nbytes) as (first, second):
            self.runtime.to_device(first, np.ascontiguousarray(u), stream)
            self.run(plan, first, second, stream, None)
            self.runtime.to_host(packed, second, stream)
        if packed is not out:
            out[...] = packed

    @contextmanager
    def fields(self, plan: Plan, nbytes: int) -> Iterator[tuple[int, int]]:
        """Device memory for an input and an output of ``nbytes`` each, as long as the block lasts.

        DeviceMemoryError if they and the plan's workspace do not fit.
        """
        needed = {"input": nbytes, "output": nbytes, "workspace": plan.workspace_nbytes}
        held: list[int] = []
        with room_for(needed, self.runtime.memory, DEVICE):
            try:
                for _ in range(2):
                    held.append(self.runtime.alloc(nbytes))
                yield held[0], held[1]
            finally:
                for pointer in reversed(held):
                    self.runtime.free(pointer)

    def __del__(self) -> None:
        try:
            self._uploads.free()
        except Exception:  # never opened, or the context is gone
            return


def executor_kind(device: int, stream: int | None) -> str:
    """The way to launch on a stream: the chosen one, or the driver for a stream that pycuda cannot adopt."""
    kind = launcher()
    if kind == "pycuda" and stream and not open_runtime(device, "pycuda").owns_stream(stream):
        return "driver"
    return kind

"""A time loop as one CUDA graph: a chain of launches whose pointers are filled in anew for each call.

Each launch names its arrays by their number in a table (0 the input, 1 the output, 2 and up workspaces, say); a call
gives the table's present addresses. Only the nodes that touch an address that changed are updated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.driver import DriverRuntime, call
from sparsegen.backends.cuda.runtime import Dim3
from sparsegen.ir.errors import DeviceError


@dataclass(frozen=True)
class GraphLaunch:
    """One kernel of the chain. ``buffers`` holds, for each ``ptr`` argument in order, its number in the table;
    ``numbers``: how often the scalars of a time step stand in its own, one after the other."""

    fn: Any
    grid: Dim3
    block: Dim3
    shared: int
    args: PackedArgs
    buffers: tuple[int, ...]
    numbers: int = 0

    def fill(self, table: Sequence[int], scalars: bytes) -> None:
        """Write its arguments; hold their lock."""
        self.args.set_pointers([table[b] for b in self.buffers])
        if self.numbers:
            self.args.set_numbers(scalars * self.numbers)


class TimeGraph:
    """A chain of launches, instantiated once for a device, run with any set of addresses. Safe for threads.

    ``runtime`` is the device's DriverRuntime, and the functions must come from it. Raises DeviceError for an empty
    chain or a launch whose ``buffers`` do not fit its arguments. The first ``run`` builds the graph.
    """

    def __init__(self, runtime: DriverRuntime, launches: Sequence[GraphLaunch]) -> None:
        if not launches:
            raise DeviceError("a graph needs at least one launch", hint="steps must be positive")
        for index, launch in enumerate(launches):
            if len(launch.buffers) != launch.args.pointers:
                raise DeviceError(
                    f"launch {index} names {len(launch.buffers)} arrays for {launch.args.pointers} pointer arguments",
                    hint="give one number for each argument of kind ptr",
                )
        self._runtime = runtime
        self._launches = tuple(launches)
        self.buffers = 1 + max((b for launch in launches for b in launch.buffers), default=-1)
        self._lock = Lock()
        self._pointers: tuple[int, ...] = ()
        self._scalars = b""
        self._graph: Any = None
        self._executable: Any = None
        self._nodes: list[Any] = []
        self._params: list[Any] = []

    def _node_params(self, launch: GraphLaunch) -> Any:
        params = self._runtime.cu.CUDA_KERNEL_NODE_PARAMS()
        params.func = launch.fn.handle
        params.gridDimX, params.gridDimY, params.gridDimZ = launch.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = launch.block
        params.sharedMemBytes = launch.shared
        params.kernelParams = launch.args.address
        params.extra = 0
        return params

    def _build(self, pointers: tuple[int, ...]) -> None:
        cu = self._runtime.cu
        self._graph = call(cu.cuGraphCreate, 0)
        for launch in self._launches:
            params = self._node_params(launch)
            before = self._nodes[-1:]
            with launch.args.lock:  # the values are copied into the node by the call
                launch.fill(pointers, self._scalars)
                node = call(cu.cuGraphAddKernelNode, self._graph, before or None, len(before), params)
            self._nodes.append(node)
            self._params.append(params)
        self._executable = call(cu.cuGraphInstantiate, self._graph, 0)

    def _update(self, pointers: tuple[int, ...], others: bool) -> None:
        """``others``: the scalars are other ones."""
        cu = self._runtime.cu
        changed = {i for i, (old, new) in enumerate(zip(self._pointers, pointers, strict=True)) if old != new}
        for launch, node, params in zip(self._launches, self._nodes, self._params, strict=True):
            if changed.isdisjoint(launch.buffers) and not (others and launch.numbers):
                continue
            with launch.args.lock:
                launch.fill(pointers, self._scalars)
                call(cu.cuGraphExecKernelNodeSetParams, self._executable, node, params)

    def run(self, pointers: Sequence[int], stream: int | None = None, repeat: int = 1, scalars: bytes = b"") -> None:
        """Enqueue the whole chain ``repeat`` times on ``stream``, with these addresses and the scalars of every time
        step; asynchronous.

        A later call with other addresses does not disturb one that is still running.
        """
        table = tuple(pointers)
        if len(table) != self.buffers:
            raise DeviceError(f"{len(table)} addresses for {self.buffers} arrays", hint="give one for each array")
        with self._lock, self._runtime.current():
            others, self._scalars = scalars != self._scalars, scalars
            try:
                if self._executable is None:
                    self._build(table)
                elif others or table != self._pointers:
                    self._update(table, others)
            except BaseException:
                self._discard()  # half-built or half-updated: the next call builds it anew
                raise
            self._pointers = table
            queue = self._runtime.stream(stream)
            for _ in range(repeat):
                call(self._runtime.cu.cuGraphLaunch, self._executable, queue)

    def _discard(self) -> None:
        cu = self._runtime.cu
        if self._executable is not None:
            cu.cuGraphExecDestroy(self._executable)
        if self._graph is not None:
            cu.cuGraphDestroy(self._graph)
        self._graph = self._executable = None
        self._nodes, self._params = [], []

    def __del__(self) -> None:
        with contextlib.suppress(Exception), self._runtime.current():
            self._discard()

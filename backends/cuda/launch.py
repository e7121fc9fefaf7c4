"""A compiled kernel that can be launched on any stream: the cubin is loaded into each runtime when first needed."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from sparsegen.backends.cuda.args import PackedArgs, Value
from sparsegen.backends.cuda.runtime import Dim3, Launch, Runtime, open_runtime, runtime_for_stream


class CudaKernel:
    """One kernel of a cubin on one device, with its launch shape and arguments fixed, its pointers given at each call.

    ``args`` lists (kind, value) as ``PackedArgs`` takes them; the values of ``ptr`` arguments are placeholders.
    ``shared`` is dynamic shared memory in bytes a block. Nothing is loaded before the first launch.
    """

    def __init__(
        self,
        cubin: bytes,
        name: str,
        *,
        grid: Dim3,
        block: Dim3,
        shared: int = 0,
        args: Sequence[tuple[str, Value]] = (),
        device: int = 0,
    ) -> None:
        self.cubin, self.name, self.device = cubin, name, device
        self.grid, self.block, self.shared = grid, block, shared
        self._args = PackedArgs(args)
        self._functions: dict[str, Any] = {}
        self._launches: dict[str, Launch] = {}
        self._default: Launch | None = None
        self._lock = Lock()

    def function(self, runtime: Runtime) -> Any:
        """The kernel's function in ``runtime``, loaded once."""
        with self._lock:
            if runtime.name not in self._functions:
                module = runtime.load(self.cubin)
                self._functions[runtime.name] = runtime.function(module, self.name, self.shared)
            return self._functions[runtime.name]

    def packed(self) -> PackedArgs:
        """An own copy of the arguments, for a graph."""
        return self._args.copy()

    def _prepared(self, runtime: Runtime) -> Launch:
        found = self._launches.get(runtime.name)
        if found is None:
            fn = self.function(runtime)
            found = runtime.prepare(fn, self.grid, self.block, self.shared, self._args.copy())
            self._launches[runtime.name] = found
        return found

    def launch(self, pointers: Sequence[int], stream: int | None = None) -> None:
        """Start the kernel with these addresses (one for each ``ptr`` argument) on a stream handle; asynchronous."""
        if stream:
            self._prepared(runtime_for_stream(self.device, stream))(pointers, stream)
            return
        run = self._default
        if run is None:
            run = self._default = self._prepared(open_runtime(self.device))
        run(pointers)

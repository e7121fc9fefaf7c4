"""Running products on a GPU: one launch a call, its workspace kept from call to call."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.arrays import describe, empty_like
from sparsegen.execute import HostField
from sparsegen.execute_cuda import CudaExecutor
from sparsegen.inspection import Build, BuildCache
from sparsegen.ir.errors import DeviceError
from sparsegen.ir.op_spmm import Spmm
from sparsegen.memory import DEVICE, room_for
from sparsegen.products.host import flat, workspace
from sparsegen.products.pipelines import COUNTER, IN, MATRIX, OUT, SLOTS
from sparsegen.products.product import Product
from sparsegen.products.weights import addresses

if TYPE_CHECKING:
    from sparsegen.arrays import ArrayView
    from sparsegen.backends.cuda.runtime import Launch
    from sparsegen.pipelines import Program

#: Counters that are zeroed at once: one for each stream, and one for each call that a graph has captured.
_COUNTERS = 64


class SpmmBuilds(BuildCache):
    """The builds of a product's programs."""

    def get(self, program: Program) -> Build:
        """The build of a program, made once; its notes name the orders of x and y."""
        with self._lock:
            if id(program) not in self._known:
                (op,) = program.op.funcs
                assert isinstance(op, Spmm)
                notes = [*self._notes, f"x is packed by {op.x_order}s, {op.vec} elements a load; y by {op.y_order}s."]
                self._known[id(program)] = Build(program, self._profile, self._title, notes)
            return self._known[id(program)]


class SpmmExecutor(CudaExecutor):
    """The programs of one product on one GPU.  Safe for threads.

    With splits, blocks leave partial sums in the slots of a workspace, and count their arrivals there; the last one
    sets its count back to zero.  So each stream has a workspace of its own, whose counters are zeroed once.  A launch
    that goes into a graph may run beside any stream later: it gets a counter of its own, and slots out of torch's pool
    for that graph.
    """

    def __init__(self, device: int, kind: str, builds: BuildCache, seconds: float, product: Product, like: Program):
        super().__init__(device, kind, builds, seconds)
        (launch,) = like.warp.launches
        self.ends = launch.args  # the same for all variants
        #: the epilogue's arrays, in the order of the launch
        self.operands = tuple(role for role in self.ends if role in product.epilogue.operands)
        assert self.ends[: 5 + len(self.operands)] == (IN, OUT, *MATRIX, *self.operands)
        #: addresses of index, masks and values
        self.matrix = addresses(product.w, self.runtime)
        self._sizes = {role: int(size * dtype.itemsize) for role, (dtype, size) in workspace(like).items()}
        #: (slots, counter) of each stream that has been used
        self.spaces: dict[int, tuple[int, ...]] = {}
        self._spare: list[int] = []
        self._dealing = Lock()

    def launch(self, program: Program) -> Launch:
        """The launch of a program: called with the addresses of its roles, in the order of ``ends``."""
        (ready,) = self.loaded(program).launches
        assert ready.slots == tuple(range(len(self.ends)))  # all its parameters are arrays of the call or of W
        return ready.start

    def table(self, given: Mapping[str, int], space: tuple[int, ...]) -> tuple[int, ...]:
        """Addresses in the order of ``ends``."""
        where = {**given, **dict(zip(MATRIX, self.matrix, strict=True)), **dict(zip(self._sizes, space, strict=True))}
        return tuple(where[role] for role in self.ends)

    def run_product(
        self, program: Program, given: Mapping[str, int], stream: int | None, like: ArrayView | None
    ) -> None:
        """Enqueue the product; asynchronous.  ``given``: the address of each operand; ``like``: an array whose library
        gives workspace to a launch that is captured."""
        start = self.launch(program)
        if not self._sizes:
            start(self.table(given, ()), stream)
            return
        if self.runtime.capturing(stream):
            space, _keep = self._captured(stream, like)  # until the launch is in the graph
        else:
            space = self.spaces.get(stream or 0) or self._made(stream)
        start(self.table(given, space), stream)

    def _made(self, stream: int | None) -> tuple[int, ...]:
        """A workspace for a stream, made once.

        Not torch's memory: what torch allocates while it warms a graph up (``mode="reduce-overhead"``) belongs to the
        graph, and must not stay.
        """
        with self._dealing:
            if (found := self.spaces.get(stream or 0)) is None:
                if not self._spare:
                    self._more(stream)
                sizes = {SLOTS: self._sizes[SLOTS]}
                slots = self.space(stream).provide(sizes, self.runtime, None, stream)[SLOTS]
                found = self.spaces[stream or 0] = (slots, self._spare.pop())
            return found

    def _more(self, stream: int | None) -> None:
        """More counters that are zero, whichever stream they are used on."""
        each = -(-self._sizes[COUNTER] // 128) * 128
        first = self.space(stream).provide({COUNTER: each * _COUNTERS}, self.runtime, None, stream)[COUNTER]
        self.runtime.zero(first, each * _COUNTERS, stream)
        self.runtime.synchronize(stream)
        self._spare += [first + each * i for i in range(_COUNTERS)]

    def _captured(self, stream: int | None, like: ArrayView | None) -> tuple[tuple[int, ...], Any]:
        """A workspace for a launch that is being captured, and what holds its memory until then.

        What torch frees while it captures, it gives to later work of the same graph only.
        """
        if like is None or like.layout.library != "torch":
            raise DeviceError(
                f"a captured product with splits needs {sum(self._sizes.values())} bytes of workspace, which only "
                "torch allocates for a graph",
                hint="capture with torch.cuda.graph, or compile with a schedule of splits=1",
            )
        slots = empty_like(like, (self._sizes[SLOTS],), np.uint8)
        with self._dealing:
            spare = self._spare.pop() if self._spare else None
        if spare is not None:
            return (describe(slots).pointer, spare), slots
        counter = empty_like(like, (self._sizes[COUNTER],), np.uint8)
        at = describe(counter).pointer
        self.runtime.zero(at, self._sizes[COUNTER], stream)  # at each replay
        return (describe(slots).pointer, at), (slots, counter)

    def product_host(self, program: Program, arrays: Mapping[str, HostField], stream: int | None) -> None:
        """Copy host arrays in, run, copy the result out; done on return."""
        with ExitStack() as held:
            needed = {role: a.nbytes for role, a in arrays.items()}
            held.enter_context(room_for(needed | self._sizes, self.runtime.memory, DEVICE))
            memory: dict[str, int] = {}
            for role, a in arrays.items():
                memory[role] = self.runtime.alloc(a.nbytes)
                held.callback(self.runtime.free, memory[role])
                if role != OUT:
                    self.runtime.to_device(memory[role], flat(a), stream)
            self.run_product(program, memory, stream, None)
            self.runtime.to_host(flat(arrays[OUT]), memory[OUT], stream)

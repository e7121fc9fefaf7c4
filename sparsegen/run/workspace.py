"""Device memory that a kernel keeps from call to call: fields between passes, slots with counters, scalars of steps."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock, RLock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsegen.arrays import describe, empty_like
from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.ir.errors import DeviceError
from sparsegen.memory import DEVICE, room_for
from sparsegen.plan import Workspace
from sparsegen.views import ArrayView

#: Sets of counters that are zeroed at once: one for each stream, and one for each call that a graph has captured; and
#: bytes that so many sets may take.
COUNTERS, SPARE = 64, 1 << 24
Scalars: TypeAlias = "npt.NDArray[Any]"
#: Bytes: counters begin at multiples of it.
_APART = 128


class Space:
    """Workspace of one kernel on one stream: device memory of the caller's library where that is torch or CuPy."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.sizes: dict[str, int] = {}
        self.addresses: dict[str, int] = {}
        self._owners: list[Any] = []
        self._own: list[tuple[Runtime, int]] = []

    def provide(
        self, sizes: Mapping[str, int], runtime: Runtime, like: ArrayView | None, stream: int | None
    ) -> dict[str, int]:
        """Addresses of arrays of at least these sizes (bytes), kept from call to call; hold ``lock`` meanwhile.

        DeviceMemoryError where they do not fit.
        """
        for name, nbytes in sizes.items():
            if self.sizes.get(name, -1) < nbytes:
                with room_for({"workspace": sum(sizes.values())}, runtime.memory, DEVICE):
                    self.addresses[name] = self._allocate(nbytes, runtime, like, stream)
                self.sizes[name] = nbytes
        return self.addresses

    def _allocate(self, nbytes: int, runtime: Runtime, like: ArrayView | None, stream: int | None) -> int:
        if like is None or like.layout.library not in ("torch", "cupy"):
            pointer = runtime.alloc(nbytes)
            self._own.append((runtime, pointer))
            return pointer
        memory = empty_like(like, (max(1, nbytes),), np.uint8)
        if like.layout.library == "torch":  # its allocator is told of a stream that is not torch's current one
            torch: Any = sys.modules["torch"]
            if stream != torch.cuda.current_stream(memory.device).cuda_stream and stream:
                memory.record_stream(torch.cuda.ExternalStream(stream, device=memory.device))
        self._owners.append(memory)
        return describe(memory).pointer

    def __del__(self) -> None:
        with suppress(Exception):  # the context may be gone when the interpreter ends
            for runtime, pointer in self._own:
                runtime.free(pointer)


class Counted:
    """Workspaces with counters, which every launch leaves as the next one wants them: each stream has one of its own,
    zeroed once.

    A launch that goes into a graph may run beside any stream later: it gets counters of its own, and the rest out of
    torch's pool for that graph.  What the runtime records itself has the workspace of its stream.
    ``streams``: the addresses for each stream that has been used, in the order of ``spaces``.
    """

    def __init__(self, runtime: Runtime, spaces: Mapping[str, Workspace]) -> None:
        self._runtime, self._spaces = runtime, dict(spaces)
        self.streams: dict[int, tuple[int, ...]] = {}
        self._blocks: list[Space] = []
        self._spare: list[dict[str, int]] = []
        self._dealing = Lock()

    def of(self, stream: int | None, like: ArrayView | None) -> tuple[tuple[int, ...], Any]:
        """Addresses for a launch, and what holds their memory until it is enqueued.

        ``like``: an array whose library gives memory to a launch that is captured.
        """
        own = stream is not None and stream == self._runtime.recorder
        if not own and self._runtime.capturing(stream):
            return self._captured(stream, like)
        return self.streams.get(stream or 0) or self._made(stream), None

    def _made(self, stream: int | None) -> tuple[int, ...]:
        """A workspace for a stream, made once.

        Not torch's memory: what torch allocates while it warms a graph up (``mode="reduce-overhead"``) belongs to the
        graph, and must not stay.
        """
        with self._dealing:
            if (found := self.streams.get(stream or 0)) is None:
                if not self._spare:
                    self._more(stream)
                plain = {name: space.nbytes for name, space in self._spaces.items() if not space.counts}
                where = self._block().provide(plain, self._runtime, None, stream) | self._spare.pop()
                found = self.streams[stream or 0] = tuple(where[name] for name in self._spaces)
            return found

    def _block(self) -> Space:
        self._blocks.append(Space())
        return self._blocks[-1]

    def _more(self, stream: int | None) -> None:
        """More counters that are zero, whichever stream they are used on."""
        counts = {name: space.nbytes for name, space in self._spaces.items() if space.counts}
        apart = {name: -(-nbytes // _APART) * _APART for name, nbytes in counts.items()}
        sets = max(1, min(COUNTERS, SPARE // sum(apart.values())))
        sizes = {name: nbytes * sets for name, nbytes in apart.items()}
        first = self._block().provide(sizes, self._runtime, None, stream)
        for name, nbytes in sizes.items():
            self._runtime.zero(first[name], nbytes, stream)
        self._runtime.synchronize(stream)
        self._spare += [{name: first[name] + apart[name] * i for name in counts} for i in range(sets)]

    def _captured(self, stream: int | None, like: ArrayView | None) -> tuple[tuple[int, ...], Any]:
        """A workspace for a launch that is being captured; without spare counters, some that each replay zeroes.

        What torch frees while it captures, it gives to later work of the same graph only.
        """
        if like is None or like.layout.library != "torch":
            raise DeviceError(
                f"a captured launch of this kernel needs {sum(s.nbytes for s in self._spaces.values())} bytes of "
                "workspace, which only torch allocates for a graph",
                hint="capture with torch.cuda.graph, or compile with a schedule that needs none (splits=1)",
            )
        with self._dealing:
            where = self._spare.pop() if self._spare else {}
        held: list[Any] = []
        for name, space in self._spaces.items():
            if name not in where:
                held.append(empty_like(like, (space.nbytes,), np.uint8))
                where[name] = describe(held[-1]).pointer
                if space.counts:
                    self._runtime.zero(where[name], space.nbytes, stream)
        return tuple(where[name] for name in self._spaces), held


class Rows:
    """The scalars of all steps of a call, [steps, count], where one launch makes all of them.

    Each stream has a table, which a call with other numbers writes anew in the order of the stream.  A launch that goes
    into a graph has a table of its own, as long as this lives: a replay reads no memory of the host.
    """

    def __init__(self, runtime: Runtime) -> None:
        #: To be held from asking for a table until the launch that reads it is enqueued.
        self.lock = RLock()
        self._runtime = runtime
        self._tables: dict[int, Space] = {}
        self._now: dict[int, Scalars] = {}
        self._captured: list[Space] = []
        self._beside: int | None = None

    def of(self, scalars: Scalars, stream: int | None) -> int:
        """The address of a table with these numbers, for a launch on a stream."""
        if self._runtime.capturing(stream):
            return self._of_graph(scalars)
        space, now = self._tables.setdefault(stream or 0, Space()), self._now.get(stream or 0)
        address = self._provide(space, scalars)
        if now is None or not _same(now, scalars):
            self._runtime.upload(address, np.ascontiguousarray(scalars), stream)
            self._now[stream or 0] = scalars
        return address

    def _of_graph(self, scalars: Scalars) -> int:
        with self._runtime.uncaptured():
            if self._beside is None:
                self._beside = self._runtime.new_stream()
            self._captured.append(Space())
            address = self._provide(self._captured[-1], scalars)
            self._runtime.to_device(address, np.ascontiguousarray(scalars), self._beside)
        return address

    def _provide(self, space: Space, scalars: Scalars) -> int:
        return space.provide({"rows": scalars.nbytes}, self._runtime, None, None)["rows"]


def _same(a: Scalars, b: Scalars) -> bool:
    """Whether two tables have the same bits, at once where each is one row that stands for all."""
    if a.shape != b.shape:
        return False
    alike = not (a.strides[0] or b.strides[0])
    return a[: 1 if alike else None].tobytes() == b[: 1 if alike else None].tobytes()

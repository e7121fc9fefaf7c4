"""What travels after a turn of a pass: the cells that others need, on their way from array to array.

On a GPU all of it is on a stream of its own, so that the next piece is worked out meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from sparsegen.distributed.group import Ranks
from sparsegen.distributed.partition import Box, Message, Partition, within


class Turn:
    """The messages of one turn for some arrays of each piece at once (the levels of all fields that are new).

    ``arrays`` of the calls below: for each of this rank's pieces, by number, these arrays in the same order.
    """

    def __init__(self, ranks: Ranks, partition: Partition, messages: Sequence[Message]) -> None:
        self._ranks, self._messages = ranks, messages
        self._mine, self._turns = partition.of(ranks.me), partition.turns
        ends = {end for m in messages for end in (m.source, m.target)}
        self._frames = {end: partition.piece(end).frame for end in ends}
        #: Numbers of this rank's pieces whose halos arrive, or whose cells are sent.
        self.pieces = {i for m in messages if not self._stays(m) for i in (m.source, m.target) if i in self._mine}
        #: Packed cells of messages that lie apart in their arrays, by message and array.
        self._packed: dict[tuple[int, int], Any] = {}

    def copy(self, arrays: Mapping[int, Sequence[Any]]) -> None:
        """The messages from a piece to another of the same rank."""
        for m in self._messages:
            if self._stays(m):
                for a, b in zip(arrays[m.source], arrays[m.target], strict=True):
                    self._part(b, m.target, m.given).copy_(self._part(a, m.source, m.taken))

    def swap(self, arrays: Mapping[int, Sequence[Any]]) -> None:
        """The messages from rank to rank.  What lies together goes from array to array, all else is packed first."""
        sends, receives, unpacked = list[tuple[Any, int]](), list[tuple[Any, int]](), list[tuple[Any, Any]]()
        for at, m in enumerate(self._messages):
            if self._stays(m):
                continue
            out = m.source in self._mine
            piece, box, other = (m.source, m.taken, m.target) if out else (m.target, m.given, m.source)
            for i, a in enumerate(arrays[piece]):
                part = self._part(a, piece, box)
                moved = part if part.is_contiguous() else self._buffer(at, i, part)
                if out and moved is not part:
                    moved.copy_(part)
                elif moved is not part:
                    unpacked.append((part, moved))
                (sends if out else receives).append((raw(moved), other // self._turns))
        self._ranks.exchange(sends, receives, "an exchange of halos")()
        for part, moved in unpacked:
            part.copy_(moved)

    def _stays(self, m: Message) -> bool:
        """Whether a message is from a piece of this rank to another one."""
        return m.source in self._mine and m.target in self._mine

    def _part(self, array: Any, piece: int, box: Box) -> Any:
        return array[within(box, self._frames[piece])]

    def _buffer(self, message: int, array: int, part: Any) -> Any:
        """Memory for packed cells, the same at every pass."""
        key = message, array
        if key not in self._packed:
            self._packed[key] = part.new_empty(part.shape)
        return self._packed[key]


def raw(array: Any) -> Any:
    """The bytes of a packed tensor."""
    return array.view(-1).view(import_module("torch").uint8)


class Lane:
    """A stream beside the current one, before which it goes, on a GPU; on the host everything is done at once."""

    def __init__(self, device: Any) -> None:
        self._cuda: Any = import_module("torch.cuda") if device.type == "cuda" else None
        self._stream: Any = self._cuda.Stream(device, priority=-1) if self._cuda else None

    def do(self, work: Callable[[], None]) -> Any:
        """Enqueue work after all that the current stream has; what ``wait`` takes to make it wait for the end."""
        if self._cuda is None:
            work()
            return None
        self._stream.wait_stream(self._cuda.current_stream())
        with self._cuda.stream(self._stream):
            work()
            return self._stream.record_event()

    def wait(self, event: Any) -> None:
        """Make the current stream wait for the end of work."""
        if event is not None:
            self._cuda.current_stream().wait_event(event)

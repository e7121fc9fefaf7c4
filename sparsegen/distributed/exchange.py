"""What travels after a turn of a pass: the cells that others need, on their way from array to array.

On a GPU it is on a stream of its own, beside what is worked out meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from sparsegen.distributed.group import Ranks
from sparsegen.distributed.partition import Box, Partition, within
from sparsegen.distributed.post import Post, coming, leaving


class Turn:
    """The messages of one turn for some arrays of each piece at once (the levels of all fields that are new).

    ``arrays`` of the calls below: for each of this rank's pieces, by number, these arrays in the same order.
    """

    def __init__(self, ranks: Ranks, partition: Partition, turn: int) -> None:
        self._ranks, self._partition, self._turn = ranks, partition, turn
        mine = partition.of(ranks.me)
        self._staying = [m for m in partition.messages(ranks.me) if m.turn == turn and {m.source, m.target} <= {*mine}]
        self._leaving, self._coming = leaving(partition, ranks.me, turn), coming(partition, ranks.me, turn)
        #: Numbers of this rank's pieces whose halos arrive, or whose cells are sent.
        self.pieces = {m.source for m in self._leaving} | {m.target for m in self._coming}
        self._frames = {i: partition.piece(i).frame for i in mine}
        self._post: Post | None = None

    def copy(self, arrays: Mapping[int, Sequence[Any]]) -> None:
        """The messages from a piece to another of the same rank."""
        for m in self._staying:
            for a, b in zip(arrays[m.source], arrays[m.target], strict=True):
                self._part(b, m.target, m.given).copy_(self._part(a, m.source, m.taken))

    def swap(self, arrays: Mapping[int, Sequence[Any]]) -> None:
        """The messages from rank to rank: packed, carried, unpacked.  The first exchange of all has the most arrays."""
        some = next(iter(arrays.values()))
        if self._post is None:
            self._post = self._ranks.post(self._partition, self._turn, len(some), some[0].element_size())
        for m in self._leaving:
            for i, a in enumerate(arrays[m.source]):
                part = self._part(a, m.source, m.taken)
                _like(part, self._post.out(m, i)).copy_(part)
        self._post.deliver(len(some))
        for m in self._coming:
            for i, a in enumerate(arrays[m.target]):
                part = self._part(a, m.target, m.given)
                part.copy_(_like(part, self._post.into(m, i)))

    def _part(self, array: Any, piece: int, box: Box) -> Any:
        return array[within(box, self._frames[piece])]


def _like(part: Any, raw: Any) -> Any:
    """Packed bytes as the cells of a part of an array."""
    return raw.view(part.dtype).view(part.shape)


def raw(array: Any) -> Any:
    """The bytes of a packed tensor."""
    return array.view(-1).view(import_module("torch").uint8)


class Lane:
    """A stream of its own on a GPU, for what goes on beside other work; on the host everything is done at once.

    ``first``: the larger, the sooner its work is taken up where the SMs have the choice.
    """

    def __init__(self, device: Any, first: int = 0) -> None:
        self._cuda: Any = import_module("torch.cuda") if device.type == "cuda" else None
        self._stream: Any = self._cuda.Stream(device, priority=-first) if self._cuda else None

    def do(self, work: Callable[[], None], after: Iterable[Any] = ()) -> Any:
        """Enqueue work behind what the lane has, and after the ends of other work; its end comes back."""
        if self._cuda is None:
            work()
            return None
        for end in after:
            self._stream.wait_event(end)
        with self._cuda.stream(self._stream):
            work()
            return self._stream.record_event()

    def now(self) -> Any:
        """The end of all that the current stream has."""
        return self._cuda and self._cuda.current_stream().record_event()

    def wait(self, ends: Iterable[Any]) -> None:
        """Make the current stream wait for the ends of work."""
        for end in ends if self._cuda else ():
            self._cuda.current_stream().wait_event(end)

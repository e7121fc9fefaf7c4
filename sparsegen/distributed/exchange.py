"""What travels after a turn of a pass: the cells that others need, packed, one message a rank, and put in their place.

On a GPU all of it is on a stream of its own, so that the next piece is worked out meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from sparsegen.distributed.group import Ranks
from sparsegen.distributed.partition import Box, Message, Partition, cells, shape, within


class Turn:
    """The messages of one turn for ``count`` arrays of each piece at once (the levels of all fields that are new).

    ``arrays`` of the calls below: for each of this rank's pieces, by number, these arrays in the same order.
    """

    def __init__(self, ranks: Ranks, partition: Partition, messages: Sequence[Message], count: int, dtype: Any) -> None:
        self._ranks, self._count = ranks, count
        self._frames = [piece.frame for piece in partition.pieces]
        rank_of = [piece.rank for piece in partition.pieces]
        mine = ranks.me
        self.local = [m for m in messages if rank_of[m.source] == rank_of[m.target]]
        self._out = _by_rank((rank_of[m.target], m) for m in messages if rank_of[m.target] != mine)
        self._in = _by_rank((rank_of[m.source], m) for m in messages if rank_of[m.source] != mine)
        #: Numbers of this rank's pieces whose halos arrive, or whose cells are sent.
        self.pieces = {m.target for found in self._in.values() for m in found}
        self.pieces |= {m.source for found in self._out.values() for m in found}
        self._sent = {rank: self._buffer(found, dtype) for rank, found in self._out.items()}
        self._got = {rank: self._buffer(found, dtype) for rank, found in self._in.items()}

    @property
    def nbytes(self) -> int:
        """Bytes that this rank sends."""
        return sum(a.numel() * a.element_size() for a in self._sent.values())

    def _buffer(self, messages: Sequence[Message], dtype: Any) -> Any:
        torch = import_module("torch")
        return torch.empty(self._count * sum(cells(m.given) for m in messages), dtype=dtype, device=self._ranks.device)

    def copy(self, arrays: Mapping[int, Sequence[Any]]) -> None:
        """The messages from a piece to another of the same rank."""
        for m in self.local:
            for a, b in zip(arrays[m.source], arrays[m.target], strict=True):
                b[within(m.given, self._frames[m.target])].copy_(a[within(m.taken, self._frames[m.source])])

    def swap(self, arrays: Mapping[int, Sequence[Any]]) -> None:
        """The messages from rank to rank: pack, send and receive, unpack."""
        for rank, found in self._out.items():
            for part, a, m, box in self._each(self._sent[rank], found, arrays, of_source=True):
                part.copy_(a[within(box, self._frames[m])])
        uint8 = import_module("torch").uint8

        def raw(buffers: Mapping[int, Any]) -> list[tuple[Any, int]]:
            return [(a.view(uint8), rank) for rank, a in buffers.items()]

        self._ranks.exchange(raw(self._sent), raw(self._got), "an exchange of halos")()
        for rank, found in self._in.items():
            for part, a, m, box in self._each(self._got[rank], found, arrays, of_source=False):
                a[within(box, self._frames[m])].copy_(part)

    def _each(
        self, buffer: Any, messages: Sequence[Message], arrays: Mapping[int, Sequence[Any]], *, of_source: bool
    ) -> Iterator[tuple[Any, Any, int, Box]]:
        """Each part of a buffer with its array, the number of its piece and its cells."""
        start = 0
        for m in messages:
            piece, box = (m.source, m.taken) if of_source else (m.target, m.given)
            for a in arrays[piece]:
                end = start + cells(box)
                yield buffer[start:end].view(shape(box)), a, piece, box
                start = end


class Lane:
    """A stream beside the current one, on a GPU; on the host everything is done at once."""

    def __init__(self, device: Any) -> None:
        self._cuda: Any = import_module("torch.cuda") if device.type == "cuda" else None
        self._stream: Any = self._cuda.Stream(device) if self._cuda else None

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


def _by_rank(messages: Iterable[tuple[int, Message]]) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {}
    for rank, message in messages:
        found.setdefault(rank, []).append(message)
    return dict(sorted(found.items()))

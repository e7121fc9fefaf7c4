"""The way of packed cells from rank to rank: each message has a place that its sender writes and its receiver reads.

Where GPUs reach each other's memory, places lie on the receiver and a sender writes them itself
(:mod:`sparsegen.distributed.over_nvlink`).  Elsewhere both have memory for them, and what carries the ranks' other
messages carries these (``Sent``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final

from sparsegen.distributed.partition import Message, Partition, cells

#: Places begin at multiples of so many bytes.
_GRAIN: Final = 128
#: Messages between ranks, as :class:`sparsegen.distributed.group.Ranks` has them.
Exchange = Callable[[list[tuple[Any, int]], list[tuple[Any, int]], str], Callable[[], None]]


class Places:
    """Where the messages of one turn lie in memory, each with room for so many ``arrays`` of ``item`` bytes a cell."""

    def __init__(self, messages: Iterable[Message], arrays: int, item: int) -> None:
        self._item, self._starts, self.size = item, dict[Message, int](), 0
        for m in messages:
            self._starts[m] = self.size
            self.size += -(-cells(m.taken) * item * arrays // _GRAIN) * _GRAIN

    def of(self, m: Message, i: int) -> tuple[int, int]:
        """The first byte of the ``i``-th array of a message, and how many there are."""
        size = cells(m.taken) * self._item
        return self._starts[m] + i * size, size

    def all(self, m: Message, arrays: int) -> slice:
        """The bytes of a message that has so many arrays."""
        start, size = self.of(m, 0)
        return slice(start, start + size * arrays)


def leaving(partition: Partition, rank: int, turn: int) -> list[Message]:
    """The messages from a rank to others after a turn, in an order that all agree on."""
    mine = partition.of(rank)
    return [m for m in partition.messages(rank) if m.turn == turn and m.source in mine and m.target not in mine]


def coming(partition: Partition, rank: int, turn: int) -> list[Message]:
    """The messages to a rank from others after a turn, in an order that all agree on."""
    mine = partition.of(rank)
    return [m for m in partition.messages(rank) if m.turn == turn and m.target in mine and m.source not in mine]


class Post(ABC):
    """What carries the messages of one turn between this rank and others.

    An exchange: ``out`` for all arrays of all messages that leave, and what it gives filled; ``deliver``; then ``into``
    for all that come.  Both give packed bytes.
    """

    @abstractmethod
    def out(self, m: Message, i: int) -> Any:
        """Where to write the ``i``-th array of a message."""

    @abstractmethod
    def deliver(self, arrays: int) -> None:
        """Send what was written, so many arrays a message; on a GPU the current stream waits for what comes."""

    @abstractmethod
    def into(self, m: Message, i: int) -> Any:
        """Where the ``i``-th array of a message has come to."""


class Sent(Post):
    """By messages of the ranks (``exchange``), out of memory here into memory there."""

    def __init__(
        self, exchange: Exchange, me: int, device: Any, partition: Partition, turn: int, arrays: int, item: int
    ) -> None:
        self._exchange, self._turns = exchange, partition.turns
        self._leaving, self._coming = leaving(partition, me, turn), coming(partition, me, turn)
        self._there, self._here = Places(self._leaving, arrays, item), Places(self._coming, arrays, item)
        torch = import_module("torch")
        self._out, self._in = (
            torch.empty(places.size, dtype=torch.uint8, device=device) for places in (self._there, self._here)
        )

    def out(self, m: Message, i: int) -> Any:
        return self._out.narrow(0, *self._there.of(m, i))

    def deliver(self, arrays: int) -> None:
        sends = [(self._out[self._there.all(m, arrays)], m.target // self._turns) for m in self._leaving]
        receives = [(self._in[self._here.all(m, arrays)], m.source // self._turns) for m in self._coming]
        self._exchange(sends, receives, "an exchange of halos")()

    def into(self, m: Message, i: int) -> Any:
        return self._in.narrow(0, *self._here.of(m, i))

"""Halos written straight into another GPU's memory, which torch's symmetric memory lets the GPUs of a host reach.

A copy between GPUs needs no SM of either where it is of cells that lie together, so a pass keeps all of them; and no
receiver has to be ready before a sender may begin.  Places are there twice, for exchanges in turn: a sender writes one
again only after the receiver's next word, which follows its reading in the receiver's stream.
"""

from __future__ import annotations

import socket
from functools import cache
from importlib import import_module
from typing import Any, Final

from sparsegen.distributed import group
from sparsegen.distributed.partition import Message, Partition
from sparsegen.distributed.post import Places, Post, coming, leaving

MODULE: Final = "torch.distributed._symmetric_memory"


def address(device: Any) -> tuple[str, int]:
    """What others must know of a rank to say whether they reach its memory: its host and its GPU there.

    The number -1 for torch without symmetric memory.
    """
    try:
        import_module(MODULE)
    except ImportError:
        return socket.gethostname(), -1
    return socket.gethostname(), device.index


def reached(device: Any, addresses: list[tuple[str, int]]) -> bool:
    """Whether a GPU reaches the memory of all others at such addresses, which then are GPUs of one host, all seen by
    each process."""
    cuda = import_module("torch.cuda")
    indices = [index for _, index in addresses]
    return (
        len({host for host, _ in addresses}) == 1
        and len(set(indices)) == len(indices) > 1
        and all(
            0 <= i < cuda.device_count() and (i == device.index or cuda.can_device_access_peer(device.index, i))
            for i in indices
        )
    )


class Written(Post):
    """Messages that a sender writes where they are read.

    ``numbers``: those of the mesh's ranks in ``processes``, a group of torch's; making one is a collective call.
    """

    def __init__(
        self, processes: Any, numbers: list[int], me: int, device: Any,
        partition: Partition, turn: int, arrays: int, item: int,
    ) -> None:  # fmt: skip
        torch, symmetric = import_module("torch"), import_module(MODULE)
        self._numbers, self._turns, self._at, self._arrived = numbers, partition.turns, 0, 0
        self._places = [Places(coming(partition, rank, turn), arrays, item) for rank in range(len(numbers))]
        self._me, self._room = me, max(places.size for places in self._places)
        both = leaving(partition, me, turn), coming(partition, me, turn)
        near = {m.target // self._turns for m in both[0]} | {m.source // self._turns for m in both[1]}
        self._near = sorted(numbers[rank] for rank in near)
        memory = symmetric.empty(max(1, 2 * self._room), dtype=torch.uint8, device=device)
        self._handle, self._byte = symmetric.rendezvous(memory, processes), torch.uint8
        self._part = cache(self._view)

    def _view(self, rank: int, m: Message, i: int, at: int) -> Any:
        """The bytes of one array of a message to a rank, in one of the two sets of places there."""
        start, size = self._places[rank].of(m, i)
        return self._handle.get_buffer(self._numbers[rank], (size,), self._byte, at * self._room + start)

    def out(self, m: Message, i: int) -> Any:
        return self._part(m.target // self._turns, m, i, self._at)

    def deliver(self, arrays: int) -> None:
        wait = round(group.PATIENCE * 1000)
        for rank in self._near:
            self._handle.put_signal(rank, 0, wait)
        for rank in self._near:
            self._handle.wait_signal(rank, 0, wait)
        self._arrived, self._at = self._at, 1 - self._at

    def into(self, m: Message, i: int) -> Any:
        return self._part(self._me, m, i, self._arrived)

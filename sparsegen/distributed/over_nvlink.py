"""Halos written straight into another GPU's memory, which torch's symmetric memory lets the GPUs of a host reach.

What lies together goes by copy engines, and streams tell each other by words in memory: a pass keeps all SMs, which it
fills, and no receiver has to be ready before a sender may begin.  Places are there twice, for exchanges in turn: a
sender writes one again only after the receiver's next word, which follows its reading in the receiver's stream.
"""

from __future__ import annotations

import ctypes
import socket
from functools import cache
from importlib import import_module
from typing import Any, Final

from sparsegen.distributed.partition import Message, Partition
from sparsegen.distributed.post import Places, Post, coming, leaving
from sparsegen.distributed.watch import Watch
from sparsegen.ir.errors import DeviceError

MODULE: Final = "torch.distributed._symmetric_memory"
#: Bytes between the words of two ranks.
_APART: Final = 128
#: CU_STREAM_WAIT_VALUE_GEQ: until what lies in memory is no less, by a difference that may wrap around.
_NO_LESS: Final = 0


def address(device: Any) -> tuple[str, int]:
    """What others must know of a rank to say whether they reach its memory: its host and its GPU there.

    The number -1 for torch without symmetric memory, or with an older form of it.
    """
    try:
        able = hasattr(import_module(MODULE), "rendezvous")
    except ImportError:
        able = False
    return socket.gethostname(), device.index if able else -1


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


class Words:
    """Numbers of 32 bits in memory that streams write and wait for, by the driver's stream memory operations, which
    need no SM."""

    def __init__(self) -> None:
        driver = ctypes.CDLL("libcuda.so.1")
        self._write, self._wait = driver.cuStreamWriteValue32_v2, driver.cuStreamWaitValue32_v2
        for function in (self._write, self._wait):
            function.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]

    def write(self, stream: int, address: int, value: int) -> None:
        """After all that is before it in the stream, visible to who sees the word."""
        self._done(self._write(stream, address, value, 0))

    def wait(self, stream: int, address: int, value: int) -> None:
        """Until a word is no less than a value."""
        self._done(self._wait(stream, address, value, _NO_LESS))

    def _done(self, status: int) -> None:
        if status:
            raise DeviceError(f"the driver's stream memory operations fail with status {status}",
                              hint="look for an earlier error on this GPU: torch.cuda.synchronize() tells")  # fmt: skip


class Written(Post):
    """Messages that a sender writes where they are read.

    ``numbers``: those of the mesh's ranks in ``processes``, a group of torch's; making one is a collective call.
    """

    def __init__(
        self, processes: Any, numbers: list[int], me: int, device: Any,
        partition: Partition, turn: int, arrays: int, item: int,
    ) -> None:  # fmt: skip
        torch, symmetric = import_module("torch"), import_module(MODULE)
        self._numbers, self._turns, self._me, self._at, self._count = numbers, partition.turns, me, 0, 0
        self._places = [Places(coming(partition, rank, turn), arrays, item) for rank in range(len(numbers))]
        self._room = max(places.size for places in self._places)
        both = leaving(partition, me, turn), coming(partition, me, turn)
        near = {m.target // self._turns for m in both[0]} | {m.source // self._turns for m in both[1]}
        self._cuda, self._byte, self._device = torch.cuda, torch.uint8, device
        memory = symmetric.empty(2 * self._room + _APART * len(numbers), dtype=torch.uint8, device=device).zero_()
        torch.cuda.synchronize(device)  # before others write there
        self._handle = symmetric.rendezvous(memory, processes)
        self._part = cache(self._view)
        self._words, self._watch = Words(), Watch(me, len(numbers))
        self._theirs = [self._word(rank, me) for rank in sorted(near)]
        self._mine = [self._word(me, rank) for rank in sorted(near)]

    def _bytes(self, rank: int, start: int, size: int) -> Any:
        return self._handle.get_buffer(self._numbers[rank], (size,), self._byte, start)

    def _view(self, rank: int, m: Message, i: int, at: int) -> Any:
        """The bytes of one array of a message to a rank, in one of the two sets of places there."""
        start, size = self._places[rank].of(m, i)
        return self._bytes(rank, at * self._room + start, size)

    def _word(self, on: int, of: int) -> int:
        """The address of the word on one rank that another one writes."""
        return int(self._bytes(on, 2 * self._room + of * _APART, 4).data_ptr())

    def out(self, m: Message, i: int) -> Any:
        return self._part(m.target // self._turns, m, i, self._at)

    def deliver(self, arrays: int) -> None:
        stream = self._cuda.current_stream(self._device)
        self._count, self._at = (self._count + 1) % (1 << 32), 1 - self._at
        for address in self._theirs:
            self._words.write(stream.cuda_stream, address, self._count)
        reached = stream.record_event()
        for address in self._mine:
            self._words.wait(stream.cuda_stream, address, self._count)
        self._watch.add(reached, stream.record_event())

    def into(self, m: Message, i: int) -> Any:
        return self._part(self._me, m, i, 1 - self._at)

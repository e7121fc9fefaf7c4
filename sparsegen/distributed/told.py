"""How a stream knows that the ends of a pass are done while the rest of it runs: its blocks there count."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sparsegen.distributed.over_nvlink import Words


class Told:
    """The counter of the launches on one piece, on a GPU, and what it has come to when the latest one's ends are done.

    ``address``: where launches count, as :class:`sparsegen.ir.passes.ends_first.EndsFirst` has them do.
    """

    def __init__(self, device: Any) -> None:
        self._torch: Any = import_module("torch")
        self._word = self._torch.zeros(1, dtype=self._torch.int32, device=device)
        self._torch.cuda.synchronize(device)  # launches are in other streams
        self._device, self._words, self._count = device, Words(), 0

    @property
    def address(self) -> int:
        """Of the counter."""
        return int(self._word.data_ptr())

    def expect(self, blocks: int) -> None:
        """Of a launch that has been enqueued."""
        self._count = (self._count + blocks) % (1 << 32)

    def wait(self) -> None:
        """Make the current stream wait for the ends of the latest launch."""
        stream = self._torch.cuda.current_stream(self._device).cuda_stream
        self._words.wait(stream, self.address, self._count)

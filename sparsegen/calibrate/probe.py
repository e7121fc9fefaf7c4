"""What a micro-kernel is: a function of the warp level, what one round of it does, and the frame that times it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Value
from sparsegen.ir.types import Buffer, DType, s32, u32, u64

#: Elements of the small input that nvcc knows nothing of; a lane takes those from its own number on.
SEEDS = 64
#: Most rounds of a loop: index expressions that count them stay within 32 bits.
MOST_ROUNDS = 1 << 20


@dataclass(frozen=True)
class Probe:
    """A micro-kernel.  ``work`` is what a block does in one round (a whole launch, where nothing is counted in rounds).

    Parameters by name: ``cycles`` gets each block's clock cycles, ``rounds`` is how often the loop goes round, ``keep``
    is 0 (nvcc cannot know), so that results are stored only in its mind.  ``fill``: contents of buffers, else zeros.
    """

    func: w.Func
    work: float
    fill: dict[str, NDArray[Any]] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        return self.func.symbol

    @property
    def timed(self) -> bool:
        """Whether it reads the clock itself."""
        return any(p.name == "cycles" for p in self.func.params)


def seeds(dtype: DType) -> NDArray[Any]:
    """Contents of a small input: one half, or words that differ and, read as two f16, are about a tenth."""
    if dtype.is_int:
        return (0x2E662E66 + 0x00010001 * np.arange(SEEDS)).astype(dtype.numpy())
    return np.full(SEEDS, 0.5, dtype.numpy())


class Frame:
    """Builds a micro-kernel: parameters, then :meth:`timed` around the loop, then :meth:`func`."""

    def __init__(
        self,
        symbol: str,
        grid: int,
        threads: int,
        result: DType,
        params: tuple[Buffer | Value, ...] = (),
        shared: tuple[Buffer, ...] = (),
    ) -> None:
        self.b = Builder()
        self.rounds, self.keep = Value("rounds", s32, 0, MOST_ROUNDS), Value("keep", s32, 0, 1)
        self.cycles = Buffer("cycles", u64, grid, "global")
        self.sink = Buffer("sink", result, grid * threads, "global")
        every = (*params, self.sink, self.cycles, self.rounds, self.keep)
        self._shell = w.Func(symbol, every, shared, (grid, 1, 1), threads, ())
        self.at = self._shell.builtins()
        self.b.reserve(*self.at, *(p.name for p in (*every, *shared)))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """What is inside is timed from the moment at which all warps are there to the moment at which all are done.

        Barriers stand on both sides of both clock reads, so no warp starts early or is still at work.
        """
        b = self.b
        b.barrier()
        start = b.clock("start")
        yield
        b.barrier()
        b.st(self.cycles, self.at["bx"], b.binary("sub", b.clock("stop"), start), where=self.at["tid"].eq(0))

    def turns(self, many: Callable[[], None], unroll: int = 1) -> None:
        """``many()`` in a loop of ``rounds`` rounds, ``unroll`` times a round, so that the loop itself costs little."""
        with self.b.for_("round", 0, self.rounds, unroll=1), self.b.for_("again", 0, unroll, unroll=0):
            many()

    def drop(self, *values: Value) -> None:
        """Uses values: their sum (of words: their xor) is stored where ``keep`` says so, which it never does."""
        total = values[0]
        for v in values[1:]:
            total = self.b.binary("xor" if v.dtype is u32 else "add", total, v)
        self.b.st(self.sink, self.at["bx"] * self._shell.threads + self.at["tid"], total, where=self.keep.ne(0))

    def func(self) -> w.Func:
        """The finished function."""
        s = self._shell
        return w.Func(s.symbol, s.params, s.shared, s.grid, s.threads, self.b.ops())

"""``tiled``: a tile's window comes to shared memory, in a ring or not, and threads slide down their columns of it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from sparsegen.cost.counts import rim
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.cells import Grid, Warps, store
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Range, starts
from sparsegen.cost.counts.window import Window
from sparsegen.families import tiled as family


def launches(p: Pass) -> tuple[Launch, ...]:
    """The sums of all cells that fused weights are right for, and the rim."""
    f = Fused.of(p)
    return (*([Launch(f.name, _Tiled(p, f).counts())] if f.stored else []), *rim.launches(p))


class _Tiled:
    """The main launch of a pass."""

    def __init__(self, p: Pass, f: Fused) -> None:
        s, g = p.schedule, p.geometry
        assert s.tile is not None
        self.f, self.size, self.stages, self.tally = f, s.tile, s.stages, Tally()
        self.rows, self.cols, self.per_x = family.threads(s, *s.tile, f.dtype.nbytes)
        self.per_y = s.tile[0] // self.rows
        self.warps = self.rows * self.cols // 32
        whole = 16 // f.dtype.nbytes
        piece = whole if f.shape[1] % whole == 0 else 1
        # a copy of less than four bytes cannot go past the registers
        apart = piece * f.dtype.nbytes >= 4 and (s.stages > 1 or family.at_once(s, g, p.device))
        reach = f.radius[0] * s.fuse
        self.window = Window(
            g.rows + 2 * reach, g.pitch_raw, (reach, g.before), (f.shape[0], f.shape[1]), f.sides, f.dtype, f.dtype,
            piece, apart,
        )  # fmt: skip
        self.grid = Grid.of(f, s.tile, [self.window.plain(axis, n) for axis, n in enumerate(s.tile)])
        self.blocks = min(p.resident * p.device.sms, self.grid.tiles) if s.stages > 1 else self.grid.tiles

    def counts(self) -> dict[str, int]:
        """Those of the launch."""
        y, x = self.grid.axes
        self.window.copy(self.tally, y, x, np.outer(y.times, x.times))
        self._order()
        self._choices()
        self._sums()
        store(self.tally, self.grid, Warps.of(self.rows, self.cols), (self.per_y, self.per_x))
        return self.tally.result()

    @property
    def _ring(self) -> bool:
        """Whether tiles are fetched ahead."""
        return self.stages > 1 and self.window.asynchronous

    def _order(self) -> None:
        """Barriers: one a tile, and where a window is filled anew by loads and stores one before that."""
        tiles = self.warps * self.grid.tiles
        self.tally.issue("barrier", tiles * (2 if self.stages > 1 and not self._ring else 1))
        if self.window.asynchronous:
            ahead = self.stages - 1  # groups of each block before its first tile
            self.tally.issue("cp_commit", tiles + ahead * self.warps * self.blocks)
            self.tally.issue("cp_wait", tiles)

    def _choices(self) -> None:
        """``select`` of copies across a border: code for the first tiles of a ring knows more of where they are."""
        y, x = (np.arange(0, n, m) for n, m in zip(self.f.shape, self.size, strict=True))
        across = (self.window.crosses(0, y)[:, None] | self.window.crosses(1, x)).reshape(-1)
        total, ahead = len(across), self.stages - 1
        parts: list[Range] = [(0, total - 1)]
        if self._ring:
            parts = [(d * self.blocks, min((d + 1) * self.blocks, total) - 1) for d in range(ahead)]
            parts.append((ahead * self.blocks, total - 1))
        whole = tuple((0, n) for n in self.f.shape)
        for first, last in parts:
            if first <= last:
                each = self.window.choices(starts((whole,), self.size, (first, last)))
                turns = self.window.turns * int(across[first : last + 1].sum())
                self.tally.issue(f"select.{self.f.dtype}", each * turns)

    def _sums(self) -> None:
        """A thread reads the pieces of each row that its outputs need, and adds them up."""
        f, tally, every = self.f, self.tally, self.warps * self.grid.tiles
        down: dict[int, set[int]] = defaultdict(set)
        for y, x in f.taps:
            for row in range(self.per_y):
                down[row + y] |= {x + c for c in range(self.per_x)}
        first = self.window.before[1] + min(x for _, x in f.taps)
        first -= first % self.per_x  # rows are read from the piece on that the leftmost neighbour is in
        pieces = {(row, (self.window.before[1] + x - first) // self.per_x) for row, xs in down.items() for x in xs}
        nbytes = self.per_x * f.dtype.nbytes
        tally.issue("ld.param", len(f.taps) * every)
        tally.request("ld.shared", np.arange(32)[None] * nbytes, nbytes, times=len(pieces) * every)
        if f.narrow:
            tally.issue(f"cvt.{f.sums}.{f.dtype}", sum(map(len, down.values())) * every)
        outputs = self.per_y * self.per_x * every
        tally.issue(f"mul.{f.sums}", outputs)
        tally.issue(f"fma.{f.sums}", (len(f.taps) - 1) * outputs)

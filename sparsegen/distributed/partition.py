"""Who holds which cells, and which of them a neighbour needs: boxes, blocks, pieces and the messages between them.

The domain is split along its first axes into blocks, one a rank.  Where the exchange is to be overlapped with work, a
block is two pieces, one above the other on the first axis.  A pass runs on a piece and its halo, as wide as a pass
reaches; what it makes of the outermost cells is wrong, and never leaves the halo.  No halo goes beyond an edge of the
domain, where the boundary holds, but for periodic axes, which have none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from sparsegen.ir.errors import ArrayError

#: The first and the last cell (exclusive) on each axis.
Box = tuple[tuple[int, int], ...]


def cells(box: Box) -> int:
    """How many cells a box has."""
    return math.prod(high - low for low, high in box)


def shape(box: Box) -> tuple[int, ...]:
    """The cells of each axis of a box."""
    return tuple(high - low for low, high in box)


def within(box: Box, frame: Box) -> tuple[slice, ...]:
    """Where a box lies in an array that holds the cells of ``frame``."""
    return tuple(slice(low - start, high - start) for (low, high), (start, _) in zip(box, frame, strict=True))


def meet(a: Box, b: Box) -> Box | None:
    """The cells that two boxes share; None if there are none."""
    both = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True))
    return both if all(low < high for low, high in both) else None


def moved(box: Box, by: Sequence[int]) -> Box:
    """The box so many cells further on."""
    return tuple((low + d, high + d) for (low, high), d in zip(box, by, strict=True))


def run(n: int, count: int, at: int) -> tuple[int, int]:
    """The ``at``-th of ``count`` runs of ``n`` cells, whose lengths differ by one at most."""
    return n * at // count, n * (at + 1) // count


@dataclass(frozen=True)
class Piece:
    """What a launch works on: a block, or the half of one.

    ``own``: the cells that it is answerable for; ``frame``: these and the halo, in the domain's coordinates, so that on
    periodic axes it may lie partly outside.  ``turn``: whether it is the first of its block to run, or the second.
    """

    rank: int
    own: Box
    frame: Box
    turn: int


@dataclass(frozen=True)
class Message:
    """Cells of one piece, ``taken``, that are the halo ``given`` of another: pieces by number, boxes in the domain.

    ``turn``: after which of the two turns of a pass both ends can do it.
    """

    source: int
    target: int
    taken: Box
    given: Box
    turn: int


@dataclass(frozen=True)
class Partition:
    """A domain of ``grid`` cells on a ``mesh`` of ranks, the last axis of which runs fastest.

    ``halo``: cells on each axis that a pass reaches; ``periodic``: of each axis; ``grain``: frames begin at multiples
    of it, so that halos at their low ends may be wider; ``turns``: pieces of a block, 1 or 2.  ArrayError for a mesh
    that the domain is too small for.
    """

    grid: tuple[int, ...]
    mesh: tuple[int, ...]
    halo: tuple[int, ...]
    periodic: tuple[bool, ...]
    grain: tuple[int, ...]
    turns: int = 1

    def __post_init__(self) -> None:
        if len(self.mesh) > min(2, len(self.grid)):
            raise ArrayError(
                f"a mesh of {len(self.mesh)} axes, {_text(self.mesh)}, for fields of {len(self.grid)}",
                hint=f"split the first axis, or the first two where there are as many: ({math.prod(self.mesh)},)",
            )
        for axis, (ranks, n) in enumerate(zip(self.mesh, self.grid, strict=False)):
            thinnest, reach = n // ranks, self._least(axis)
            if ranks > 1 and thinnest < reach:
                most = max(1, n // reach)
                raise ArrayError(
                    f"{n} cells on axis {axis} over {ranks} ranks leave blocks of {thinnest}, and a pass needs a halo "
                    f"of {reach}",
                    hint=f"take at most {most} ranks on axis {axis}, or a schedule of fewer steps a pass",
                )

    def halves(self) -> bool:
        """Whether every block is long enough for two pieces."""
        return self.grid[0] // self.mesh[0] // 2 >= self._least(0)

    def in_turns(self, turns: int) -> Partition:
        """The same with so many pieces of a block."""
        return replace(self, turns=turns)

    def _least(self, axis: int) -> int:
        """Cells of a piece at least: the widest halo comes from the next one alone."""
        return max(1, self.halo[axis] + self.grain[axis] - 1)

    @cached_property
    def split(self) -> tuple[bool, ...]:
        """The axes on which there is more than one piece."""
        ranks = (*self.mesh, *(1,) * (len(self.grid) - len(self.mesh)))
        return tuple(n * (self.turns if axis == 0 else 1) > 1 for axis, n in enumerate(ranks))

    @property
    def ends(self) -> int:
        """Cells at both ends of a frame's first axis that are a halo or a neighbour's, where all others may be worked
        out while these travel: of blocks in one piece that are split on that axis alone; else 0."""
        alone = self.turns == 1 and self.split[0] and not any(self.split[1:])
        return 2 * self.halo[0] + self.grain[0] - 1 if alone else 0

    @cached_property
    def images(self) -> list[tuple[int, ...]]:
        """How far the cells of the domain are moved, on each axis, to where frames may have them: on split periodic
        axes frames go around."""
        axes = zip(self.grid, self.split, self.periodic, strict=True)
        return list(product(*((-n, 0, n) if split and periodic else (0,) for n, split, periodic in axes)))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Where a rank stands in the mesh."""
        return tuple(rank // math.prod(self.mesh[axis + 1 :]) % n for axis, n in enumerate(self.mesh))

    def block(self, rank: int) -> Box:
        """The cells of a rank."""
        places = zip(self.grid, self.mesh, self.coordinates(rank), strict=False)
        rest = tuple((0, n) for n in self.grid[len(self.mesh) :])
        return (*(run(n, ranks, at) for n, ranks, at in places), *rest)

    @cached_property
    def blocks(self) -> tuple[Box, ...]:
        """The cells of each rank."""
        return tuple(self.block(rank) for rank in range(math.prod(self.mesh)))

    def piece(self, number: int) -> Piece:
        """A piece by its number: those of a rank follow one another in the order in which they run.

        Ranks that are neighbours on the first axis begin at opposite ends, so that what is done first lies beside what
        the neighbour does first.
        """
        rank, turn = divmod(number, self.turns)
        (low, high), *rest = self.block(rank)
        at = self.turns - 1 - turn if self.coordinates(rank)[0] % 2 else turn
        start, end = run(high - low, self.turns, at)
        own = ((low + start, low + end), *rest)
        return Piece(rank, own, self._frame(own), turn)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces."""
        return tuple(self.piece(number) for number in range(math.prod(self.mesh) * self.turns))

    def of(self, rank: int) -> range:
        """The numbers of a rank's pieces."""
        return range(rank * self.turns, (rank + 1) * self.turns)

    def messages(self, rank: int) -> list[Message]:
        """What a rank's pieces get and give, in an order that all ranks agree on; some stay on the rank."""
        mine, here = self.of(rank), self.coordinates(rank)
        around = product(*({(at + step) % n for step in (-1, 0, 1)} for at, n in zip(here, self.mesh, strict=True)))
        near = [i for place in around for i in self.of(self.rank(place))]
        pairs = {(a, b) for i in mine for j in near for a, b in ((i, j), (j, i))}
        return [message for pair in sorted(pairs) for message in self._between(*pair)]

    def rank(self, place: Sequence[int]) -> int:
        """The rank at a place in the mesh."""
        found = 0
        for at, n in zip(place, self.mesh, strict=True):
            found = found * n + at
        return found

    def _between(self, source: int, target: int) -> Iterator[Message]:
        """Of one piece to another: several where a periodic axis has few pieces."""
        a, b = self.piece(source), self.piece(target)
        for by in self.images:
            if source == target and not any(by):
                continue
            if (given := meet(moved(a.own, by), b.frame)) is not None:
                yield Message(source, target, moved(given, [-d for d in by]), given, max(a.turn, b.turn))

    def _frame(self, own: Box) -> Box:
        frame = list[tuple[int, int]]()
        for axis, (low, high) in enumerate(own):
            if not self.split[axis]:
                frame.append((low, high))
                continue
            grain = self.grain[axis]
            low, high = (low - self.halo[axis]) // grain * grain, high + self.halo[axis]
            frame.append((low, high) if self.periodic[axis] else (max(0, low), min(self.grid[axis], high)))
        return tuple(frame)


def _text(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))

"""Sources and receivers over the ranks of a mesh: which of them a piece has, and how all ranks get the records.

A source acts on those of its cells that lie in a frame, in the halo too, at every step of a pass: there a piece makes
what its neighbour makes.  A receiver is recorded by one piece, the one that owns its lowest cell.  Its other cells lie
one further at most, in the halo, which is one cell wider for that: so they are right at the last step of a pass too.

Cells and weights are those of the whole domain, moved as they are: a coordinate that is moved would be rounded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.distributed.exchange import raw
from sparsegen.distributed.group import Ranks
from sparsegen.distributed.partition import Box, Partition, Piece, shape
from sparsegen.dsl.sites import Sites
from sparsegen.ir.op_sites import Placed, record
from sparsegen.problem import Problem
from sparsegen.problems.update import UpdateProblem


class Seen(NamedTuple):
    """What a piece works out: the problem on its frame with the sites that it has, and for each group that it has some
    of (by name) which ones of the whole group they are."""

    problem: Problem
    which: Mapping[str, Any]

    def on(self, device: Any) -> Seen:
        """The same with tensors on a device that say which."""
        torch = import_module("torch")
        which = {name: torch.as_tensor(numbers, device=device) for name, numbers in self.which.items()}
        return self._replace(which=which)


def groups(problem: Problem) -> tuple[Sites, ...]:
    """The sources and receivers of a problem; most have none."""
    return problem.what.sites if isinstance(problem, UpdateProblem) else ()


def bare(problem: Problem) -> Problem:
    """The problem without sources and receivers."""
    return with_groups(problem, ()) if groups(problem) else problem


def with_groups(problem: Problem, sites: Sequence[Sites], cells: Sequence[int] | None = None) -> Problem:
    """The problem with other sites, on fields of so many ``cells`` if they are said."""
    assert isinstance(problem, UpdateProblem)
    return replace(problem, what=replace(problem.what, sites=tuple(sites)), shape=tuple(cells or problem.shape))


def beyond(problem: Problem) -> tuple[int, ...]:
    """Cells on each axis that receivers see beyond those of a block: one where some lie between cells."""
    far = [(group.points % 1 != 0).any(0) for group in groups(problem) if not group.source]
    return tuple(map(int, np.any(far, axis=0))) if far else (0,) * len(problem.shape)


def seen(problem: Problem, partition: Partition, piece: Piece) -> Seen:
    """What a piece of a partition works out."""
    if not (every := groups(problem)):
        return Seen(problem.at(shape(piece.frame)), {})
    assert isinstance(problem, UpdateProblem)
    found, which = list[Sites](), dict[str, npt.NDArray[np.int64]]()
    for group in every:
        pairs = problem.placed[group.name]
        if group.source:
            pairs = _inside(pairs, piece.frame, partition)
        else:
            pairs = _recorded(group, pairs, partition, piece)
        if len(pairs.sites):
            which[group.name], numbers = np.unique(pairs.sites, return_inverse=True)
            points = group.points[which[group.name]]
            cells = pairs.cells - [low for low, _ in piece.frame]
            found.append(replace(group, points=points, signal=None, pairs=pairs._replace(cells=cells, sites=numbers)))
    return Seen(with_groups(problem, found, shape(piece.frame)), which)


def on_block(problem: Problem, block: Box) -> Problem:
    """The problem as a rank's call has it: fields of its block, signals and records of all sites.  It places none."""
    none = Placed(np.zeros((0, len(block)), np.int64), np.zeros(0, np.int64), np.zeros(0))
    sites = [replace(group, pairs=none) for group in groups(problem)]
    return with_groups(problem, sites, shape(block)) if sites else problem.at(shape(block))


def busiest(every: Sequence[Problem]) -> Problem:
    """That of some problems whose sites have most cells."""
    return max(every, key=lambda problem: sum(len(g.pairs.sites) for g in groups(problem) if g.pairs is not None))


def _recorded(group: Sites, pairs: Placed, partition: Partition, piece: Piece) -> Placed:
    """The pairs of those receivers that a piece records: it owns their lowest cells."""
    low, high = np.array(piece.own).T
    first = np.floor(group.points).astype(np.int64) % partition.grid
    mine = ((first >= low) & (first < high)).all(1)[pairs.sites]
    own = Placed(*(part[mine] for part in pairs))
    ends = (end + split for (_, end), split in zip(piece.own, partition.split, strict=True))
    return _inside(own, tuple(zip(low.tolist(), ends, strict=True)), partition)


def _inside(pairs: Placed, box: Box, partition: Partition) -> Placed:
    """The pairs whose cells lie in a box, in their order; on a periodic axis a cell lies there as often as the box goes
    around."""
    low, high = np.array(box).T
    images = np.array(partition.images)
    cells = pairs.cells[:, None] + images
    pair, image = np.nonzero(((cells >= low) & (cells < high)).all(2))
    return Placed(cells[pair, image], pairs.sites[pair], pairs.weights[pair])


class Records:
    """What the receivers of all pieces have recorded, brought to every rank when a call ends: it is little."""

    def __init__(self, ranks: Ranks, partition: Partition, problem: Problem) -> None:
        self._ranks, self._turns = ranks, partition.turns
        roles = {group.name: record(group.name) for group in groups(problem) if not group.source}
        every = [seen(problem, partition, piece).on(ranks.device).which for piece in partition.pieces if roles]
        self._others = [rank for rank in range(len(partition.blocks)) if rank != ranks.me]
        #: For each record, and each piece that makes a part of it, which of its columns these are.
        self._columns = {
            role: {i: which[name] for i, which in enumerate(every) if name in which} for name, role in roles.items()
        }

    def share(self, mine: Mapping[int, Mapping[str, Any]], new: Mapping[str, Any]) -> None:
        """Fill the records of a call, ``new``, with those of all pieces; ``mine``: those of this rank's, by number.

        A collective call.
        """
        sends, receives, parts = list[tuple[Any, int]](), list[tuple[Any, int]](), list[tuple[Any, Any, Any]]()
        made = {role: new[role].new_empty(new[role].shape, device=self._ranks.device) for role in self._columns}
        for role, pieces in self._columns.items():
            whole = made[role]
            for i, columns in pieces.items():
                if i in mine:
                    part = mine[i][role]
                    sends += [(raw(part), rank) for rank in self._others]
                else:
                    part = whole.new_empty((len(whole), len(columns)))
                    receives.append((raw(part), i // self._turns))
                parts.append((whole, columns, part))
        if parts:
            self._ranks.exchange(sends, receives, "an exchange of records")()
        for whole, columns, part in parts:
            whole[:, columns] = part
        for role, whole in made.items():
            new[role].copy_(whole)

"""The launches of a program, each counted from single units of its work.

That units of a class count the same is not taken on trust: of each class the first, the middle and the last unit are
emulated.  All that depends on where a unit is are comparisons with borders, which hold up to some unit and for none
beyond, so what lies between two units that agree with one in their middle agrees as well.  Where they differ, a border
reaches further in on some axis, and more units next to it are told apart; in the end all of them are.

What a matrix's zeros decide is the same in no two runs of it.  All runs of a matrix of moderate size are emulated; of a
larger one a share of each class, and what differs within a class is its mean, times how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from sparsegen.backends.emulator import Tally, Window, tally
from sparsegen.counts.work import SECTOR, Runs, Tiles
from sparsegen.ir import op, op_spmm, op_update, tile, warp
from sparsegen.ir.node import walk
from sparsegen.ir.op_sites import apart as distance
from sparsegen.ir.tile_bitmap import ShareStrips
from sparsegen.ir.types import Buffer
from sparsegen.pipelines import Program
from sparsegen.plan import SCRATCH, Bound, constant, launches, rows_of

#: Elements of the largest matrix that is emulated as a whole (10 to 30 seconds), and of what is emulated of others.
WHOLE, SAMPLE = 1 << 24, 1 << 22

#: The counts of blocks, given by their numbers, in some turns of a loop or in all.
Emulate = Callable[..., Tally]


@dataclass(frozen=True)
class LaunchCounts:
    """The counts of one launch of ``kernel``, and how often a call launches it.

    ``sampled``: the names of those that a part of the blocks stands for, since the data decide them: estimates.
    """

    kernel: str
    times: int
    counts: Mapping[str, int]
    sampled: frozenset[str] = frozenset()


def of_program(program: Program, times: int, given: Mapping[str, Any]) -> list[LaunchCounts]:
    """The counts of each launch of a program: of a batch those of an item of each kind, times how many there are.

    ``given``: the (flat) arrays of roles whose contents decide what is done; those of no other role do.
    """
    (what,) = program.op.funcs
    kernels = {f.symbol: f for f in program.tile.funcs if isinstance(f, tile.Func)}
    found: list[LaunchCounts] = []
    for bound in launches(program.warp):
        kernel, emulate = kernels[bound.func.symbol], _emulator(program, bound, given)
        shares = {type(one) for one in walk(kernel.body)}
        sampled = frozenset[str]()
        if isinstance(what, (op.Stencil, op_update.Update)) and tile.ForTiles in shares:
            tables = program.warp.constants
            fields = [
                p for p, (_, role) in zip(kernel.params, bound.roles, strict=True)
                if role not in tables and isinstance(p, Buffer)
            ]  # fmt: skip
            loop = next(one for one in walk(kernel.body) if isinstance(one, tile.ForTiles))
            shape = (1, *what.shape)[-len(loop.at) :]  # a field of one axis may be walked over as one row
            tiles = partial(_of_tiles, bound.func, Tiles.of(kernel, shape, fields))
            counts = _of_items(program, bound, emulate, tiles)
        elif isinstance(what, op_spmm.Spmm) and ShareStrips in shares:
            counts, sampled = _of_runs(Runs.of(kernel), what.matrices * what.m * what.k, emulate)
        else:
            counts = _of_items(program, bound, emulate, partial(_of_all, bound.func))
        found.append(LaunchCounts(bound.func.symbol, times, counts, sampled))
    return found


def _of_items(
    program: Program, bound: Bound, emulate: Emulate, count: Callable[[Emulate], dict[str, int]]
) -> dict[str, int]:
    """The counts of all items of a batch; those whose arrays begin alike in the sectors of memory count the same."""
    (blocks, items, _), rows = bound.func.grid, rows_of(program)
    apart = {p.nbytes // items for p, role in bound.roles
             if isinstance(p, Buffer) and p.space == "global" and role not in rows}  # fmt: skip
    apart |= {space.item() * rows[role].param.dtype.nbytes for role in rows
              if (space := program.warp.constants.get(distance(role))) is not None}  # fmt: skip
    alike: dict[tuple[int, ...], list[int]] = {}
    for item in range(items):
        alike.setdefault(tuple(item * nbytes % SECTOR for nbytes in sorted(apart)), []).append(item)
    total: dict[str, int] = {}
    for same in alike.values():
        first = same[0] * blocks
        one = count(lambda of, window=None, first=first: emulate(of + first, window))
        for name, n in one.items():
            total[name] = total.get(name, 0) + n * len(same)
    return total


def _of_all(func: warp.Func, emulate: Emulate) -> dict[str, int]:
    """The counts of a launch of which it is not known which blocks are alike: of each of them."""
    found = emulate(np.arange(func.grid[0]))
    return _named(replace(found, of=found.of.sum(axis=1)))


def _emulator(program: Program, bound: Bound, given: Mapping[str, Any]) -> Emulate:
    """What emulates blocks of a launch."""
    args: dict[str, Any] = {}
    for param, role in bound.roles:
        if role in program.warp.constants:
            data = constant(program.warp, role, param)
            args[param.name] = data if isinstance(param, Buffer) else data[0].item()
        elif role in given:
            args[param.name] = given[role]
        elif isinstance(param, Buffer) and param.dtype.kind != "float":
            args[param.name] = np.zeros(param.size, param.dtype.numpy())
    own = {role for _, role in bound.roles if role in program.warp.constants or role.startswith(SCRATCH)}
    align = {p.name: 16 for p, role in bound.roles if role not in own}  # a user's array is no better aligned

    def emulate(blocks: Any, window: Window | None = None) -> Tally:
        return tally(bound.func, args, blocks, window=window, align=align)

    return emulate


# ------------------------------------------------------------------------------------------------ tiles
@dataclass
class _Units:
    """What single units of a launch count, emulated when first asked for."""

    measure: Emulate
    names: tuple[str, ...] = ()
    known: dict[int, Any] = field(default_factory=dict)

    def of(self, units: Any) -> Any:
        """The counts of these units, one row a unit."""
        new = np.array(sorted({*units.tolist()} - self.known.keys()), dtype=np.int64)
        if len(new):
            found = self.measure(new)
            self.names = found.names
            self.known.update(zip(new.tolist(), found.of.T, strict=True))
        return np.stack([self.known[u] for u in units.tolist()])


def _classes(code: Any) -> tuple[Any, Any, Any]:
    """The units class by class, where each class begins there, and how many it has."""
    order = np.argsort(code, kind="stable")
    start = np.flatnonzero(np.append(True, np.diff(code[order]) != 0))
    return order, start, np.diff(np.append(start, len(order)))


def _exactly(work: Tiles, measure: Emulate) -> Tally:
    """The counts of all units, summed; ``measure`` gives those of single ones."""
    units, ends = _Units(measure), np.ones(work.axes, dtype=np.int64)
    while True:
        code, inside = work.classes(ends)
        order, start, size = _classes(code)
        three = order[np.concatenate([start, start + size // 2, start + size - 1])]
        first, middle, last = units.of(three).reshape(3, len(start), -1)
        differ = ((first != middle) | (last != middle)).any(axis=1)
        if not differ.any():
            return Tally(units.names, (middle * size[:, None]).sum(axis=0))
        axes = inside[order[start[differ]]]
        several = axes.sum(axis=1)  # those that are inside on few axes show which axis it is
        ends[axes[several == several.min()].any(axis=0)] *= 2


def _of_tiles(func: warp.Func, work: Tiles, emulate: Emulate) -> dict[str, int]:
    """The counts of a launch over tiles."""
    every = np.arange(func.grid[0])
    if not work.stride:  # a block has one tile
        return _named(_exactly(work, emulate))
    loop = next((op for op in func.body if isinstance(op, warp.For) and op.var.name == "turn"), None)
    if loop is None:  # so few tiles that the loop over those of a block has gone
        return _of_all(func, emulate)
    idle = emulate(every, Window(loop, 0 * every, 0 * every))

    def turn(tiles: Any) -> Tally:
        blocks, at = tiles % work.stride, tiles // work.stride
        found = emulate(blocks, Window(loop, at, at + 1))
        return replace(found, of=found.of - idle.of[:, blocks])

    return _named(replace(idle, of=idle.of.sum(axis=1) + _exactly(work, turn).of))


# ------------------------------------------------------------------------------------------------ runs of a matrix
def _of_runs(work: Runs, elements: int, emulate: Emulate) -> tuple[dict[str, int], frozenset[str]]:
    """The counts of a launch over runs of a matrix of so many elements, and which of them are sampled."""
    share = 1.0 if elements <= WHOLE else SAMPLE / elements
    order, start, size = _classes(work.classes(np.ones(1, dtype=np.int64))[0])
    taken = [order[at + np.arange(n) * m // n] for at, m in zip(start, size, strict=True)
             for n in (min(m, max(2, round(m * share))),)]  # fmt: skip
    found = emulate((np.concatenate(taken)[:, None] * work.blocks + np.arange(work.blocks)).reshape(-1))
    runs = found.of.reshape(len(found.names), -1, work.blocks).sum(axis=2)
    out, data = np.zeros(len(found.names)), np.zeros(len(found.names), dtype=bool)
    for some, m in zip(np.split(runs, np.cumsum([len(t) for t in taken])[:-1], axis=1), size, strict=True):
        out += some.mean(axis=1) * m
        data |= (some.min(axis=1) < some.max(axis=1)) & (some.shape[1] < m)
    return _named(replace(found, of=out)), frozenset(name for name, it in zip(found.names, data, strict=True) if it)


def _named(sums_of_ops: Tally) -> dict[str, int]:
    """Counts by name: none that are zero but conflicts, where there could be some."""
    sums: dict[str, float] = {}
    for name, n in zip(sums_of_ops.names, sums_of_ops.of.tolist(), strict=True):
        sums[name] = sums.get(name, 0) + n
    return {name: round(n) for name, n in sums.items() if n or name.startswith("conflicts.")}

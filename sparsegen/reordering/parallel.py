"""Clusters as the paper's, by operations on whole arrays: on the host or on a GPU, with the same result everywhere.

A round draws a number for each column block from an exponential distribution, and each cluster (at first a row of its
own) bids for its column blocks: the drawn number over the cluster's share of the block.  Clusters with the same
lowest bid twice over meet; that happens the oftener the more alike they are (P-MinHash: Moulton and Jiang, "Maximally
consistent sampling and the Jaccard index of probability distributions", 2018), and only to those that share a column
block.  Where some meet, each that has fewer rows than a tile joins the first, if their similarity exceeds alpha, and
its counts are added.  So a round costs about what reading all rows does.

Three things differ from the paper.  Rows join the first cluster that they meet, not the first that there is.  Clusters
of few rows may join others, since two pieces of one cluster can begin before they meet: what is compared is the row
that began them.  And rounds with lower alphas bring clusters that are somewhat alike side by side.  Of some draws, and
orders of clusters, the one with the most entries in dense tiles is taken.

All that is summed up are whole numbers, in any order exactly: so the result is the same in every run and library.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sparsegen.ir.types import f64, s64
from sparsegen.reordering.blocks import Blocks, Variant, ascending, first_of_runs, held_by_tiles
from sparsegen.reordering.bsa import Clusters
from sparsegen.reordering.similarity import of_parts

#: Rounds for one alpha, and how many of them without joins (but for one cluster in so many) end it.
ROUNDS: Final = 24
QUIET: Final = 3
FEW_JOIN: Final = 1000
#: The alphas after the first, over the first: what brings clusters that are somewhat alike together.
LOWER: Final = (1 / 2, 1 / 6)
#: Shares of blocks are counted in so small units when they are summed up: 53 bits hold 2^13 of the largest.
UNIT: Final = 2.0**-40
#: Results of other draws that are tried, the best of which is taken, and block entries of all tries together.
TRIES: Final = 8
TRIED: Final = 1 << 22
#: The share of a tile's elements above which it is dense where tries are compared.
DENSE: Final = 0.3


def clusters(blocks: Blocks, alpha: float, variant: Variant = "paper") -> Clusters:
    """The clusters of a matrix, made where its blocks are; the result is on the host."""
    lib = blocks.library
    with lib.active():
        order, empty = ascending(blocks, variant)
        rows, of_row = order[empty:], np.full(blocks.shape[0], -1, np.int64)
        if not rows.shape[0]:
            return Clusters(lib.to_host(order, s64), of_row)
        best, most = (order, rows), -1
        for seed in range(max(1, min(TRIES, TRIED // int(blocks.row.shape[0])))):
            label, tried = _tried(blocks, rows, alpha, seed)
            for places in tried:
                permutation = lib.copy(order)
                permutation[empty:] = rows[places]
                if (held := _in_dense_tiles(blocks, permutation)) > most:
                    best, most = (permutation, label[places]), held
            if not most or int(label.max()) + 1 == int(label.shape[0]):
                break  # no tile is dense, or no rows are alike, however often numbers are drawn
        permutation, labels = (lib.to_host(array, s64) for array in best)
        of_row[permutation[empty:]] = np.cumsum(np.diff(labels, prepend=labels[:1]) != 0)
        return Clusters(permutation, of_row)


def _in_dense_tiles(blocks: Blocks, permutation: Any) -> int:
    """Entries in dense tiles, with rows in an order: new -> old."""
    place = blocks.library.zeros((blocks.shape[0],), "int64")
    place[permutation] = blocks.library.arange(blocks.shape[0])
    held = held_by_tiles(blocks, place)
    return int((held * (held > DENSE * blocks.tile**2)).sum())


def _tried(blocks: Blocks, rows: Any, alpha: float, seed: int) -> tuple[Any, tuple[Any, ...]]:
    """The cluster of each of ``rows``, which are given by ascending dispersion, and orders of them as places in these.

    The second order begins with the clusters that fill whole tiles, so that those behind them begin where tiles do.
    """
    lib, count = blocks.library, int(rows.shape[0])
    rank = lib.zeros((blocks.shape[0],), "int64")
    rank[rows] = lib.arange(count)
    merging = _Merging(blocks, rank, count, np.random.default_rng(seed))
    label = merging.until_quiet(alpha)
    levels, order = [label], lib.arange(count)
    if int(label.max()) + 1 < count:
        levels += [merging.until_quiet(alpha * share) for share in LOWER]
    for level in levels:  # the coarsest clusters count first
        order = order[lib.order(level[order])]
    over = lib.xp.bincount(label)[label] % blocks.tile
    return label, (order, order[lib.order(over[order])])


class _Merging:
    """Clusters that join, numbered by ascending rank of the row that began them.

    ``label``: the cluster of each rank; ``seed``: the rank of the row that began each cluster; ``key``: cluster *
    blocks + block, ascending, of all blocks that clusters touch; ``count``: their entries in it, as whole floats.
    """

    def __init__(self, blocks: Blocks, rank: Any, count: int, draw: np.random.Generator) -> None:
        lib = self.lib = blocks.library
        self.across, self.tile, self.draw = blocks.across, blocks.tile, draw
        self.label = self.seed = lib.arange(count)
        self._sum_up(rank[blocks.row] * self.across + blocks.block, lib.cast(blocks.count, f64))
        self.rank, self.block = self.key // self.across, self.key % self.across
        self.share, self.total = self._normalised(self.rank)

    def _sum_up(self, keys: Any, counts: Any) -> None:
        order = self.lib.order(keys)
        keys = keys[order]
        begins = first_of_runs(self.lib, keys)
        changes = self.lib.zeros((int(keys.shape[0]),), "int64")
        changes[begins] = 1
        run = self.lib.cumsum(changes) - 1
        self.key, self.count = keys[begins], self.lib.xp.bincount(run, counts[order])

    def _normalised(self, own: Any) -> tuple[Any, Any]:
        """Counts over the L2 norm of their cluster, and the sum of those of each cluster."""
        xp = self.lib.xp
        norm = xp.sqrt(xp.bincount(own, self.count**2))
        return self.count / norm[own], xp.bincount(own, self.count) / norm

    def until_quiet(self, alpha: float) -> Any:
        """Rounds until hardly any cluster joins another; the clusters of all ranks."""
        quiet = 0
        for _ in range(ROUNDS):
            many = int(self.seed.shape[0])
            quiet = 0 if self._round(alpha) * FEW_JOIN > many else quiet + 1
            if quiet == QUIET:
                break
        return self.label

    def _round(self, alpha: float) -> int:
        """How many clusters join another in one round."""
        lib = self.lib
        own, block = self.key // self.across, self.key % self.across
        share, total = self._normalised(own)
        leader = self._leaders(own, block, share)
        follows = leader != lib.arange(int(leader.shape[0]))
        if not bool(follows.any()):
            return 0
        joins = follows & (self._similar(own, share, total, leader, follows) > alpha)
        joined = int(joins.sum())
        if joined:
            self._join(own, block, lib.xp.where(joins, leader, lib.arange(int(leader.shape[0]))))
        return joined

    def _leaders(self, own: Any, block: Any, share: Any) -> Any:
        """The cluster that each meets and may join: the first of those that meet, large ones before small ones."""
        lib = self.lib
        starts = first_of_runs(lib, own)
        many = int(starts.shape[0])
        met = lib.zeros((many,), "int64")
        for _ in range(2):
            bids = lib.constant(self.draw.exponential(size=self.across))[block] / share
            lowest = bids == lib.least(bids, starts, own)[own]
            met = met * self.across + lib.least(lib.xp.where(lowest, block, self.across), starts, own)
        small = lib.xp.bincount(self.label, minlength=many) < self.tile
        order = lib.order(2 * met + small)
        begins = first_of_runs(lib, met[order])
        changes = lib.zeros((many,), "int64")
        changes[begins] = 1
        leader = lib.zeros((many,), "int64")
        leader[order] = order[begins][lib.cumsum(changes) - 1]
        return lib.xp.where(small, leader, lib.arange(many))

    def _similar(self, own: Any, share: Any, total: Any, leader: Any, follows: Any) -> Any:
        """The similarity of each leader, and the row that began the cluster which follows it."""
        lib, xp = self.lib, self.lib.xp
        leads = lib.zeros((int(leader.shape[0]),), "bool")
        leads[leader[follows]] = True
        known = leads[own]
        keys, shares = self.key[known], share[known]

        cluster = lib.zeros((int(self.label.shape[0]),), "int64") - 1  # that a row began, and that follows another
        cluster[self.seed[follows]] = lib.arange(int(leader.shape[0]))[follows]
        asks = cluster[self.rank] >= 0
        asking = cluster[self.rank[asks]]
        wanted = leader[asking] * self.across + self.block[asks]
        place = xp.searchsorted(keys, wanted)
        place = place * (place < keys.shape[0])
        smaller = xp.minimum(shares[place], self.share[asks]) * (keys[place] == wanted)
        common = xp.bincount(asking, xp.floor(smaller / UNIT), int(leader.shape[0])) * UNIT
        return of_parts(common, self.total[self.seed], total[leader])

    def _join(self, own: Any, block: Any, leader: Any) -> None:
        """Each cluster becomes part of its leader, which stays where it is; they are numbered anew without gaps."""
        stays = leader == self.lib.arange(int(leader.shape[0]))
        number = (self.lib.cumsum(stays) - 1)[leader]
        self.label, self.seed = number[self.label], self.seed[stays]
        self._sum_up(number[own] * self.across + block, self.count)

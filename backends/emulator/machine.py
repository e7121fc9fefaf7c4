"""The machine: a batch of blocks, their groups of warps, and the scheduler that picks who runs next."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.types import Buffer

from .barriers import Barriers
from .cluster import Cluster
from .compile import Program
from .copies import BulkEngine, Copies
from .counts import Patterns
from .globalmem import Global
from .group import Group
from .mbarrier import Bars
from .memory import OpInfo, Shared
from .other_blocks import OtherBlocks
from .products import Products
from .register_pool import RegisterPool
from .report import Finding
from .values import LANES

#: A text, or the function that makes it of ``at``: see :meth:`Machine.find`.
Text = str | Callable[[Callable[[Any], int]], str]


#: How often others of the blocks that run together stay behind, of the turns of the scheduler.
_DRIFT = 0.05


class Ended(Exception):
    """A run is over, at its first error."""


class Run:
    """One launch: what lasts over all batches."""

    def __init__(
        self,
        prog: Program,
        checks: frozenset[str],
        seed: int,
        align: Mapping[str, int],
        *,
        empty: bool = False,
        first: bool = False,
    ) -> None:
        self.prog, self.checks, self.seed, self.aligned = prog, checks, seed, align
        self.race, self.uninit = "global" in checks, "uninit" in checks
        #: Buffers that hold nothing: what is stored is lost, and all that is loaded is 0.
        self.blank = prog.floats if empty else frozenset[str]()
        self.fences = prog.fences and bool(prog.atomic) and not checks.isdisjoint(("global", "race"))
        self.cnt = np.zeros(len(prog.names), dtype=np.int64)
        self.findings: dict[tuple[str, str, Any], Finding] = {}
        self.patterns: dict[int, Patterns] = {}
        self.globals: dict[str, Global] = {}
        self.params: dict[str, Any] = {}
        self.values: dict[str, int] = {}
        self.clock_reads = 0
        self.stopped = False
        self.first = first  # whether it ends at its first error


@dataclass(frozen=True)
class Window:
    """Which turns of one loop the blocks of a batch run: turn ``first[i]`` until before ``stop[i]`` of block i."""

    loop: w.For
    first: Any
    stop: Any

    def narrow(self, m: Machine, rows: Any, first: Any, stop: Any) -> tuple[Any, Any]:
        """The bounds of the loop for these rows of the batch."""
        block = m.lblk[rows].reshape(-1, 1)
        return np.maximum(first, self.first[block]), np.minimum(stop, self.stop[block])


class Machine:
    """A batch of a launch's blocks, given by their numbers, run to their end.

    ``cnt`` has what each of them counts by the program's names, ``met`` the cost and the least cost of ops' requests.
    """

    spin_limit = 200_000

    def __init__(self, run: Run, numbers: Any, window: Window | None = None) -> None:
        self.run, self.prog, self.blocks, self.window = run, run.prog, len(numbers), window
        blocks, first = self.blocks, int(numbers[0])
        p, c = run.prog, run.checks
        self.seed, self.rng = run.seed, random.Random(run.seed * 1_000_003 + first)
        self.uninit, self.race, self.asyncs, self.patterns = (x in c for x in ("uninit", "race", "async", "conflicts"))
        self.off = {"bounds", "uninit", "async", "collective", "promise"} - c  # kinds of error that nobody looks for
        self.wpb = -(-p.head.threads // 32)
        self.W = blocks * self.wpb
        self.lblk = np.repeat(np.arange(blocks, dtype=np.int64), self.wpb)
        self.gblk = numbers[self.lblk]
        sizes = {b.name: b.size for b in p.head.shared}
        self.cluster = Cluster(self, p.head.cluster, sum(sizes.get(n, 0) for n in p.bars))
        self.clk = self.cluster.clocks()
        self.mark = np.ones(self.W, dtype=np.int64)
        self.cnt = np.zeros((len(p.names), blocks), dtype=np.int64)
        self.visits = np.zeros((len(p.visits), blocks), dtype=np.int64)
        self.met: dict[int, Any] = {}
        self.params = run.params
        for b in run.globals.values():
            b.m = self
        self.globals, self.shared = run.globals, {b.name: Shared(self, b) for b in p.head.shared}
        self.memory: dict[str, Any] = {**self.globals, **self.shared}
        self.bars: dict[str, Bars] = {}
        agent = 0
        for name in p.bars:
            self.bars[name] = Bars(self, name, sizes[name], agent)
            agent += sizes[name]
        self.copies: Copies = Copies(self)
        self.bulk, self.other_blocks, self.products = BulkEngine(self), OtherBlocks(self), Products(self)
        self.registers = RegisterPool(self)
        self.tried: dict[int, Any] = {}
        self.events = 0
        self.ready: list[Group] = []
        self.waiting: list[tuple[Group, OpInfo, str, int]] = []  # for an mbarrier or a tagged cell, since this event
        self.barriers = Barriers(self)
        self.exited = np.zeros(self.W, dtype=bool)
        self.dead = False
        self.drifts, self.behind = bool(run.seed) and p.head.together, np.zeros(blocks, dtype=bool)
        self.crowd = False  # whether there is another group than the one that runs
        self.tail = p.head.threads % 32
        self.base: Any = None
        if self.tail:
            self.base = np.ones((self.W, 32), dtype=bool)
            self.base[self.wpb - 1 :: self.wpb, self.tail :] = False

    # -------------------------------------------------------------------------------------------- running
    def go(self) -> None:
        """Runs all warps to their end, or to a deadlock."""
        self.begin()
        while self.turn():
            pass
        self.end()

    def begin(self) -> None:
        """All warps are at their start."""
        start = self._first()
        if self.seed and self.W > 1:  # another order: some warps go ahead of the others
            keep = np.array([self.rng.random() < 0.5 for _ in range(self.W)])
            if keep.any() and not keep.all():
                self.push(start.split(keep), 0)
        self.push(start, 0)
        self.crowd = self.crowd or self.drifts

    def turn(self) -> bool:
        """Some warps go on, to where they meet others or wait; false if none can."""
        if self.dead or (g := self._next()) is None:
            return False
        with np.errstate(all="ignore"):
            self._advance(g)
        return True

    def end(self) -> None:
        """Warps that are left wait in vain; what has been counted is the launch's."""
        if not self.dead and (self.waiting or self.barriers or self.products.parked):
            self._deadlock()
        for counts, visits in zip(self.prog.visits, self.visits, strict=True):
            for name, n in counts.items():
                self.cnt[name] += n * visits
        self.run.cnt += self.cnt.sum(1)

    def of_blocks(self, rows: Any, weights: Any = None) -> Any:
        """How many of these rows (or how much of their ``weights``) each block of the batch has."""
        sums = np.bincount(self.lblk[rows], weights, self.blocks)
        return sums if weights is None else sums.astype(np.int64)  # exact: far below 2^53

    def _first(self) -> Group:
        p = self.prog
        env: list[Any] = [None] * p.nslots
        wib = np.tile(np.arange(self.wpb, dtype=np.int64), self.blocks).reshape(-1, 1)
        lin = self.gblk.reshape(-1, 1)
        gx, gy, _ = p.head.grid
        made = {
            "tid": wib * 32 + LANES, "lane": LANES, "warp": wib,
            "bx": lin % gx, "by": lin // gx % gy, "bz": lin // (gx * gy), "rank": lin % p.head.cluster,
        }  # fmt: skip
        for name, slot in p.builtins.items():
            v = made[name]
            env[slot] = int(v[0, 0]) if v.shape[1] == 1 and (v == v[0]).all() else v
        for name, slot in p.values.items():
            env[slot] = self.run.values[name]
        return Group(self, np.arange(self.W), env, self.base, 0)

    def _advance(self, g: Group) -> None:
        segments, pc = self.prog.segments, g.pc
        while True:
            s = segments[pc]
            for f in s.steps:
                f(g)
            pc = s.control(g)  # type: ignore[misc]
            if pc < 0:
                return
            if self.crowd and segments[pc].meets:
                self.push(g, pc)
                return

    def push(self, g: Group, pc: int) -> None:
        """Makes a group ready to go on at a point."""
        g.pc = pc
        self.ready.append(g)
        self.crowd = True

    def _next(self) -> Group | None:
        """The group that runs next: seed 0 takes the one that is furthest behind, others take any."""
        if self.waiting and any(e[3] != self.events for e in self.waiting):
            still = []
            for e in self.waiting:
                if e[3] == self.events:
                    still.append(e)
                else:
                    self.ready.append(e[0])
            self.waiting = still
        if self.bulk.queue and (not self.ready or (self.seed and self.rng.random() < 0.3)):
            self.bulk.run()
            return self._next()
        if not self.ready:
            return None
        able = self._ahead() if self.drifts else self.ready
        if len(able) == 1:
            g = able[0]
        else:
            g = self.rng.choice(able) if self.seed else min(able, key=lambda x: (x.spins, x.pc))
            same = [x for x in able if x.pc == g.pc]
            if len(same) > 1 and (not self.seed or self.rng.random() < 0.75):
                self.ready = [x for x in self.ready if x not in same]
                g = Group.merge(same, self.prog.segments[g.pc].live)
        self.ready = [x for x in self.ready if x is not g]
        self.crowd = bool(self.ready or self.waiting or self.barriers) or self.drifts
        return g

    def _ahead(self) -> list[Group]:
        """Of blocks that may wait for one another some stay behind for a while, as long as one of the others can go on:
        the groups that may be next."""
        if self.rng.random() < _DRIFT:
            self.behind = np.array([self.rng.random() < 0.5 for _ in range(self.blocks)])
        able: list[Group] = []
        for g in list(self.ready):
            ahead = ~self.behind[self.lblk[g.rows]]
            if ahead.any() and not ahead.all():
                self.push(g.split(ahead), g.pc)
            able += [g] if ahead.any() else []
        return able or self.ready

    def park(self, g: Group, pc: int, info: OpInfo, why: str) -> None:
        """Blocks a group until some mbarrier, or a tagged cell, changes."""
        g.pc = pc
        self.waiting.append((g, info, why, self.events))
        self.crowd = True

    def abort(self) -> None:
        self.dead = self.run.stopped = True

    def leave(self, g: Group) -> None:
        """A group has come to the end of the program."""
        self.exited[g.rows] = True
        self.copies.left(g.rows)
        self.products.left(g.rows)
        done = self.exited.reshape(self.blocks, self.wpb).all(1)
        if done.any():
            self.bulk.left(np.flatnonzero(np.repeat(done, self.wpb)))
            self.cluster.left(done)

    # -------------------------------------------------------------------------------------------- order
    def sync(self, rows: Any) -> None:
        """``warp.sync`` of these warps."""
        if not len(rows):
            return
        self.clk.sync(rows)
        self.mark[rows] = self.clk.clock[rows]
        self.other_blocks.spread(rows.reshape(-1, 1))

    def meet(self, rows: Any, aligned: bool) -> None:
        """The warps of each row meet (``aligned``: they are all of a block, or of its cluster)."""
        self.clk.meet(rows, aligned)
        self.mark[rows] = self.clk.clock[rows]
        self.other_blocks.spread(rows)

    # -------------------------------------------------------------------------------------------- helpers of ops
    def align(self, buf: Buffer) -> int:
        """The alignment of a buffer in bytes (256 for a global one, unless the caller has said otherwise)."""
        return self.run.aligned.get(buf.name, 256) if buf.space == "global" else buf.align

    def shuffle(self, n: int) -> Any:
        """The order in which ``n`` atomics of one instruction happen."""
        order = list(range(n))
        if self.seed:
            self.rng.shuffle(order)
        return np.array(order, dtype=np.intp)

    def collective(self, g: Group, info: OpInfo, *, all_there_are: bool = False) -> None:
        """All 32 lanes must take part, or at least all that the warp has."""
        if g.mask is None or "collective" in self.off:
            return
        n = g.mask.sum(1)
        have = self.base[g.rows].sum(1) if all_there_are and self.base is not None else 32
        bad = (n > 0) & (n < have)
        if bad.any():
            who, idle = "all lanes of the warp" if all_there_are else "all 32 lanes of the warp", ~g.mask
            self.find("collective", info, lambda at: f"needs {who}, but {at(idle.sum(1))} of them are inactive",
                      "move it out of the divergent branch, or make the condition the same for the whole warp",
                      bad=bad, row=g.rows, lane=idle.argmax(1))  # fmt: skip

    def agent_name(self, agent: int, source: int) -> str:
        rank, agent = self.cluster.of_agent(agent)
        where = f" of rank {rank}" if self.cluster.size > 1 else ""
        if agent < self.wpb:
            return f"warp {agent}{where}" + (f" lane {source}" if source < 32 else " (several lanes)")
        number = agent - self.wpb
        b = next(b for b in self.bars.values() if number < b.first + b.size)
        return f"a bulk copy of @{b.name}[{number - b.first}]{where}"

    # -------------------------------------------------------------------------------------------- findings
    def find(self, kind: str, info: OpInfo, message: Text, remedy: Text, *, bad: Any = True, index: Any = -1,
             row: Any = -1, lane: Any = -1) -> None:  # fmt: skip
        """Records an error where ``bad`` holds, if it holds anywhere and the checker of this kind is on.

        The first place is described: ``index``, ``row`` and ``lane`` broadcast to ``bad``, and a text may be a function
        of ``at``, which gives an array's number there.  Of the same kind at the same op only the first error is kept,
        and counted.
        """
        hits = np.flatnonzero(bad)
        if not len(hits) or kind in self.off:
            return
        found, times = self.run.findings, len(hits)
        key = (kind, info.text, info.loc)
        old = found.get(key)
        if old is not None:
            found[key] = replace(old, times=old.times + times)
            return

        def at(x: Any) -> int:
            return int(np.broadcast_to(x, np.shape(bad)).reshape(-1)[hits[0]])

        message, remedy = (x if isinstance(x, str) else x(at) for x in (message, remedy))
        r = at(row)
        block, warp = (int(self.gblk[r]), int(self.clk.wib[r]) % self.wpb) if r >= 0 else (-1, -1)
        found[key] = Finding(
            kind, message, remedy, info.text, info.buffer, at(index), block, warp, min(at(lane), 31), info.loc, times
        )
        if self.run.first:
            raise Ended

    def _deadlock(self) -> None:
        parts: list[str] = []
        first: tuple[OpInfo, int] | None = None
        for g, info, why, _ in self.waiting:
            parts.append(f"{self._who(g)} {why}")
            first = first or (info, int(g.rows[0]))
        for g, info in self.products.parked.values():
            parts.append(f"{self._who(g)} waits for the other warps of its warpgroup")
            first = first or (info, int(g.rows[0]))
        for g, info, why in self.barriers.waiting():
            parts.append(f"{self._who(g)} {why}")
            first = first or (info, int(g.rows[0]))
        assert first is not None
        block = self.lblk[first[1]]
        gone = np.flatnonzero(self.exited & (self.lblk == block))
        if len(gone):
            parts.append(f"warps {self._list(self.clk.wib[gone] % self.wpb)} of the block have ended")
        self.find("deadlock", first[0], "; ".join(parts[:6]) + ("; ..." if len(parts) > 6 else ""),
                  "let every warp that takes part reach the barrier, and every phase get all its arrivals and bytes",
                  row=first[1])  # fmt: skip
        self.abort()

    def _who(self, g: Group) -> str:
        block = int(self.gblk[g.rows[0]])
        mine = g.rows[self.gblk[g.rows] == block]
        return f"block {block} warps {self._list(self.clk.wib[mine] % self.wpb)}"

    @staticmethod
    def _list(xs: Any) -> str:
        return ", ".join(str(int(x)) for x in xs[:8]) + (", ..." if len(xs) > 8 else "")

"""The emulator: runs a warp-level program lane by lane in NumPy and checks every access.  It defines the warp level.

``run(func, args)`` executes one launch; the report has errors (with line and remedy), exact counts, bank conflicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.errors import ArrayError, ScheduleError
from sparsegen.ir.expr import Value
from sparsegen.ir.node import Op
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.types import Buffer
from sparsegen.ir.warp_tagged import StTagged

from .compile import Program, compile_func
from .globalmem import Global
from .machine import Ended, Machine, Run, Window
from .ranks import Rank, by_turns
from .report import Conflict, Finding, Report, Traffic

__all__ = [
    "ALL",
    "COUNTING",
    "Conflict",
    "Finding",
    "Report",
    "Tally",
    "Traffic",
    "Window",
    "run",
    "run_ranks",
    "tally",
]

#: Every checker; each can be left out by name.  ``conflicts`` is the analysis of bank conflicts and sectors.
ALL = frozenset({"bounds", "uninit", "race", "async", "collective", "global", "promise", "conflicts"})
#: What exact counts need.
COUNTING = frozenset({"bounds", "conflicts"})

LANES_A_BATCH = 1 << 16
SHADOW_BYTES = 1 << 27


def run(
    func: w.Func,
    args: Mapping[str, Any],
    *,
    seed: int = 0,
    checks: Iterable[str] = ALL,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    uninit: Iterable[str] = (),
    align: Mapping[str, int] | None = None,
    first: bool = False,
) -> Report:
    """Runs a kernel on host arrays, which it changes in place.

    ``args``: a 1-D array for each buffer parameter, an int for each value.  ``seed`` picks the schedule of warps,
    atomics and copies (0: the plainest).  ``batch``: blocks at a time.  ``uninit``: global buffers whose elements must
    be written before they are read.  ``align``: bytes to which a global array is aligned (256).
    ``progress(done, all)``: called after each batch.  ``first``: the run ends at the first error, as where all that is
    asked is whether there is one.
    """
    state = Run(compile_func(func), frozenset(checks), seed, align or {}, first=first)
    _bind(state, args, frozenset(uninit))
    total = math.prod(func.grid)
    size = up(batch, func.cluster) if batch and not func.together else _batch(state.prog, total)
    for start in range(0, total, size):
        blocks = np.arange(start, min(start + size, total))
        try:
            Machine(state, blocks).go()
        except Ended:
            break
        if progress is not None:
            progress(start + len(blocks), total)
        if state.stopped:
            break
    return _report(state)


def run_ranks(
    ranks: Sequence[Sequence[tuple[w.Func, Mapping[str, Any]]]], *, seed: int = 0, checks: Iterable[str] = ALL
) -> list[list[Report]]:
    """Runs launches (a kernel and its ``args``) of several GPUs, each one's in order, while those of others run.

    An array that several are given is memory that all reach.  They hand each other tagged cells alone: no race between
    plain accesses of different GPUs is looked for.  ``seed`` also picks who runs ahead.  A report for each launch.
    """
    states = [[Run(compile_func(func), frozenset(checks), seed, {}) for func, _ in launches] for launches in ranks]
    for mine, launches in zip(states, ranks, strict=True):
        for state, (_, args) in zip(mine, launches, strict=True):
            _bind(state, args, frozenset())
    by_turns([Rank(mine) for mine in states], seed)
    return [[_report(state) for state in mine] for mine in states]


@dataclass(frozen=True)
class Tally:
    """What each of some blocks of a launch counts: ``of[i]`` of ``names[i]``, an array with a number for each block.

    A name stands there once for each op that is counted by itself: a count of the launch is the sum of them.
    """

    names: tuple[str, ...]
    of: Any


def tally(
    func: w.Func, args: Mapping[str, Any], blocks: Any, *, window: Window | None = None,
    align: Mapping[str, int] | None = None,
) -> Tally:  # fmt: skip
    """The counts of single blocks, given by their numbers (one may be there several times), and of no others.

    Of a function with clusters they are whole clusters, one behind the other.

    ``window``: the turns that each of them runs of a loop.  Floating-point numbers decide no count, so their buffers
    hold nothing, or zeros, and need no arguments.  KernelFault for an access out of bounds.
    """
    state = Run(compile_func(func), COUNTING, 0, align or {}, empty=True)
    numbers = [p for p in func.params if isinstance(p, Buffer) and p.dtype.kind == "float"]
    zeros = {p.name: np.zeros(p.size, p.dtype.numpy()) for p in numbers if p.name not in state.blank | args.keys()}
    _bind(state, {**zeros, **args}, frozenset())
    prog, size = state.prog, _batch(state.prog, len(blocks))
    batches: list[Machine] = []
    for first in range(0, len(blocks), size):
        some = slice(first, first + size)
        part = None if window is None else Window(window.loop, window.first[some], window.stop[some])
        batches.append(Machine(state, blocks[some], part))
        batches[-1].go()
    Report(list(state.findings.values())).raise_if_errors()
    names, of = list(prog.names), [np.concatenate([m.cnt for m in batches], axis=1)]
    for key, (info, op) in enumerate(prog.ops):
        none = [np.zeros((2, m.blocks), dtype=np.int64) for m in batches]
        cost, least = np.concatenate([m.met.get(key, no) for m, no in zip(batches, none, strict=True)], axis=1)
        names += (called := _requests(op, info.space == "shared"))
        of.append(np.stack([cost, cost - least][: len(called)]))
    return Tally(tuple(names), np.concatenate(of))


def _batch(prog: Program, total: int) -> int:
    """Blocks at a time, of whole clusters: as many as keep arrays in cache and the shadows small.

    Those that wait for one another are all of a launch.
    """
    if prog.head.together:
        return total
    warps, cluster = -(-prog.head.threads // 32), prog.head.cluster
    shadow = sum(b.nbytes + b.size * (8 + 4 * warps * cluster) for b in prog.head.shared)
    fit = min(total, LANES_A_BATCH // (32 * warps), SHADOW_BYTES // max(1, shadow))
    return max(1, fit // cluster) * cluster


def _bind(state: Run, args: Mapping[str, Any], uninit: frozenset[str]) -> None:
    """Takes the arguments of a launch, or refuses them."""
    if unknown := state.checks - ALL:
        raise ScheduleError(f"unknown checkers: {', '.join(sorted(unknown))}", hint=f"of {', '.join(sorted(ALL))}")
    prog, params, symbol = state.prog, state.prog.head.params, state.prog.head.symbol
    names = {p.name for p in params}
    if missing := names - set(args) - state.blank:
        raise ArrayError(f"{symbol}: no argument for {', '.join(sorted(missing))}")
    if extra := set(args) - names:
        raise ArrayError(f"{symbol}: no parameter is called {', '.join(sorted(extra))}")
    for p in params:
        a: Any = args.get(p.name)
        if isinstance(p, Value):
            v = int(a)
            if not p.lo <= v <= p.hi:
                raise ArrayError(f"{symbol}: %{p.name} = {v} is outside its declared range {p.lo}..{p.hi}")
            state.values[p.name] = v
            continue
        if p.name in state.blank:
            state.globals[p.name] = Global(state, p, None)
            continue
        want = p.dtype.numpy()
        if not isinstance(a, np.ndarray) or a.ndim != 1 or a.dtype != want:
            got = f"{a.dtype} of shape {a.shape}" if isinstance(a, np.ndarray) else type(a).__name__
            raise ArrayError(f"{symbol}: @{p.name} wants a 1-D array of {want}, got {got}")
        if len(a) < p.size:
            raise ArrayError(f"{symbol}: @{p.name} wants {p.size} elements, got {len(a)}")
        if p.space == "param":
            state.params[p.name] = a
            continue
        if p.name in prog.written and not a.flags.writeable:
            raise ArrayError(f"{symbol}: @{p.name} is written, but the array is read-only")
        state.globals[p.name] = Global(state, p, a, uninit=p.name in uninit)


def _report(state: Run) -> Report:
    prog = state.prog
    counts = {name: int(n) for name, n in zip(prog.names, state.cnt, strict=True) if n}
    conflicts: list[Conflict] = []
    notes: list[Finding] = []
    traffic: list[Traffic] = []
    for key, p in sorted(state.patterns.items()):
        info, op = prog.ops[key]
        if p.is_shared:
            is_copy = isinstance(op, w.CpAsync)
            declared: int | None = None if is_copy else getattr(op, "degree", 1)
            c = Conflict(info.text, info.buffer, p.degree, info.loc, p.requests, p.cost - p.ideal, declared)
            conflicts.append(c)
            if declared is not None and c.degree > declared:
                text = f"a bank conflict of degree {c.degree} at @{c.buffer}, above the declared {declared}"
                fix = "pad or swizzle the layout, or declare the degree"
                notes.append(Finding("conflict", text, fix, c.op, c.buffer, loc=c.loc, times=c.extra))
        else:
            traffic.append(Traffic(info.text, info.buffer, p.requests, p.cost, info.loc))
        for name, n in zip(_requests(op, p.is_shared), (p.cost, p.cost - p.ideal), strict=False):
            counts[name] = counts.get(name, 0) + n
    return Report(list(state.findings.values()), notes, counts, conflicts, traffic)


def _requests(op: Op, shared: bool) -> tuple[str, ...]:
    """What the cost of an op's requests counts as, and what they cost above the least that they could."""
    if shared:
        tag = "cp_async" if isinstance(op, w.CpAsync) else "shared"
        return f"wavefronts.{tag}", f"conflicts.{tag}"
    return (f"sectors.global.{'write' if isinstance(op, (w.St, StTagged)) else 'read'}",)

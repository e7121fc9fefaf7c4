"""The emulator: runs a warp-level program lane by lane in NumPy and checks every access.  It defines the warp level.

``run(func, args)`` executes one launch; the report has errors (with line and remedy), exact counts, bank conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.errors import ArrayError, ScheduleError
from sparsegen.ir.expr import Value
from sparsegen.ir.types import Buffer

from .compile import Program, compile_func
from .globalmem import Global
from .machine import Machine, Run
from .report import Conflict, Finding, Report, Traffic

__all__ = ["ALL", "Conflict", "Finding", "Report", "Traffic", "run"]

#: Every checker; each can be left out by name.  ``conflicts`` is the analysis of bank conflicts and sectors.
ALL = frozenset({"bounds", "uninit", "race", "async", "collective", "global", "promise", "conflicts"})

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
    allow_write_race: Mapping[str, Iterable[int]] | None = None,
) -> Report:
    """Runs a kernel on host arrays, which it changes in place.

    ``args``: a 1-D array for each buffer parameter, an int for each value.  ``seed`` picks the schedule of warps,
    atomics and copies (0: the plainest).  ``batch``: blocks at a time.  ``uninit``: global buffers whose elements must
    be written before they are read.  ``align``: bytes to which a global array is aligned (256).  ``allow_write_race``:
    elements that several threads may write, and none may read.  ``progress(done, all)``: called after each batch.
    """
    checks = frozenset(checks)
    if unknown := checks - ALL:
        raise ScheduleError(f"unknown checkers: {', '.join(sorted(unknown))}", hint=f"of {', '.join(sorted(ALL))}")
    prog = compile_func(func)
    state = Run(prog, checks, seed, dict(align or {}))
    sizes = {b.name: b.size for b in (*prog.shared, *prog.params) if isinstance(b, Buffer)}
    dirty: dict[str, Any] = {}
    scratch = {name: range(first, last + 1) for name, first, last in func.scratch}
    for name, cells in {**scratch, **(allow_write_race or {})}.items():
        mask = np.zeros(sizes[name], dtype=bool)
        mask[np.fromiter(cells, dtype=np.int64)] = True
        dirty[name] = mask
    _bind(prog, state, args, frozenset(uninit), dirty)
    total = prog.grid[0] * prog.grid[1] * prog.grid[2]
    size = batch or _batch(prog, total)
    for first in range(0, total, size):
        Machine(state, first, min(size, total - first), dirty).go()
        if progress is not None:
            progress(min(first + size, total), total)
        if state.stopped:
            break
    return _report(state)


def _batch(prog: Program, total: int) -> int:
    """Blocks at a time: as many as keep arrays in cache and the shadows small."""
    warps = -(-prog.threads // 32)
    cells = sum(b.size for b in prog.shared)
    shadow = sum(b.nbytes for b in prog.shared) + cells * (8 + 4 * warps)
    return max(1, min(total, LANES_A_BATCH // (32 * warps), SHADOW_BYTES // max(1, shadow)))


def _bind(prog: Program, state: Run, args: Mapping[str, Any], uninit: frozenset[str], dirty: dict[str, Any]) -> None:
    names = {p.name for p in prog.params}
    if missing := names - set(args):
        raise ArrayError(f"{prog.symbol}: no argument for {', '.join(sorted(missing))}")
    if extra := set(args) - names:
        raise ArrayError(f"{prog.symbol}: no parameter is called {', '.join(sorted(extra))}")
    for p in prog.params:
        a = args[p.name]
        if isinstance(p, Value):
            v = int(a)
            if not p.lo <= v <= p.hi:
                raise ArrayError(f"{prog.symbol}: %{p.name} = {v} is outside its declared range {p.lo}..{p.hi}")
            state.values[p.name] = v
            continue
        want = p.dtype.numpy()
        if not isinstance(a, np.ndarray) or a.ndim != 1 or a.dtype != want:
            got = f"{a.dtype} of shape {a.shape}" if isinstance(a, np.ndarray) else type(a).__name__
            raise ArrayError(f"{prog.symbol}: @{p.name} wants a 1-D array of {want}, got {got}")
        if len(a) < p.size:
            raise ArrayError(f"{prog.symbol}: @{p.name} wants {p.size} elements, got {len(a)}")
        if p.space == "param":
            state.params[p.name] = a
            continue
        written = p.name in prog.written
        if written and not a.flags.writeable:
            raise ArrayError(f"{prog.symbol}: @{p.name} is written, but the array is read-only")
        state.globals[p.name] = Global(
            state, p, a, written=written, read=p.name in prog.read, atomic=p.name in prog.atomic,
            uninit=p.name in uninit, dirty=dirty.get(p.name),
        )  # fmt: skip


def _report(state: Run) -> Report:
    prog = state.prog
    counts = {name: n for name, n in zip(prog.names, state.cnt, strict=True) if n}
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
                notes.append(_conflict_note(c))
            tag = ".cp_async" if is_copy else ".shared"
            _add(counts, "wavefronts" + tag, p.cost)
            _add(counts, "conflicts" + tag, p.cost - p.ideal)
        else:
            traffic.append(Traffic(info.text, p.name, p.requests, p.cost, info.loc))
            writes = isinstance(op, w.St)
            _add(counts, f"sectors.global.{'write' if writes else 'read'}", p.cost)
    return Report(list(state.findings.values()), notes, counts, conflicts, traffic)


def _conflict_note(c: Conflict) -> Finding:
    return Finding(
        "conflict", f"a bank conflict of degree {c.degree} at @{c.buffer}, above the declared {c.declared}",
        "pad or swizzle the layout, or declare the degree", c.op, c.buffer, loc=c.loc, times=c.extra,
    )  # fmt: skip


def _add(counts: dict[str, int], name: str, n: int) -> None:
    counts[name] = counts.get(name, 0) + n

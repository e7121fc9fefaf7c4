"""A function becomes segments: lists of closures that run in a row, each ended by a control closure.

A control closure gives the number of the next segment, or -1 if the group has blocked or left.  Structured control is
flattened here, once; nothing looks at a node while the program runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparsegen.ir import node
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Value
from sparsegen.ir.node import Op, walk
from sparsegen.ir.tensor_copy import TensorCopy
from sparsegen.ir.types import Buffer
from sparsegen.ir.warp_atomics import Atom, Red
from sparsegen.ir.warp_cluster import ClusterArrive, ClusterSt
from sparsegen.ir.warp_group import AnyWgmma
from sparsegen.ir.warp_launch import LaunchNext, LaunchWait
from sparsegen.ir.warp_matrix import MmaSp, MovMatrix
from sparsegen.ir.warp_pairs import AddF16x2, WidenE4m3
from sparsegen.ir.warp_quotient import Quotient
from sparsegen.ir.warp_tagged import LdTagged, StTagged, Trap

from . import access, atomics, bulk_copies, cluster, mma, order, registers, scalars, tagged, warpgroup
from .control import Context, Flow, Label
from .group import Group, RegArray
from .memory import OpInfo
from .report import describe
from .values import LANES

Step = Callable[[Group], None]
Control = Callable[[Group], int]


@dataclass
class Segment:
    """Closures that run in a row, the control that follows them, and the slots in scope at the start."""

    steps: list[Step] = field(default_factory=list)
    control: Control | None = None
    live: tuple[int, ...] = ()
    meets: bool = False  # whether groups may be joined (and others take their turn) here
    counts: dict[int, int] = field(default_factory=dict)
    before: int = 0  # steps at the start that restore the mask: counts come after them


@dataclass
class Program:
    """A compiled function: independent of arguments, seed and batch."""

    head: w.Func  # without its body
    segments: list[Segment]
    nslots: int
    builtins: dict[str, int]
    values: dict[str, int]
    names: list[str]
    visits: list[dict[int, int]]  # for each segment that counts: how often it has which of the names
    ops: list[tuple[OpInfo, Op]]
    bars: tuple[str, ...]
    written: frozenset[str]
    read: frozenset[str]
    atomic: frozenset[str]
    fences: bool
    floats: frozenset[str]  # buffers of floating-point numbers that only plain accesses and cp.async touch


class Scope:
    """Names in scope, and what closures need to know while they are made."""

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.buffers: dict[str, Buffer] = {}
        self.regs: dict[str, int] = {}
        self.nslots = 0
        self.names: list[str] = []
        self.ops: list[tuple[OpInfo, Op]] = []
        self.here: set[int] = set()
        self.held: dict[str, tuple[OpInfo, str]] = {}  # register arrays of products: one of these, and what it does

    def define(self, v: Value) -> int:
        """A slot for a new value."""
        self.slots[v.name] = k = self.new_slot()
        return k

    def new_slot(self) -> int:
        self.nslots += 1
        self.here.add(self.nslots - 1)
        return self.nslots - 1

    def count(self, name: str) -> int:
        """The number of a counter."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def info(self, op: Op) -> OpInfo:
        b = next((v for v in (getattr(op, n, None) for n in ("buf", "dst", "bars")) if isinstance(v, Buffer)), None)
        return OpInfo(describe(op), op.loc, b.name if b else "", b.space if b else "")

    def number_of(self, op: Op, info: OpInfo) -> int:
        """A number for an op that keeps tables at run time (patterns of addresses)."""
        self.ops.append((info, op))
        return len(self.ops) - 1

    def promise(self, v: Value, info: OpInfo) -> Callable[[Group, Any], None] | None:
        """A check that an integer value is in its declared range; None if the type alone guarantees it."""
        if not v.dtype.is_int or (v.lo, v.hi) == v.dtype.range:
            return None
        lo, hi, name = v.lo, v.hi, v.name

        def check(g: Group, x: Any) -> None:
            a = np.asarray(x)
            if a.min() < lo or a.max() > hi:
                text = f"which is outside its declared range {lo}..{hi}"
                g.m.find("promise", info, lambda at: f"%{name} is {at(a)}, {text}",
                         "widen the range that the load declares, or correct the data",
                         bad=((a < lo) | (a > hi)) & g.full(), row=g.col, lane=LANES)  # fmt: skip

        return check

    def put(self, v: Value, f: Callable[[Any], Any], *, op: Op | None = None, check: bool = True) -> Step:
        """The closure that sets a value to ``f`` of the environment."""
        test = self.promise(v, self.info(op)) if op is not None and check else None
        k = self.define(v)
        if test is None:

            def put(g: Group) -> None:
                g.env[k] = f(g.env)

            return put

        def put_checked(g: Group) -> None:
            x = f(g.env)
            g.env[k] = x
            test(g, x)

        return put_checked


class Compiler(Flow):
    """Walks a function once and fills :attr:`segments`."""

    def __init__(self, func: w.Func) -> None:
        self.sc = Scope()
        self.segments: list[Segment] = []
        self.cur = Segment()
        self.func = func

    # -------------------------------------------------------------------------------------------- segments
    def end(self, control: Control) -> None:
        """Ends the current segment."""
        self.cur.control = control

    def start(self, label: Label | None = None, *, meets: bool = False) -> int:
        """Starts a new segment, the place of ``label``."""
        self.cur = Segment(live=tuple(sorted(self.sc.here)), meets=meets)
        self.segments.append(self.cur)
        pc = len(self.segments) - 1
        if label is not None:
            label.pc = pc
        return pc

    def tally(self, name: str) -> None:
        k = self.sc.count(name)
        self.cur.counts[k] = self.cur.counts.get(k, 0) + 1

    def region(self, ops: tuple[Op, ...], ctx: Context) -> None:
        """Emits a region; names that it defines are gone afterwards."""
        slots, here, bufs, regs = dict(self.sc.slots), set(self.sc.here), dict(self.sc.buffers), dict(self.sc.regs)
        for op in ops:
            self.op(op, ctx)
        for name in self.sc.held if ctx.kind else ():
            if self.sc.regs.get(name) != regs.get(name):
                self.cur.steps.append(warpgroup.dropped(name, self.sc))
        self.sc.slots, self.sc.here, self.sc.buffers, self.sc.regs = slots, here, bufs, regs

    def op(self, op: Op, ctx: Context) -> None:
        if self.control(op, ctx):
            return
        if type(op) not in _STEPS:
            raise IRError(f"the emulator does not know {op.name}", loc=op.loc)
        make, count = _STEPS[type(op)]
        step = make(op, self.sc)
        if count is not None:
            self.tally(count if isinstance(count, str) else count(op))
        self.cur.steps.append(step)

    def compile(self) -> Program:
        f, sc = self.func, self.sc
        builtins = {name: sc.define(v) for name, v in f.builtins().items()}
        values: dict[str, int] = {}
        for p in f.params:
            if isinstance(p, Value):
                values[p.name] = sc.define(p)
            else:
                sc.buffers[p.name] = p
        for b in f.shared:
            sc.buffers[b.name] = b
        products = [op for op in walk(f.body) if isinstance(op, AnyWgmma)]
        sc.held = {buf.name: (sc.info(op), "reads") for op in products if (buf := warpgroup.read_late(op))}
        sc.held |= {op.acc.name: (sc.info(op), "writes") for op in products}
        self.start()
        self.region(f.body, Context(None, Label(), None))
        self.end(order.leave)
        counted = [s for s in self.segments if s.counts]
        for place, s in enumerate(counted):
            s.steps.insert(s.before, _visit(place))
        written, read, atomic, bars = _uses(f)
        fences = any(isinstance(op, w.Fence) and op.scope in ("gpu", "block") for op in walk(f.body))
        return Program(replace(f, body=()), self.segments, sc.nslots, builtins, values, sc.names,
                       [s.counts for s in counted], sc.ops, bars, written, read, atomic, fences,
                       _floats(f))  # fmt: skip


def _visit(place: int) -> Step:
    def visit(g: Group) -> None:
        g.m.visits[place] += g.warps()

    return visit


def _alloc(op: w.Alloc, sc: Scope) -> Step:
    k = sc.regs[op.buf.name] = sc.new_slot()
    sc.buffers[op.buf.name] = op.buf
    size = op.buf.size

    def alloc(g: Group) -> None:
        g.env[k] = RegArray(size)

    return alloc


def _ld(op: w.Ld, sc: Scope) -> Step:
    step = {"reg": registers.load, "param": access.ld_param}.get(op.buf.space, access.ld)(op, sc)
    return warpgroup.guarded(step, op, sc)


def _st(op: w.St, sc: Scope) -> Step:
    return warpgroup.guarded((registers.store if op.buf.space == "reg" else access.st)(op, sc), op, sc)


#: Of each op the maker of its closure, and the instruction class that every warp that reaches it issues (None: none,
#: or it counts itself).
_STEPS: dict[type[Op], tuple[Callable[[Any, Scope], Step], str | Callable[[Any], str] | None]] = {
    w.Alloc: (_alloc, None),
    w.Let: (scalars.let, None),
    w.ConstFloat: (scalars.const, None),
    w.Unary: (scalars.lanewise, lambda op: "popc" if op.op == "popc" else f"{op.op}.{scalars.dtype_of(op.a)}"),
    w.Binary: (scalars.lanewise, lambda op: f"{op.op}.{op.out[0].dtype}"),
    w.Fma: (scalars.lanewise, lambda op: f"fma.{op.out[0].dtype}"),
    Quotient: (scalars.lanewise, lambda op: f"quotient.{op.out[0].dtype}"),
    w.Compare: (scalars.lanewise, lambda op: f"compare.{scalars.dtype_of(op.a)}"),
    w.SelectValue: (scalars.lanewise, lambda op: f"select.{op.out[0].dtype}"),
    w.Convert: (scalars.lanewise, lambda op: f"cvt.{op.out[0].dtype}.{scalars.dtype_of(op.a)}"),
    w.Bitcast: (scalars.lanewise, None),
    w.Pack: (scalars.lanewise, "pack"),
    w.Prmt: (scalars.lanewise, "prmt"),
    w.Funnel: (scalars.lanewise, "funnel"),
    w.Dp4a: (scalars.lanewise, "dp4a"),
    WidenE4m3: (scalars.lanewise, "widen_e4m3"),
    AddF16x2: (scalars.lanewise, "add_f16x2"),
    w.Shfl: (scalars.shfl, "shfl"),
    MovMatrix: (scalars.movmatrix, "movmatrix"),
    w.Ballot: (scalars.ballot, "ballot"),
    w.Clock: (scalars.clock, "clock"),
    w.Mma: (mma.step, lambda op: f"mma.{op.shape}"),
    MmaSp: (mma.step, lambda op: f"mma.{op.shape}"),
    w.Ld: (_ld, None),
    w.St: (_st, None),
    w.CpAsync: (access.cp_async, None),
    w.LdMatrix: (access.ldmatrix, None),
    Atom: (atomics.step, None),
    Red: (atomics.step, None),
    LdTagged: (tagged.ld, None),
    StTagged: (tagged.st, None),
    Trap: (scalars.trap, "trap"),
    w.CpCommit: (lambda op, sc: lambda g: g.m.copies.commit(g), "cp_commit"),
    w.CpWait: (lambda op, sc: lambda g: g.m.copies.wait(g, op.pending), "cp_wait"),
    w.SyncWarp: (order.sync, "sync"),
    # Here a launch ends before the next one begins; verify_launch says what may come before the wait.
    LaunchNext: (lambda op, sc: lambda g: None, "launch_next"),
    LaunchWait: (lambda op, sc: lambda g: None, "launch_wait"),
    w.Fence: (order.fence, "fence"),
    w.MbarInit: (order.mbar_init, "mbar_init"),
    w.MbarArrive: (order.mbar_arrive, "mbar_arrive"),
    w.CpArrive: (order.cp_arrive, "cp_arrive"),
    w.BulkCopy: (bulk_copies.bulk_copy, None),
    TensorCopy: (bulk_copies.tensor_copy, None),
    ClusterSt: (cluster.st, None),
    ClusterArrive: (cluster.arrive, "cluster_arrive"),
}


#: Accesses that race with plain ones only.
_AT_ONCE = (Atom, Red, LdTagged, StTagged)


def _uses(f: w.Func) -> tuple[frozenset[str], frozenset[str], frozenset[str], tuple[str, ...]]:
    """Names of buffers that the program writes, reads plainly, uses atomically, and holds mbarriers in."""
    ops = list(walk(f.body))
    barriers = (w.MbarInit, w.MbarArrive, w.MbarTryWait, w.BulkCopy, TensorCopy, w.CpArrive, ClusterArrive)
    bars = dict.fromkeys(op.bars.name for op in ops if isinstance(op, barriers))
    written = {b.name for op in ops for b in node.buffers(op, writes=True)} - set(bars)
    plain = [op for op in ops if not isinstance(op, _AT_ONCE)]
    read = {b.name for op in plain for b in node.buffers(op, writes=False)} - set(bars)
    atomic = {op.buf.name for op in ops if isinstance(op, _AT_ONCE)}
    return frozenset(written), frozenset(read), frozenset(atomic), tuple(bars)


def _floats(f: w.Func) -> frozenset[str]:
    """Names of floating-point buffers, if only plain accesses and cp.async touch them all."""
    buffers = [b for b in (*f.params, *f.shared) if isinstance(b, Buffer) and b.space in ("global", "shared")]
    found = {b.name for b in buffers if b.dtype.kind == "float"}
    copies, atomics = (w.BulkCopy, TensorCopy), (Atom, Red)
    others = {b.name for op in walk(f.body) for b in (
        (op.dst, op.src) if isinstance(op, copies) else (op.buf,) if isinstance(op, atomics) else ()
    )}  # fmt: skip
    return frozenset() if found & others else frozenset(found)


_CACHE: dict[int, tuple[Any, Program]] = {}


def compile_func(func: w.Func) -> Program:
    """The compiled program of a function, kept as long as the function lives (a program does not refer to it)."""
    hit = _CACHE.get(id(func))
    if hit is not None and hit[0]() is func:
        return hit[1]
    prog = Compiler(func).compile()
    key = id(func)
    _CACHE[key] = (weakref.ref(func, lambda _: _CACHE.pop(key, None)), prog)
    return prog

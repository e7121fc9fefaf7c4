"""Control flow: masks, divergent loops and splits, against a machine that runs one thread after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, faulty, glob, kernel, shared
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.expr import evaluate
from sparsegen.ir.node import Op
from sparsegen.ir.types import f64, s32

N = 96  # three warps


# ------------------------------------------------------------------------------------------------ one thread at a time
class Thread:
    """Runs a program's integer ops for one thread; registers are lists, global memory is shared."""

    def __init__(self, tid: int, memory: dict[str, list[int]]) -> None:
        self.env: dict[str, int] = {"tid": tid, "lane": tid % 32, "warp": tid // 32, "bx": 0, "by": 0, "bz": 0}
        self.mem, self.regs = memory, dict[str, list[int]]()

    def run(self, ops: tuple[Op, ...]) -> bool:
        """True if a break leaves the loop around these ops."""
        for op in ops:
            if isinstance(op, w.If):
                if self.run(op.then if evaluate(op.cond, self.env) else op.orelse):
                    return True
            elif isinstance(op, w.For):
                a, z, s = (evaluate(x, self.env) for x in (op.start, op.stop, op.step))
                for i in range(a, z, s):
                    self.env[op.var.name] = i
                    assert not self.run(op.body)
            elif isinstance(op, w.Loop):
                while not self.run(op.body):
                    pass
            elif isinstance(op, w.BreakIf):
                if evaluate(op.cond, self.env):
                    return True
            else:
                self.simple(op)
        return False

    def simple(self, op: Op) -> None:
        if isinstance(op, w.Let):
            self.env[op.out[0].name] = evaluate(op.expr, self.env)
        elif isinstance(op, w.Binary):
            a, b = evaluate(op.a, self.env), evaluate(op.b, self.env)
            self.env[op.out[0].name] = {"add": a + b, "sub": a - b}[op.op]
        elif isinstance(op, w.Alloc):
            self.regs[op.buf.name] = [0] * op.buf.size
        else:
            assert isinstance(op, (w.Ld, w.St))
            mem = self.regs[op.buf.name] if op.buf.space == "reg" else self.mem[op.buf.name]
            i = evaluate(op.index, self.env)
            if isinstance(op, w.Ld):
                self.env[op.out[0].name] = mem[i]
            else:
                mem[i] = evaluate(op.vals[0], self.env)


class Maker:
    """Draws a random structured program: it adds to a register of its own, with ifs, loops and breaks."""

    def __init__(self, b: Any, v: Any, data: st.DataObject, reg: Any) -> None:
        self.b, self.v, self.data, self.reg, self.budget = b, v, data, reg, 14
        self.scope: list[Any] = [v.tid, v.lane, v.warp]

    def number(self) -> Any:
        x = self.data.draw(st.sampled_from(self.scope))
        k = self.data.draw(st.integers(1, 5))
        return (x * k + self.data.draw(st.integers(0, 7))) % self.data.draw(st.sampled_from([2, 3, 5, 8, 16]))

    def cond(self) -> Any:
        return self.number().lt(self.data.draw(st.integers(1, 6)))

    def bump(self) -> None:
        b = self.b
        i = self.number() % 2 if self.data.draw(st.booleans()) else self.data.draw(st.integers(0, 1))
        b.st(self.reg, i, b.binary("add", b.ld(self.reg, i), self.number(), s32))

    def block(self, depth: int, in_loop: bool) -> None:
        for _ in range(self.data.draw(st.integers(1, 3))):
            self.budget -= 1
            kinds = ["bump"] + (["if", "else", "for", "loop"] if depth < 4 and self.budget > 0 else [])
            kind = self.data.draw(st.sampled_from(kinds + (["break"] if in_loop else [])))
            saved = list(self.scope)
            if kind == "bump":
                self.bump()
            elif kind == "break":
                self.b.break_if(self.cond())
            elif kind in ("if", "else"):
                with self.b.if_(self.cond()):
                    self.block(depth + 1, in_loop)
                self.scope = list(saved)
                if kind == "else":
                    with self.b.else_():
                        self.block(depth + 1, in_loop)
            elif kind == "for":
                with self.b.for_("i", self.number() if self.data.draw(st.booleans()) else 0, self.number(),
                                 self.data.draw(st.integers(1, 3))) as i:  # fmt: skip
                    self.scope.append(i)
                    self.block(depth + 1, False)
            else:
                self.loop(depth)
            self.scope = saved

    def loop(self, depth: int) -> None:
        """A loop that ends: its count is kept in a register."""
        b = self.b
        count = b.alloc("n", s32, 1)
        b.st(count, 0, b.binary("add", 0, 0, s32))
        with b.loop():
            n = b.ld(count, 0, lo=0, hi=50)
            self.scope.append(n)
            b.st(count, 0, b.binary("add", n, 1, s32))
            b.break_if(n.ge(self.data.draw(st.integers(0, 4)) + self.v.lane % 3))
            self.block(depth + 1, True)


@given(data=st.data(), seed=st.integers(0, 3))
def test_random_programs(data: st.DataObject, seed: int) -> None:
    out = glob("out", s32, 2 * N)

    def body(b: Any, v: Any) -> None:
        reg = b.alloc("r", s32, 2)
        for k in (0, 1):
            b.st(reg, k, b.binary("add", 0, k, s32))
        Maker(b, v, data, reg).block(0, False)
        for k in (0, 1):
            b.st(out, v.tid * 2 + k, b.ld(reg, k))

    f = kernel(body, (out,), threads=N)
    args, _ = clean(f, seed=seed)
    want = {"out": [0] * (2 * N)}
    for tid in range(N):
        Thread(tid, want).run(f.body)
    assert args["out"].tolist() == want["out"]


# ------------------------------------------------------------------------------------------------ single cases
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_warps_take_different_ways_and_meet_again(seed: int) -> None:
    out = glob("out", s32, N)

    def body(b: Any, v: Any) -> None:
        r = b.alloc("r", s32, 1)
        with b.if_(v.warp.eq(1)):
            b.st(r, 0, b.binary("add", v.lane, 100, s32))
            b.barrier(1, 32)
        with b.else_():
            b.st(r, 0, b.binary("add", v.lane, 200, s32))
            b.barrier(2, 64)
        b.barrier()
        b.st(out, v.tid, b.ld(r, 0))

    args, rep = clean(kernel(body, (out,), threads=N), seed=seed)
    lane = np.arange(N) % 32
    assert (args["out"] == lane + np.where(np.arange(N) // 32 == 1, 100, 200)).all()
    assert rep.counts["barrier"] == 6


def test_threads_that_are_no_multiple_of_32() -> None:
    out = glob("out", s32, 3 * 40)
    f = kernel(
        lambda b, v: b.st(out, v.bx * 40 + v.tid, b.binary("add", v.tid, 1, s32)), (out,), threads=40, grid=(3, 1, 1)
    )
    args, rep = clean(f)
    assert (args["out"].reshape(3, 40) == np.arange(1, 41)).all()
    assert rep.counts["st.global"] == 6 and rep.counts["bytes.global.write"] == 480


def test_grid_axes() -> None:
    out = glob("out", s32, 24)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.tid.eq(0)):
            b.st(out, (v.bz * 3 + v.by) * 4 + v.bx, b.binary("add", v.bx * 100 + v.by * 10, v.bz, s32))

    args, _ = clean(kernel(body, (out,), grid=(4, 3, 2)), batch=5)
    assert args["out"].tolist() == [x * 100 + y * 10 + z for z in range(2) for y in range(3) for x in range(4)]


def test_loop_trips_may_differ_from_warp_to_warp_around_a_warp_sync() -> None:
    tile, out = shared("tile", s32, N), glob("out", s32, N)

    def body(b: Any, v: Any) -> None:
        acc = b.alloc("acc", s32, 1)
        b.st(acc, 0, b.binary("add", 0, 0, s32))
        with b.for_("i", 0, v.warp + 1) as i:
            b.st(tile, v.tid, b.binary("add", i + v.lane, 0, s32))
            b.sync()
            x = b.ld(tile, v.warp * 32 + (v.lane + 1) % 32)
            b.st(acc, 0, b.binary("add", b.ld(acc, 0), x, s32))
            b.sync()
        b.st(out, v.tid, b.ld(acc, 0))

    args, _ = clean(kernel(body, (out,), (tile,), threads=N))
    lane, warp = np.arange(N) % 32, np.arange(N) // 32
    assert (
        args["out"] == [sum(i + (la + 1) % 32 for i in range(wa + 1)) for la, wa in zip(lane, warp, strict=True)]
    ).all()


def test_a_loop_that_never_ends_is_a_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsegen.backends.emulator.machine.Machine.spin_limit", 100)
    flag = glob("flag", s32, 1)

    def body(b: Any, v: Any) -> None:
        with b.loop():
            b.break_if(b.ld(flag, 0).eq(1))

    faulty(kernel(body, (flag,)), "livelock", "break condition")
    assert run(kernel(body, (flag,)), {"flag": np.ones(1, np.int32)}).ok


@pytest.mark.parametrize("lo", [0, 40])
def test_register_arrays_remember_who_wrote(lo: int) -> None:
    out = glob("out", f64, 32)

    def body(b: Any, v: Any) -> None:
        r = b.alloc("r", f64, 2)
        with b.if_(v.lane.ge(8) if lo else v.lane.ge(0)):
            b.st(r, 1, b.const(f64, 3.0))
        b.st(out, v.lane, b.ld(r, 1))

    f = kernel(body, (out,))
    if lo:
        rep = faulty(f, "uninit", "initialise")
        assert rep.errors[0].lane == 0
    else:
        args, _ = clean(f)
        assert (args["out"] == 3.0).all()


def test_a_value_parameter_is_an_int_in_range() -> None:
    from sparsegen.ir.errors import ArrayError
    from sparsegen.ir.expr import Value

    n, out = Value("n", s32, 0, 32), glob("out", s32, 32)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.lane.lt(n)):
            b.st(out, v.lane, b.binary("add", n, 0, s32))

    f = kernel(body, (n, out))
    a, _ = clean(f, {"n": 5})
    assert a["out"].tolist() == [5] * 5 + [0] * 27
    with pytest.raises(ArrayError, match=r"0\.\.32"):
        run(f, {"n": 33, "out": np.zeros(32, np.int32)})

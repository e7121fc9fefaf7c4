"""What the verifier accepts, and what it refuses with which words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from sparsegen.ir import warp as w
from sparsegen.ir.checks import CHECKS, Context, check
from sparsegen.ir.errors import IRError, Loc
from sparsegen.ir.expr import Bin, Const, Expr, Value
from sparsegen.ir.module import Launch, Module
from sparsegen.ir.node import Op, define, operand
from sparsegen.ir.parse import parse_op
from sparsegen.ir.types import Buffer, f64, s32
from sparsegen.ir.verify import verify
from tests.ir.programs import functions, module

HEAD = """warp.func "k", [@u: global f64[100] align=16, @o: global f64[100] align=8, @w: global u32[8] align=16,
  @t: param f64[9] align=8, %n: s32[1,40], @h: global f16[64] align=16],
  [@s: shared f64[64] align=16, @m: shared u64[2] align=8, @hs: shared f16[64] align=16], [4, 1, 1], 64 {
  %x: f64 = warp.const 1.0
  %y: f32 = warp.const 1.0
  %i: u32 = warp.atom "add", @w, 0, 1
"""


def body(text: str) -> Op:
    return parse_op(f"{HEAD}{text}\n}}")


@settings(max_examples=60, deadline=None)
@given(functions())
def test_random_programs_pass(f: w.Func) -> None:
    verify(module(f))


GOOD = [
    '%a: u64 = warp.clock\n%b: u64 = warp.clock\n%d: u64 = warp.binary "sub", %b, %a',
    "%a: f64, %b: f64 = warp.ld @u, %tid where=%tid < 3",
    "warp.cp_async @s, 0, @u, 0, 2",
    "warp.if %warp == 0 {\n warp.barrier id=1 count=32\n warp.sync\n}",
    'warp.if %tid < 32 {\n %v: f64 = warp.shfl "xor", %x, 1\n}',
    "warp.if %tid // 32 == 1 {\n warp.sync\n}",
    "warp.if %n < 3 {\n warp.barrier\n}",
    "%r: u32 = warp.ld @w, %bx\nwarp.for %j: s32, 0, %r, 1 {\n warp.barrier\n}",
    "warp.loop {\n %d: pred = warp.mbar_try_wait @m, 0, 1\n warp.break_if %d\n}\nwarp.barrier",
    "%q: u32 = warp.ballot %tid < 3\nwarp.if %q == 0 {\n warp.sync\n}",
    "warp.alloc @r: reg f64[4] align=8\nwarp.for %j: s32[0,3], 0, 4, 1 unroll=0 {\n warp.st @r, %j, [%x]\n}",
    "%p: pred = warp.let %tid < 3\n%v: f64 = warp.select %p, %x, %x",
    '%p: pred = warp.compare "lt", %x, %x\n%v: f64 = warp.select %p and %tid < 3, %x, %x',
    "warp.if %bx < 0 {\n warp.st @o, 500, [%x]\n}",
    '%v: u32 = warp.binary "shl", %i, %lane',
    "%v: f16 = warp.cvt %x\n%h2: u32 = warp.pack %v, %v",
    "%m0: u32, %m1: u32 = warp.ldmatrix @hs, 8 * (%lane % 8)",
]


@pytest.mark.parametrize("text", GOOD)
def test_accepted(text: str) -> None:
    verify(body(text))


BAD = [
    # types and counts
    ("%a: f64, %b: f64, %c: f64 = warp.ld @u, 0", "3 elements at once, but 1, 2 or 4"),
    ("%a: f64, %b: f64, %c: f64, %d: f64 = warp.ld @u, 0", "32 bytes at once, but at most 16"),
    ("warp.st @o, 0, [%x, %x]", "aligned to less"),
    ("%a: f32 = warp.ld @u, 0", "the types differ"),
    ("warp.st @o, 0, [%y]", "what is stored must be f64, but %y: f32"),
    ("warp.st @o, 0, [%n + 1]", "must be a f64 value, but is the integer expression"),
    ("%a: f64 = warp.fma %x, %y, %x", "b must be f64, but %y: f32"),
    ("%a: f64 = warp.binary \"add\", %x, %y", "the right side must be f64"),
    ("%a: f64 = warp.binary \"rem\", %x, %x", "binary operation 'rem' is unknown"),
    ("%a: u32 = warp.binary \"pow\", %i, %i", "pow is a function of f32 and f64, there is none of u32"),
    ("%a: f64 = warp.binary \"xor\", %x, %x", "xor needs integers"),
    ("%a: f64 = warp.unary \"tan\", %x", "unary operation 'tan' is unknown"),
    ("%v: f16 = warp.cvt %x\n%a: f16 = warp.unary \"sin\", %v", "function of f32 and f64, there is none of f16"),
    ("%a: s32 = warp.unary \"popc\", %i", "popc gives u32"),
    ("%a: u32 = warp.clock", "gives u64, not u32"),
    ("%q: u64 = warp.clock\nwarp.if %q == 0 {\n warp.sync\n}", "different from lane to lane"),
    ("%a: f64 = warp.select %n, %x, %x", "condition must be a predicate, but %n: s32"),
    ("%a: f64 = warp.select %n < 2, %x, %y", "the second choice must be f64"),
    ("%p: pred = warp.compare \"gt\", %x, %x", "comparison 'gt' is unknown"),
    ("%p: pred = warp.compare \"lt\", %x, %y", "the right side must be f64, but %y: f32"),
    ("%p: pred = warp.compare \"lt\", %n, %n", "compares floating-point values, but %n: s32"),
    ("%p: u32 = warp.compare \"lt\", %x, %x", "gives a predicate, not u32"),
    ("warp.if %n + 1 {\n}", "condition must be a predicate, but it is the number"),
    ("%a: u64 = warp.bitcast %y", "differ in width"),
    ("%a: u32 = warp.pack %y, %y", "a half must have 16 bits"),
    ("%a: f64, %b: f64 = warp.mma \"f64.m8n8k4\", [%x, %x], [%x], [%x, %x]", "a has 2 registers, but takes 1 x f64"),
    ("%a: f64, %b: f64 = warp.mma \"f64.m8n8k4\", [%x], [%y], [%x, %x]", "each register of b must be f64"),
    ("%a: f64 = warp.mma \"f64.m9n9k9\", [], [], []", "mma shape 'f64.m9n9k9' is unknown"),
    ("%a: f32 = warp.mma_sp \"f16.m16n8k16\", [], [], [], %x, 0", "shape of a sparse mma 'f16.m16n8k16' is unknown"),
    ("%a: f32 = warp.mma_sp \"f16.m16n8k32.sp\", [], [], [], %x, 0", "a has 0 registers, but takes 4 x u32"),
    ("%a: f32 = warp.mma_sp \"f16.m16n8k32.sp\", [], [], [], %x, 2", "selector 2 is unknown"),
    ("%a: u32 = warp.ldmatrix @s, 0", "loads elements of 8 or 16 bits"),
    ("%a: s32 = warp.mma \"u8.s4.m16n8k32\", [], [], []", "mma shape 'u8.s4.m16n8k32' is unknown"),
    ("%a: s32 = warp.mma \"u8.s8.m16n8k32\", [%i], [], []", "a has 1 registers, but takes 4 x u32"),
    ("%a: f64 = warp.shfl \"left\", %x, 1", "mode 'left' is unknown"),
    ("%a: s32[0,3] = warp.let %n + 5", "cannot hold"),
    ("%a: s32 = warp.const 1.0", "must be floating point"),
    # spaces
    ("warp.cp_async @s, 0, @u, 0, 4", "32 bytes, but 4, 8 or 16 are possible"),
    ("warp.cp_async @o, 0, @u, 0, 1", "must be in shared memory"),
    ("warp.cp_async @s, 0, @s, 0, 1", "must be in global memory"),
    ("warp.cp_async @hs, 0, @u, 0, 1", "copies f64 to f16"),
    ("warp.st @t, 0, [%x]", "must be in global or shared or reg memory"),
    ("warp.alloc @r: shared f64[4] align=8", "must be in reg memory"),
    ("warp.alloc @r: reg f64[99] align=8\nwarp.st @r, %tid, [%x]", "depends on %tid, which is no loop variable"),
    ("warp.red \"max\", @u, 0, %x", "reduction 'max' is unknown"),
    ("warp.mbar_init @s, 0, 1", "mbarriers are u64"),
    ("%a: f64 = warp.ld @s, 0 cache=\"cg\"", "for global memory only"),
    ("%a: f64 = warp.ld @o, 0 cache=\"nc\"\nwarp.st @o, 0, [%x]", "cache 'nc', but the function writes @o"),
    ("warp.bulk_copy @s, 0, @u, 0, 3, @m, 0", "no multiple of 16 bytes"),
    # ranges
    ("warp.st @o, 100, [%x]", "index 100 is 100: outside @o"),
    ("warp.st @o, %tid + 200, [%x]", "in 200..263: outside"),
    ("%a: f64, %b: f64 = warp.ld @u, 1", "no multiple|not a multiple"),
    ("warp.st @o, %tid - 64, [%x]", "outside"),
    ("warp.for %j: s32[0,3], 0, 4, 1 {\n warp.st @o, 100, [%x]\n}", "outside"),
    # control
    ("warp.for %j: s32[0,3], 0, 4, 0 {\n}", "step 0 may be 0"),
    ("warp.for %j: s32[0,3], 0, 4, %n - 2 {\n}", "may be -1, but must be positive"),
    ("warp.for %j: s32[0,2], 0, 4, 1 {\n}", "runs over 0..3"),
    ("warp.break_if %n < 2", "outside of any warp.loop"),
    ("warp.loop {\n warp.for %j: s32[0,3], 0, 4, 1 {\n warp.break_if %n < 2\n }\n}", "stands in a warp.for"),
    ("warp.loop {\n warp.sync\n}", "never ends"),
    # order
    ("warp.barrier id=16", "barrier 16 is not in 0..15"),
    ("warp.barrier id=1 count=33", "must be whole warps"),
    ("warp.barrier id=1 count=96", "of the block's 64 threads"),
    ("warp.fence \"cta\"", "fence 'cta' is unknown"),
    ("warp.cp_wait -1", "negative"),
    # divergence
    ("warp.if %tid < 3 {\n warp.barrier\n}", "different from lane to lane"),
    ("warp.if %warp == 0 {\n warp.barrier\n}", "different from warp to warp"),
    ("warp.if %lane < 3 {\n warp.sync\n}", "all lanes of a warp must reach it together"),
    ("warp.for %j: s32[0,63], 0, %tid, 1 {\n %a: f64 = warp.shfl \"xor\", %x, 1\n}", "different from lane to lane"),
    ("warp.loop {\n %d: pred = warp.mbar_try_wait @m, 0, 1\n warp.sync\n warp.break_if %d\n}", "different from lane"),
    ("warp.alloc @r: reg f64[1] align=8\nwarp.st @r, 0, [%x]\nwarp.if %lane < 3 {\n warp.st @r, 0, [%x]\n}\n"
     "%a: f64 = warp.ld @r, 0\n%c: s32 = warp.cvt %a\nwarp.if %c < 1 {\n warp.sync\n}", "different from lane"),
    ("%v: f64 = warp.ld @u, %tid\n%c: s32 = warp.cvt %v\nwarp.if %c < 1 {\n warp.barrier\n}", "different from lane"),
    # names
    ("%x: f64 = warp.const 2.0", "%x is defined a second time"),
    ("%tid: f64 = warp.const 2.0", "%tid is defined a second time|name of a built-in"),
    ("%a: s32 = warp.let %n + 1\n%z: s32 = warp.let select(%n, %a, 1)", "is no predicate"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD)
def test_refused(text: str, said: str) -> None:
    with pytest.raises(IRError, match=said) as e:
        verify(body(text))
    assert "\n  in: warp." in e.value.message or "\n  in: %" in e.value.message
    assert e.value.loc is not None and e.value.loc.line > 3 and "^" in str(e.value)


U, X = Buffer("u", f64, 8, "global"), Value("x", f64)


def func(*ops: Op, threads: int = 32, **kw: object) -> w.Func:
    usual = {"symbol": "k", "params": (U,), "shared": (), "grid": (1, 1, 1), "threads": threads, "body": ops}
    return w.Func(**(usual | kw))  # type: ignore[arg-type]


def test_names_and_scopes() -> None:
    inner = w.If(Const(1), (w.ConstFloat((X,), 1.0),))
    for f, said in (
        (func(w.St(U, Const(0), (X,))), "%x is not defined"),
        (func(inner, w.St(U, Const(0), (X,))), "%x is used outside the region that defines it"),
        (func(w.St(Buffer("q", f64, 8, "global"), Const(0), ())), "@q is not defined"),
        (func(w.St(Buffer("u", f64, 9, "global"), Const(0), ())), "used as @u: global f64\\[9\\]"),
        (func(w.Let((Value("a", s32, 0, 9),), Value("tid", s32, 0, 99))), "%tid is used as %tid: s32\\[0,99\\]"),
        (func(w.ConstFloat((X,), 1.0), w.Let((Value("a"),), Bin("+", X, Const(1), 0, 1))), "reads the f64 value %x"),
        (func(inner, w.ConstFloat((X,), 1.0)), "%x is defined a second time; first by: %x: f64 = warp.const 1.0"),
    ):
        with pytest.raises(IRError, match=said):
            verify(f)


def test_function_limits() -> None:
    s = Buffer("s", f64, 1000, "shared")
    for kw, said in (
        ({"threads": 1025}, "1025 threads"),
        ({"threads": 0}, "0 threads"),
        ({"grid": (1, 70000, 1)}, "70000 is not in 1..65535"),
        ({"symbol": "a b"}, "no C identifier"),
        ({"min_blocks": 0}, "min_blocks 0"),
        ({"params": (s,)}, "must be in global or param memory"),
        ({"shared": (U,), "params": ()}, "must be in shared memory"),
        ({"params": (Buffer("t", f64, 5000, "param"),)}, "40000 bytes of parameters"),
        ({"params": (Buffer("t", f64, 0, "global"),)}, "no elements"),
        ({"params": (Buffer("t", f64, 1, "global", 12),)}, "no power of two"),
        ({"shared": (s,), "scratch": (("s", 0, 1000),)}, "outside @s"),
        ({"shared": (s,), "scratch": (("z", 0, 1),)}, "no shared buffer"),
        ({"params": (U, U)}, "second time"),
    ):
        with pytest.raises(IRError, match=said):
            verify(func(**kw))
    verify(func(shared=(s,)), shared_limit=8000)
    with pytest.raises(IRError, match="8000 bytes of shared memory exceed the 7999"):
        verify(func(shared=(s,)), shared_limit=7999)
    with pytest.raises(IRError, match="needs full warps, but a block has 48"):
        verify(func(w.ConstFloat((X,), 1.0), w.Shfl((Value("z", f64),), "up", X, Const(1)), threads=48))


def test_module_rules() -> None:
    f = func()
    for m, said in (
        (Module("m", (f, f)), "two functions 'k'"),
        (Module("m", (f,), (Launch("j", ()),)), "a launch of 'j'"),
        (Module("m", (f,), (Launch("k", ("a", "b")),)), "binds 2 arguments to its 1 parameters"),
    ):
        with pytest.raises(IRError, match=said):
            verify(m)


def test_the_users_line_is_shown(tmp_path: object) -> None:
    bad = w.BreakIf(Const(1), loc=Loc(__file__, 1, 3))
    with pytest.raises(IRError) as e:
        verify(func(bad))
    assert str(e.value).startswith(f"{__file__}:1: warp.break_if: stands outside") and "     ^" in str(e.value)


def test_new_ops_bring_their_own_rules() -> None:
    from sparsegen.ir.node import OPS

    @define("test.only_small")
    class OnlySmall(Op):
        n: Expr = operand()

    @check(OnlySmall)
    def rule(op: OnlySmall, ctx: Context) -> None:
        ctx.need(op.n.hi < 9, f"{op.n} is too large")

    try:
        verify(func(OnlySmall(Const(8))))
        with pytest.raises(IRError, match=r"test.only_small: 9 is too large"):
            verify(func(OnlySmall(Const(9))))
    finally:
        del OPS["test.only_small"], CHECKS[OnlySmall]

"""Every op prints, as one instruction or one expression; the text is always the same and says where it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import ModuleType

import pytest

from sparsegen.backends.cuda import ptx_ops
from sparsegen.backends.cuda.frame import fill, print_kernel, translation_unit
from sparsegen.backends.cuda.names import comment
from sparsegen.backends.cuda.printer import PRINTED, Printer
from sparsegen.ir import node
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError, Loc
from sparsegen.ir.expr import Const, Value, as_expr
from sparsegen.ir.module import Module
from sparsegen.ir.node import OPS, Op
from sparsegen.ir.types import Buffer, bf16, f16, f32, f64, s32
from sparsegen.ir.warp_atomics import Red
from tests.programs import fragments

from .programs import Kernel

WARP_OPS = {op for name, op in OPS.items() if name.startswith("warp.")}
FRAMING = (w.For, w.Loop, w.If)
#: Helpers that have one instruction for Ampere and another one from Hopper on.
FOR_TWO_ARCHITECTURES = {"mbar_test_wait"}
#: How four registers become one word.
_PACKED = ["mov.b64", "mov.b64", "mov.b128"]
#: The instructions of the helpers that have several.
TWO_LINES_OF_PTX = {
    "mbar_try_wait": ["mbarrier.try_wait.parity.shared", "selp.u32"],
    "mbar_test_wait": ["mbarrier.test_wait.parity.shared", "selp.u32"],
    "cluster_try_wait": ["mbarrier.try_wait.parity.acquire.cluster.shared", "selp.u32"],
    "scan_up": ["shfl.sync.up.b32", "add.u32"],
    "ld_tagged_64": ["ld.relaxed.gpu.global.b64", "mov.b64"],
    "ld_tagged_128": ["ld.relaxed.gpu.global.b128", "mov.b128"],
    "ld_tagged_64_where": ["setp.ne.b32", "mov.b64", "ld.relaxed.gpu.global.b64", "mov.b64"],
    "ld_tagged_128_where": ["setp.ne.b32", "mov.b128", "ld.relaxed.gpu.global.b128", "mov.b128"],
    "st_tagged_64": ["mov.b64", "st.relaxed.gpu.global.b64"],
    "st_tagged_128": ["mov.b128", "st.relaxed.gpu.global.b128"],
    **{
        f"{way}_tagged_{bits}_sys{end}": [*first, *(order if way == "ld" else reversed(order))]
        for bits in (64, 128)
        for way, end, first in (("ld", "", []), ("st", "", []), ("ld", "_where", ["setp.ne.b32", f"mov.b{bits}"]))
        for order in ([f"{way}.relaxed.sys.global.b{bits}", f"mov.b{bits}"],)
    },
    **{
        f"{way}_tagged_4x32{scope}{end}": [*first, *order]
        for scope, seen in (("", "gpu"), ("_sys", "sys"))
        for way, end, first in (("ld", "", []), ("st", "", []), ("ld", "_where", ["setp.ne.b32", *_PACKED]))
        for order in (
            [f"ld.relaxed.{seen}.global.b128", *reversed(_PACKED)]
            if way == "ld"
            else [*_PACKED, f"st.relaxed.{seen}.global.b128"],
        )
    },
    "trap": ["setp.ne.b32"],
    "cluster_barrier": ["barrier.cluster.arrive.release.aligned", "barrier.cluster.wait.acquire.aligned"],
}


def test_every_op_has_a_printer_and_stands_in_a_program(programs: ModuleType) -> None:
    assert PRINTED | {w.Func} == WARP_OPS
    used = {type(op) for f in programs.every_op().funcs for op in node.walk(f)}
    assert used == WARP_OPS


def recorded(func: w.Func) -> list[tuple[Op, list[str]]]:
    """Each op with the lines that it printed (with those of its regions)."""
    seen: list[tuple[Op, list[str]]] = []

    class Recorder(Printer):
        def block(self, ops: Iterable[Op]) -> None:
            for op in ops:
                start = len(self.lines)
                super().block((op,))
                seen.append((op, [s for s in self.lines[start:] if not s.lstrip().startswith("//")]))

    print_kernel(func, Recorder)
    return seen


def test_an_op_is_one_instruction_or_one_expression(programs: ModuleType) -> None:
    helpers = {h.name for h in ptx_ops.all_helpers()}
    for func in programs.every_op().funcs:
        for op, lines in recorded(func):
            if isinstance(op, FRAMING):
                own = [s for s in lines if re.match(r"\s*(#pragma unroll|for|while|if|\})", s)]
                assert own and lines[-1].strip() == "}" and not any("asm" in s for s in own)
                continue
            assert len(lines) == 1, f"{type(op).__name__} prints {lines}"
            line = lines[0]
            assert line.count(";") == 1 and line.endswith(";") and "asm" not in line and "{" not in line, line
            calls = [c for c in re.findall(r"\b(\w+)(?:<[^>()]*>)?\(", line) if c in helpers and c != "cluster_peer"]
            assert len(calls) <= 1, line  # an address in another block is an expression


def test_a_helper_is_one_instruction() -> None:
    for h in (h for h in ptx_ops.all_helpers() if h not in ptx_ops.QUOTIENT.values()):
        asm = re.findall(r'asm( volatile)?\("(.*?)" :', h.text)
        assert len(asm) == 1 + (h.name in FOR_TWO_ARCHITECTURES), h.text
        instruction = asm[0][1]
        if h.name in TWO_LINES_OF_PTX:
            assert (
                re.findall(r"(?:m?barrier|selp|setp|shfl|add\.|mov\.|(?:ld|st)\.relaxed)[\w.]*", instruction)
                == TWO_LINES_OF_PTX[h.name]
            ), instruction
        else:
            assert instruction.count(";") == 1 and instruction.endswith(";"), instruction
        assert ("volatile" in asm[0][0]) == ('"memory"' in h.text or "ldmatrix" in h.name), h.text
        assert not (h.name.startswith("mma") and "volatile" in h.text)


def test_the_text_is_the_same_each_time(programs: ModuleType) -> None:
    first, second = (translation_unit(programs.every_op(), title="all", notes=["a", "b"]) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("shape", "arch", "remedy"),
    [
        ("f64.m16n8k4", "sm_80", "sm_90"),
        ("s4.u4.m8n8k32", "sm_100a", "s8 or u8"),
        ("s4.m16n8k64", "sm_120", "s8 or u8"),
    ],
)
def test_an_mma_that_the_gpu_lacks_is_refused(shape: str, arch: str, remedy: str) -> None:
    module = Module("one", (fragments.build(shape),))
    with pytest.raises(IRError, match=rf"{arch} has no mma {re.escape(shape)}\nremedy: .*{remedy}"):
        translation_unit(module, title="one", arch=arch)
    for other in ("u8.s8.m16n8k32", "f16.m16n8k32.sp", shape):
        translation_unit(Module("one", (fragments.build(other),)), title="one", arch="sm_90a")


def test_only_what_is_called_is_printed(programs: ModuleType) -> None:
    text = kernel_unit(programs.control())
    assert "asm" not in text and "#include" not in text and "template" not in text
    text = kernel_unit(programs.copies())
    for h in ptx_ops.all_helpers():
        assert (f" {h.name}(" in text) == bool(
            re.search(rf"\b{h.name}(<[\d, ]+>)?\(", text.split("__launch_bounds__")[1])
        )


def kernel_unit(func: w.Func) -> str:
    return translation_unit(Module("m", (func,)), title="one")


def test_where_the_lines_come_from(programs: ModuleType) -> None:
    text = print_kernel(programs.control()).text
    assert text.count("// heat2d.py:12") == 1 and "// heat2d.py:13" in text


def test_the_header_holds_what_was_given() -> None:
    func = w.Func("k", (), (), (1, 1, 1), 32, ())
    text = translation_unit(Module("m", (func,)), title="heat 2-D", notes=["direct block=32x8\nsecond", "ends in \\"])
    assert text.startswith("// heat 2-D\n// direct block=32x8\n// second\n// ends in \\ .\n")
    assert [comment(s) for s in ("", "a\\", "a\n#error", "b\udcff\u2028", "??/")] == [
        "", "a\\ .", "a\\n#error", "b\\udcff\\u2028", "??/ ."]  # fmt: skip


def test_a_blank_without_a_value_is_an_error() -> None:
    import jinja2

    with pytest.raises(jinja2.UndefinedError):
        fill("unit.cu.j2", title=[])


def body(*ops: Op, params: tuple[Buffer | Value, ...] = ()) -> str:
    return print_kernel(w.Func("k", params, (), (1, 1, 1), 32, ops)).text


U, X = Buffer("u", f64, 64, "global"), Value("x", f64)


@pytest.mark.parametrize(("ops", "message"), [
    ((w.St(U, Const(0), (X,)),), "used before it is defined"),
    ((w.Ld((X,), U, Const(0)), w.Unary((X,), "popc", X)), "popc of a value of type f64"),
])  # fmt: skip
def test_what_cannot_be_printed_is_refused(ops: tuple[Op, ...], message: str) -> None:
    with pytest.raises(IRError, match=message):
        body(*ops, params=(U,))


def test_kernel_names_must_be_c_identifiers() -> None:
    with pytest.raises(IRError, match="no C identifier"):
        print_kernel(w.Func("2d", (), (), (1, 1, 1), 32, ()))


def test_a_name_that_c_keeps_for_itself_is_changed() -> None:
    text = body(w.Ld((Value("int", f64),), U, Const(0)), w.St(U, Const(1), (Value("int", f64),)), params=(U,))
    assert "const double int_ = u[0];" in text and "u[1] = int_;" in text


def test_sixteen_bits_are_converted_and_travel_by_eight() -> None:
    h, out = Buffer("h", f16, 64, "global"), Buffer("o", bf16, 64, "global")
    loaded, wide = tuple(Value(f"x{i}", f16) for i in range(8)), tuple(Value(f"y{i}", f32) for i in range(8))
    narrow = tuple(Value(f"z{i}", bf16) for i in range(8))
    ops: list[Op] = [w.Ld(loaded, h, Const(0))]
    ops += [w.Convert((y,), x) for x, y in zip(loaded, wide, strict=True)]
    ops += [w.Convert((z,), y) for y, z in zip(wide, narrow, strict=True)]
    text = body(*ops, w.St(out, Const(8), narrow), params=(h, out))
    assert "k(const __half* __restrict__ h,\n    __nv_bfloat16* __restrict__ o)" in text
    assert "const uint4 x0 = *reinterpret_cast<const uint4*>(&h[0]);" in text
    assert "const float y0_ = __half2float(__ushort_as_half((unsigned short)x0.x));" in text
    assert "const float y7 = __half2float(__ushort_as_half((unsigned short)(x0.w >> 16)));" in text
    assert "const __nv_bfloat16 z7 = __float2bfloat16_rn(y7);" in text
    assert "*reinterpret_cast<uint4*>(&o[8]) = make_uint4(__bfloat16_as_ushort(z0) | " in text
    assert "| (unsigned)__bfloat16_as_ushort(z7) << 16);" in text


def test_headers_are_included_where_their_types_are_used() -> None:
    for dtype, header in ((f16, "cuda_fp16.h"), (bf16, "cuda_bf16.h"), (f32, "")):
        b = Buffer("b", dtype, 8, "global")
        func = w.Func("k", (b,), (), (1, 1, 1), 32, (w.St(b, Const(0), (Const(0),)),))
        found = set(re.findall(r"#include <(cuda_\w+\.h)>", translation_unit(Module("m", (func,)), title="m")))
        assert found & {"cuda_fp16.h", "cuda_bf16.h"} == ({header} if header else set())


def test_read_only_arrays_are_const() -> None:
    text = body(w.Ld((X,), U, Const(0)), params=(U, Value("n", s32)))
    assert "k(const double* __restrict__ u,\n    const int n)" in text
    text = body(Red("add", U, Const(0), Const(1)), params=(U,))
    assert "k(double* u)" in text and "atomicAdd(&u[0], 1.0);" in text  # read and written: threads may talk through it


def test_signed_sums_wrap() -> None:
    n = Value("n", s32)
    text = body(w.Binary((Value("m", s32),), "add", n, Const(-1)), params=(n,))
    assert "const int m = (unsigned)n + (unsigned)-1;" in text


def test_lines_change_only_where_they_help() -> None:
    inner = Red("add", U, Const(1), Const(1), loc=Loc("a.py", 2))
    text = body(w.If(Const(1), (inner,), loc=Loc("a.py", 1)), params=(U,))
    assert "// a.py:1" in text and "// a.py:2" not in text


def test_a_constant_of_where_copies_come_from_is_added_to_the_pointer() -> None:
    k = Kernel("copies")
    u, tile, tid = k.array("u", f32), k.array("tile", f32, 1024, "shared", 128), k.at["tid"]
    for place in (tid, tid + 32, as_expr(7), tid * 2 + 1):
        k.b.cp_async(tile, tid, u, place, 1)
    k.b.commit()
    k.b.wait(0)
    text = print_kernel(k.func()).text
    assert re.findall(r"(&u\[.*)\);", text) == ["&u[tid]", "&u[tid] + 32", "&u[7]", "&u[tid * 2] + 1"]

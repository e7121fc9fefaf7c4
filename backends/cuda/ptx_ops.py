"""The device functions behind ops that C has no expression for, one PTX instruction each (of quotients a few lines of
C), and the spelling of scalars.

A helper is printed into a translation unit only if something calls it.  Products and bit tricks are plain ``asm`` so
that nvcc may move them; what touches memory or order is ``asm volatile`` with a ``"memory"`` clobber.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparsegen.ir.errors import IRError
from sparsegen.ir.fragments import SHAPES, SPARSE, named, signature
from sparsegen.ir.types import DTYPES, DType, bf16, f16

from .ptx_helper import Helper
from .ptx_helper import function as _function
from .ptx_tagged import LD_TAGGED, LD_TAGGED_WHERE, ST_TAGGED, TRAP

_DEVICE: Final = "__device__ __forceinline__"
_CONSTRAINT: Final = {"f64": "d", "f32": "f", "u32": "r", "s32": "r"}
_SMEM: Final = '"r"((unsigned)__cvta_generic_to_shared({}))'

REGS: Final = "template <typename T, int n> struct Regs { T v[n]; };  // what an instruction leaves in n registers"
PARAM: Final = "template <typename T, int n> struct Param { T v[n]; };  // a table in the kernel's parameters"
TENSOR_MAP: Final = "struct alignas(128) TensorMap { unsigned long long v[16]; };  // CUDA's CUtensorMap"


def _group(first: int, count: int) -> str:
    """Operands of an instruction that are a group of registers."""
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def cp_async(nbytes: int) -> Helper:
    """Asynchronous copy of 4, 8 or 16 bytes; only the widest may bypass the first-level cache."""
    cache = "cg" if nbytes == 16 else "ca"
    instruction = f"cp.async.{cache}.shared.global [%0], [%1], {nbytes};"
    ins = _SMEM.format("dst") + ', "l"(src)'
    return _function("void", f"cp_async_{nbytes}", "void* dst, const void* src", instruction, ins=ins)


CP_COMMIT: Final = _function("void", "cp_async_commit", "", "cp.async.commit_group;")
CP_WAIT: Final = _function(
    "void", "cp_async_wait", "", "cp.async.wait_group %0;", ins='"n"(pending)', template="int pending"
)
BAR_SYNC: Final = _function(
    "void", "bar_sync", "", "bar.sync %0, %1;", ins='"n"(id), "n"(count)', template="int id, int count"
)
FENCE_ASYNC: Final = _function("void", "fence_async", "", "fence.proxy.async.shared::cta;")
FENCE_MBAR_INIT: Final = _function("void", "fence_mbar_init", "", "fence.mbarrier_init.release.cluster;")
MBAR_INIT: Final = _function(
    "void", "mbar_init", "unsigned long long* bar, unsigned count", "mbarrier.init.shared::cta.b64 [%0], %1;",
    ins=_SMEM.format("bar") + ', "r"(count)')  # fmt: skip
MBAR_ARRIVE: Final = _function(
    "void",
    "mbar_arrive",
    "unsigned long long* bar",
    "mbarrier.arrive.shared::cta.b64 _, [%0];",
    ins=_SMEM.format("bar"),
)
CP_ARRIVE: Final = _function(
    "void", "cp_async_arrive", "unsigned long long* bar",
    "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];", ins=_SMEM.format("bar"))  # fmt: skip
MBAR_EXPECT: Final = _function(
    "void", "mbar_arrive_expect_tx", "unsigned long long* bar, unsigned nbytes",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", ins=_SMEM.format("bar") + ', "r"(nbytes)')  # fmt: skip


def _try_wait(name: str, instruction: str) -> Helper:
    """More than one line of PTX: C cannot name a predicate register, so it is moved to an integer."""
    return _function(
        "bool", name, "unsigned long long* bar, unsigned parity",
        rf"{{\n\t.reg .pred p;\n\t{instruction}.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}}",
        outs='"=r"(done)', ins=_SMEM.format("bar") + ', "r"(parity)', before="unsigned done;",
        after="return done != 0;")  # fmt: skip


MBAR_TRY_WAIT: Final = _try_wait("mbar_try_wait", "mbarrier.try_wait.parity")


def _on_ampere_too(ampere: Helper, hopper: Helper) -> Helper:
    """The first function, which has the instruction of the other one where Hopper is compiled for."""
    *begin, own, after, end = ampere.text.split("\n")
    other = hopper.text.split("\n")[-3]
    choice = ["  #if __CUDA_ARCH__ < 900", own, "  #else", other, "  #endif"]
    return Helper(ampere.name, "\n".join([*begin, *choice, after, end]))


#: For functions that Ampere runs as well, whose threads do not sleep while they wait.
MBAR_TEST_WAIT: Final = _on_ampere_too(_try_wait("mbar_test_wait", "mbarrier.test_wait.parity"), MBAR_TRY_WAIT)
BULK_COPY: Final = _function(
    "void", "bulk_copy", "void* dst, const void* src, unsigned nbytes, unsigned long long* bar",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];",
    ins=_SMEM.format("dst") + ', "l"(src), "r"(nbytes), ' + _SMEM.format("bar"))  # fmt: skip
TENSOR_COPY: Final = _function(
    "void", "tensor_copy", "void* dst, const TensorMap& map, int column, int row, unsigned long long* bar",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];",
    ins=_SMEM.format("dst") + ', "l"(&map), "r"(column), "r"(row), ' + _SMEM.format("bar"))  # fmt: skip
#: The thread sees what other blocks of the cluster have done, too: its first-level cache is emptied.
CLUSTER_TRY_WAIT: Final = _try_wait("cluster_try_wait", "mbarrier.try_wait.parity.acquire.cluster")
#: Two halves of one barrier, in one helper: nothing stands between them.
CLUSTER_BARRIER: Final = _function(
    "void", "cluster_barrier", "",
    r"{\n\tbarrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;\n\t}")  # fmt: skip
#: The address, in the shared memory of the cluster, of a place in that of one of its blocks.
PEER: Final = _function(
    "unsigned", "cluster_peer", "const void* own, unsigned rank", "mapa.shared::cluster.u32 %0, %1, %2;",
    outs='"=r"(d)', ins=_SMEM.format("own") + ', "r"(rank)', memory=False, before="unsigned d;",
    after="return d;")  # fmt: skip
CLUSTER_ARRIVE: Final = _function(
    "void", "cluster_arrive", "unsigned bar", "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];",
    ins='"r"(bar)')  # fmt: skip
PRMT: Final = _function(
    "unsigned", "prmt", "unsigned a, unsigned b, unsigned sel", "prmt.b32 %0, %1, %2, %3;", outs='"=r"(d)',
    ins='"r"(a), "r"(b), "r"(sel)', memory=False, before="unsigned d;", after="return d;")  # fmt: skip
#: A step of a scan over lanes: the sum of those that are in range, else the lane's own.
SCAN: Final = _function(
    "unsigned", "scan_up", "unsigned v, unsigned by",
    r"{\n\t.reg .pred p;\n\t.reg .b32 t;\n\tshfl.sync.up.b32 t|p, %0, %1, 0, -1;\n\t@p add.u32 %0, %0, t;\n\t}",
    outs='"+r"(v)', ins='"r"(by)', after="return v;")  # fmt: skip
LAUNCH_NEXT: Final = _function("void", "launch_next", "", "griddepcontrol.launch_dependents;")
LAUNCH_WAIT: Final = _function("void", "launch_wait", "", "griddepcontrol.wait;")
MOVMATRIX: Final = _function(
    "unsigned", "movmatrix", "unsigned a", "movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;", outs='"=r"(d)',
    ins='"r"(a)', before="unsigned d;", after="return d;")  # fmt: skip
PACK: Final = _function(
    "unsigned", "pack16", "unsigned short lo, unsigned short hi", "mov.b32 %0, {%1, %2};", outs='"=r"(d)',
    ins='"h"(lo), "h"(hi)', memory=False, before="unsigned d;", after="return d;")  # fmt: skip
WIDEN_E4M3: Final = _function(
    "unsigned", "widen_e4m3", "unsigned short a", "cvt.rn.f16x2.e4m3x2 %0, %1;", outs='"=r"(d)', ins='"h"(a)',
    memory=False, before="unsigned d;", after="return d;")  # fmt: skip
ADD_F16X2: Final = _function(
    "unsigned", "add_f16x2", "unsigned a, unsigned b", "add.rn.f16x2 %0, %1, %2;", outs='"=r"(d)',
    ins='"r"(a), "r"(b)', memory=False, before="unsigned d;", after="return d;")  # fmt: skip
#: Over a constant ``by``, whose reciprocal nvcc works out; what is no finite number has no remainder.
QUOTIENT: Final = {
    dtype: Helper(f"quotient_{dtype}", "\n".join([
        f"{_DEVICE} {t} quotient_{dtype}({t} a, {t} by) {{",
        f"  const {t} r = 1 / by, q = a * r, mended = {fma}({fma}(-by, q, a), r, q);",
        "  return mended == mended ? mended : q;",
        "}",
    ]))
    for dtype, t, fma in (("f32", "float", "fmaf"), ("f64", "double", "fma"))
}  # fmt: skip
TO_TF32: Final = _function(
    "float", "to_tf32", "float a", "cvt.rna.tf32.f32 %0, %1;", outs='"=r"(d)', ins='"f"(a)', memory=False,
    before="unsigned d;", after="return __uint_as_float(d);")  # fmt: skip
EXP2: Final = _function(
    "float", "exp2_approx", "float a", "ex2.approx.ftz.f32 %0, %1;", outs='"=f"(d)', ins='"f"(a)', memory=False,
    before="float d;", after="return d;")  # fmt: skip

CLOCK: Final = _function(
    "unsigned long long", "read_clock", "", "mov.u64 %0, %%clock64;", outs='"=l"(d)', before="unsigned long long d;",
    after="return d;")  # fmt: skip


def ldmatrix(count: int, trans: bool) -> Helper:
    """``count`` 8x8 matrices of 16-bit elements from shared memory."""
    outs = [f"d.v[{i}]" for i in range(count)]
    places = ", ".join(f"%{i}" for i in range(count))
    return _function(f"Regs<unsigned, {count}>", f"ldmatrix_x{count}{'_trans' if trans else ''}", "const void* row",
                     f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16 "
                     f"{{{places}}}, [%{count}];",
                     outs=", ".join(f'"=r"({o})' for o in outs), ins=_SMEM.format("row"),
                     before=f"Regs<unsigned, {count}> d;", after="return d;")  # fmt: skip


def cluster_st(nbytes: int) -> Helper:
    """Stores 4, 8 or 16 bytes of any type asynchronously; place and mbarrier are addresses of :data:`PEER`."""
    n = nbytes // 4
    vector, words = {1: ("unsigned", ["v"]), 2: ("uint2", ["v.x", "v.y"]), 4: ("uint4", [f"v.{c}" for c in "xyzw"])}[n]
    given = ", ".join(f"%{i + 1}" for i in range(n))
    return _function("void", f"cluster_st_{nbytes}", "unsigned to, const T& value, unsigned bar",
                     f"st.async.shared::cluster.mbarrier::complete_tx::bytes.{f'v{n}.' if n > 1 else ''}b32 [%0], "
                     f"{f'{{{given}}}' if n > 1 else given}, [%{n + 1}];",
                     ins=", ".join(['"r"(to)', *(f'"r"({word})' for word in words), '"r"(bar)']),
                     before=f"const {vector} v = reinterpret_cast<const {vector}&>(value);",
                     template="typename T")  # fmt: skip


def mma(shape: str) -> Helper:
    """``d = a * b + c`` of one shape, with d and c in registers of their own."""
    s, sig, params, ins, groups = named(shape), signature(shape), list[str](), list[str](), list[str]()
    at = sig.c[1]
    for letter, f in zip("abc", (s.a, s.b, s.c), strict=True):
        n, names = f.regs, [f"{letter}{i}" for i in range(f.regs)]
        params += [f"{f.reg.c} {name}" for name in names]
        if f.dtype.name == "tf32":  # PTX wants it in a register of bits
            ins += [f'"r"(__float_as_uint({name}))' for name in names]
        else:
            ins += [f'"{_CONSTRAINT[f.reg.name]}"({name})' for name in names]
        groups.append(_group(at, n))
        at += n
    if shape in SPARSE:
        params, ins = [*params, "unsigned meta"], [*ins, '"r"(meta)', '"n"(selector)']
        groups += [f"%{at}", f"%{at + 1}"]
    out, n = sig.c
    return _function(f"Regs<{out.c}, {n}>", "mma_" + shape.replace(".", "_"), ", ".join(params),
                     f"{s.ptx} {', '.join([_group(0, n), *groups])};",
                     outs=", ".join(f'"={_CONSTRAINT[out.name]}"(d.v[{i}])' for i in range(n)), ins=", ".join(ins),
                     memory=False, before=f"Regs<{out.c}, {n}> d;", after="return d;",
                     template="int selector" * (shape in SPARSE))  # fmt: skip


SET_REGISTERS: Final = {
    way: _function("void", f"setmaxnreg_{way}", "", f"setmaxnreg.{way}.sync.aligned.u32 %0;", ins='"n"(count)',
                   template="int count") for way in ("inc", "dec")}  # fmt: skip
WGMMA_FENCE: Final = _function("void", "wgmma_fence", "", "wgmma.fence.sync.aligned;")
WGMMA_COMMIT: Final = _function("void", "wgmma_commit", "", "wgmma.commit_group.sync.aligned;")
WGMMA_WAIT: Final = _function(
    "void", "wgmma_wait", "", "wgmma.wait_group.sync.aligned %0;", ins='"n"(pending)', template="int pending"
)
#: A matrix descriptor (64 bits): kind of swizzle, stride and leading offset and address in units of 16 bytes.
_DESCRIPTOR: Final = (
    "(unsigned long long)({0}_swizzle == 128 ? 1 : {0}_swizzle == 64 ? 2 : {0}_swizzle == 32 ? 3 : 0) << 62 | "
    "(unsigned long long)({0}_stride / 16) << 32 | (unsigned long long)({0}_lead / 16) << 16 | "
    "((unsigned)__cvta_generic_to_shared({0}) & 0x3ffff) / 16"
)


#: Forms of a warpgroup's product: a is a tile, or one that keeps 2 of every 4 k, or lies in registers.
WGMMA_FORMS: Final = ("", "sp", "rs")


def wgmma_name(dtype: DType, cols: int, form: str) -> str:
    return f"wgmma_{form and f'{form}_'}{dtype}_m64n{cols}k{32 if form == 'sp' else 16}"


def wgmma(dtype: DType, cols: int, form: str = "") -> Helper:
    """``acc += a * b`` of a warpgroup; the template's numbers are the parts of the descriptors that do not move.

    Form ``sp``: of an a that keeps 2 of every 4 k, as each lane's ``meta`` says; ``rs``: of an a in registers.
    """
    n, sparse, tiles = cols // 2, form == "sp", "b" if form == "rs" else "ab"
    parts = [f"{x}_{what}" for x in tiles for what in ("swizzle", "lead", "stride", "mn_major")] + ["selector"] * sparse
    regs = [f'"r"(a[{i}])' for i in range(4)] if form == "rs" else []
    rest = [f'"l"({_DESCRIPTOR.format(x)})' for x in tiles] + ['"r"(meta)', '"n"(selector)'] * sparse
    at = n + len(regs)
    given = [_group(n, 4)] * bool(regs) + [f"%{at + i}" for i in range(len(rest))]
    after = ", ".join(f"%{at + len(rest) + i}" for i in range(len(tiles)))
    ins = [*regs, *rest, *(f'"n"({x}_mn_major)' for x in tiles)]
    a = "const unsigned (&a)[4]" if regs else "const void* a"
    return _function("void", wgmma_name(dtype, cols, form),
                     f"float (&acc)[{n}], {a}, const void* b{', unsigned meta' * sparse}",
                     f"wgmma.mma_async{'.sp' * sparse}.sync.aligned.m64n{cols}k{32 if sparse else 16}.f32.{dtype}."
                     f"{dtype} {_group(0, n)}, {', '.join(given)}, 1, 1, 1, {after};",
                     outs=", ".join(f'"+f"(acc[{i}])' for i in range(n)), ins=", ".join(ins),
                     template=", ".join(f"int {part}" for part in parts))  # fmt: skip


FIXED: Final = (CP_COMMIT, CP_WAIT, BAR_SYNC, FENCE_ASYNC, FENCE_MBAR_INIT, MBAR_INIT, MBAR_ARRIVE, CP_ARRIVE,
                MBAR_EXPECT, MBAR_TRY_WAIT, MBAR_TEST_WAIT, BULK_COPY, TENSOR_COPY, PRMT, MOVMATRIX, PACK, TO_TF32,
                WIDEN_E4M3, ADD_F16X2, EXP2, CLOCK, TRAP, SCAN, LAUNCH_NEXT, LAUNCH_WAIT, CLUSTER_BARRIER, PEER,
                CLUSTER_ARRIVE, CLUSTER_TRY_WAIT, WGMMA_FENCE, WGMMA_COMMIT, WGMMA_WAIT,
                *SET_REGISTERS.values(), *QUOTIENT.values())  # fmt: skip


def all_helpers() -> tuple[Helper, ...]:
    """Every device function there is (the tests compile and count them), of warpgroups' products two widths."""
    return (*FIXED, *LD_TAGGED.values(), *LD_TAGGED_WHERE.values(), *ST_TAGGED.values(),
            *(cp_async(n) for n in (4, 8, 16)),
            *(ldmatrix(n, t) for n in (1, 2, 4) for t in (False, True)),
            *(mma(s) for s in (*SHAPES, *SPARSE)), *(cluster_st(n) for n in (4, 8, 16)),
            *(wgmma(t, n, form) for form in WGMMA_FORMS for t in (f16, bf16) for n in (8, 64)))  # fmt: skip


RESERVED: Final = frozenset({"Regs", "Param", "TensorMap", *(h.name for h in all_helpers()),
                             *(wgmma_name(t, n, form) for form in WGMMA_FORMS for t in (f16, bf16)
                               for n in range(8, 257, 8))})  # fmt: skip

# ------------------------------------------------------------------------------------------------ scalars
_VECTOR: Final = {"f64": "double", "f32": "float", "tf32": "float", "s64": "longlong", "u64": "ulonglong", "s32": "int",
                  "u32": "uint", "s16": "short", "u16": "ushort", "s8": "char", "u8": "uchar", "f16": "ushort",
                  "bf16": "ushort"}  # fmt: skip
_TO_BITS: Final = {"f64": "(unsigned long long)__double_as_longlong({})", "f32": "__float_as_uint({})",
                   "tf32": "__float_as_uint({})", "f16": "__half_as_ushort({})",
                   "bf16": "__bfloat16_as_ushort({})"}  # fmt: skip
_FROM_BITS: Final = {"f64": "__longlong_as_double({})", "f32": "__uint_as_float({})", "tf32": "__uint_as_float({})",
                     "f16": "__ushort_as_half({})", "bf16": "__ushort_as_bfloat16({})"}  # fmt: skip


def to_bits(a: str, dtype: DType) -> str:
    """The bits of a value as an unsigned integer of its width."""
    if dtype.kind == "uint" or dtype.kind == "pred":
        return a
    if dtype.kind == "int":
        return f"({DTYPES[f'u{dtype.bits}'].c}){a}"
    return _TO_BITS[dtype.name].format(a)


def from_bits(a: str, dtype: DType) -> str:
    """The value of a type that has these bits (an unsigned integer of its width)."""
    return f"({dtype.c}){a}" if dtype.kind != "float" else _FROM_BITS[dtype.name].format(a)


def bitcast(a: str, src: DType, dst: DType) -> str:
    """The same bits as another type; ``a`` is a name or a call."""
    if src.c == dst.c:
        return a
    if src.kind != "float" and dst.kind != "float":
        return from_bits(a, dst)
    if dst.kind != "float":
        bits = to_bits(a, src)
        if src.name == "f64":
            return f"__double_as_longlong({a})" if dst.kind == "int" else bits
        return bits if dst.kind == "uint" else from_bits(bits, dst)
    return from_bits(to_bits(a, src), dst)


_INT_NAME: Final = {"int": "int", "unsigned": "uint", "long long": "ll", "unsigned long long": "ull",
                    "short": "short", "unsigned short": "ushort"}  # fmt: skip


def convert(a: str, src: DType, dst: DType) -> str:
    """The value converted: to nearest even to floats, truncated to integers; ``a`` is a name or a call."""
    if src.name == dst.name:
        return a
    small = {"f16": "half", "bf16": "bfloat16"}
    if src.name in small:
        wide = f"__{small[src.name]}2float({a})"
        return wide if dst.name == "f32" else convert(wide, DTYPES["f32"], dst)
    if dst.name in small:
        if src.kind == "float":
            if src.bits == 64:
                return f"__double2{small[dst.name]}({a})"
            return f"__float2{small[dst.name]}_rn({a})"
        return f"__{_INT_NAME.get(src.c, 'int')}2{small[dst.name]}_rn({a})"
    if dst.name == "tf32":
        return f"{TO_TF32.name}({convert(a, src, DTYPES['f32'])})"
    if dst.kind == "pred":
        return f"{a} != 0"
    return a if src.c == dst.c else f"({dst.c}){a}"


_FLOAT_UNARY: Final = {
    ("abs", "f64"): "fabs({})", ("sqrt", "f64"): "sqrt({})", ("abs", "f32"): "fabsf({})", ("sqrt", "f32"): "sqrtf({})",
    **{(op, "f64"): f"{op}({{}})" for op in ("exp", "log", "sin", "cos", "tanh")},  # of full range and accuracy
    **{(op, "f32"): f"{op}f({{}})" for op in ("exp", "log", "sin", "cos", "tanh")},
    ("abs", "f16"): "__habs({})", ("sqrt", "f16"): "hsqrt({})",
    ("abs", "bf16"): "__habs({})", ("sqrt", "bf16"): "hsqrt({})",
}  # fmt: skip
_FLOAT_CALL: Final = {"f64": ("fmin", "fmax", "fma", "pow"), "f32": ("fminf", "fmaxf", "fmaf", "powf"),
                      "f16": ("__hmin", "__hmax", "__hfma"), "bf16": ("__hmin", "__hmax", "__hfma")}  # fmt: skip


def float_call(op: str, dtype: DType) -> str:
    """The device function for ``min``, ``max`` or ``fma`` of a floating type, or for ``pow`` of f32 or f64."""
    name = "f32" if dtype.name == "tf32" else dtype.name
    return _FLOAT_CALL[name][("min", "max", "fma", "pow").index(op)]


def unary(op: str, a: str, dtype: DType) -> str:
    """One C expression for a unary op; ``a`` is a name, a call or a bracketed expression."""
    if op == "neg":
        return f"-{a}"
    if dtype.kind == "float":
        name = "f32" if dtype.name == "tf32" else dtype.name
        if (op, name) in _FLOAT_UNARY:
            return _FLOAT_UNARY[op, name].format(a)
    elif op == "not":
        return f"!{a}" if dtype.kind == "pred" else f"~{a}"
    elif op == "abs":
        return a if dtype.kind != "int" else f"{'llabs' if dtype.bits == 64 else 'abs'}({a})"
    elif op in ("popc", "clz", "brev"):
        call, spare = f"__{op}{'ll' if dtype.bits == 64 else ''}", 32 - dtype.bits
        if dtype.bits >= 32:
            return f"{call}({a})"
        bits = to_bits(a, dtype)
        return {"popc": f"{call}({bits})", "clz": f"{call}({bits}) - {spare}", "brev": f"{call}({bits}) >> {spare}"}[op]
    raise IRError(f"{op} of a value of type {dtype}")


def vector_type(dtype: DType, width: int) -> str:
    """CUDA's type of 2 or 4 adjacent elements, of 16 bits also 8, two in a word; 16-bit floats travel as their bits."""
    return "uint4" if width == 8 else f"{_VECTOR[dtype.name]}{width}"


def members(dtype: DType, width: int) -> list[str]:
    """The elements of a variable {} of the vector type, each a primary expression."""
    if width == 8:
        halves = [half for c in "xyzw" for half in (f"{{}}.{c}", f"({{}}.{c} >> 16)")]
        if _by_bits(dtype):
            return [from_bits(f"(unsigned short){half}", dtype) for half in halves]
        return [f"(({dtype.c}){half})" for half in halves]
    return [from_bits(f"{{}}.{c}", dtype) if _by_bits(dtype) else f"{{}}.{c}" for c in "xyzw"[:width]]


def vector(dtype: DType, vals: Sequence[str]) -> str:
    """A value of the vector type of these elements, names, calls or in brackets."""
    elements = [to_bits(v, dtype) for v in vals] if _by_bits(dtype) or len(vals) == 8 else vals
    if len(vals) == 8:
        elements = [f"{lo} | (unsigned){hi} << 16" for lo, hi in zip(elements[::2], elements[1::2], strict=True)]
    return f"make_{vector_type(dtype, len(vals))}({', '.join(elements)})"


def _by_bits(dtype: DType) -> bool:
    return dtype.kind == "float" and dtype.bits == 16


def atomic(op: str, dtype: DType, at: str, value: str) -> str:
    """An atomic in C; CUDA has none for signed 64-bit sums and 64-bit float exchanges, but those of the bits do."""
    call = f"atomic{op.capitalize()}"
    if (dtype.name == "s64" and op in ("add", "exch")) or (dtype.name == "f64" and op == "exch"):
        return from_bits(f"{call}(reinterpret_cast<unsigned long long*>({at}), {to_bits(value, dtype)})", dtype)
    return f"{call}({at}, {value})"

"""mma and ldmatrix: fragments placed by the formulas of the PTX manual, written here a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, glob, kernel, shared

from sparsegen.backends.emulator import run
from sparsegen.ir import warp as w
from sparsegen.ir.fragments import SHAPES, SPARSE, Fragment
from sparsegen.ir.metadata import codes, places
from sparsegen.ir.types import DType, f16, f64, s8, tf32, u8, u32
from tests.programs import fragments

At = Callable[[int, int, int], tuple[int, int]]  # (g, t, i) -> row, column
HALF = {"a": lambda g, t, i: (g + 8 * (i >> 1 & 1), 2 * t + (i & 1) + 8 * (i >> 2)),
        "b": lambda g, t, i: (2 * t + (i & 1) + 8 * (i >> 1), g),
        "c": lambda g, t, i: (g + 8 * (i >> 1), 2 * t + (i & 1))}  # fmt: skip
WHOLE = {"a": lambda g, t, i: (g + 8 * (i & 1), t + 4 * (i >> 1)), "b": lambda g, t, i: (t + 4 * i, g),
         "c": HALF["c"]}  # fmt: skip
BYTE = {"a": lambda g, t, i: (g + 8 * (i >> 2 & 1), 4 * t + (i & 3) + 16 * (i >> 3)),
        "b": lambda g, t, i: (4 * t + (i & 3) + 16 * (i >> 2), g), "c": HALF["c"]}  # fmt: skip
NIBBLE = {"a": lambda g, t, i: (g + 8 * (i >> 3 & 1), 8 * t + (i & 7) + 32 * (i >> 4)),
          "b": lambda g, t, i: (8 * t + (i & 7) + 32 * (i >> 3), g), "c": HALF["c"]}  # fmt: skip
EIGHT_C: At = lambda g, t, i: (g, 2 * t + i)  # noqa: E731
PTX: dict[str, dict[str, At]] = {
    "f64.m8n8k4": {"a": lambda g, t, i: (g, t), "b": lambda g, t, i: (t, g), "c": EIGHT_C},
    "f64.m16n8k4": WHOLE, "f64.m16n8k8": WHOLE, "f64.m16n8k16": WHOLE, "tf32.m16n8k4": WHOLE, "tf32.m16n8k8": WHOLE,
    "f16.m16n8k8": HALF, "f16.m16n8k16": HALF, "bf16.m16n8k8": HALF, "bf16.m16n8k16": HALF,
    "s8.m8n8k16": {"a": lambda g, t, i: (g, 4 * t + i), "b": lambda g, t, i: (4 * t + i, g), "c": EIGHT_C},
    "s8.m16n8k16": BYTE, "s8.m16n8k32": BYTE,
    "s4.m8n8k32": {"a": lambda g, t, i: (g, 8 * t + i), "b": lambda g, t, i: (8 * t + i, g), "c": EIGHT_C},
    "s4.m16n8k64": NIBBLE,
}  # fmt: skip
PTX |= {f"{types}.{name[3:]}": table for name, table in PTX.items() if name[0] == "s"
        for types in (f"u{name[1]}", f"u{name[1]}.s{name[1]}", f"s{name[1]}.u{name[1]}")}  # fmt: skip


def fragment(at: At, m: np.ndarray, count: int) -> np.ndarray:
    """[warps, lanes, elements] of matrices [warps, rows, columns]."""
    out = np.empty((len(m), 32, count), m.dtype)
    for lane in range(32):
        for i in range(count):
            r, c = at(lane // 4, lane % 4, i)
            out[:, lane, i] = m[:, r, c]
    return out


def in_registers(f: Fragment, x: np.ndarray) -> np.ndarray:
    """[warps, lanes, registers] of [warps, lanes, elements], as the registers' type."""
    if f.packed == 1 or f.dtype.kind == "float":
        return np.ascontiguousarray(x).view(f.reg.numpy())
    parts = x.astype(np.int64).reshape(*x.shape[:2], -1, f.packed) & (2**f.dtype.bits - 1)
    return sum(parts[..., i] << (f.dtype.bits * i) for i in range(f.packed)).astype(f.reg.numpy())


def random(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Reals in (-1, 1), those of tf32 with 10 bits of mantissa; integers of the whole range up to 16 bits."""
    if dtype.is_int:
        low, high = max(dtype.range[0], -(1 << 15)), min(dtype.range[1], 1 << 15)
        return rng.integers(low, high + 1, shape, dtype=np.int32)
    x = rng.uniform(-1, 1, shape).astype(dtype.numpy())
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if dtype is tf32 else x


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("same_b", [False, True])
def test_product(shape: str, same_b: bool) -> None:
    s, rng, warps = SHAPES[shape], np.random.default_rng(7), 3
    a, c = random(rng, s.a.dtype, (warps, s.m, s.k)), random(rng, s.c.dtype, (warps, s.m, s.n))
    b = random(rng, s.b.dtype, (1 if same_b else warps, s.k, s.n))
    fa, fb, fc = (in_registers(f, fragment(PTX[shape][x], m, m.shape[1] * m.shape[2] // 32))
                  for x, f, m in (("a", s.a, a), ("b", s.b, b), ("c", s.c, c)))  # fmt: skip
    bufs = [glob(n, d, x.size) for n, d, x in (("a", s.a.reg, fa), ("b", s.b.reg, fb), ("c", s.c.reg, fc),
                                               ("d", s.c.reg, fc))]  # fmt: skip

    def body(bl: Any, v: Any) -> None:
        def regs(buf: Any, x: np.ndarray) -> list[Any]:
            n = x.shape[2]
            base = v.lane if len(x) == 1 else v.tid
            return [bl.ld(buf, base * n + i) for i in range(n)]

        d = bl.mma(shape, regs(bufs[0], fa), regs(bufs[1], fb), regs(bufs[2], fc))
        for i, x in enumerate(d):
            bl.st(bufs[3], v.tid * len(d) + i, x)

    args = {"a": fa.reshape(-1), "b": fb.reshape(-1), "c": fc.reshape(-1)}
    out, rep = clean(kernel(body, tuple(bufs), threads=32 * warps), args)
    want = a.astype(np.float64) @ b.astype(np.float64) + c
    got = out["d"].reshape(fc.shape)
    tol = 1e-14 if s.a.dtype is f64 else 0 if s.a.dtype.is_int else 3e-6
    assert np.abs(got - fragment(PTX[shape]["c"], want, fc.shape[2])).max() <= tol
    assert rep.counts[f"mma.{shape}"] == warps


def one(shape: str, a: Any, b: Any, c: Any) -> Any:
    """Element 0 of lane 0 after one mma in which every register of a fragment holds the same."""
    s, out = SHAPES[shape], glob("out", SHAPES[shape].c.dtype, 32)
    params = [glob(n, f.reg, 1) for n, f in (("a", s.a), ("b", s.b), ("c", s.c))]

    def body(bl: Any, v: Any) -> None:
        operands = [[bl.ld(p, 0)] * f.regs for p, f in zip(params, (s.a, s.b, s.c), strict=True)]
        bl.st(out, v.lane, bl.mma(shape, *operands)[0])

    given = {p.name: np.array([x], p.dtype.numpy()) for p, x in zip(params, (a, b, c), strict=True)}
    return clean(kernel(body, (*params, out)), given)[0]["out"][0]


def test_tf32_ignores_the_low_13_bits() -> None:
    assert one("tf32.m16n8k4", 1 + 2.0**-11, 1.0, 0.0) == 4.0
    assert one("tf32.m16n8k4", 1 + 2.0**-10, 1.0, 0.0) == np.float32(4 * (1 + 2.0**-10))


def test_sums_of_integers_wrap() -> None:
    assert one("s8.m8n8k16", 0x01010101, 0x01010101, 2**31 - 1) == -(2**31) + 15
    assert one("s8.m8n8k16", 0x80808080, 0x80808080, -(2**31)) == -(2**31) + 16 * 128**2
    assert one("u8.m16n8k32", 0xFFFFFFFF, 0xFFFFFFFF, 2**31 - 1) == -(2**31) - 1 + 32 * 255**2
    assert one("u4.m16n8k64", 0xFFFFFFFF, 0xFFFFFFFF, 2**31 - 1) == -(2**31) - 1 + 64 * 15**2


@pytest.mark.parametrize(("types", "sums"), [("s8", 1), ("u8", 255 * 255), ("u8.s8", -255), ("s8.u8", -255)])
def test_what_the_types_make_of_the_same_bits(types: str, sums: int) -> None:
    assert one(f"{types}.m16n8k32", 0xFFFFFFFF, 0xFFFFFFFF, 0) == 32 * sums


@pytest.mark.parametrize(("types", "sums"), [("s4", 64), ("u4", 64), ("u4.s4", -64), ("s4.u4", -64)])
def test_what_the_types_make_of_the_same_nibbles(types: str, sums: int) -> None:
    assert one(f"{types}.m8n8k32", 0x88888888, 0x88888888, 0) == 32 * sums


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("element", [f16, s8, u8])
def test_ldmatrix(element: DType, count: int, trans: bool) -> None:
    """Of 8-bit elements two and two lie as one of 16 does."""
    pitch = 80 // element.nbytes  # conflict-free
    data = np.random.default_rng(0).integers(0, 0x7C00, 8 * count * 40, np.uint16).view(element.numpy())
    src, dst, tile = glob("src", element, data.size), glob("dst", u32, 32 * count), shared("tile", element, data.size)

    def body(b: Any, v: Any) -> None:
        with b.for_("i", v.tid, data.size, 32) as i:
            b.st(tile, i, b.ld(src, i))
        b.barrier()
        out = tuple(b.fresh("m", u32) for _ in range(count))
        b.emit(w.LdMatrix(out, tile, v.lane % (8 * count) * pitch, trans))
        for k, x in enumerate(out):
            b.st(dst, v.lane * count + k, x)

    args, rep = clean(kernel(body, (src, dst), (tile,)), {"src": data})
    got = args["dst"].reshape(32, count)
    m = data.view(np.uint16).reshape(count, 8, 40)[:, :, :8].astype(np.uint32)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for j in range(count):
            lo, hi = (m[j, 2 * t, g], m[j, 2 * t + 1, g]) if trans else (m[j, g, 2 * t], m[j, g, 2 * t + 1])
            assert got[lane, j] == lo | hi << 16
    ld = next(c for c in rep.conflicts if c.op.startswith("warp.ldmatrix"))
    assert (ld.degree, ld.extra) == (1, 0)
    assert rep.counts["ldmatrix"] == 1


def test_movmatrix() -> None:
    """Each pair of elements, and the lanes of a warp, change places as rows and columns do."""
    data = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1021
    src, dst = glob("src", u32, 32), glob("dst", u32, 32)

    def body(b: Any, v: Any) -> None:
        b.st(dst, v.lane, b.movmatrix(b.ld(src, v.lane)))

    args, rep = clean(kernel(body, (src, dst)), {"src": data.reshape(-1).view(np.uint32)})
    assert (args["dst"].view(np.uint16).reshape(8, 8) == data.T).all() and rep.counts["movmatrix"] == 1


def test_ldmatrix_of_rows_in_one_bank_conflicts() -> None:
    tile, dst = shared("tile", f16, 8 * 64), glob("dst", u32, 32)

    def body(b: Any, v: Any) -> None:
        with b.for_("i", v.tid, 8 * 64, 32) as i:
            b.st(tile, i, b.const(f16, 1.0))
        b.barrier()
        out = b.fresh("m", u32)
        b.emit(w.LdMatrix((out,), tile, v.lane % 8 * 64))
        b.st(dst, v.lane, out)

    _, rep = clean(kernel(body, (dst,), (tile,)))
    assert next(c for c in rep.conflicts if c.op.startswith("warp.ldmatrix")).degree == 8


# ------------------------------------------------------------------------------------------------ half of a
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SPARSE)
def test_a_sparse_a(shape: str, seed: int) -> None:
    """By each selector; a row with a NaN of b reaches what keeps its k."""
    case = fragments.case(shape, seed)
    args = case.fresh()
    report = run(case.func, args)
    assert report.ok and not case.wrong(args), str(report)
    assert report.counts[f"mma.{shape}"] == 1
    spoiled = case.fresh()
    spoiled["b"].view(SPARSE[shape].b.dtype.numpy()).reshape(8, 32)[3, 17] = np.nan
    assert run(case.func, spoiled).ok
    words = case.args["meta"].astype("i8").reshape(1, 32)
    kept = (places(codes(words, seed % 2))[0] == 17).any(1)
    bad = np.isnan(spoiled["d"].reshape(16, 8))
    assert np.array_equal(bad[:, 3], kept) and bad.sum() == kept.sum()


def test_places_that_are_not_two_of_four() -> None:
    case = fragments.case("f16.m16n8k32.sp")
    args = case.fresh()
    args["meta"][5] &= 0xFFFFFFF0  # row 1, the fifth four
    report = run(case.func, args)
    assert report.kinds() == {"bounds"}
    assert "row 1 of a warp has the code 0000" in report.errors[0].message

"""mma and ldmatrix: fragments placed by the formulas of the PTX manual, written here a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, glob, kernel, shared

from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.fragments import SHAPES
from sparsegen.ir.types import f16, f64, u32

At = Callable[[int, int, int], tuple[int, int]]  # (g, t, i) -> row, column
HALF = {"a": lambda g, t, i: (g + 8 * (i >> 1 & 1), 2 * t + (i & 1) + 8 * (i >> 2)),
        "b": lambda g, t, i: (2 * t + (i & 1) + 8 * (i >> 1), g),
        "c": lambda g, t, i: (g + 8 * (i >> 1), 2 * t + (i & 1))}  # fmt: skip
DOUBLE = {"a": lambda g, t, i: (g + 8 * (i & 1), t + 4 * (i >> 1)), "b": lambda g, t, i: (t + 4 * i, g),
          "c": lambda g, t, i: (g + 8 * (i >> 1), 2 * t + (i & 1))}  # fmt: skip
PTX: dict[str, dict[str, At]] = {
    "f64.m8n8k4": {"a": lambda g, t, i: (g, t), "b": lambda g, t, i: (t, g), "c": lambda g, t, i: (g, 2 * t + i)},
    "f64.m16n8k4": DOUBLE, "f64.m16n8k8": DOUBLE, "f64.m16n8k16": DOUBLE, "f16.m16n8k8": HALF, "f16.m16n8k16": HALF,
    "bf16.m16n8k16": HALF,
}  # fmt: skip


def fragment(at: At, m: np.ndarray, count: int) -> np.ndarray:
    """[warps, lanes, elements] of matrices [warps, rows, columns]."""
    out = np.empty((len(m), 32, count), m.dtype)
    for lane in range(32):
        for i in range(count):
            r, c = at(lane // 4, lane % 4, i)
            out[:, lane, i] = m[:, r, c]
    return out


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("same_b", [False, True])
def test_product(shape: str, same_b: bool) -> None:
    s, rng, warps = SHAPES[shape], np.random.default_rng(7), 3
    t, acc = s.a.dtype.numpy().type, s.c.dtype
    a = rng.uniform(-1, 1, (warps, s.m, s.k)).astype(t)
    b = rng.uniform(-1, 1, (1 if same_b else warps, s.k, s.n)).astype(t)
    c = rng.uniform(-1, 1, (warps, s.m, s.n)).astype(acc.numpy())
    fa, fb, fc = (fragment(PTX[shape][x], m, m.shape[1] * m.shape[2] // 32) for x, m in (("a", a), ("b", b), ("c", c)))
    if t is not np.float64:
        fa, fb = fa.view(np.uint32), fb.view(np.uint32)
    elem = f64 if t is np.float64 else u32
    bufs = [glob(n, d, x.size) for n, d, x in (("a", elem, fa), ("b", elem, fb), ("c", acc, fc), ("d", acc, fc))]

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
    tol = 1e-14 if t is np.float64 else 3e-6
    assert np.abs(got - fragment(PTX[shape]["c"], want, fc.shape[2])).max() < tol
    assert rep.counts[f"mma.{shape}"] == warps


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix(count: int, trans: bool) -> None:
    pitch = 40  # conflict-free: rows 80 bytes apart
    data = np.arange(8 * count * pitch, dtype=np.float16)
    src, dst, tile = glob("src", f16, data.size), glob("dst", u32, 32 * count), shared("tile", f16, data.size)

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
    m = data.reshape(count, 8, pitch)[:, :, :8].view(np.uint16).astype(np.uint32)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for j in range(count):
            lo, hi = (m[j, 2 * t, g], m[j, 2 * t + 1, g]) if trans else (m[j, g, 2 * t], m[j, g, 2 * t + 1])
            assert got[lane, j] == lo | hi << 16
    ld = next(c for c in rep.conflicts if c.op.startswith("warp.ldmatrix"))
    assert (ld.degree, ld.extra) == (1, 0)
    assert rep.counts["ldmatrix"] == 1


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


def test_ldmatrix_wants_16_bit_elements() -> None:
    tile = shared("tile", f64, 64)
    f = kernel(lambda b, v: b.emit(w.LdMatrix((b.fresh("m", u32),), tile, v.lane * 0)) and None, (), (tile,))
    with pytest.raises(IRError, match="16-bit"):
        clean(f)

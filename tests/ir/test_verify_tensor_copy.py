"""What the verifier accepts of copies of boxes, and what it refuses with which words."""

from __future__ import annotations

import pytest

from sparsegen.ir.errors import IRError
from sparsegen.ir.node import Op, walk
from sparsegen.ir.parse import parse_op
from sparsegen.ir.tensor_copy import TensorMap, tensor_maps
from sparsegen.ir.verify import verify

HEAD = """warp.func "k", [@x: global f16[4096] align=16, @y: global f32[4096] align=16, @q: global f16[64] align=8,
  %n: s32[0,9]], [@a: shared f16[8192] align=1024, @b: shared f16[8192] align=128, @f: shared f32[64] align=256,
  @m: shared u64[2] align=8], [4, 1, 1], 64 {
  warp.if %tid == 0 {
"""
MAP = "TensorMap(rows=50, cols=70, pitch=80, box=[32, 64], swizzle=128)"


def func(text: str) -> Op:
    return parse_op(f"{HEAD}{text}\n}}\n}}")


GOOD = [
    f"warp.tensor_copy @a, 0, @x, 0, 0, @m, 0, {MAP}",
    f"warp.tensor_copy @a, %n * 512, @x, %n - 7, 104, @m, %n % 2, {MAP}",
    "warp.tensor_copy @b, 64, @x, -9, -8, @m, 1, TensorMap(rows=1, cols=1, pitch=8, box=[1, 256])",
    "warp.tensor_copy @f, 0, @y, 0, 0, @m, 1, TensorMap(rows=64, cols=64, pitch=64, box=[8, 8], swizzle=32)",
    "}\nwarp.if %lane < 2 {\n"
    "warp.tensor_copy @b, %lane * 64, @x, 0, 0, @m, 0, TensorMap(rows=9, cols=9, pitch=16, box=[8, 8])",
    "}\nwarp.if %warp < 2 {\n"
    "warp.tensor_copy @b, %lane * 64, @x, 0, 0, @m, 0, TensorMap(rows=9, cols=9, pitch=16, box=[8, 8])",
]


@pytest.mark.parametrize("text", GOOD)
def test_accepted(text: str) -> None:
    verify(func(text))


def copy(dst: str = "@a, 0", src: str = "@x", at: str = "0, 0", bar: str = "@m, 0", **changed: object) -> str:
    m = {"rows": 50, "cols": 70, "pitch": 80, "box": [32, 64], "swizzle": 128} | changed
    return f"warp.tensor_copy {dst}, {src}, {at}, {bar}, TensorMap({', '.join(f'{k}={v}' for k, v in m.items())})"


BAD = [
    (copy(dst="@x, 0"), "must be in shared memory"),
    (copy(src="@a"), "must be in global memory"),
    (copy(src="@y"), "copies f32 to f16"),
    (copy(src="@q", rows=1, cols=64, pitch=64), "@q: .* must be aligned to 16 bytes"),
    (copy(dst="@b, 0"), "aligned to less than the 1024 bytes .* swizzle of 128"),
    (copy(dst="@a, 64"), "dst_index 64 is byte 128, no multiple of 1024"),
    (copy(at="2147483647 + %n, 0"), "no 32-bit number"),
    (copy(at="0, 3"), "column 3 is byte 6, no multiple of 16"),
    (copy(bar="@a, 0"), "mbarriers are u64"),
    (copy(pitch=84), "70 x f16 are 84 apart, which are 168 bytes"),
    (copy(pitch=64), "70 x f16 are 64 apart"),
    (copy(rows=52), "52 rows 80 apart: outside @x"),
    (copy(rows=0), "a matrix of 0 x 70"),
    (copy(box=[257, 64]), "a box of 257 x 64 is not in 1..256"),
    (copy(box=[0, 64]), "a box of 0 x 64"),
    (copy(box=[8, 12], swizzle=0), "rows have 24 bytes, no multiple of 16"),
    (copy(swizzle=16), "swizzle 16 is unknown"),
    (copy(swizzle=64), "rows have 128 bytes, its swizzle 64"),
    (f"}}\nwarp.if %warp == 0 {{\n{copy()}", "all lanes of a warp would copy to one place"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD)
def test_refused(text: str, said: str) -> None:
    with pytest.raises(IRError, match=said):
        verify(func(text))


def test_the_maps_of_a_function() -> None:
    """Each once, in the order of first use."""
    found = tensor_maps(func("\n".join([copy(), copy(at="3, %n"), copy(box=[8, 64]), copy()])))
    assert [(buf.name, m.box) for buf, m in found] == [("x", (32, 64)), ("x", (8, 64))]
    assert found[0][1] == TensorMap(50, 70, 80, (32, 64), 128)
    assert not tensor_maps(func("warp.sync")) and len(list(walk(func("warp.sync")))) == 3

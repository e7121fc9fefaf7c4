"""What the verifier accepts of warpgroups' products, and what it refuses with which words."""

from __future__ import annotations

import pytest

from sparsegen.ir.errors import IRError
from sparsegen.ir.parse import parse_op
from sparsegen.ir.verify import verify

HEAD = """warp.func "k", [@o: global f32[8192] align=16, %n: s32[0,9]],
  [@a: shared f16[8192] align=1024, @b: shared f16[8192] align=1024, @h: shared bf16[8192] align=256], [4, 1, 1], 256 {
  warp.alloc @acc: reg f32[32] align=16
  warp.alloc @m: reg u32[1] align=4
"""
SPARSE = """warp.wgmma_sp @acc, @a, 0, @b, 0, 64, [64, 16, 512], [128, 4096, 1024], "k", "mn", @m"""
REGISTERS = """warp.alloc @r: reg u32[4] align=16\nwarp.wgmma_rs @acc, @r, @b, 1024, 64, [128, 8192, 1024], "mn\""""
TILES = '64, [128, 16, 1024], [128, 8192, 1024], "k", "mn"'
GROUP = "%g: s32[0,1] = warp.let %warp // 4\n"


def body(text: str, threads: int = 256) -> None:
    verify(parse_op(f"{HEAD.replace('256 {', f'{threads} {{')}{text}\n}}"))


GOOD = [
    f"warp.wgmma_fence\nwarp.wgmma @acc, @a, 16, @b, 1024, {TILES}\nwarp.wgmma_commit\nwarp.wgmma_wait 0",
    f"{GROUP}warp.wgmma @acc, @a, %g * 4096, @b, 0, {TILES}",
    f"warp.wgmma @acc, @a, %tid // 128 * 4096, @b, 0, {TILES}",
    f"{GROUP}%s: s32[0,1] = warp.shfl \"idx\", %g, 0\nwarp.wgmma @acc, @a, %s * 4096, @b, 0, {TILES}",
    f"%w: s32[0,7] = warp.shfl \"idx\", %warp, 0\nwarp.if %w < 4 {{\n warp.wgmma @acc, @a, %w // 4, @b, 0, {TILES}\n}}",
    f"warp.if %warp < 4 {{\n warp.wgmma @acc, @a, 0, @b, 0, {TILES}\n}} orelse {{\n warp.wgmma_wait 7\n}}",
    "warp.if 127 < %tid {\n warp.wgmma_commit\n}",
    "warp.if %n < 3 {\n warp.wgmma_fence\n}",
    f"warp.for %j: s32[0,3], 0, 4, 1 unroll=0 {{\n warp.wgmma @acc, @a, %j * 16, @b, %j * 1024, {TILES}\n}}",
    "warp.wgmma @acc, @a, 8, @b, 0, 64, [0, 128, 256], [32, 16, 256], \"k\", \"k\"",
    f"{SPARSE}, 0",
    f"{SPARSE}, 1",
    REGISTERS,
    f"{GROUP}{REGISTERS.replace('1024', '%g * 4096', 1).replace('@b', '@h').replace('128', '32')}",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_accepted(text: str) -> None:
    body(text)


BAD = [
    (f"warp.wgmma @acc, @a, 0, @b, 0, {TILES.replace('64', '60', 1)}", "60 columns are no multiple of 8"),
    (f"warp.wgmma @acc, @a, 0, @b, 0, {TILES.replace('64', '264', 1)}", "264 columns"),
    (f"warp.wgmma @acc, @a, 0, @b, 0, {TILES.replace('64', '128', 1)}", r"must be f32\[64\]"),
    (f"warp.wgmma @a, @a, 0, @b, 0, {TILES}", "@a: shared .* must be in reg memory"),
    (f"warp.wgmma @acc, @a, 0, @h, 0, {TILES}", "multiplies f16 by bf16"),
    (f"warp.wgmma @acc, @o, 0, @o, 0, {TILES}", "must be in shared memory"),
    ('warp.wgmma @acc, @h, 0, @h, 0, 64, [64, 16, 512], [0, 16, 16], "k", "k"', "declare align=512"),
    ('warp.wgmma @acc, @a, 0, @b, 0, 64, [16, 16, 512], [0, 16, 16], "k", "k"', "a_tile: swizzle 16 is unknown"),
    ('warp.wgmma @acc, @a, 0, @b, 0, 64, [0, 16, 16], [0, 24, 16], "k", "k"', "b_tile: offset 24 is no multiple"),
    ('warp.wgmma @acc, @a, 0, @b, 0, 64, [0, 16, 262144], [0, 16, 16], "k", "k"', "offset 262144 is no multiple"),
    ('warp.wgmma @acc, @a, 0, @b, 0, 64, [0, 16, 16], [0, 16, 16], "k", "n"', "b_major 'n' is unknown"),
    ('warp.alloc @few: reg f32[4] align=16\nwarp.wgmma @few, @a, 0, @b, 0, 8, [0, 16, 16], [32, 16, 256], "k", "mn"',
     "b: 8 columns of 16 bits do not fill rows of 32 bytes"),
    (f"warp.wgmma @acc, @a, 64, @b, 0, {TILES}", "a_index 64 is byte 128, but a tile starts .* first 128 of 1024"),
    (f"warp.wgmma @acc, @a, 4, @b, 0, {TILES}", "a_index 4 is byte 8, but a tile starts at a multiple of 16"),
    (f"warp.wgmma @acc, @a, 4608, @b, 0, {TILES}", "the tile from a_index 4608 reaches element 8[0-9]+: outside @a"),
    (f"warp.wgmma @acc, @a, 8192 + %n, @b, 0, {TILES}", "outside @a"),
    (f"warp.wgmma @acc, @a, %warp % 2 * 512, @b, 0, {TILES}", "different from warp to warp, but the warpgroup has one"),
    (f"warp.wgmma @acc, @a, 0, @b, %lane * 512, {TILES}", "b_index .* different from lane to lane"),
    (f"warp.if %warp < 2 {{\n warp.wgmma @acc, @a, 0, @b, 0, {TILES}\n}}", "all four warps of a warpgroup must reach"),
    ('%w: s32[0,7] = warp.shfl "xor", %warp, 0\nwarp.if %w < 4 {\n warp.wgmma_fence\n}', "different from lane to lane"),
    ("warp.if %tid < 96 {\n warp.wgmma_fence\n}", "different from warp to warp"),
    ("warp.if %tid // 64 == 0 {\n warp.wgmma_commit\n}", "different from warp to warp"),
    ("warp.if %tid // 128 == 0 {\n warp.barrier\n}", "different from warpgroup to warpgroup"),
    (f"warp.wgmma @acc, @a, 0, @b, 0, {TILES}\n%x: f32 = warp.ld @acc, 0\n%i: s32 = warp.cvt %x\n"
     "warp.if %i < 3 {\n warp.wgmma_fence\n}", "different from lane to lane"),
    (f"{SPARSE}, 2", "selector 2 is unknown"),
    (f"{SPARSE.replace('@m', '@acc')}, 0", r"@acc: reg f32\[32\] .* must be u32\[1\], a word of each lane"),
    (f"{SPARSE.replace('@m', '@o')}, 0", "@o: global .* must be in reg memory"),
    (f"warp.if %warp < 2 {{\n{SPARSE}, 0\n}}", "all four warps of a warpgroup must reach"),
    (f'{SPARSE}, 0'.replace('[128, 4096, 1024], "k", "mn"', '[32, 16, 256], "k", "k"'),
     "b: 32 k of 16 bits do not fit rows of 32 bytes"),
    (f"{SPARSE}, 0".replace("@b, 0", "@b, 6656"), "the tile from b_index 6656 reaches element 8[0-9]+: outside @b"),
    (REGISTERS.replace("@r, @b", "@m, @b"), r"@m: reg u32\[1\] .* must be u32\[4\], 8 elements of each lane"),
    (REGISTERS.replace("@r, @b", "@o, @b"), "@o: global .* must be in reg memory"),
    (REGISTERS.replace("@r, @b", "@r, @r"), "@r: reg .* must be in shared memory"),
    (REGISTERS.replace("64", "60"), "60 columns are no multiple of 8"),
    (REGISTERS.replace("64", "32"), r"must be f32\[16\], of 32 columns"),
    (REGISTERS.replace("1024", "64", 1), "b_index 64 is byte 128, but a tile starts .* first 128 of 1024"),
    (REGISTERS.replace("1024", "%warp * 1024", 1), "different from warp to warp, but the warpgroup has one"),
    (f"warp.if %warp < 2 {{\n{REGISTERS}\n}}", "all four warps of a warpgroup must reach"),
    (f"{REGISTERS}\n%x: f32 = warp.ld @acc, 0\n%i: s32 = warp.cvt %x\nwarp.if %i < 3 {{\n warp.wgmma_fence\n}}",
     "different from lane to lane"),
    ("warp.wgmma_wait 8", "pending 8 is not in 0..7"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD)
def test_refused(text: str, said: str) -> None:
    with pytest.raises(IRError, match=said):
        body(text)


def test_blocks_are_of_warpgroups() -> None:
    body("warp.wgmma_fence", 384)
    with pytest.raises(IRError, match="full warpgroups, but a block has 160 threads"):
        body("warp.wgmma_fence", 160)

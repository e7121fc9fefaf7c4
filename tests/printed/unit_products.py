"""Warp programs of products on tensor cores, for :mod:`tests.printed.units`."""

from __future__ import annotations

from sparsegen.ir import warp as w
from sparsegen.ir.fragments import SHAPES, SPARSE, signature
from sparsegen.ir.swizzle import k_major, mn_major
from sparsegen.ir.types import Buffer, DType, bf16, f16, f32, f64, s32, u8, u16, u32
from tests.cuda_print.programs import THREADS, Kernel


def _tile(k: Kernel, t: DType) -> tuple[Buffer, Buffer]:
    """An array and a shared tile of its first elements, which products of warpgroups see."""
    src, tile = k.array(f"in_{t}", t), k.array(f"tile_{t}", t, 8192, "shared", 1024)
    with k.b.for_("i", k.at["tid"], 8192, THREADS) as i:
        k.b.st(tile, i, k.b.ld(src, i))
    k.b.fence("async")
    k.b.barrier()
    return src, tile


def _ones(k: Kernel, name: str, size: int) -> Buffer:
    """So many sums that begin as 1."""
    acc = k.b.alloc(name, f32, size)
    for i in range(size):
        k.b.st(acc, i, k.b.const(f32, 1.0))
    return acc


def products() -> w.Func:
    """Every mma."""
    k = Kernel("products")
    b, tid = k.b, k.at["tid"]
    src = {t.name: k.array(f"in_{t}", t) for t in (f64, f32, s32, u32)}
    for shape in SHAPES:
        sig = signature(shape)
        firsts = ((sig.a, 0), (sig.b, 1000), (sig.c, 2000))
        a, x, c = ([b.ld(src[t.name], first + tid * 7 + i) for i in range(n)] for (t, n), first in firsts)
        k.sink(*b.mma(shape, a, x, c))
    return k.func()


def matrices() -> w.Func:
    """``ldmatrix`` of rows in an order of their own, as they lie and transposed."""
    k = Kernel("matrices")
    b, lane = k.b, k.at["lane"]
    for t in (u16, u8):
        per = 16 // t.nbytes  # elements of a row
        tile, src = k.array(f"tile_{t}", t, 256 * per, "shared", 128), k.array(f"in_{t}", t)
        for i in range(2 * per):
            b.st(tile, i * THREADS + k.at["tid"], b.ld(src, i * THREADS + k.at["tid"]))
        b.barrier()
        for n in (1, 2, 4):
            for trans in (False, True):
                out = tuple(b.fresh("m", u32) for _ in range(n))
                b.emit(w.LdMatrix(out, tile, (lane * 5 % 32) * per + k.at["warp"] * 32 * per, trans))
                k.sink(*out)
    return k.func()


def warpgroups() -> w.Func:
    """Products of tiles that lie in several ways, in two groups; the first is waited for before the second.

    Then those of an a in registers."""
    k = Kernel("warpgroups")
    b, tid = k.b, k.at["tid"]
    for t in (f16, bf16):
        src, tile = _tile(k, t)
        for cols, turned in ((8, (0, 512, 1024)), (64, mn_major(128, 16))):
            first, second = (_ones(k, f"sums{n}_{cols}_{t}", cols // 2) for n in (1, 2))
            b.wgmma_fence()
            for acc, a, n in ((first, (k_major(128), "k"), 16), (second, (mn_major(64, 32), "mn"), 1024)):
                b.wgmma(acc, tile, n, tile, 4096, cols=cols, a_tile=a[0], a_major=a[1], b_tile=turned, b_major="mn")
                b.wgmma(acc, tile, n, tile, 4096 + 16, cols=cols, a_tile=a[0], a_major=a[1], b_tile=k_major(64),
                        b_major="k")  # fmt: skip
                b.wgmma_commit()
            for pending, acc in ((1, first), (0, second)):
                b.wgmma_wait(pending)
                k.sink(*(b.ld(acc, i) for i in range(cols // 2)))
            fed, a = _ones(k, f"sums_{cols}_{t}", cols // 2), b.alloc(f"a_{cols}_{t}", u32, 4)
            for i in range(4):
                b.st(a, i, b.pack(b.ld(src, tid + 200 * i), b.ld(src, tid + 200 * i + 100)))
            b.wgmma_fence()
            b.wgmma_rs(fed, a, tile, 4096, cols=cols, b_tile=turned, b_major="mn")
            b.wgmma_rs(fed, a, tile, 4096 + 16, cols=cols, b_tile=k_major(64), b_major="k")
            b.wgmma_commit()
            b.wgmma_wait(0)
            k.sink(*(b.ld(fed, i) for i in range(cols // 2)))
    return k.func()


def sparse() -> w.Func:
    """Products of an a that keeps 2 of 4, of which each lane says other places, by both selectors."""
    k = Kernel("sparse")
    b, tid = k.b, k.at["tid"]
    words = k.array("in_words", u32)
    word = b.binary("or", b.binary("and", b.ld(words, tid), 0), 0x4E8C9D4E)
    code = b.funnel(word, word, tid % 8 * 4)
    meta = b.alloc("meta", u32, 1)
    b.st(meta, 0, code)
    start = k.array("in_sums", f32)
    sums = [b.ld(start, tid + i) for i in range(4)]
    for shape in SPARSE:
        a, x = ([b.ld(words, first + tid * 7 + i) for i in range(4)] for first in (0, 1000))
        k.sink(*(d for selector in (0, 1) for d in b.mma_sp(shape, a, x, sums, code, selector)))
    for t in (f16, bf16):
        _, tile = _tile(k, t)
        for cols, turned in ((8, (0, 512, 1024)), (64, mn_major(128, 32))):
            acc = _ones(k, f"sums_{cols}_{t}", cols // 2)
            b.wgmma_fence()
            for selector, b_tile, b_major in ((0, turned, "mn"), (1, k_major(128), "k")):
                b.wgmma_sp(acc, tile, 16, tile, 4096, meta, cols=cols, a_tile=k_major(128), a_major="k", b_tile=b_tile,
                           b_major=b_major, selector=selector)  # fmt: skip
            b.wgmma_commit()
            b.wgmma_wait(0)
            k.sink(*(b.ld(acc, i) for i in range(cols // 2)))
    return k.func()

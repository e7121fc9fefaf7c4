"""One warp, one mma: operands loaded, and the result stored, by the tables of :mod:`sparsegen.ir.fragments`.

If a table is wrong, the product is: on the GPU the hardware is the judge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegen.ir import metadata
from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Expr
from sparsegen.ir.fragments import SPARSE, Fragment, named
from sparsegen.ir.types import Buffer, f64, u32

from .case import Case


def build(shape: str, selector: int = 0) -> w.Func:
    """The kernel ``d = a @ b + c`` of one shape; b is column-major, the others row-major, elements packed in words.

    Of a sparse a there are the elements that it keeps, and a word of each lane, whose codes of ``selector`` count.
    """
    s = named(shape)
    fragments = {"a": s.a, "b": s.b, "c": s.c, "d": s.c}
    params = {n: Buffer(n, f.reg, f.rows * f.cols // f.packed, "global") for n, f in fragments.items()}
    if shape in SPARSE:
        params["meta"] = Buffer("meta", u32, 32, "global")
    shell = w.Func("one_" + shape.replace(".", "_"), tuple(params.values()), (), (1, 1, 1), 32, ())
    lane = shell.builtins()["lane"]
    bld = Builder()
    bld.reserve(*shell.builtins(), *params)
    g, t = bld.let("g", lane // 4), bld.let("t", lane % 4)

    def places(n: str) -> list[Expr]:
        """Where each register of a lane lies in memory: the formula of its first element, with expressions put in."""
        f, out = fragments[n], []
        for place in f.elements[:: f.packed]:
            row, col = _symbolic(place)(g, t)
            out.append((col * f.rows + row if n == "b" else row * f.cols + col) // f.packed)
        return out

    a, b, c = ([bld.ld(params[n], at, hint=n) for at in places(n)] for n in "abc")
    if shape in SPARSE:
        made = bld.mma_sp(shape, a, b, c, bld.ld(params["meta"], lane), selector)
    else:
        made = bld.mma(shape, a, b, c)
    for at, v in zip(places("d"), made, strict=True):
        bld.st(params["d"], at, v)
    return w.Func(shell.symbol, shell.params, (), shell.grid, shell.threads, bld.ops())


def _symbolic(place: Any) -> Any:
    """A formula of a table takes integers; being affine, it takes integer expressions as well."""
    return place


def words(m: Any, f: Fragment) -> Any:
    """The matrix in memory: elements that share a register side by side in a word, the first in the low bits."""
    if f.packed == 1:
        return m.astype(f.reg.numpy())
    if f.dtype.kind == "float":
        return m.astype(f.dtype.numpy()).view(f.reg.numpy())
    parts = m.astype("i8").reshape(*m.shape[:-1], -1, f.packed) & ((1 << f.dtype.bits) - 1)
    return (parts << (f.dtype.bits * np.arange(f.packed))).sum(-1).astype(f.reg.numpy())


def case(shape: str, seed: int = 0) -> Case:
    """Random matrices: reals for f64 (within 1e-14), else integers whose products and sums are exact.

    Of integer types they are of the whole range: two rows of a and two columns of b hold only the lowest and only the
    highest value, and c the end of its range that their sums pass.
    """
    s, selector = named(shape), seed % 2
    rng = np.random.default_rng(seed)

    def random(f: Fragment) -> Any:
        if s.a.dtype is f64:
            return rng.standard_normal((f.rows, f.cols))
        low, high = (-16, 16) if f.dtype.kind == "float" else f.dtype.range
        return rng.integers(low, high + 1, (f.rows, f.cols))

    a, b, c = random(s.a), random(s.b), random(s.c)
    if s.c.dtype.is_int:
        a[:2], b[:, :2] = np.array([s.a.dtype.range]).T, s.b.dtype.range
        c[:2, :2] = np.where(a[:2] @ b[:, :2] < 0, *s.c.dtype.range)
    args = {"a": words(a, s.a), "b": words(np.ascontiguousarray(b.T), s.b), "c": words(c, s.c)}
    if shape in SPARSE:
        codes = rng.choice((0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110), (1, 16, 16))
        args["meta"] = metadata.words(codes).astype("u4").reshape(-1)
        a = metadata.dense(a, codes[0, :, 8 * selector :][:, :8])
    args["d"] = np.full_like(args["c"], -1)
    want = (a @ b + c).astype("i4") if s.c.dtype.is_int else a.astype("f8") @ b.astype("f8") + c  # mod 2^32
    return Case(build(shape, selector), args, {"d": want}, 1e-14 if s.a.dtype is f64 else 0.0, ("d",))

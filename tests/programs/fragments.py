"""One warp, one mma: operands loaded, and the result stored, by the tables of :mod:`sparsegen.ir.fragments`.

If a table is wrong, the product is: on the GPU the hardware is the judge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Expr
from sparsegen.ir.fragments import SHAPES, Fragment
from sparsegen.ir.types import Buffer, f64

from .case import Case


def build(shape: str) -> w.Func:
    """The kernel ``d = a @ b + c`` of one shape; b is column-major, the others row-major, elements packed in words."""
    s = SHAPES[shape]
    fragments = {"a": s.a, "b": s.b, "c": s.c, "d": s.c}
    params = {n: Buffer(n, f.reg, f.rows * f.cols // f.packed, "global") for n, f in fragments.items()}
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
    for at, v in zip(places("d"), bld.mma(shape, a, b, c), strict=True):
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
    """Random matrices: reals for f64 (within 1e-14), else small integers, whose products and sums are exact."""
    s = SHAPES[shape]
    rng = np.random.default_rng(seed)

    def random(f: Fragment) -> Any:
        if s.a.dtype is f64:
            return rng.standard_normal((f.rows, f.cols))
        low, high = (-16, 16) if f.dtype.kind == "float" else f.dtype.range
        return rng.integers(max(low, -1000), min(high, 1000) + 1, (f.rows, f.cols))

    a, b, c = random(s.a), random(s.b), random(s.c)
    args = {"a": words(a, s.a), "b": words(np.ascontiguousarray(b.T), s.b), "c": words(c, s.c)}
    args["d"] = np.full_like(args["c"], -1)
    want = a.astype("f8") @ b.astype("f8") + c
    return Case(build(shape), args, {"d": want}, 1e-14 if s.a.dtype is f64 else 0.0, ("d",))

"""One warp, one mma: operands loaded, and the result stored, by the tables of :mod:`sparsegen.ir.fragments`.

If a table is wrong, the product is: on the GPU the hardware is the judge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Expr, Value
from sparsegen.ir.fragments import SHAPES, Fragment
from sparsegen.ir.types import Buffer, f64

from .case import Case


def build(shape: str) -> w.Func:
    """The kernel ``d = a @ b + c`` of one shape; all matrices are row-major."""
    s = SHAPES[shape]
    fragments = {"a": s.a, "b": s.b, "c": s.c, "d": s.c}
    params = {n: Buffer(n, f.dtype, f.rows * f.cols, "global") for n, f in fragments.items()}
    shell = w.Func("mma_" + shape.replace(".", "_"), tuple(params.values()), (), (1, 1, 1), 32, ())
    lane = shell.builtins()["lane"]
    bld = Builder()
    bld.reserve(*shell.builtins(), *params)
    g, t = bld.let("g", lane // 4), bld.let("t", lane % 4)

    def places(f: Fragment) -> list[Expr]:
        """Where each element of a lane lies in memory: the table's formulas, with expressions put in."""
        out = []
        for place in f.elements:
            row, col = _symbolic(place)(g, t)
            out.append(row * f.cols + col)
        return out

    def load(n: str) -> list[Value]:
        f = fragments[n]
        elements = [bld.ld(params[n], at, hint=n) for at in places(f)]
        if f.packed == 1:
            return elements
        assert f.packed == 2
        words = []
        for low, high in zip(elements[::2], elements[1::2], strict=True):
            words.append(bld.fresh(n, f.reg))
            bld.emit(w.Pack((words[-1],), low, high))
        return words

    for at, v in zip(places(s.c), bld.mma(shape, load("a"), load("b"), load("c")), strict=True):
        bld.st(params["d"], at, v)
    return w.Func(shell.symbol, shell.params, (), shell.grid, shell.threads, bld.ops())


def _symbolic(place: Any) -> Any:
    """A formula of a table takes integers; being affine, it takes integer expressions as well."""
    return place


def case(shape: str, seed: int = 0) -> Case:
    """Random matrices: reals for f64 (within 1e-14), small integers for f16, whose products and sums are exact."""
    s = SHAPES[shape]
    rng = np.random.default_rng(seed)

    def random(f: Fragment) -> Any:
        if s.a.dtype is f64:
            return rng.standard_normal((f.rows, f.cols))
        return rng.integers(-16, 17, (f.rows, f.cols)).astype(f.dtype.numpy())

    args = {"a": random(s.a), "b": random(s.b), "c": random(s.c)}
    want = args["a"].astype("f8") @ args["b"].astype("f8") + args["c"].astype("f8")
    args["d"] = np.full_like(args["c"], np.nan)
    return Case(build(shape), args, {"d": want}, 1e-14 if s.a.dtype is f64 else 0.0, ("d",))

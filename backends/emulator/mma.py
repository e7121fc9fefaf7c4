"""Matrix multiply-accumulate by the fragment tables of :mod:`sparsegen.ir.fragments`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.fragments import Fragment, named
from sparsegen.ir.metadata import codes, dense, places, wrong
from sparsegen.ir.types import DType, u32
from sparsegen.ir.warp_matrix import MmaSp

from .scalars import Step
from .values import from_bits, load, operand, wrap

if TYPE_CHECKING:
    from .compile import Scope
    from .group import Group
    from .memory import OpInfo


@cache
def gather(shape: str, which: str) -> Any:
    """For each element of a matrix, row by row: 32 * (element of the lane) + lane; None if that is 0, 1, 2, ..."""
    f: Fragment = getattr(named(shape), which)
    rows, cols = f.table()
    src = np.full(f.rows * f.cols, -1, dtype=np.intp)
    src[(rows * f.cols + cols).reshape(-1)] = np.arange(rows.size)
    assert (src >= 0).all(), f"the {which} fragment of {shape} does not cover its matrix"
    return None if (src == np.arange(src.size)).all() else src


def elements(f: Fragment, regs: list[Any]) -> list[Any]:
    """The lane's elements, unpacked from its registers, in the type in which the product is computed."""
    if f.packed == 1:
        return [_wide(r, f.dtype) for r in regs]
    out = []
    mask = (1 << f.dtype.bits) - 1
    for r in regs:
        for k in range(f.packed):
            part = (r >> (k * f.dtype.bits)) & mask
            if f.dtype.kind == "float":
                out.append(_wide(from_bits(part, f.dtype), f.dtype))
            else:
                half = 1 << (f.dtype.bits - 1)
                out.append(_wide((part ^ half) - half if f.dtype.kind == "int" else part, f.dtype))
    return out


def _wide(x: Any, d: DType) -> Any:
    if d.name == "tf32":  # the tensor core ignores the low 13 bits
        raw = np.ascontiguousarray(np.asarray(x, dtype=np.float32))
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.asarray(x).astype(np.float64 if d.is_int or d.name == "f64" else np.float32, copy=False)


def matrix(f: Fragment, src: Any, regs: list[Any]) -> Any:
    """The matrix (one a warp, or a single one if all warps hold the same) that a fragment's registers are."""
    elems = elements(f, regs)
    n = max(e.shape[0] if e.ndim == 2 else 1 for e in elems)
    if len(elems) == 1:
        flat = np.broadcast_to(elems[0], (n, 32))
    else:
        flat = np.empty((n, 32 * len(elems)), dtype=elems[0].dtype)
        for k, e in enumerate(elems):
            flat[:, 32 * k : 32 * k + 32] = e
    return (flat if src is None else flat.take(src, axis=1)).reshape(n, f.rows, f.cols)


def found_codes(g: Group, words: Any, selector: int, info: OpInfo) -> Any:
    """The codes ``[n, 16, 8]`` that the lanes of warps give by their words ``[n, 32]``; each must name two places."""
    found = codes(words, selector)
    row = np.arange(found.shape[1])[:, None]
    g.m.find("bounds", info, lambda f: f"the metadata of row {f(row)} of a warp has the code {f(found):04b}, "
             "which names no two of four k", "give each four two places, the lower one first",
             bad=wrong(found), row=g.rows[:, None, None])  # fmt: skip
    return found


def multiplied(a: Any, b: Any, kept: Any) -> Any:
    """``[n, rows, columns]``: a ``[n, rows, 16]`` with its codes times b ``[n, 32, columns]``, as far as a is kept.

    What is not kept is not multiplied, so a NaN of b there reaches nothing.
    """
    if np.isfinite(b).all():
        return np.matmul(dense(a, kept), b)
    taken = np.take_along_axis(b.transpose(0, 2, 1)[:, None], places(kept)[:, :, None], -1)
    return np.einsum("nrk,nrck->nrc", a, taken)


def codes_told(op: MmaSp, sc: Scope, info: OpInfo) -> Callable[[Group], Any]:
    """What the lanes of each warp say that a keeps: codes ``[n, 16, 8]``."""
    meta = operand(op.meta, u32, sc.slots)
    return lambda g: found_codes(g, np.broadcast_to(np.asarray(meta(g.env)), (g.n, 32)), op.selector, info)


def step(op: w.Mma, sc: Scope) -> Step:
    """The closure of a ``warp.mma``."""
    s, info = named(op.shape), sc.info(op)
    fa, fb, fc = ([operand(x, f.reg, sc.slots) for x in xs] for f, xs in ((s.a, op.a), (s.b, op.b), (s.c, op.c)))
    ga, gb = gather(op.shape, "a"), gather(op.shape, "b")
    rows, cols = s.c.table()
    at = rows * s.c.cols + cols
    slots = [sc.define(v) for v in op.out]
    dtype = s.c.dtype
    is_int = dtype.is_int

    told = codes_told(op, sc, info) if isinstance(op, MmaSp) else None

    def mma(g: Group) -> None:
        g.m.collective(g, info)
        e = g.env
        a, b = matrix(s.a, ga, [f(e) for f in fa]), matrix(s.b, gb, [f(e) for f in fb])
        d = np.matmul(a, b) if told is None else multiplied(a, b, told(g))
        flat = d.reshape(len(d), -1)
        c = [f(e) for f in fc]
        for k, slot in enumerate(slots):
            part = flat.take(at[k], axis=1)
            e[slot] = wrap(load(part.astype(np.int64), dtype) + c[k], dtype) if is_int else part + c[k]

    return mma

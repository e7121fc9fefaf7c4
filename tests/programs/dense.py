"""The walk of warpgroups by itself, as a dense product: W's tiles and x's rows come by bulk copies alone."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from sparsegen.ir import tile as t
from sparsegen.ir import tile_groups as tw
from sparsegen.ir import warp as w
from sparsegen.ir.expr import Value
from sparsegen.ir.module import Module
from sparsegen.ir.numbers.groups import ALIGN, ROWS, STEP, bars, threads
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.swizzle import swizzled
from sparsegen.ir.types import Buffer, f16, f32, s32, u64

from .case import Case


def tiles(m: int, k: int, n: int, cols: int, order: str, blocks: int, groups: int = 1, stages: int = 2) -> Module:
    """``y = W x`` for x [k, n] by rows or by columns; W's tiles lie in memory as in shared memory."""
    row_tiles, col_tiles, steps = -(-m // (ROWS * groups)), -(-n // cols), -(-k // STEP)
    size = groups * ROWS * STEP
    weights = Buffer("weights", f16, row_tiles * steps * size, "global")
    x, y = Buffer("x", f16, k * n, "global"), Buffer("y", f16, m * n, "global")
    ring = Buffer("w_ring", f16, stages * size, "shared", ALIGN)
    x_ring = Buffer("x_ring", f16, stages * STEP * cols, "shared", ALIGN)
    full = Buffer("bars", u64, bars(stages, lists=False), "shared", 8)
    acc = Buffer("acc", f32, cols // 2, "reg")
    tops = {"tile": row_tiles, "column": n, "step": steps, "slot": stages, "list": 2}
    at: dict[str, Value] = {name: Value(name, s32, 0, top - 1) for name, top in tops.items()}
    tile, column, step, slot = (at[name] for name in ("tile", "column", "step", "slot"))
    copy = tw.CopyTile(dst=ring, src=weights, bars=full, slot=slot, tile=tile, step=step, steps=steps, size=size)
    rows = tw.CopyRows(dst=x_ring, src=x, bars=full, slot=slot, column=column, step=step, cols=cols, k=k, n=n,
                       order=order)  # fmt: skip
    multiply = tw.MultiplyGroup(acc=acc, a=ring, b=x_ring, slot=slot, cols=cols, groups=groups, order=order)
    store = tw.StoreTile(
        out=y, acc=acc, scale=None, bias=None, residual=None, row=tile * (64 * groups), column=column, m=m, n=n,
        warps=(4 * groups, 1), vec=8 if n % 8 == 0 and cols % 32 == 0 else 1, order="row", activation="none",
    )  # fmt: skip
    body = tw.WalkGroups(
        shared=(ring, x_ring, full), registers=(acc,), **at, acc=acc, bars=full, groups=groups, row_tiles=row_tiles,
        col_tiles=col_tiles, cols=cols, steps=steps, stages=stages, blocks=blocks, fastest="rows", ahead=(), look=(),
        fill=(copy, rows), body=(multiply,), done=(store,),
    )  # fmt: skip
    func = t.Func(symbol="dense", params=(weights, x, y), blocks=blocks, threads=threads(groups), body=(body,))
    return Module("dense", (func,))


def lowered(module: Module) -> w.Func:
    """Its one function, at the warp level."""
    for step_down in (ToWarp(), Simplify(), Dce()):
        module = step_down.run(module)
    (made,) = module.funcs
    assert isinstance(made, w.Func)
    return made


def packed(weights: Any, groups: int) -> Any:
    """W [m, k] as the kernel reads it: of each tile and step ``groups`` x 64 rows, swizzled; zeros beyond W."""
    m, k = weights.shape
    row_tiles, steps = -(-m // (ROWS * groups)), -(-k // STEP)
    whole = np.zeros((row_tiles * groups * ROWS, steps * STEP), np.float16)
    whole[:m, :k] = weights
    (places,) = swizzled(ROWS, 2 * STEP, 2 * STEP).tables()
    out = np.zeros((row_tiles, steps, groups, ROWS * STEP), np.float16)
    out[..., places] = whole.reshape(row_tiles, groups, ROWS, steps, STEP).transpose(0, 3, 1, 2, 4)
    return out


def case(m: int, k: int, n: int, cols: int, order: str, blocks: int, groups: int = 1, seed: int = 0) -> Case:
    """The kernel with small integers, whose sums are exact."""
    rng = np.random.default_rng(seed)
    weights, x = rng.integers(-3, 4, (m, k)), rng.integers(-3, 4, (k, n))
    given = x.astype(np.float16) if order == "row" else x.T.astype(np.float16)
    want = (weights @ x).astype(np.float16)
    args: dict[str, Any] = {"weights": packed(weights, groups), "x": given, "y": np.full_like(want, np.nan)}
    return Case(lowered(tiles(m, k, n, cols, order, blocks, groups)), args, {"y": want}, 0.0, ("y",))


#: x by rows, where blocks are of 16, 32 and 64 columns, and by columns; sizes that fill no tile.
PROGRAMS: Final = {
    f"{order}_{cols}": partial(case, m, k, n, cols, order, 2, groups)
    for order in ("row", "column")
    for m, k, n, cols, groups in ((100, 200, 40, 32, 1), (64, 72, 24, 16, 1), (200, 136, 200, 128, 2))
}

"""The end of a product: sums of the slab warps through shared memory, those of splits through L2, epilogue, stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from sparsegen.cost.counts.requests import Mask, sectors, wavefronts
from sparsegen.ir.op_spmm import STRIP
from sparsegen.products.counts.base import Call, Ints

#: Instructions of an activation, by name.
ACTIVATION: Mapping[str | None, Mapping[str, int]] = {
    None: {},
    "relu": {"compare.f32": 1, "select.f32": 1},
    "gelu": {"mul.f32": 5, "add.f32": 1, "tanh.f32": 1, "fma.f32": 1},
    "silu": {"neg.f32": 1, "exp.f32": 1, "add.f32": 1, "div.f32": 1},
}


def ends(c: Call) -> Counter[str]:
    """All that warps do after their last turn."""
    out = _leave(c)
    out["barrier"] += (4 if c.s.splits > 1 else 2) * c.warps
    for count in np.unique(c.shares.count).tolist():
        runs = np.nonzero(c.shares.count == count)[0]
        _items(c, count, c.shares.first[runs], out)
    if c.s.splits > 1:
        n = c.g.blocks
        out.update({
            "fence": 2 * n, "atom": n, "bytes.global.atomic": 4 * n, "st.shared": n, "bytes.shared.write": 4 * n,
            "ld.shared": c.warps, "bytes.shared.read": 128 * c.warps, "wavefronts.shared": n + c.warps,
        })  # fmt: skip
    return out


def _leave(c: Call) -> Counter[str]:
    """Every warp's sums into shared memory, those of strips that it has not included."""
    stores = c.warps * c.s.rows * c.blocks
    out = Counter({"st.shared": stores})
    if c.one:  # four lanes have parts of a row, one of them stores
        out.update({"shfl": 4 * stores, "add.f32": 4 * stores, "bytes.shared.write": 64 * stores})
        out["wavefronts.shared"] = 2 * stores
    else:
        out.update({"bytes.shared.write": 512 * stores, "wavefronts.shared": 4 * stores})
    return out


def _items(c: Call, count: int, first: Ints, out: Counter[str]) -> None:
    """The items of blocks that have ``count`` strips, from each of ``first`` on."""
    row_warps, slab_warps = c.s.warps
    per, words = (8, 2) if c.one else (32 * c.blocks, 4)
    items, threads = row_warps * c.s.rows * per, c.s.threads
    item = np.arange(-(-items // threads) * threads).reshape(-1, 32)
    warp, strip = item // (c.s.rows * per), item // per % c.s.rows
    before = warp * count // row_warps
    on = (item < items) & (strip < (warp + 1) * count // row_warps - before)
    busy = on.any(axis=1)
    item, strip, on = item[busy], (before + strip)[busy], on[busy]
    runs = len(first) * c.g.tiles
    blocks, turns, lanes = runs * c.s.splits, len(item), int(on.sum())
    taken, least = (int(x.sum()) for x in wavefronts(item * (4 * words), 4 * words, on))
    moved = int(sectors(item * (4 * words), 4 * words, on).sum())
    out.update({
        "ld.shared": blocks * slab_warps * turns,
        "bytes.shared.read": blocks * slab_warps * lanes * 4 * words,
        "wavefronts.shared": blocks * slab_warps * taken,
        "conflicts.shared": blocks * slab_warps * (taken - least),
        "add.f32": blocks * (slab_warps - 1) * words * turns,
    })  # fmt: skip
    if c.s.splits > 1:
        out.update({
            "st.global": blocks * turns,
            "bytes.global.write": blocks * lanes * 4 * words,
            "sectors.global.write": blocks * moved,
            "ld.global": blocks * turns,  # the last block of a run reads those of all its splits
            "bytes.global.read": blocks * lanes * 4 * words,
            "sectors.global.read": blocks * moved,
            "add.f32": blocks * words * turns,
        })  # fmt: skip
    inner = item % per
    row = (first[:, None, None] + strip) * STRIP + (inner if c.one else inner % 32 // 4)
    col = np.zeros_like(item) if c.one else inner % 4 * (2 * c.blocks) + inner // 32
    for column in range(0, c.g.tiles * c.s.cols, c.s.cols):
        for half in (0, 8):
            _store(c, (row + half).reshape(-1, 32), np.tile(column + col, (len(first), 1)), on, out)


def _store(c: Call, row: Ints, col: Ints, on: Mask, out: Counter[str]) -> None:
    """The elements of ``row`` that are in y, with their epilogue; a lane has one column of each block, or the only."""
    p, e = c.p, c.epilogue
    on = np.tile(on, (len(row) // len(on), 1)) & (row < p.m)
    vectors = e.bias + e.scale
    found = int(on.any(axis=1).sum())
    out["ld.global"] += vectors * found
    out["bytes.global.read"] += vectors * int(on.sum()) * 2
    out["sectors.global.read"] += vectors * int(sectors(2 * row, 2, on).sum())
    out[f"cvt.f32.{p.dtype}"] += vectors * found
    for block in range(1 if c.one else 2):
        at_col = col + block * c.blocks
        here = on & (at_col < p.n)
        at = row * p.n + at_col if c.orders.y == "row" else at_col * p.m + row
        stores, moved = int(here.any(axis=1).sum()), int(sectors(2 * at, 2, here).sum())
        for name, n in ACTIVATION[e.activation].items():
            out[name] += n * stores
        out.update({
            "mul.f32": e.scale * stores, "add.f32": (e.bias + e.residual) * stores, "st.global": stores,
            "bytes.global.write": int(here.sum()) * 2, "sectors.global.write": moved,
            f"cvt.{p.dtype}.f32": stores, f"cvt.f32.{p.dtype}": e.residual * stores, "ld.global": e.residual * stores,
            "bytes.global.read": e.residual * int(here.sum()) * 2, "sectors.global.read": e.residual * moved,
        })  # fmt: skip


__all__ = ["ends"]

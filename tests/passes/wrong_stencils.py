"""What is wrong about each tile op of stencils: see ``wrong_fields``."""

from __future__ import annotations

from typing import Any

from sparsegen.ir import tile as t
from sparsegen.ir import tile_levels as tl
from sparsegen.ir import tile_products as p
from sparsegen.ir import tile_slab as tsl
from sparsegen.ir import tile_walk as tw
from sparsegen.ir.expr import as_expr
from sparsegen.ir.grid import Grid
from sparsegen.ir.layout import layout
from sparsegen.ir.node import Op
from sparsegen.ir.spread import Products, Threads
from sparsegen.ir.types import Buffer, f64

PERIODIC = ((("periodic", 0.0),) * 2,) * 2

WRONG: list[tuple[str, type[Op], dict[str, Any], str]] = [
    ("tiled", t.Func, {"threads": 2048}, "2048 threads; a block has"),
    ("tiled", t.Func, {"blocks": 0}, "0 blocks"),
    ("tiled", t.Alloc, {"slots": 3}, "3 slots of the layout take"),
    ("explicit", t.Slots, {"count": 7}, "no 7 tiles of one size"),
    ("tiled", t.ForTiles, {"size": (8,)}, "box of 2 axes"),
    ("tiled", t.ForTiles, {"size": (1, 1)}, "there are 8192 tiles"),
    ("tiled", t.Prefetch, {"distance": -1}, "a distance of -1 turns"),
    ("tiled", t.Wait, {"pending": -1}, "-1 groups"),
    ("tiled", t.Meet, {"scope": "grid"}, "scope 'grid' is unknown"),
    ("tiled", t.Copy, {"mode": "bulk"}, "mode 'bulk' is unknown"),
    ("tiled", t.Copy, {"rows": 9}, "where it goes is a layout over"),
    ("tiled", t.Copy, {"vector": 7}, "pieces of 7"),
    ("tiled", t.Copy, {"grid": Grid((64, 128), 100, PERIODIC)}, "cannot stand 100 apart"),
    ("tiled", t.Copy, {"grid": Grid((90, 128), 128, PERIODIC)}, r"a field of \[90, 128\] takes"),
    ("stencil2row", t.Zero, {"degree": 0}, "a bank-conflict degree of 0"),
    ("stencil2row", t.Fragments, {"first": 1}, "registers of 32 lanes end at"),
    ("stencil2row", t.Product, {"depth": 10}, "no whole number of slices of 4"),
    ("stencil2row", t.Product, {"depth": 16}, "an operand is a layout over"),
    ("stencil2row", t.Product, {"shape": "f64.m16n8k4"}, "has other rows than"),
    ("stencil2row", t.Product, {"shape": "f64.m9n9k9"}, "mma shape 'f64.m9n9k9' is unknown"),
    ("stencil2row", t.Product, {"first": 4}, "registers, but"),
    ("stencil2row", t.Store, {"spread": Products("f64.m8n8k4", 8, 8, 9, 4, 2)}, "registers, but"),
    ("tiled", t.Store, {"spread": Threads((1, 32))}, "32 threads hold the sums, the block has 64"),
    ("lowrank", t.Store, {"box": ((0, 64), (0, 999))}, "does not lie in a field"),
    ("direct", t.Store, {"src_pitch": 64}, "cannot stand 64 apart"),
    ("tiled", t.Points, {"before": (0, 0)}, "the taps reach beyond a window"),
    ("direct", t.Points, {"spread": Threads((8, 32), 2)}, "registers, but 2"),
    ("stream", t.Steps, {"steps": 90}, "90 steps leave nothing"),
    ("tiled", t.Copy, {"grid": Grid((64, 128), 128, PERIODIC[:1])}, "sides of 1 axes"),
    ("tiled", t.Alloc, {"buf": Buffer("raw", f64, 640, "global")}, "space 'global' is unknown"),
    ("planes", t.Points, {"vector": 3}, "elements at once 3 is unknown"),
    ("lowrank", p.Sandwich, {"terms": 2}, "registers, but"),
    ("lowrank", p.Sandwich, {"columns": layout({"n": 8}, lambda n: n // 2)}, "no permutation of 8 columns"),
    ("toeplitz", p.Slide, {"bands": 5}, "registers, but"),
    ("toeplitz", p.Slide, {"products": 3}, "the runs is a layout over"),
    ("stream", tl.Levels, {"radius": (1, 5)}, "reaches beyond the neighbouring lane"),
    ("stream", tl.Levels, {"count": 3}, "registers, but"),
    ("stream", tw.Emit, {"lead": (40,)}, "is not in a window of"),
    ("stream", tw.Emit, {"vector": 3}, "no whole pieces of 3"),
    ("patches", p.ReadGroup, {"shape": "f64.m8n8k4"}, "are no slices of f64.m8n8k4"),
    ("patches", p.AddGroup, {"strips": 1}, "registers, but"),
    ("patches", p.AddGroup, {"slices": 5}, "registers, but"),
    ("patches", p.PassGroup, {"shape": "f64.m8n8k4"}, "an accumulator's place is a layout over"),
    ("patches", p.StoreGroup, {"step": 999}, "has no 999 to store"),
    ("column", tl.IfBorder, {"before": (1, 1)}, "before of 2 axes"),
    ("column", tl.Mask, {"kind": "periodic"}, "kind 'periodic' is unknown"),
    ("column", tl.Mask, {"lines": 20}, "a mask has 31 bits"),
    ("column", tl.PlaneLevels, {"radius": (1, 1, 3)}, "a radius of 1 rows and 3 columns"),
    ("column", tl.PlaneLevels, {"lag": 5}, "a level lags 1 or 2 planes"),
    ("column", tw.Emit, {"step": (99, 32)}, "is not in a window of"),
    ("column", tw.Emit, {"vector": 3}, "no whole pieces of 3"),
    ("tiled", t.Points, {"taps": (((1,), 1.0),)}, r"a tap at \[1\], the cells have 2 axes"),
    ("stream", tl.Levels, {"taps": (((0, 0, 1), 1.0),)}, r"a tap at \[0, 0, 1\], the cells have 2 axes"),
    ("stream", tw.Walk, {"scope": "grid"}, "scope 'grid' is unknown"),
    ("stream", tw.Walk, {"via": "tma"}, "via 'tma' is unknown"),
    ("stream", tw.Walk, {"via": "bulk"}, "bulk copies end on mbarriers, and no others"),
    ("slab", tw.Walk, {"scope": "warp"}, "bulk copies are waited for by a block, before"),
    ("slab", tw.Walk, {"stages": 4}, "an mbarrier a slot take 4 elements"),
    ("slab", tsl.FetchSlab, {"at": (as_expr(0),) * 2}, "at of 2 axes"),
    ("slab", tsl.FetchSlab, {"grid": Grid((20, 20, 60), 60, PERIODIC)}, "sides of 2 axes"),
    ("slab", tsl.FetchSlab, {"width": 58}, "rows of 60 cells, where a slot's are 58 apart"),
    ("slab", tsl.FetchSlab, {"vector": 4}, "4 cells at once are neither one nor a piece"),
    ("slab", tsl.FetchSlab, {"width": 61}, "are no whole pieces of 2"),
    ("slab", tsl.FetchSlab, {"rows": 9}, "3 slots take 1728 elements"),
    ("slab", tsl.FetchSlab, {"vector": 1}, "bulk copies are of whole pieces"),
    ("slab", tsl.FetchSlab, {"rows": 33}, "a warp's lanes copy one each"),
    ("slab", tsl.SumPlane, {"threads": (2, 32)}, "2 x 32 threads work, the block has 96"),
    ("slab", tsl.SumPlane, {"threads": (6, 16)}, "16 threads of a row are no whole warps"),
    ("slab", tsl.SumPlane, {"width": 128}, "32 threads of 2 columns, where rows are 128 apart"),
    ("slab", tsl.SumPlane, {"lines": 3}, "3 slots take"),
    ("slab", tsl.SumPlane, {"sums": None}, "2 planes of sums: no registers"),
    ("slab", tsl.SumPlane, {"keep": ((0, 0),) * 3}, "0 planes of own cells: some registers"),
    ("slab", tsl.SumPlane, {"taps": (((0, 0), 1.0),)}, r"a tap at \[0, 0\]"),
    ("slab", tsl.SumPlane, {"vector": 3}, "3 cells at once are neither one nor a piece"),
    ("stream", tw.Walk, {"stages": 1}, "a ring of 1 slots has none to fill ahead"),
    ("stream", tw.Walk, {"stages": 16}, "has 8 stages, its walk 16"),
    ("column", tw.Walk, {"turns": 3}, "must count 3 turns from 0"),
    ("patches", tw.Walk, {"slot": 8}, "must reach the last of"),
    ("stream", tw.Walk, {"fill": (t.Meet(),)}, "tile.meet does not fill a ring"),
    ("stream", tw.Walk, {"read": (t.Meet(),)}, "tile.meet does not take a slot's data"),
    ("stream", tw.Walk, {"calm": (as_expr(1),)}, "1 ends of the turns of its inner region"),
    ("stream", tw.Fetch, {"border": "mirror"}, "border 'mirror' is unknown"),
    ("column", tw.Fetch, {"grid": Grid((20, 20), 20, PERIODIC)}, "the field has 2"),
    ("patches", tw.Fetch, {"grid": Grid((64, 128), 100, PERIODIC)}, "cannot stand 100 apart"),
    ("patches", tw.Fetch, {"vector": 7}, "no whole number of pieces of 7"),
    ("column", tw.Fetch, {"lines": 3}, "slots of all warps take"),
    ("stream", tw.Take, {"lines": 3}, "do not share out among 3 rows"),
    ("stream", tw.Take, {"layout": layout({"c": 64}, lambda c: c)}, "a row of the ring is a layout over"),
]

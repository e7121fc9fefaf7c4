"""What is wrong about each tile op of products with bitmap tiles and N:M patterns: see ``wrong_fields``."""

from __future__ import annotations

from typing import Any

from sparsegen.ir import tile as t
from sparsegen.ir import tile_bitmap as tb
from sparsegen.ir import tile_bitmap_block as tbb
from sparsegen.ir import tile_decode as td
from sparsegen.ir import tile_experts as txp
from sparsegen.ir import tile_fours as tf
from sparsegen.ir import tile_gather as th
from sparsegen.ir import tile_gathered as tc
from sparsegen.ir import tile_groups as tr
from sparsegen.ir import tile_nm as tn
from sparsegen.ir import tile_outer as to
from sparsegen.ir import tile_resident as te
from sparsegen.ir import tile_strips as ts
from sparsegen.ir import tile_tasks as tk
from sparsegen.ir import tile_windows as tv
from sparsegen.ir.expr import Value, as_expr
from sparsegen.ir.node import Op
from sparsegen.ir.types import Buffer, bf16, f16, f32, s32

WRONG: list[tuple[str, type[Op], dict[str, Any], str]] = [
    ("bitmap", tb.ShareStrips, {"groups": 99}, "8 strips make no 99 runs"),
    ("bitmap", tb.WalkSlabs, {"row_warps": 3}, "3 x 2 warps"),
    ("bitmap", tb.WalkSlabs, {"least": 1 << 20}, "slots of 4 warps take"),
    ("bitmap", tb.FetchColumns, {"k": 100}, "x of 100 x 8"),
    ("bitmap", tb.FetchColumns, {"order": "diagonal"}, "order 'diagonal' is unknown"),
    ("bitmap", tb.PackColumns, {"blocks": 3}, "registers, but"),
    ("bitmap", tb.ExpandBitmap, {"rows": 9}, "must count 9 strips"),
    ("bitmap", tb.ExpandBitmap, {"narrow": f16}, "no 8-bit elements of f16"),
    ("bitmap", tb.MultiplyFragment, {"shape": "bf16.m16n8k16"}, "does not multiply f16"),
    ("bitmap_block", tbb.ShareRuns, {"splits": 4}, "4 splits are a cluster, the function's have 2"),
    ("bitmap_block", tbb.ShareRuns, {"runs": 1}, "are not 4 blocks"),
    ("bitmap_block", tbb.ShareRuns, {"unit": 0}, "make no 2 runs"),
    ("bitmap_block", tbb.WalkBlock, {"parts": 3}, "3 parts of 128 threads"),
    ("bitmap_block", tbb.WalkBlock, {"rows": 1}, "2 warps of 1 strips have no 4"),
    ("bitmap_block", tbb.WalkBlock, {"stages": 3}, "2 sets of warps do not share 3 slots"),
    ("bitmap_block", tbb.WalkBlock, {"stages": 6}, "6 slots of tiles take"),
    ("bitmap_block", tbb.WalkBlock, {"grouped": True}, "make no warpgroups of 64 rows"),
    ("bitmap_block", tbb.WalkBlock, {"late": True}, "a slot that is freed late is of warpgroups"),
    ("bitmap_block", tbb.CopyColumns, {"n": 20}, "x of 256 x 20 has not"),
    ("bitmap_block", tbb.CopyColumns, {"cols": 24}, "columns of a block 24 is unknown"),
    ("bitmap_block", tbb.LoadColumns, {"fragments": 1}, "@xs has 8 registers, but 2 are meant"),
    ("bitmap_block", tbb.LoadColumns, {"cols": 16}, "@xs has 8 registers, but 16 are meant"),
    ("bitmap_block", tbb.SumCluster, {"splits": 3}, "splits 3 is unknown"),
    ("bitmap_block", tbb.SumCluster, {"parts": 3}, "3 parts of 128 threads"),
    ("bitmap of warpgroups", tbb.MultiplyFragments, {"cols": 64}, "@acc has 64 registers, but 32 are meant"),
    ("bitmap of warpgroups", tbb.MultiplyFragments, {"dtype": bf16}, "x has bf16, not f16"),
    ("bitmap of warpgroups", tbb.FreeSlot, {"stages": 3}, "slot %used is none of 3"),
    ("bitmap of warpgroups", tb.ExpandBitmap, {"other": Buffer("acc", f32, 64, "reg")}, "@acc has 64 registers, but 4"),
    ("bitmap", tb.SumWarps, {"splits": 1}, "are there if splits are"),
    ("bitmap", tb.SumWarps, {"slab_warps": 4}, "2 x 4 warps"),
    ("bitmap", tb.StoreProduct, {"activation": "sine"}, "activation 'sine' is unknown"),
    ("bitmap", tb.StoreProduct, {"m": 64}, "y of 64 x 8"),
    ("bitmap", tb.StoreProduct, {"experts": 2}, "are there if there are experts"),
    ("experts", tb.StoreProduct, {"end": None}, "are there if there are experts"),
    ("experts", txp.ShareExperts, {"tiles": 4}, "24 columns may have more than 4 tiles"),
    ("experts", txp.ShareExperts, {"groups": 5}, "4 strips make no 5 runs"),
    ("experts", txp.ShareExperts, {"experts": 2}, "@offsets is 4 x s32, not 3 x s32"),
    ("experts", txp.ShareExperts, {"splits": 0}, "0 splits of tiles of 8 columns"),
    ("bitmap", tb.StoreProduct, {"gated": True}, "the epilogue's operands have 256 or 1024 elements"),
    ("nm_gather", tr.WalkGroups, {"stages": 1}, "a ring of 1 slots has none to fill ahead"),
    ("nm_gather", tr.WalkGroups, {"fastest": "both"}, "fastest 'both' is unknown"),
    ("nm_gather", tr.WalkGroups, {"keep": 40}, "40 registers are no less than the 255 of a launch"),
    ("nm_gather", th.CopyList, {"steps": 3}, "two lists take 192 elements"),
    ("nm_gather", th.ListRows, {"cols": 24}, "columns of a block 24 is unknown"),
    ("nm_gather", th.GatherRows, {"n": 20}, "20 columns are no whole pieces of 8"),
    ("nm_gather", tr.CopyTile, {"size": 48}, "no slots of 48"),
    ("nm_gather", tr.MultiplyGroup, {"cols": 64}, "registers, but 32 are meant"),
    ("nm_gather", tr.StoreTile, {"vec": 8}, "8 elements at once of 17"),
    ("nm_gather", tr.PadRows, {"pitch": 16}, "rows of 17 columns, 16 apart"),
    ("nm_gather", tr.PadRows, {"vec": 2}, "2 elements at once of rows of 17"),
    ("nm_gather", tr.StoreTile, {"stage": None}, "single elements by rows go through a stage"),
    ("nm_decode", tr.WalkGroups, {"teams": 1}, "1 teams are not the last of 384 threads"),
    ("nm_decode", tr.WalkGroups, {"lists": 99}, "the mbarriers of a ring and of lists take 103 elements"),
    ("nm_decode", td.LoadPacked, {"ahead": 3}, "are not as many for each of 2 teams"),
    ("nm_decode", td.FetchPacked, {"steps": 3}, "has no whole tiles of 3 x"),
    ("nm_decode", td.DecodeTile, {"runs": 33}, "33 runs of 1 are more than a row has"),
    ("nm_outer", to.CopyWindow, {"cols": 30}, "30 a tile, are no whole pieces"),
    ("nm_outer", to.CopyWindow, {"deep": 40}, "3 slots of rows of x take 3840 elements"),
    ("nm_outer", to.CopyWindow, {"k": 255}, "255 x 32 elements are not the 8192"),
    ("nm_outer", to.CopyRun, {"turns": 7}, "which are no tiles of"),
    ("nm_outer", to.MultiplyOuter, {"share": 4}, "rows that read one list 4 is unknown"),
    ("nm_outer", to.MultiplyOuter, {"cols": 64}, "a tile of 64 x 64, 8 x 4 a lane, is not one of 64 threads"),
    ("nm_outer", to.MultiplyOuter, {"entries": 12}, "3 slots of values take 2304 elements"),
    ("nm_outer", to.StoreOuter, {"vec": 4}, "4 elements at once, of runs of 17"),
    ("nm_outer", to.WalkApart, {"stages": 2}, "a ring of 2 slots has none to fill ahead"),
    ("nm_outer", to.WalkApart, {"turns": 3}, "must count 3 turns from 0"),
    ("nm_outer", to.WalkApart, {"stages": 5}, "the mbarriers of a ring take 10"),
    ("nm_outer", to.WalkApart, {"fill": (t.Meet(),)}, "tile.meet does not fill a ring"),
    ("nm_outer", to.LoadEntry, {"deep": 40}, "3 slots of rows of x take 3840"),
    ("nm_outer", to.LoadEntry, {"stages": 4}, "has 4 stages, its walk 3"),
    ("nm_24", tf.MultiplyFours, {"cols": 64}, "registers, but 32 are meant"),
    ("nm_24", tf.MultiplyFours, {"words": Buffer("w_ring", f16, 4096, "shared", 1024)}, "u32, not f16"),
    ("nm_strips", ts.EachBlock, {"block": Value("block", s32, 0, 7)}, "must count 1 blocks from 0"),
    ("nm_strips", ts.CopyStrips, {"depth": 24}, "24 kept columns are no whole number of 16"),
    ("nm_strips", ts.CopyStrips, {"steps": 3}, "has no whole tiles of values of 3 x"),
    ("nm_strips", ts.CopyStrips, {"strip": 48}, "rows of a strip 48 is unknown"),
    ("nm_strips", ts.GatherWindow, {"cols": 128}, "the rows of x of all turns take 4096 elements"),
    ("nm_strips", ts.GatherWindow, {"rows": 60}, "60 rows of x are no whole number of 8"),
    ("nm_strips", ts.GatherWindow, {"n": 20}, "20 columns are no whole pieces of 8"),
    ("nm_strips", ts.TakeStrips, {"warps": (4, 1)}, "4 x 1 warps, the block has 64 threads"),
    ("nm_strips", ts.TakeStrips, {"depth": 32}, "the values of all turns take 2048 elements"),
    ("nm_strips", ts.MultiplyStrips, {"shape": "bf16.m16n8k16"}, "is no mma of 16 f16"),
    ("nm_strips", ts.MultiplyStrips, {"warps": (1, 2)}, "registers, but"),
    ("nm_strips", ts.FinishTile, {"last": as_expr(2)}, "must be a predicate, but it is the number 2"),
    ("nm_windows", tv.ShareGroups, {"warps": 3}, "3 warps are not the 128 threads"),
    ("nm_windows", tv.ShareGroups, {"high": 33}, "33 rows of a group"),
    ("nm_windows", tv.StageOffsets, {"pitch": 40}, "40 windows of 32 do not hold 1280 rows"),
    ("nm_windows", tv.StageOffsets, {"vec": 3}, "elements of f16 at once 3 is unknown"),
    ("nm_windows", tv.MultiplyWindows, {"n": 16}, "registers, but"),
    ("nm_windows", tv.MultiplyWindows, {"layout": "rows"}, "layout 'rows' is unknown"),
    ("nm_windows", tv.SumLanes, {"cols": 3}, "16 sums are no rows of 3 columns"),
    ("nm_lanes", tn.ShareRows, {"parts": 3}, "1 x 3 warps are not the 128 threads"),
    ("nm_lanes", tn.StageColumns, {"held": 40}, "no whole windows of 32"),
    ("nm_lanes", tn.StageColumns, {"vec": 3}, "elements of f16 at once 3 is unknown"),
    ("nm_lanes", tn.WalkChunks, {"parts": 0}, "every 0-th"),
    ("nm_lanes", tn.LoadChunk, {"count": 3}, "2 tiles of 3 chunks take"),
    ("nm_lanes", tn.HandOver, {"src": Buffer("acc", f32, 4, "reg")}, "16 registers, but 4"),
    ("nm_lanes", tn.MultiplyChunk, {"n": 32}, "32 of every 32 are kept"),
    ("nm_lanes", tn.MultiplyChunk, {"n": 24}, "registers, but"),
    ("nm_lanes", tn.SumParts, {"parts": 3}, "3 warps a tile do not divide"),
    ("resident", te.FillResident, {"cols": 48}, "bytes of a strip's row 48 is unknown"),
    ("resident", te.FillResident, {"parts": 4}, "are no 4 parts of whole boxes"),
    ("resident", te.FillResident, {"n": 50}, "rows of 50 elements are no whole pieces"),
    ("resident", te.FillResident, {"via": "cp.async"}, "tensor copies end on mbarriers, and no others"),
    ("resident", te.AwaitResident, {"part": 2}, "there is no part 2 of 2"),
    ("resident", tk.EachTask, {"length": 5}, "no lists of 5 tasks of 2 warps"),
    ("gathered", tc.EachGathered, {"stages": 1}, "has none to fill ahead"),
    ("gathered", tc.EachGathered, {"n": 44}, "no whole pieces of 16 bytes"),
    ("gathered", tc.EachGathered, {"height": 3}, "rows of a vector"),
    ("gathered", tc.MultiplyGathered, {"stages": 3}, "the rings of all warps take"),
]

"""Each tile op has a rule: a family's program is right as it is lowered, and refused when one field is another."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.boundary import frozen, periodic
from sparsegen.cost.devices import load_profile
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir import tile as t
from sparsegen.ir import tile_attention as ta
from sparsegen.ir import tile_bitmap as tb
from sparsegen.ir import tile_decode as td
from sparsegen.ir import tile_fours as tf
from sparsegen.ir import tile_gather as th
from sparsegen.ir import tile_gathered as tc
from sparsegen.ir import tile_groups as tr
from sparsegen.ir import tile_levels as tl
from sparsegen.ir import tile_mixed as tj
from sparsegen.ir import tile_nm as tn
from sparsegen.ir import tile_outer as to
from sparsegen.ir import tile_pieces as ty
from sparsegen.ir import tile_products as p
from sparsegen.ir import tile_quantise as tz
from sparsegen.ir import tile_ragged as tg
from sparsegen.ir import tile_resident as te
from sparsegen.ir import tile_ring as tx
from sparsegen.ir import tile_sampled as tp
from sparsegen.ir import tile_softmax as ti
from sparsegen.ir import tile_strided as tm
from sparsegen.ir import tile_strips as ts
from sparsegen.ir import tile_tasks as tk
from sparsegen.ir import tile_update as tu
from sparsegen.ir import tile_vectors as tq
from sparsegen.ir import tile_walk as tw
from sparsegen.ir import tile_windows as tv
from sparsegen.ir.checks import CHECKS
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Value, as_expr
from sparsegen.ir.grid import Grid
from sparsegen.ir.layout import layout
from sparsegen.ir.module import Module
from sparsegen.ir.node import OPS, Op, fields, rewrite, walk
from sparsegen.ir.parse import parse_module
from sparsegen.ir.registry import load_all
from sparsegen.ir.spread import Products, Threads
from sparsegen.ir.types import Buffer, bf16, f16, f32, f64, s8, s16, s32, u4, u8, u32, u64
from sparsegen.ir.verify import verify
from sparsegen.pipelines import lower
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.problems.stencil import StencilProblem
from sparsegen.schedule import SpmmSchedule, StencilSchedule
from tests import mixed_kit
from tests.csr_kit import ragged
from tests.products_kit import matrix
from tests.programs import dense
from tests.updates import wave

#: A schedule, the extents of the weights and of the field, and the kind of border, of each family.
FAMILIES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], Any]] = {
    "direct": ("direct", (3, 3), (64, 128), frozen),
    "tiled": ("tiled tile=8x32 warps=2 stages=2", (3, 3), (64, 128), frozen),
    "stencil2row": ("stencil2row tile=8x32 warps=2 stages=2", (3, 3), (64, 128), frozen),
    "explicit": ("stencil2row tile=8x32 warps=2 transform=explicit", (3, 3), (64, 128), periodic),
    "planes": ("stencil2row warps=2", (3, 3, 3), (20, 20, 64), periodic),
    "lowrank": ("lowrank tile=32x32 warps=4", (3, 3), (64, 128), periodic),
    "toeplitz": ("toeplitz", (3,), (1, 3000), periodic),
    "stream": ("stream levels=2 cols=4 rows=16", (3, 3), (64, 128), frozen),
    "patches": ("patches levels=2 rows=16", (3, 3), (64, 128), periodic),
    "column": ("column levels=2 lines=2 warps=6 planes=8", (3, 3, 3), (20, 20, 64), frozen),
}
PERIODIC = ((("periodic", 0.0),) * 2,) * 2
#: Teams of 2 x 4 lanes, and rows that are cut.
CSR = "csr team=2x4 columns=4 unroll=2 cut=16 warps=2"


@cache
def tile_level(family: str) -> Module:
    """A small program of a family."""
    if family == "update":
        kernel: Any = sg.compile(wave(), (37, 70), 1, device="h200", backend="emulator", schedule="direct")
        return parse_module(kernel.ir("tile"))
    if family == "csr":
        ragged_product = sg.spmm(sg.sparse(ragged(150, 90, 10, full=2), format="csr", dtype="f32"), n=24, bias=True)
        return parse_module(sg.compile(ragged_product, device="h200", backend="emulator", schedule=CSR).ir("tile"))
    if family == "nm_lanes":
        w = np.tile(np.arange(32) % 4 == 0, (50, 8)).astype("f2")
        pruned = sg.spmm(sg.sparse(w, format="nm", n=8, m=32), n=4, bias=True)
        line = "nm_lanes cols=4 warps=1x4"
        return parse_module(sg.compile(pruned, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family == "nm_windows":
        w = np.tile(np.arange(32) % 4 == 0, (50, 40)).astype("f2")
        pruned = sg.spmm(sg.sparse(w, format="nm", n=8, m=32), n=4, bias=True)
        line = "nm_windows cols=4 warps=4"
        return parse_module(sg.compile(pruned, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family == "nm_outer":
        w = np.tile(np.arange(32) % 4 == 0, (64, 8)).astype("f4")
        pruned = sg.spmm(sg.sparse(w, format="nm", n=8, m=32, vector=64), n=17, bias=True)
        line = "nm_outer rows=64 cols=32 each=4 deep=32 stages=3"
        return parse_module(sg.compile(pruned, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family == "nm_gather":
        w = np.tile(np.arange(32) % 4 == 0, (64, 8)).astype("f2")
        pruned = sg.spmm(sg.sparse(w, format="nm", n=8, m=32, vector=64), n=17, bias=True)
        line = "nm_gather rows=64 cols=32 stages=2"
        return parse_module(sg.compile(pruned, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family == "dense":
        return dense.tiles(100, 200, 40, 32, "row", 2)
    if family in ("x by columns", "x by odd columns"):
        k, vec = (256, 8) if family == "x by columns" else (255, 1)
        w = np.tile(np.arange(32) % 4 == 0, (64, 8)).astype("f2")[:, :k]
        problem = SpmmProblem(sg.spmm(sg.sparse(w, format="nm", n=8, m=32, vector=64), n=24))
        words: Any = SpmmSchedule.parse("nm_gather rows=64 cols=32 stages=2")
        return lower(problem, words, load_profile("h200"), 1, Variant("column", "column", vec)).tile
    if family == "nm_decode":
        w = np.tile(np.arange(32) % 4 == 0, (64, 8)).astype("f2")
        pruned = sg.spmm(sg.sparse(w, format="nm", n=8, m=32), n=24, bias=True)
        line = "nm_decode rows=64 cols=32 stages=2 teams=2"
        return parse_module(sg.compile(pruned, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family == "nm_24":
        w = np.tile(np.arange(32) % 4 < 2, (64, 8)).astype("f2")
        pruned = sg.spmm(sg.sparse(w, format="nm", n=2, m=4), n=24, bias=True)
        line = "nm_24 rows=64 cols=32 stages=2"
        return parse_module(sg.compile(pruned, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family == "nm_strips":
        w = np.tile(np.arange(32) % 4 == 0, (64, 8)).astype("f2")
        pruned = sg.spmm(sg.sparse(w, format="nm", n=8, m=32, vector=32), n=17, bias=True)
        line = "nm_strips strip=32 warps=2x1 cols=32 kept=16 stages=2"
        return parse_module(sg.compile(pruned, device="a100", backend="emulator", schedule=line).ir("tile"))
    if family in ("hybrid", "hybrid with cuts"):
        long = int(family != "hybrid")
        mixed = sg.spmm(mixed_kit.matrix(70, 100 + 200 * long, long=long), n=17, bias=True)
        line = "hybrid high=1 cols=32 warps=2x2 stages=3 unroll=2"
        return parse_module(sg.compile(mixed, device="a100", backend="emulator", schedule=line).ir("tile"))
    if family == "csr_strip":
        rows = sg.spmm(sg.sparse(ragged(40, 90, 4).toarray().astype("f4"), format="csr"), n=22, bias=True)
        line = "csr_strip wide=64 lists=2 warps=2 groups=2 unroll=4"
        return parse_module(sg.compile(rows, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family in ("sampled", "sampled in parts", "gathered"):
        k = 160 if family == "sampled in parts" else 48
        sampled = sg.sddmm(np.ones((20, 40), bool), k=k, height=4, out="sr_bcrs")
        line = "gather warps=2 most=2 stages=2 overlap=off"
        if family != "gathered":
            line = f"strips rows=64 warps=2 groups=1 prefetch=on parts={-(-k // 128)} overlap=off"
        return parse_module(sg.compile(sampled, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family in ("attention", "attention in parts"):
        what = sg.attention(np.ones((20, 100), bool), heads=2, d=64, quantized=family == "attention")
        line = f"fused parts={2 if family == 'attention in parts' else 1} groups=1 warps=2 keys=64"
        return parse_module(sg.compile(what, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family == "unfused attention":
        what = sg.attention(np.ones((20, 100), bool), heads=2, d=64, quantized=True)
        return parse_module(sg.compile(what, device="h200", backend="emulator", schedule="unfused").ir("tile"))
    if family == "vector_strip":
        rng = np.random.default_rng(2)
        quantized = sg.sparse(rng.integers(-9, 9, (40, 100), "i1"), format="sr_bcrs", height=8)
        line = "vector_strip wide=32 lists=1 warps=2 unroll=2 parts=2"
        product = sg.spmm(quantized, n=24, y_dtype="f32", bias=True)
        return parse_module(sg.compile(product, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family == "vectors of floats":
        kept = sg.sparse(np.tri(40, 300, 200, dtype="f2"), format="sr_bcrs", height=8)
        line = "vector_gather wide=64 warps=1x2 stages=2 cut=7"
        return parse_module(sg.compile(sg.spmm(kept, n=24), backend="emulator", schedule=line).ir("tile"))
    if family == "vector_gather":
        quantized = sg.sparse(np.tri(40, 300, 200, dtype="i1"), format="sr_bcrs", height=8)
        line = "vector_gather wide=32 warps=1x2 stages=2 cut=7"
        product = sg.spmm(quantized, n=33)
        return parse_module(sg.compile(product, device="h200", backend="emulator", schedule=line).ir("tile"))
    if family == "vector_block":
        quantized = sg.sparse(np.tri(40, 100, 20, dtype="i1"), format="sr_bcrs", height=4)
        product = sg.spmm(quantized, n=64, y_dtype="f32", bias=True)
        return parse_module(sg.compile(product, backend="emulator", schedule="vector_block wide=64").ir("tile"))
    if family == "resident":
        return Module("resident", (resident(),))
    if family in ("bitmap", "column of x"):
        product = sg.spmm(matrix(128, 192), n=8 if family == "bitmap" else 1, bias=True)
        line = "bitmap warps=2x2 rows=2 splits=2" if family == "bitmap" else "bitmap mma=none cols=1 warps=2x2 rows=2"
        return parse_module(sg.compile(product, device="h200", backend="emulator", schedule=line).ir("tile"))
    line, extents, shape, sides = FAMILIES[family]
    rng = np.random.default_rng(1)
    weights: Any = np.multiply.outer(rng.random(3), rng.random(3)) if family == "lowrank" else rng.random(extents)
    if family == "planes":
        weights[0] = weights[2] = np.diag([1.0, 2.0, 0.0])
    s, schedule = Stencil.from_weights(weights, sides, dtype="f64").gridded, StencilSchedule.parse(line)
    return lower(StencilProblem(s, shape), schedule, load_profile("h200"), schedule.steps).tile


def resident() -> t.Func:
    """A strip of 64 rows of 32 bytes in two parts, for whose second part the tasks of two warps wait."""
    x, tasks = Buffer("x", s8, 64 * 48, "global"), Buffer("tasks", s32, 2 * 2 * 3 * 4, "global")
    strip, bars = Buffer("strip", s8, 64 * 32, "shared", 1024), Buffer("bars", u64, 2, "shared")
    fill = te.FillResident(
        dst=strip, src=x, bars=bars, row=as_expr(0), column=as_expr(16), rows=64, cols=32, parts=2, m=64, n=48
    )
    row, begin, end, word = (Value(name, s32, 0, 9) for name in ("row", "begin", "end", "word"))
    tasks_of = tk.EachTask(
        tasks=tasks, row=row, begin=begin, end=end, word=word, list=as_expr(0), length=3, rows=9, steps=9,
        body=(te.AwaitResident(bars=bars, part=1, parts=2),),
    )  # fmt: skip
    return t.Func(
        symbol="resident",
        params=(x, tasks),
        blocks=2,
        threads=64,
        body=(*(t.Alloc(buf=b) for b in (strip, bars)), fill, tasks_of),
    )


#: (family, op, the fields that are wrong, what the refusal says).
WRONG: list[tuple[str, type[Op], dict[str, Any], str]] = [
    ("tiled", t.Func, {"threads": 2048}, "2048 threads; a block has"),
    ("tiled", t.Func, {"blocks": 0}, "0 blocks"),
    ("tiled", t.Alloc, {"slots": 3}, "3 slots of the layout take"),
    ("explicit", t.Slots, {"count": 7}, "no 7 tiles of one size"),
    ("tiled", t.ForTiles, {"size": (8,)}, "box of 2 axes"),
    ("tiled", t.ForTiles, {"size": (1, 1)}, "there are 8192 tiles"),
    ("tiled", t.Prefetch, {"distance": -1}, "a distance of -1 turns"),
    ("tiled", t.Wait, {"pending": -1}, "-1 groups"),
    ("x by columns", t.Overlap, {"launch": "first"}, "launch 'first' is unknown"),
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
    ("update", tu.Update, {"threads": (4, 32)}, "128 threads work"),
    ("update", tu.Update, {"results": (999,)}, "a result is none of"),
    ("bitmap", tb.ShareStrips, {"groups": 99}, "8 strips make no 99 runs"),
    ("bitmap", tb.WalkSlabs, {"row_warps": 3}, "3 x 2 warps"),
    ("bitmap", tb.WalkSlabs, {"least": 1 << 20}, "slots of 4 warps take"),
    ("bitmap", tb.FetchColumns, {"k": 100}, "x of 100 x 8"),
    ("bitmap", tb.FetchColumns, {"order": "diagonal"}, "order 'diagonal' is unknown"),
    ("bitmap", tb.PackColumns, {"blocks": 3}, "registers, but"),
    ("bitmap", tb.ExpandBitmap, {"rows": 9}, "must count 9 strips"),
    ("bitmap", tb.MultiplyFragment, {"shape": "bf16.m16n8k16"}, "does not multiply f16"),
    ("column of x", tb.MultiplyFragment, {"shape": "f16.m16n8k16"}, "registers, but"),
    ("bitmap", tb.SumWarps, {"splits": 1}, "are there if splits are"),
    ("bitmap", tb.SumWarps, {"slab_warps": 4}, "2 x 4 warps"),
    ("bitmap", tb.StoreProduct, {"activation": "sine"}, "activation 'sine' is unknown"),
    ("bitmap", tb.StoreProduct, {"m": 64}, "y of 64 x 8"),
    ("csr", tg.ShareSegments, {"count": 3}, "do not fill blocks of"),
    ("csr", tg.WalkSegment, {"by": 3}, "3 entries a turn are no multiple of 2"),
    ("csr", tg.LoadEntries, {"align": 3}, "are no multiple of 3"),
    ("csr", tg.Gather, {"k": 91}, "are not the 2160 of"),
    ("csr", tg.Gather, {"order": "diagonal"}, "order 'diagonal' is unknown"),
    ("csr", tg.Gather, {"blocks": 5}, "registers, but"),
    ("csr", tg.MultiplyRows, {"weights": Buffer("rows", s32, 2, "reg")}, "@rows is s32, @acc f32"),
    ("csr", tg.SumSegments, {"parts": 3}, "does not divide a warp"),
    ("csr", tg.SumSegments, {"cuts": 0}, "are there if rows are cut"),
    ("csr", tg.StoreRow, {"activation": "sine"}, "activation 'sine' is unknown"),
    ("tiled", t.Points, {"taps": (((1,), 1.0),)}, r"a tap at \[1\], the cells have 2 axes"),
    ("stream", tl.Levels, {"taps": (((0, 0, 1), 1.0),)}, r"a tap at \[0, 0, 1\], the cells have 2 axes"),
    ("nm_gather", tr.WalkGroups, {"stages": 1}, "a ring of 1 slots has none to fill ahead"),
    ("nm_gather", tr.WalkGroups, {"fastest": "both"}, "fastest 'both' is unknown"),
    ("nm_gather", tr.WalkGroups, {"keep": 40}, "40 registers are no less than the 255 of a launch"),
    ("nm_gather", th.CopyList, {"steps": 3}, "two lists take 192 elements"),
    ("nm_gather", th.ListRows, {"cols": 24}, "columns of a block 24 is unknown"),
    ("nm_gather", th.GatherRows, {"n": 20}, "20 columns are no whole pieces of 8"),
    ("nm_gather", tr.CopyTile, {"size": 48}, "no slots of 48"),
    ("nm_gather", tr.MultiplyGroup, {"cols": 64}, "registers, but 32 are meant"),
    ("nm_gather", tr.StoreTile, {"vec": 8}, "8 elements at once of 17"),
    ("dense", tr.CopyRows, {"n": 200, "k": 41, "order": "column"}, "41 adjacent elements are no whole pieces of 8"),
    ("x by columns", tr.TurnPieces, {"pitch": 16}, "rows of 24 columns, 16 apart"),
    ("x by odd columns", tr.TurnColumns, {"pitch": 16}, "rows of 24 columns, 16 apart"),
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
    ("hybrid", tj.ShareBands, {"tiles": 3}, "3 bands x 3 tiles of columns are not 3 blocks"),
    ("hybrid", tj.ShareBands, {"longest": 2}, "ends at"),
    ("hybrid", tj.ShareBands, {"count": 5}, "5 bands have 2 s32 each"),
    ("hybrid", tj.CopyBand, {"tile": 48}, "columns of a dense tile 48 is unknown"),
    ("hybrid", tj.CopyBand, {"cols": 64}, "the rows of x of all turns take 6144 elements"),
    ("hybrid", tj.CopyBand, {"n": 20}, "20 columns are no whole pieces of 8"),
    ("hybrid", tj.CopyBand, {"k": 99}, "99 x 32 elements are not the 3200"),
    ("hybrid", tj.MultiplyBand, {"shape": "bf16.m16n8k16"}, "is no mma of 16 f16"),
    ("hybrid", tj.MultiplyBand, {"warps": (4, 1)}, "4 x 1 warps do not share 32 x 32 sums"),
    ("hybrid", tj.MultiplyBand, {"warps": (1, 2)}, "1 x 2 warps, the block has 128 threads"),
    ("hybrid", tj.MultiplyBand, {"stages": 1}, "a ring of 1 slots has none to fill ahead"),
    ("hybrid", tj.MultiplyBand, {"tile": 64}, "the rows of x of all turns take 6144 elements"),
    ("hybrid", tj.PutSums, {"rows": 48}, "rows of a band 48 is unknown"),
    ("hybrid", tj.PutSums, {"cols": 64}, "registers, but 16 are meant"),
    ("hybrid", tj.PutSums, {"dst": Buffer("w_ring", u32, 1536, "shared")}, "@acc is f32, @w_ring u32"),
    ("hybrid", tj.EachRow, {"team": 3}, "does not divide a warp"),
    ("hybrid", tj.EachRow, {"team": 2}, "64 teams do not share 32 rows"),
    ("hybrid", tj.EachRow, {"rows": 64}, "has no whole bands of 256 s32"),
    ("hybrid", tj.TakeSums, {"blocks": 3}, "lanes do not have 32 columns"),
    ("hybrid", tj.TakeSums, {"vec": 3}, "columns of a lane side by side 3 is unknown"),
    ("hybrid", tj.TakeSums, {"cols": 16}, "lanes do not have 16 columns"),
    ("hybrid with cuts", tj.PutRow, {"rows": 8}, "row 15 is none of 8"),
    ("hybrid with cuts", tj.PutRow, {"rows": 32}, "the sums of pieces take 1280 elements"),
    ("hybrid with cuts", tj.PutRow, {"parts": 3}, "does not divide a warp"),
    ("hybrid with cuts", tj.AddRows, {"cols": 24}, "columns of a block 24 is unknown"),
    ("hybrid with cuts", tj.AddRows, {"blocks": 3}, "lanes do not have 32 columns"),
    ("hybrid with cuts", tj.AddRows, {"src": Buffer("w_ring", u32, 1536, "shared")}, "@w_ring is u32, @total f32"),
    ("hybrid with cuts", tj.EachRow, {"rows": 64}, "has no whole bands of 256 s32"),
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
    ("csr_strip", te.FillResident, {"zeros": 2}, "1 slices of 96 x 16 take"),
    ("csr_strip", te.FillResident, {"meets": False}, "threads learn of zeros where the block meets"),
    ("csr_strip", te.GatherResident, {"across": 3}, "bytes of a strip's row 48 is unknown"),
    ("csr_strip", te.GatherResident, {"dst": Buffer("acc", f32, 4, "reg")}, "@acc has 4 registers, but 16 are meant"),
    (
        "csr_strip",
        te.GatherResident,
        {"values": Buffer("raw", f32, 16, "reg")},
        "@raw has 16 registers, but 4 are meant",
    ),
    ("csr_strip", te.GatherResident, {"pieces": 3}, "4 pieces of a row are no 3 for each lane"),
    ("csr_strip", te.GatherResident, {"pieces": 2}, "@raw has 16 registers, but 32 are meant"),
    ("csr_strip", te.JoinPieces, {"across": 3}, "does not divide a warp"),
    ("csr_strip", te.JoinPieces, {"pieces": 3}, "4 pieces of a row are no 3 for each lane"),
    ("csr_strip", te.JoinPieces, {"pieces": 2}, "@acc has 4 registers, but 8 are meant"),
    ("csr_strip", te.JoinPieces, {"src": Buffer("rows", s32, 4, "reg")}, "@rows is s32, @sums f32"),
    ("csr_strip", tg.WalkRows, {"parts": 3}, "does not divide a warp"),
    ("csr_strip", tg.WalkRows, {"rows": 12}, "8 teams do not share 12 rows"),
    ("csr_strip", tg.WalkRows, {"rows": 24}, "has no whole lists of 96 s32"),
    ("csr_strip", tg.WalkOn, {"step": 0}, "turns 0 entries apart"),
    ("csr_strip", tg.StoreRow, {"once": 3}, "4 adjacent columns are no whole stores of 3"),
    ("csr_strip", tg.StoreRow, {"once": 4}, "4 adjacent columns at once of 22"),
    ("resident", tk.EachTask, {"length": 5}, "no lists of 5 tasks of 2 warps"),
    ("sampled", tp.FirstTask, {"length": 5}, "no whole lists of 5 tasks"),
    ("sampled", tp.FetchRows, {"n": 44}, "no whole pieces of 16 bytes"),
    ("sampled", tp.FetchRows, {"column": 64}, "column 64 of 48"),
    ("sampled", tp.FetchRows, {"slices": 3}, "the warps' rows of a"),
    ("sampled", tp.TakeRows, {"dtype": f16}, "type of a and b"),
    ("sampled", tp.TakeRows, {"nbytes": 65}, "65 bytes are not in 1 x 64"),
    ("sampled", tp.ClearRest, {"copied": 24}, "24 bytes are no whole pieces"),
    ("sampled", tp.EachTile, {"height": 3}, "rows of a vector"),
    ("sampled", tp.EachTile, {"strips": 7}, "no whole groups"),
    ("sampled", tp.EachTile, {"rows": 512}, "entries are u32 here"),
    ("sampled", tp.MultiplyTile, {"rows": 48}, "48 rows of a strip are no power of two"),
    ("sampled", tp.MultiplyTile, {"dtype": s16}, "registers, but 12 are meant"),
    ("sampled", tp.StoreSampled, {"height": 5}, "rows of a vector"),
    ("sampled", tp.StoreSampled, {"stride": 9}, "has no whole vectors"),
    ("sampled", tp.FillUp, {"stride": 9}, "has no whole blocks"),
    ("sampled in parts", tp.LoadSampled, {"stride": 9}, "has no whole vectors"),
    ("gathered", tc.EachGathered, {"stages": 1}, "has none to fill ahead"),
    ("gathered", tc.EachGathered, {"n": 44}, "no whole pieces of 16 bytes"),
    ("gathered", tc.EachGathered, {"height": 3}, "rows of a vector"),
    ("gathered", tc.MultiplyGathered, {"stages": 3}, "the rings of all warps take"),
    ("attention", ta.Attend, {"d": 48}, "elements of a head 48 is unknown"),
    ("attention", ta.Attend, {"d": 32}, "has 16 registers, but 8 are meant"),
    ("attention", ta.Attend, {"steps": 3}, "steps of a block 3 is unknown"),
    ("attention", ta.Attend, {"bits": 4}, "bits of the exponentials 4 is unknown"),
    ("attention", ta.LoadTask, {"queries": 33}, "has no whole heads of 33 x 64"),
    ("attention", ta.StoreAttention, {"height": 3}, "rows of a vector 3 is unknown"),
    ("attention", ta.StoreAttention, {"queries": 33}, "has no whole heads of 33 x 64"),
    ("attention in parts", tz.FindLargest, {"of": 65}, "65 blocks of an array, 64 at most"),
    ("attention in parts", tz.FindLargest, {"number": 3}, "has no 64 elements of array 3"),
    ("attention in parts", tz.Quantise, {"most": 128}, "integers up to 128 do not fit a byte"),
    ("attention in parts", tz.Quantise, {"watched": (4,)}, "there are no such arrays"),
    ("attention in parts", ta.StorePart, {"d": 32}, "has 16 registers, but 8 are meant"),
    ("attention in parts", ta.JoinParts, {"parts": 3}, "are not those of 18 tasks"),
    ("unfused attention", tp.FetchRows, {"which": as_expr(0)}, "20 x 64 elements are not the 2560 of @a"),
    ("unfused attention", tc.EachGathered, {"m": 99}, "2 x 99 x 64 elements are not the 12800 of @b"),
    ("unfused attention", tm.FetchStep, {"which": as_expr(0)}, "100 x 16 elements are not the 3200"),
    ("unfused attention", tm.ListStep, {"which": as_expr(0)}, "are not the .* of @values"),
    ("unfused attention", tm.StorePlanes, {"which": as_expr(0)}, "20 x 64 elements are not the 2560 of @y"),
    ("unfused attention", ti.SoftmaxRows, {"height": 3}, "rows of a vector 3 is unknown"),
    ("unfused attention", ti.SoftmaxRows, {"bits": 4}, "bits of the exponentials 4 is unknown"),
    ("unfused attention", ti.SoftmaxRows, {"bits": 16}, "has not 2 bytes a score"),
    ("unfused attention", ti.SoftmaxRows, {"d": 48}, "elements of a head 48 is unknown"),
    ("unfused attention", ti.SoftmaxRows, {"batch": 0}, "a batch of 0 matrices"),
    ("unfused attention", ti.SoftmaxRows, {"batch": 5}, "has no whole blocks of 16 vectors"),
    ("unfused attention", ti.SoftmaxRows, {"m": 25}, "has not two numbers for each vector row"),
    ("unfused attention", ti.SoftmaxRows, {"m": 19}, "@scale is not 38 f32"),
    ("vector_strip", tq.LoadVectors, {"strip": 0}, "a strip of 0 bytes"),
    (
        "vector_strip",
        tq.LoadVectors,
        {"rows": Buffer("words_later", u32, 4, "reg")},
        "registers hold places as s32, and words",
    ),
    ("vector_strip", tq.AwaitSteps, {"parts": 5}, "the mbarriers of a strip take 5"),
    ("vector_strip", te.SettleResident, {"parts": 3}, "the mbarriers of a strip take 3"),
    ("vector_strip", tq.MultiplyVectors, {"wide": 48}, "bytes of a strip's row 48 is unknown"),
    ("vector_strip", tq.MultiplyVectors, {"w_digits": ((0, s32),)}, "s32 is no digit of 4 or 8 bits"),
    ("vector_strip", tq.MultiplyVectors, {"x_digits": ((8, s8), (0, u8))}, "x of s8 has no digits of s8, 2 bytes"),
    ("vector_strip", tq.StoreVectors, {"vec": 4}, "4 elements at once of 24"),
    (
        "vectors of floats",
        tq.MultiplyVectors,
        {"x_digits": ((0, bf16),)},
        "f16 is no digit of 4 or 8 bits, and no float",
    ),
    ("vectors of floats", tq.MultiplyVectors, {"x_digits": ((8, s8), (0, u8))}, "f16 is no digit of 4 or 8 bits"),
    (
        "vectors of floats",
        tq.MultiplyVectors,
        {"x_digits": ((0, bf16),), "w_digits": ((0, bf16),)},
        "x of f16 has no digits of bf16",
    ),
    ("vectors of floats", tq.MultiplyVectors, {"acc": Buffer("words", u32, 4, "reg")}, "sums are f32, not u32"),
    ("vectors of floats", tq.StoreVectors, {"vec": 4}, "4 elements at once of 24, by row; a lane has 2 side by side"),
    ("vectors of floats", ty.SumPieces, {"slots": Buffer("cuts", s32, 20, "global")}, "@cuts is s32, @acc f32"),
    ("vectors of floats", ty.SumPieces, {"acc": Buffer("words", u32, 4, "reg")}, "@words has no s32 or f32 in reg"),
    (
        "vectors of floats",
        ty.SumPieces,
        {"cuts": Buffer("counter", u32, 8, "global")},
        "@counter counts in s32, not in",
    ),
    ("vector_strip", tq.StoreVectors, {"m": 50}, "are not the 960 of @y"),
    ("vector_gather", tx.WalkRing, {"stages": 3}, "stages 3 is unknown"),
    ("vector_gather", tx.GatherStep, {"wide": 64}, "the rows of x of all slots take 8192"),
    ("vector_gather", tx.GatherStep, {"stages": 8}, "the rows of x of all slots take 16384"),
    ("vector_gather", tx.GatherStep, {"n": 50}, "rows of 50 elements are no whole pieces"),
    ("vector_gather", tx.TakeStep, {"stages": 4}, "the values of all slots take 512"),
    ("vector_gather", ty.SumPieces, {"tiles": 5}, "are not as many for each of 5 tiles"),
    ("vector_gather", ty.SumPieces, {"rows": 4}, "4 rows have 16 numbers, not 20"),
    ("vector_block", tm.WalkStrides, {"stride": 8}, "vectors of a step 8 is unknown"),
    (
        "vector_block",
        tm.WalkStrides,
        {"ptr": Buffer("values", u32, 480, "global")},
        "has no two numbers for each of 10 vector rows",
    ),
    ("vector_block", tm.ListStep, {"words": Buffer("numbers", s32, 32, "shared")}, "values are words"),
    ("vector_block", tm.ListStep, {"idx": Buffer("ptr", s32, 20, "global")}, "columns come in 16 or 32 bits"),
    ("vector_block", tm.FetchStep, {"wide": 48}, "bytes of a row 48 is unknown"),
    ("vector_block", tm.FetchStep, {"wide": 128}, "has 4 registers, but 8 are meant"),
    ("vector_block", tm.FetchStep, {"n": 15}, "rows of 15 words are no whole pieces"),
    ("vector_block", tm.FetchStep, {"k": 99}, "99 x 16 elements are not the 1600"),
    ("vector_block", tm.KeepStep, {"bits": 5}, "bits 5 is unknown"),
    ("vector_block", tm.KeepStep, {"wide": 32}, "64 threads, but 1 warps are meant"),
    ("vector_block", tm.KeepStep, {"bits": 4}, "the rows of x of a step take 544"),
    ("vector_block", tm.MultiplyStep, {"shuffle": True}, "only rows of digits of 4 bits are shuffled"),
    ("vector_block", tm.MultiplyStep, {"stack": True, "w_digits": ((8, s8), (0, u8))}, "digits of one type"),
    ("vector_block", tm.MultiplyStep, {"x_digits": ((0, u4),)}, "digits have 4 bits, or all have 8"),
    ("vector_block", tm.MultiplyStep, {"height": 8}, "two slots of values take 64"),
    ("vector_block", tm.StorePlanes, {"vec": 8}, "8 elements at once of 64"),
    ("vector_block", tm.StorePlanes, {"m": 41}, "are not the 2560 of @y"),
    ("stream", tw.Walk, {"scope": "grid"}, "scope 'grid' is unknown"),
    ("stream", tw.Walk, {"via": "tma"}, "via 'tma' is unknown"),
    ("stream", tw.Walk, {"stages": 1}, "a ring of 1 slots has none to fill ahead"),
    ("stream", tw.Walk, {"stages": 4}, "has 8 stages, its walk 4"),
    ("column", tw.Walk, {"turns": 3}, "must count 3 turns from 0"),
    ("patches", tw.Walk, {"slot": 8}, "must reach the last of"),
    ("stream", tw.Walk, {"fill": (t.Meet(),)}, "tile.meet does not fill a ring"),
    ("stream", tw.Walk, {"read": (t.Meet(),)}, "tile.meet does not take a slot's data"),
    ("stream", tw.Fetch, {"border": "mirror"}, "border 'mirror' is unknown"),
    ("column", tw.Fetch, {"grid": Grid((20, 20), 20, PERIODIC)}, "the field has 2"),
    ("patches", tw.Fetch, {"grid": Grid((64, 128), 100, PERIODIC)}, "cannot stand 100 apart"),
    ("patches", tw.Fetch, {"vector": 7}, "no whole number of pieces of 7"),
    ("column", tw.Fetch, {"lines": 3}, "slots of all warps take"),
    ("stream", tw.Take, {"lines": 3}, "do not share out among 3 rows"),
    ("stream", tw.Take, {"layout": layout({"c": 64}, lambda c: c)}, "a row of the ring is a layout over"),
]


def changed(module: Module, kind: type[Op], fields: dict[str, Any]) -> Module:
    """The module with fields of every op of a kind replaced."""

    def rule(op: Op) -> Op:
        return replace(op, **fields) if type(op) is kind else op

    return replace(module, funcs=rewrite(module.funcs, rule))


@pytest.mark.parametrize(
    "family",
    [
        *FAMILIES,
        "update",
        "bitmap",
        "column of x",
        "csr",
        "nm_lanes",
        "nm_gather",
        "nm_decode",
        "nm_outer",
        "nm_windows",
        "x by columns",
        "x by odd columns",
        "dense",
        "nm_24",
        "nm_strips",
        "hybrid",
        "hybrid with cuts",
        "csr_strip",
        "resident",
        "sampled",
        "sampled in parts",
        "gathered",
        "attention",
        "attention in parts",
        "unfused attention",
        "vector_strip",
        "vector_gather",
        "vectors of floats",
        "vector_block",
    ],
)
def test_programs_are_right(family: str) -> None:
    verify(tile_level(family))


@pytest.mark.parametrize(("family", "kind", "fields", "words"), WRONG)
def test_a_wrong_field_is_refused(family: str, kind: type[Op], fields: dict[str, Any], words: str) -> None:
    module = tile_level(family)
    assert any(type(op) is kind for op in walk(module.funcs))
    with pytest.raises(IRError, match=words):
        verify(changed(module, kind, fields))


def test_a_ring_of_another_type_is_refused() -> None:
    """The ring's own type is part of its declaration, so all that use it change with it."""
    module = tile_level("stream")
    (fetch,) = (op for op in walk(module.funcs) if isinstance(op, tw.Fetch))
    other = replace(fetch.ring, dtype=f16)

    def rule(op: Op) -> Op:
        changed: dict[str, Any] = {n: other for n in ("buf", "ring") if getattr(op, n, None) == fetch.ring}
        return replace(op, **changed)

    with pytest.raises(IRError, match="@u is f64, @ring f16"):
        verify(replace(module, funcs=rewrite(module.funcs, rule)))


def test_each_op_has_a_rule_and_a_wrong_program() -> None:
    load_all()
    tried = {kind for _, kind, _, _ in WRONG}
    for name, op in OPS.items():
        if name.startswith("tile.") and all(f.kw_only for _, _, f in fields(op)):
            declared = any(f.metadata.get("one_of") for _, _, f in fields(op))
            assert CHECKS.get(op) or declared, f"{name} has no rule"
            assert op in tried, f"no wrong {name} is tried"


@pytest.mark.parametrize("fields", [{"base": "f64.m9n9k9"}, {"warps": 0}, {"rows": 0}])
def test_a_spread_of_no_mma_is_refused(fields: dict[str, Any]) -> None:
    spread = replace(Products("f64.m8n8k4", 8, 8, 9, 4, 2), **fields)
    for attempt in (lambda: spread.size, lambda: spread.registers):
        with pytest.raises(IRError, match=r"is unknown|of accumulators"):
            attempt()

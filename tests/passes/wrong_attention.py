"""What is wrong about each tile op of attention, sampled products and the sum over GPUs: see ``wrong_fields``."""

from __future__ import annotations

from typing import Any

from sparsegen.ir import tile as t
from sparsegen.ir import tile_all_reduce as tar
from sparsegen.ir import tile_attention as ta
from sparsegen.ir import tile_gathered as tc
from sparsegen.ir import tile_quantise as tz
from sparsegen.ir import tile_sampled as tp
from sparsegen.ir import tile_softmax as ti
from sparsegen.ir import tile_strided as tm
from sparsegen.ir.expr import as_expr
from sparsegen.ir.node import Op
from sparsegen.ir.types import Buffer, f16, s8, s16, u32, u64

WRONG: list[tuple[str, type[Op], dict[str, Any], str]] = [
    ("all_reduce", tar.AllReduce, {"dtype": s8}, "type of what is summed .* is unknown"),
    ("all_reduce", tar.AllReduce, {"rank": 3}, "there is no rank 3 of 3"),
    ("all_reduce", tar.AllReduce, {"patience": -1}, "patience -1 is negative"),
    ("all_reduce", tar.AllReduce, {"theirs": (Buffer("theirs0", u64, 12000, "global", 16),)}, "1 buffers, of 2 to 8"),
    ("all_reduce", tar.AllReduce, {"theirs": (Buffer("src", u64, 1000, "global"),) * 2}, "no place for every rank"),
    ("all_reduce", tar.AllReduce, {"src": Buffer("epoch", u32, 4, "global")}, "@epoch is u32, not u64"),
    ("all_reduce", tar.AllReduce, {"dst": Buffer("theirs0", u64, 12000, "global", 16)}, "has not the size of @src"),
    ("all_reduce", tar.AllReduce, {"epoch": Buffer("src", u64, 1000, "global")}, "not a number for each block"),
    ("all_reduce", tar.AllReduce, {"words": Buffer("epoch", u32, 4, "global")}, "is not one s32"),
    ("all_reduce", t.Func, {"together": False}, "blocks of which not all run at the same time"),
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
    ("attention", ta.Attend, {"d": 48}, "elements of a head 48 is unknown"),
    ("attention", ta.Attend, {"d": 32}, "has 16 registers, but 8 are meant"),
    ("attention", ta.Attend, {"steps": 3}, "steps of a block 3 is unknown"),
    ("attention", ta.Attend, {"bits": 4}, "bits of the exponentials 4 is unknown"),
    ("attention", ta.LoadTask, {"queries": 33}, "has no whole heads of 33 x 64"),
    ("attention", ta.StoreAttention, {"height": 3}, "rows of a vector 3 is unknown"),
    ("attention", ta.StoreAttention, {"queries": 33}, "has no whole heads of 33 x 64"),
    ("attention in parts", tz.FetchPieces, {"of": 65}, "65 blocks of an array, 64 at most"),
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
]

"""The cases of the freeze: drawn once from the families' spaces.

``python -m tests.freeze.draw`` draws them again and writes ``programs.json.xz``; a change of printed programs is
frozen with ``--keep``, which lowers the same cases.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import sparsegen as sg
from sparsegen.bench import packed
from sparsegen.families.base import named
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import SparsegenError
from sparsegen.ir.numbers.gathered import MOST
from sparsegen.problems.sddmm import aligned
from tests.freeze.problems import BOUNDARIES, FILE, Case, frozen, text, weights

#: (family, axes of the field): cases of each.
STENCILS = {
    ("direct", 1): 8, ("direct", 2): 16, ("direct", 3): 12, ("tiled", 1): 10, ("tiled", 2): 30,
    ("stream", 1): 14, ("stream", 2): 24, ("patches", 2): 24, ("column", 3): 30, ("toeplitz", 1): 20,
    ("lowrank", 2): 20, ("stencil2row", 1): 10, ("stencil2row", 2): 30, ("stencil2row", 3): 14,
    ("layers", 3): 8, ("march", 3): 8, ("slab", 3): 10,
}  # fmt: skip
UPDATES, PRODUCTS, RAGGED, NM, GATHERED, DECODED, OUTER, STRIPS, FOURS = 16, 40, 16, 12, 8, 8, 8, 8, 6
WINDOWS, SAMPLED, ATTENTION, VECTORS, MAGICUBE, MIXED, UNFUSED, FLOATS, RESIDENT = 8, 18, 10, 12, 8, 10, 8, 10, 12
IN_TWO, NESTED, SHARED, STREAMED = 6, 12, 14, 16
EPILOGUES: tuple[dict[str, Any], ...] = ({}, {"bias": True}, {"scale": True, "residual": True, "activation": "gelu"})
SIZES = {1: (3000, 9000), 2: (150, 700), 3: (40, 100)}


def _stencils(draw: random.Random, family: str, axes: int, wanted: int) -> Iterator[Case]:
    found = 0
    while found < wanted:
        low, high = SIZES[axes]
        case: Case = {
            "kind": "stencil", "seed": draw.randrange(1 << 30), "radius": draw.choice((1, 1, 2, 3)),
            "form": "outer" if family == "lowrank" else draw.choice(("box", "star")),
            "dtype": draw.choice(("f64", "f64", "f32", "f16")), "boundary": draw.choice(list(BOUNDARIES)),
            "device": draw.choice(("h200", "h200", "a100", "v100")),
            "shape": [draw.randint(low, high) // (q := draw.choice((1, 1, 8))) * q for _ in range(axes)],
        }  # fmt: skip
        try:
            s = sg.Stencil.from_weights(weights(case), BOUNDARIES[case["boundary"]], dtype=case["dtype"])
            fp = Footprint.of(s.gridded)
            schedules = list(named(family).space(fp, 6))
            if not schedules:
                continue
            schedule = draw.choice(schedules)
            case |= {"schedule": str(schedule), "steps": schedule.steps * draw.choice((1, 3)) + draw.choice((0, 1))}
            text(case)
        except SparsegenError:
            continue
        found += 1
        yield case


def _updates(draw: random.Random) -> Iterator[Case]:
    for _ in range(UPDATES):
        form = draw.choice(("wave", "heat", "gray_scott"))
        axes = 3 if form == "heat" else 2
        low, high = SIZES[axes]
        yield {
            "kind": "update", "form": form, "dtype": draw.choice(("f64", "f32")), "device": "h200", "steps": 3,
            "boundary": draw.choice(list(BOUNDARIES)), "shape": [draw.randint(low, high) for _ in range(axes)],
            "schedule": f"direct block={draw.choice(('32x8', '64x4', '32x4'))} column={draw.choice((1, 2, 4))}",
        }  # fmt: skip


def _streamed(draw: random.Random) -> Case:
    form, dtype = draw.choice(("wave", "gray_scott", "life", "burgers")), draw.choice(("f64", "f32"))
    axes, levels = 1 if form == "burgers" else 2, draw.choice((1, 2, 3, 4, 8))
    low, high = SIZES[axes]
    cols = draw.choice((4, 8) if dtype == "f32" else (2, 4, 8))
    words = f"levels={levels} cols={cols} rows={draw.choice(('auto', 24, 100))} warps={draw.choice((1, 2, 4))}"
    return {
        "kind": "update", "form": form, "dtype": dtype, "device": draw.choice(("h200", "h200", "a100")),
        "boundary": draw.choice(list(BOUNDARIES)), "steps": levels * draw.choice((1, 3)) + draw.choice((0, 1)),
        "shape": [draw.randint(low, high) // (q := draw.choice((1, 1, 8))) * q for _ in range(axes)],
        "schedule": f"stream {words} stages={draw.choice((2, 3, 4, 6))} unroll={draw.choice((1, 1, 3))}",
    }  # fmt: skip


def _bitmap(draw: random.Random) -> Case:
    case: Case = {
        "kind": "spmm", "dtype": draw.choice(("f16", "bf16")), "sparsity": draw.choice((0.5, 0.6, 0.8)),
        "shape": [draw.choice((96, 512, 777, 1024)), draw.choice((64, 512, 1000, 1536))],
        "n": draw.choice((1, 3, 8, 16, 24, 40, 64)), "device": draw.choice(("h200", "h200", "a100")),
        "epilogue": draw.choice(EPILOGUES),
        "variant": [draw.choice(("row", "column")), draw.choice(("row", "column")), draw.choice((1, 2, 4, 8))],
        "schedule": f"bitmap cols={draw.choice((8, 16, 32, 64))} warps={draw.choice(('1x4', '2x4', '1x8', '2x8'))}"
        f" rows={draw.choice((1, 2, 3, 4, 7))} stages={draw.choice((2, 3, 4))} splits={draw.choice((1, 1, 2, 4))}",
    }  # fmt: skip
    if case["n"] == 1 and draw.random() < 0.7:
        case["schedule"] = case["schedule"].replace(case["schedule"].split()[1], "mma=none cols=1")
    return case


def _shared(draw: random.Random) -> Case:
    grouped, of = draw.random() < 0.4, draw.choice(("f16", "bf16"))
    cols = draw.choice((8, 16, 32, 64, 128) if grouped else (8, 16, 32, 64))
    warps, parts = draw.choice(((4, 1), (8, 1)) if grouped else ((4, 1), (7, 1), (3, 2), (2, 4)))
    words = f"mma={'wgmma' if grouped else f'{of}.m16n8k16'} cols={cols} warps={warps}x{parts}"
    return {
        **_bitmap(draw), "dtype": of, "device": "h200",
        "shape": [draw.choice((96, 512, 777)), draw.choice((512, 1000))],
        "schedule": f"bitmap_block {words} rows={1 if grouped else draw.choice((1, 2, 3))} "
        f"stages={draw.choice((4, 8))} splits={draw.choice((1, 1, 2))}",
    }  # fmt: skip


def _nested(draw: random.Random) -> Case:
    words = (f"{word}={draw.choice(('on', 'on', 'off'))}" for word in ("two_phase", "ldmatrix"))
    return {
        **_bitmap(draw), "format": "tca_bme", "device": draw.choice(("h200", "a100", "rtx4090")),
        "schedule": f"smbd cols={draw.choice((8, 16, 32, 64))} warps={draw.choice((4, 4, 2, 1))} "
        f"splits={draw.choice((1, 1, 2, 5))} buffers={draw.choice((2, 2, 1))} groups={draw.choice((2, 2, 1))} "
        + " ".join(words),
    }  # fmt: skip


def _ragged(draw: random.Random) -> Case:
    case: Case = {
        "kind": "spmm", "dtype": draw.choice(("f16", "bf16", "f32")), "device": draw.choice(("h200", "a100")),
        "mean": draw.choice((2.0, 8.0, 30.0)), "seed": draw.randrange(1000), "full": draw.choice((0, 2)),
        "shape": [draw.choice((96, 500, 1001)), draw.choice((64, 512, 1000))],
        "n": draw.choice((1, 3, 8, 16, 24, 64, 256)),
        "epilogue": draw.choice(EPILOGUES),
        "variant": [draw.choice(("row", "column")), draw.choice(("row", "column")), draw.choice((1, 2, 4, 8))],
        "schedule": f"csr team={draw.choice(('1x8', '4x1', '4x4', '8x2', '16x2', '32x1'))} "
        f"columns={draw.choice((1, 2, 4, 8))} unroll={draw.choice((1, 2, 4))} cut={draw.choice((16, 64, 512))} "
        f"warps={draw.choice((1, 4, 8))}",
    }  # fmt: skip
    return case


def _resident(draw: random.Random) -> Case:
    wide, groups = draw.choice(((32, 1), (32, 8), (64, 1), (64, 4), (128, 1), (128, 2)))
    words = f"warps={draw.choice((2, 8, 16))} groups={groups} unroll={draw.choice((1, 2, 4, 8))}"
    return {
        **_ragged(draw), "device": draw.choice(("h200", "h200", "a100", "rtx4090")),
        "schedule": f"csr_strip wide={wide} lists={draw.choice((1, 7, 33))} {words}",
    }  # fmt: skip


def _n_of_m(draw: random.Random) -> Case:
    case: Case = {
        "kind": "spmm", "dtype": draw.choice(("f16", "bf16", "f32")), "device": draw.choice(("h200", "a100")),
        "pattern": draw.choice([
            [8, 32, 1, 1], [16, 32, 1, 1], [2, 4, 1, 1], [3, 10, 1, 1], [48, 64, 1, 1], [33, 64, 1, 1],
            [8, 32, 32, 1], [8, 16, 4, 4],
        ]),
        "shape": [draw.choice((96, 500, 1001)), draw.choice((64, 500, 1000, 2048))], "n": draw.choice((1, 2, 4, 8, 11)),
        "epilogue": draw.choice(EPILOGUES),
        "variant": [draw.choice(("row", "column")), draw.choice(("row", "column")), draw.choice((1, 2, 4, 8))],
        "schedule": f"nm_lanes cols={draw.choice((1, 2, 4, 8))} "
        f"warps={draw.choice(('1x8', '1x16', '2x8', '2x4', '4x4', '3x1'))}",
    }  # fmt: skip
    return case


def _many_columns(draw: random.Random, piece: int) -> Case:
    """What products with more columns than a few have: adjacent elements of x in pieces of ``piece``."""
    return {
        "shape": [draw.choice((96, 500, 1024)), draw.choice((64, 500, 1000))], "n": draw.choice((8, 17, 40, 136, 512)),
        "epilogue": draw.choice(EPILOGUES),
        "variant": [draw.choice(("row", "row", "column")), draw.choice(("row", "column")), piece],
    }  # fmt: skip


def _gathered(draw: random.Random) -> Case:
    case: Case = {
        "kind": "spmm", "dtype": draw.choice(("f16", "bf16")), "device": "h200",
        "pattern": draw.choice([[8, 32, 64, 1], [16, 32, 128, 1], [2, 4, 64, 1], [8, 32, 1, 1], [4, 16, 96, 4]]),
        **_many_columns(draw, 8),
        "schedule": f"nm_gather rows={draw.choice((64, 128))} cols={draw.choice((16, 32, 64, 128, 256))} "
        f"stages={draw.choice((2, 3, 4, 5))}",
    }  # fmt: skip
    return case


def _decoded(draw: random.Random) -> Case:
    case: Case = {
        "kind": "spmm", "dtype": draw.choice(("f16", "bf16")), "device": "h200",
        "pattern": draw.choice([[4, 32, 1, 1], [16, 32, 1, 1], [2, 4, 2, 1], [3, 10, 1, 1], [8, 16, 4, 4]]),
        **_many_columns(draw, 8),
        "schedule": f"nm_decode rows={draw.choice((64, 128))} cols={draw.choice((16, 32, 64, 128, 256))} "
        f"stages={draw.choice((3, 4, 5))} teams={draw.choice((1, 2, 3))}",
    }  # fmt: skip
    return case


def _outer(draw: random.Random) -> Case:
    case: Case = {
        "kind": "spmm", "dtype": "f32", "device": draw.choice(("h200", "a100")),
        "pattern": draw.choice([[8, 32, 32, 1], [16, 32, 8, 1], [2, 4, 64, 1], [3, 10, 24, 1], [32, 64, 16, 4]]),
        **_many_columns(draw, 4),
        "schedule": f"nm_outer rows={draw.choice((32, 64, 128))} "
        f"{draw.choice(('cols=64 each=4', 'cols=64 each=8', 'cols=128 each=8', 'cols=128 each=16'))} "
        f"deep={draw.choice((32, 64))} stages={draw.choice((3, 4))}",
    }  # fmt: skip
    return case


def _strips(draw: random.Random) -> Case:
    case: Case = {
        "kind": "spmm", "dtype": draw.choice(("f16", "bf16")), "device": draw.choice(("h200", "a100", "rtx4090")),
        "pattern": draw.choice([[8, 32, 32, 1], [16, 32, 64, 1], [4, 32, 16, 1], [2, 4, 32, 1], [3, 10, 24, 1]]),
        **_many_columns(draw, 8),
        "schedule": f"nm_strips strip={draw.choice((16, 32, 64))} warps={draw.choice(('2x1', '4x1', '8x1', '4x2'))} "
        f"cols={draw.choice((32, 64, 128))} kept={draw.choice((16, 32))} stages={draw.choice((2, 3, 4))}",
    }  # fmt: skip
    return case


def _fours(draw: random.Random) -> Case:
    case: Case = {
        "kind": "spmm", "dtype": draw.choice(("f16", "bf16")), "device": "h200",
        "pattern": draw.choice([[2, 4, 1, 1], [1, 4, 1, 1], [1, 2, 64, 1], [2, 8, 1, 2]]),
        **_many_columns(draw, 8),
        "schedule": f"nm_24 rows={draw.choice((64, 128, 256))} cols={draw.choice((16, 32, 64, 128, 256))} "
        f"stages={draw.choice((2, 3, 4, 5))}",
    }  # fmt: skip
    return case


def _windows(draw: random.Random) -> Case:
    case = _n_of_m(draw)
    words = f"cols={draw.choice((1, 2, 4))} warps={draw.choice((4, 8, 16))}"
    case["schedule"] = f"nm_windows {words} layout={draw.choice(('offsets', 'offsets', 'windows'))}"
    return case


def _sampled(draw: random.Random) -> Case:
    dtype = draw.choice(("i8", "i8", "i16", "i4"))
    case: Case = {
        "kind": "sddmm", "dtype": dtype, "device": draw.choice(("h200", "h200", "a100", "rtx4090")),
        "shape": [draw.choice((40, 500, 1024)), draw.choice((64, 333, 1000))], "k": draw.choice((50, 64, 512, 1500)),
        "sparsity": draw.choice((0.5, 0.9)),
        "options": {"height": draw.choice((8, 8, 4, 2)), "out": draw.choice(("bcrs", "sr_bcrs"))},
        "variant": [f"s{dtype[1:]}", draw.choice(("row", "row", "column")), draw.choice(("column", "column", "row"))],
        "schedule": f"strips rows={draw.choice((32, 64, 128, 256))} warps={draw.choice((4, 8, 16))} "
        f"groups={draw.choice((1, 4, 8))} prefetch={draw.choice(('on', 'off'))} parts={draw.choice((1, 1, 2, 3))}",
    }  # fmt: skip
    if draw.random() < 0.4:
        words = f"warps={draw.choice((1, 2, 4))} most={draw.choice((1, 2, 8))} stages={draw.choice((2, 3))}"
        case["schedule"] = f"gather {words}"
    case["schedule"] += f" overlap={draw.choice(('on', 'off')) if case['device'] == 'h200' else 'off'}"
    m, n, row = *case["shape"], case["k"] * int(dtype[1:]) // 8
    item = 2 if dtype == "i16" else 1
    runs = (row if case["variant"][1] == "row" else m * item, row if case["variant"][2] == "column" else n * item)
    case["variant"] += [aligned(run) for run in runs]
    return case


def _attention(draw: random.Random) -> Case:
    case: Case = {
        "kind": "attention", "dtype": "f16", "device": draw.choice(("h200", "h200", "a100", "rtx4090")),
        "shape": [draw.choice((64, 333, 1024)), draw.choice((77, 512, 2000))], "height": draw.choice((2, 4, 8, 8)),
        "share": draw.choice((0.05, 0.2)),
        "how": {
            "heads": draw.choice((1, 4)), "d": draw.choice((32, 64, 64, 128)), "batch": draw.choice((1, 2)),
            "softmax_bits": draw.choice((8, 8, 16)), "quantized": draw.random() < 0.7,
        },
        "schedule": f"fused parts={draw.choice((1, 2, 4))} groups={draw.choice((1, 4))} "
        f"warps={draw.choice((4, 8, 16))} keys={draw.choice((32, 64, 128))}",
    }  # fmt: skip
    return case


def _unfused(draw: random.Random) -> Case:
    words = f"most={draw.choice(MOST)} stages={draw.choice((2, 3, 4))} wide={draw.choice((32, 64, 128))}"
    return {**_attention(draw), "schedule": f"unfused {words}"}


def _vectors(draw: random.Random) -> Case:
    kind, x_kind = draw.choice(("i8", "i8", "i4", "i16", "u8")), draw.choice(("i8", "i8", "i4", "u4", "i16"))
    y = draw.choice(({}, {"y_dtype": "f16", "scale": True}, {"y_dtype": "f32", "bias": True, "activation": "gelu"}))
    case: Case = {
        "kind": "spmm", "dtype": kind, "device": draw.choice(("h200", "h200", "a100", "rtx4090")),
        "height": draw.choice((8, 8, 4, 2)), "kept": draw.choice((0.8, 2.4)),
        "shape": [draw.choice((40, 500, 1024)), draw.choice((64, 333, 1000))], "n": draw.choice((17, 64, 136, 512)),
        "epilogue": {"x_dtype": x_kind, **y},
        "schedule": f"vector_strip wide={draw.choice((32, 64, 128))} lists={draw.choice((1, 4, 16))} "
        f"warps={draw.choice((4, 8, 16))} unroll={draw.choice((1, 2, 4))} parts={draw.choice((1, 3, 4))}",
    }  # fmt: skip
    order, each = draw.choice(("row", "row", "column")), x_kind[1:] == "4" and draw.random() < 0.5
    size, pair = 2 if x_kind == "i16" else 1, x_kind[1:] == "4" and not each
    run = case["shape"][1] if order == "column" else -(-case["n"] // 2) if pair else case["n"]
    vec = next(v for v in (16, 8, 4, 2, 1) if run % v == 0 and v * size <= 16)
    case["variant"] = [order, draw.choice(("row", "column")), vec, each]
    return case


def _vector_floats(draw: random.Random) -> Case:
    n, order = draw.choice((17, 64, 136, 512)), draw.choice(("row", "row", "column"))
    shape = [draw.choice((40, 500, 1024)), draw.choice((64, 333, 1000))]
    words = (
        f"vector_strip wide={draw.choice((32, 64, 128))} lists={draw.choice((1, 4, 16))} "
        f"warps={draw.choice((4, 8, 16))} unroll={draw.choice((1, 2, 4))} parts={draw.choice((1, 3, 4))}",
        f"vector_gather wide={draw.choice((32, 64, 128))} warps={draw.choice(('1x4', '2x2'))} "
        f"stages={draw.choice((2, 4))}",
    )  # fmt: skip
    return {
        "kind": "spmm", "dtype": draw.choice(("f16", "bf16")), "device": draw.choice(("h200", "h200", "a100")),
        "height": draw.choice((8, 8, 4)), "kept": draw.choice((0.8, 2.4)), "shape": shape, "n": n,
        "epilogue": draw.choice(({}, {"residual": True}, {"scale": True, "bias": True, "activation": "gelu"})),
        "schedule": draw.choice(words) + draw.choice(("", " cut=4")),
        "variant": [order, draw.choice(("row", "row", "column")), draw.choice((8, 4)), False],
    }  # fmt: skip


def _magicube(draw: random.Random) -> Case:
    words = (f"{word}={draw.choice(('on', 'off'))}" for word in ("prefetch", "pad", "shuffle", "stack"))
    return {**_vectors(draw), "schedule": " ".join([f"vector_block wide={draw.choice((32, 64, 128))}", *words])}


def _mixed(draw: random.Random) -> Case:
    return {
        "kind": "spmm", "dtype": draw.choice(("f16", "bf16")), "device": draw.choice(("h200", "a100", "rtx4090")),
        "tile": draw.choice((16, 32, 64)), "delta": draw.choice((0.3, 0.3, 0.1, 0.1, 0.1, 1.0)),
        "shape": [draw.choice((96, 300, 512)), draw.choice((64, 333, 1000))],
        "n": draw.choice((1, 8, 17, 40, 136, 512)),
        "epilogue": draw.choice(EPILOGUES),
        "variant": [draw.choice(("row", "row", "column")), draw.choice(("row", "column")), 8],
        "schedule": f"hybrid high={draw.choice((1, 2, 4))} cols={draw.choice((16, 32, 64, 128, 256))} "
        f"warps={draw.choice(('1x1', '1x2', '1x4', '1x8', '2x1', '2x4'))} "
        f"mma={draw.choice(('sync', 'sync', 'wgmma'))} slices={draw.choice((1, 1, 2, 4))} "
        f"stages={draw.choice((2, 3, 4, 6))} unroll={draw.choice((1, 2, 4))}",
    }  # fmt: skip


def _in_two(draw: random.Random) -> Case:
    teams, columns = draw.choice(("4x2", "16x1", "2x16")), draw.choice((1, 8))
    words = f"team={teams} columns={columns} unroll=2 cut={draw.choice((8, 64))}"
    return {
        **_mixed(draw), "format": "blocked_ell", "delta": draw.choice((0.4, 0.4, 0.1, 1.0)),
        "schedule": f"blocked_ell cols={draw.choice((16, 64, 128))} warps={draw.choice(('1x1', '1x2', '1x4', '2x1'))} "
        f"stages={draw.choice((2, 3, 6))} {words}",
    }  # fmt: skip


def _legal(draw: random.Random, drawn: Callable[[random.Random], Case], wanted: int) -> Iterator[Case]:
    found = 0
    while found < wanted:
        case = drawn(draw)
        try:
            text(case)
        except SparsegenError:
            continue
        found += 1
        yield case


def _products(draw: random.Random, drawn: Callable[[random.Random], Case], wanted: int) -> Iterator[Case]:
    found = 0
    while found < wanted:
        case = drawn(draw)
        run = case["n"] if case["variant"][0] == "row" else case["shape"][1]
        case["variant"][2] = next(v for v in (case["variant"][2], 2, 1) if run % v == 0)
        try:
            text(case)
        except SparsegenError:
            continue
        found += 1
        yield case


def draw_all(seed: int = 12) -> Iterator[Case]:
    """Every case of the freeze."""
    for (family, axes), wanted in STENCILS.items():
        yield from _stencils(random.Random(f"{family} {axes} {seed}"), family, axes, wanted)
    yield from _updates(random.Random(seed))
    yield from _products(random.Random(seed + 1), _bitmap, PRODUCTS)
    yield from _products(random.Random(seed + 2), _ragged, RAGGED)
    yield from _products(random.Random(seed + 3), _n_of_m, NM)
    yield from _products(random.Random(seed + 4), _gathered, GATHERED)
    yield from _products(random.Random(seed + 5), _decoded, DECODED)
    yield from _products(random.Random(seed + 6), _outer, OUTER)
    yield from _products(random.Random(seed + 7), _strips, STRIPS)
    yield from _products(random.Random(seed + 8), _fours, FOURS)
    yield from _products(random.Random(seed + 9), _windows, WINDOWS)
    yield from _legal(random.Random(seed + 10), _sampled, SAMPLED)
    yield from _legal(random.Random(seed + 11), _attention, ATTENTION)
    yield from _legal(random.Random(seed + 12), _vectors, VECTORS)
    yield from _legal(random.Random(seed + 13), _magicube, MAGICUBE)
    yield from _products(random.Random(seed + 14), _mixed, MIXED)
    yield from _legal(random.Random(seed + 15), _unfused, UNFUSED)
    yield from _products(random.Random(seed + 16), _vector_floats, FLOATS)
    yield from _products(random.Random(seed + 17), _resident, RESIDENT)
    yield from _products(random.Random(seed + 18), _in_two, IN_TWO)
    yield from _products(random.Random(seed + 19), _nested, NESTED)
    yield from _products(random.Random(seed + 20), _shared, SHARED)
    yield from _legal(random.Random(seed + 21), _streamed, STREAMED)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="freeze the same cases with the text they have now")
    cases = [case for case, _ in frozen()] if parser.parse_args().keep else list(draw_all())
    packed.write(FILE, json.dumps([(case, text(case)) for case in cases]))
    print(f"{len(cases)} cases, {FILE.stat().st_size} bytes")

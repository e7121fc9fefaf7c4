"""Small programs at the tile level, one of each family at least: what ``test_tile_checks`` breaks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

import sparsegen as sg
from sparsegen.boundary import frozen, periodic
from sparsegen.cost.devices import load_profile
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir import tile as t
from sparsegen.ir import tile_resident as te
from sparsegen.ir import tile_tasks as tk
from sparsegen.ir.expr import Value, as_expr
from sparsegen.ir.kernels.all_reduce import AllReduceKernel
from sparsegen.ir.kernels.march import March
from sparsegen.ir.module import Module
from sparsegen.ir.op_all_reduce import AllReduce
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.ir.types import Buffer, f16, s8, s32, u64
from sparsegen.pipelines import lower
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.problems.stencil import StencilProblem
from sparsegen.schedule import SpmmSchedule, StencilSchedule
from tests import mixed_kit
from tests.csr_kit import ragged
from tests.products_kit import matrix
from tests.programs import dense
from tests.updates import heat, made, wave

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
    "slab": ("slab lines=2 cols=64 warps=3 planes=4", (3, 3, 3), (20, 20, 60), frozen),
}


def compiled(what: Any, line: str, device: str = "h200") -> Module:
    """The program of a product, or the like, with a schedule."""
    return parse_module(sg.compile(what, device=device, backend="emulator", schedule=line).ir("tile"))


def nm(
    line: str, n: int, rows: int = 64, times: int = 8, dtype: str = "f2", device: str = "h200", **pattern: int
) -> Module:
    """Every fourth column kept."""
    w = np.tile(np.arange(32) % 4 == 0, (rows, times)).astype(dtype)
    return compiled(sg.spmm(sg.sparse(w, format="nm", n=8, m=32, **pattern), n=n, bias=True), line, device)


def halves() -> Module:
    w = np.tile(np.arange(32) % 4 < 2, (64, 8)).astype("f2")
    return compiled(sg.spmm(sg.sparse(w, format="nm", n=2, m=4), n=24, bias=True), "nm_24 rows=64 cols=32 stages=2")


def by_columns(k: int, vec: int) -> Module:
    """x comes by columns, which a launch before turns."""
    w = np.tile(np.arange(32) % 4 == 0, (64, 8)).astype("f2")[:, :k]
    problem = SpmmProblem(sg.spmm(sg.sparse(w, format="nm", n=8, m=32, vector=64), n=24))
    words: Any = SpmmSchedule.parse("nm_gather rows=64 cols=32 stages=2")
    return lower(problem, words, load_profile("h200"), 1, Variant("column", "column", vec)).tile


def csr() -> Module:
    """Teams of 2 x 4 lanes, and rows that are cut."""
    w = sg.sparse(ragged(150, 90, 10, full=2), format="csr", dtype="f32")
    return compiled(sg.spmm(w, n=24, bias=True), "csr team=2x4 columns=4 unroll=2 cut=16 warps=2")


def csr_strip() -> Module:
    w = sg.sparse(ragged(40, 90, 4).toarray().astype("f4"), format="csr")
    return compiled(sg.spmm(w, n=22, bias=True), "csr_strip wide=64 lists=2 warps=2 groups=2 unroll=4")


def smbd(line: str, n: int) -> Module:
    return compiled(sg.spmm(matrix(100, 200, format="tca_bme"), n=n, bias=True), line, "a100")


def hybrid(long: int, slices: int = 1) -> Module:
    """``long``: rows that are cut."""
    product = sg.spmm(mixed_kit.matrix(70, 100 + 200 * long, long=long), n=17, bias=True)
    return compiled(product, mixed_kit.line(warps="2x2", slices=slices), "a100")


def turned() -> Module:
    product = sg.spmm(mixed_kit.matrix(70, 100), n=120)
    return compiled(product, mixed_kit.line(128, "1x4", slices=2, mma="wgmma"))


def blocked_ell() -> Module:
    """Two kernels: of tiles, some of which fill block rows up, and of rows on top of their sums."""
    product = sg.spmm(mixed_kit.matrix(70, 100, 16, delta=0.4, format="blocked_ell"), n=24, bias=True)
    words = "cols=32 warps=1x2 stages=3 team=4x2 columns=8 unroll=2 cut=64"
    return compiled(product, f"blocked_ell {words}", "a100")


def sampled(k: int) -> Module:
    """In parts of 128 of the ``k`` that elements are summed over."""
    line = f"strips rows=64 warps=2 groups=1 prefetch=on parts={-(-k // 128)} overlap=off"
    return compiled(sg.sddmm(np.ones((20, 40), bool), k=k, height=4, out="sr_bcrs"), line)


def gathered() -> Module:
    product = sg.sddmm(np.ones((20, 40), bool), k=48, height=4, out="sr_bcrs")
    return compiled(product, "gather warps=2 most=2 stages=2 overlap=off")


def attention(line: str, quantized: bool = True) -> Module:
    return compiled(sg.attention(np.ones((20, 100), bool), heads=2, d=64, quantized=quantized), line)


def vectors(w: Any, line: str, n: int, device: str = "h200", height: int = 8, **how: Any) -> Module:
    return compiled(sg.spmm(sg.sparse(w, format="sr_bcrs", height=height), n=n, **how), line, device)


def integers() -> Module:
    w = np.random.default_rng(2).integers(-9, 9, (40, 100), "i1")
    return vectors(w, "vector_strip wide=32 lists=1 warps=2 unroll=2 parts=2", 24, y_dtype="f32", bias=True)


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


def update() -> Module:
    kernel: Any = sg.compile(wave(), (37, 70), 1, device="h200", backend="emulator", schedule="direct")
    return parse_module(kernel.ir("tile"))


def stencil(family: str) -> Module:
    """The program of one of FAMILIES."""
    line, extents, shape, sides = FAMILIES[family]
    rng = np.random.default_rng(1)
    weights: Any = np.multiply.outer(rng.random(3), rng.random(3)) if family == "lowrank" else rng.random(extents)
    if family == "planes":
        weights[0] = weights[2] = np.diag([1.0, 2.0, 0.0])
    s, schedule = Stencil.from_weights(weights, sides, dtype="f64").gridded, StencilSchedule.parse(line)
    return lower(StencilProblem(s, shape), schedule, load_profile("h200"), schedule.steps).tile


_TRI = partial(np.tri, 40)


#: What makes each program, by its name.
def updated(what: Any, shape: tuple[int, ...], steps: int, line: str) -> Module:
    """The program of an update with a schedule."""
    k = sg.compile(what, shape, steps, device="h200", backend="emulator", schedule=line)
    return parse_module(k.ir("tile"))


def with_ghosts(what: Any, shape: tuple[int, ...], line: str) -> Module:
    """The program of passes of an update between rows with ghosts."""
    k: Any = sg.compile(what, shape, 9, device="h200", backend="emulator", schedule=line)
    return parse_module(print_module(k._plan(9).main.tile))


def copied() -> Module:
    """The copy of a coefficient to rows with ghosts."""
    what, line = heat(boundary=periodic), "column lines=2 warps=2 planes=4"
    k: Any = sg.compile(what, (9, 12, 71), 9, device="h200", backend="emulator", schedule=line)
    return parse_module(print_module(k._plan(9).programs[0][0].tile))


def sound() -> Any:
    """Waves on three axes: an array that is read around a cell, and two that are read at it."""

    def sound(u: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
        now: Any = u
        around = now[-1, 0, 0] + now[1, 0, 0] + now[0, -1, 0] + now[0, 1, 0] + now[0, 0, -1] + now[0, 0, 1]
        return 2 * now[0, 0, 0] - now.prev[0, 0, 0] + c[0, 0, 0] * (around - 6 * now[0, 0, 0])

    return made(sound, boundary=frozen)


def march() -> Module:
    """A step of the same waves, by threads that keep planes."""
    k: Any = sg.compile(sound(), (9, 20, 70), 1, device="h200", backend="emulator", schedule="direct")
    return parse_module(print_module(March(2, 32, 2, 4).run(parse_module(k.ir("op")))))


def surveyed() -> Any:
    """Waves with a source and receivers."""
    rows = sg.Receiver([[1, 2], [9.5, 7.25]])
    return wave().with_sites(shot=sg.Source([[3.5, 4.25]]), rows=rows)


def all_reduce() -> Module:
    """A sum over three GPUs."""
    return AllReduceKernel(4, 2).run(Module("all_reduce", (AllReduce("all_reduce", f16, 3, 1, 1000, 5),)))


PROGRAMS: dict[str, Callable[[], Module]] = {
    "all_reduce": all_reduce,
    **{family: partial(stencil, family) for family in FAMILIES},
    "update": update,
    "stream_update": lambda: updated(wave(boundary=frozen), (64, 128), 3, "stream levels=3 cols=4 rows=16"),
    "column_update": lambda: updated(sound(), (9, 20, 70), 1, "column lines=2 warps=2 planes=4"),
    "march": march,
    "column_levels": lambda: updated(sound(), (9, 20, 70), 3, "column levels=3 lines=2 warps=3 planes=4"),
    "resident_update": lambda: updated(wave(), (37, 70), 3, "resident tiles=2x2 rows=5 cols=2 warps=5 every=2"),
    "resident_cells": lambda: updated(wave(), (37, 70), 3, "resident tiles=2x2 rows=1 cols=2 warps=21 every=1"),
    "tiled_update": lambda: updated(wave(), (37, 150), 2, "tiled levels=2 cols=2 rows=3 warps=4"),
    "column_ghosts": lambda: with_ghosts(heat(boundary=periodic), (9, 12, 71), "column lines=2 warps=2 planes=4"),
    "copied": copied,
    "sites": lambda: updated(surveyed(), (37, 150), 2, "stream levels=2 cols=4"),
    "resident_sites": lambda: updated(surveyed(), (37, 70), 1, "resident tiles=2x2 rows=5 cols=2 warps=5 every=2"),
    "stored_sites": lambda: updated(surveyed(), (37, 150), 1, "direct"),
    "resident_lines": lambda: updated(
        heat(boundary=periodic), (9, 12, 32), 3, "resident tiles=2x2x1 planes=9 rows=2 cols=1 warps=6 every=1"
    ),
    "bitmap": lambda: compiled(sg.spmm(matrix(128, 192), n=8, bias=True), "bitmap warps=2x2 rows=2 splits=2"),
    "bitmap_block": lambda: compiled(
        sg.spmm(matrix(128, 256), n=8, bias=True),
        "bitmap_block mma=f16.m16n8k16 cols=8 warps=2x2 rows=2 stages=4 splits=2",
    ),
    "bitmap of warpgroups": lambda: compiled(
        sg.spmm(matrix(128, 192), n=128, bias=True),
        "bitmap_block mma=wgmma cols=128 warps=4x1 rows=1 stages=4 splits=1",
    ),
    "experts": lambda: compiled(
        sg.spmm([matrix(64, 192)] * 3, n=24, ragged=True, bias=True), "bitmap cols=8 warps=2x2 rows=2 splits=2"
    ),
    "column of x": lambda: compiled(
        sg.spmm(matrix(128, 192), n=1, bias=True), "bitmap mma=none cols=1 warps=2x2 rows=2"
    ),
    "csr": csr,
    "nm_lanes": lambda: nm("nm_lanes cols=4 warps=1x4", 4, rows=50),
    "nm_gather": lambda: nm("nm_gather rows=64 cols=32 stages=2", 17, vector=64),
    "nm_decode": lambda: nm("nm_decode rows=64 cols=32 stages=2 teams=2", 24),
    "nm_outer": lambda: nm("nm_outer rows=64 cols=32 each=4 deep=32 stages=3", 17, dtype="f4", vector=64),
    "nm_windows": lambda: nm("nm_windows cols=4 warps=4", 4, rows=50, times=40),
    "nm_strips": lambda: nm("nm_strips strip=32 warps=2x1 cols=32 kept=16 stages=2", 17, device="a100", vector=32),
    "nm_24": halves,
    "x by columns": lambda: by_columns(256, 8),
    "x by odd columns": lambda: by_columns(255, 1),
    "dense": lambda: dense.tiles(100, 200, 40, 32, "row", 2),
    "hybrid": lambda: hybrid(0),
    "hybrid with cuts": lambda: hybrid(1),
    "hybrid in slices": lambda: hybrid(0, 2),
    "hybrid by warpgroups": turned,
    "blocked_ell": blocked_ell,
    "csr_strip": csr_strip,
    "resident": lambda: Module("resident", (resident(),)),
    "sampled": lambda: sampled(48),
    "sampled in parts": lambda: sampled(160),
    "gathered": gathered,
    "attention": lambda: attention("fused parts=1 groups=1 warps=2 keys=64"),
    "attention in parts": lambda: attention("fused parts=2 groups=1 warps=2 keys=64", quantized=False),
    "unfused attention": lambda: attention("unfused"),
    "smbd": lambda: smbd("smbd cols=16 warps=2 splits=2", 24),
    "vector_strip": integers,
    "vector_gather": lambda: vectors(_TRI(300, 200, dtype="i1"), "vector_gather wide=32 warps=1x2 stages=2 cut=7", 33),
    "vectors of floats": lambda: vectors(
        _TRI(300, 200, dtype="f2"), "vector_gather wide=64 warps=1x2 stages=2 cut=7", 24, "auto"
    ),
    "vector_block": lambda: vectors(
        _TRI(100, 20, dtype="i1"), "vector_block wide=64", 64, "auto", height=4, y_dtype="f32", bias=True
    ),
}


@cache
def tile_level(name: str) -> Module:
    """One of PROGRAMS."""
    return PROGRAMS[name]()

"""``stencil2row``: a stencil as two matrix products per tile (ConvStencil, PPoPP'24, sections 3.2 to 3.4 and 4).

The window of a tile becomes two matrices A and B of ``group = k + 1`` columns a row (layouts ``stencil2row_a/b``); dual
tessellation multiplies 8 or 16 of their rows with triangular weight matrices and adds both products in one fragment.
A field of one row has windows of one row.  On three axes a tile lies in a plane: the products of all planes of weights
go into the same fragments, and the points of small planes are added on the CUDA cores (``ir/heavy.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .. import op as o
from .. import tile as t
from .. import tile_stencil2row as ts
from ..errors import ScheduleError
from ..expr import Expr, as_expr
from ..fragments import SHAPES
from ..heavy import HELD, heavy
from ..layout import Layout, layout, row_major, walk_degree
from ..module import Module
from ..node import Op
from ..types import Buffer, s32, u32
from .manager import register
from .stencil2row_matrices import Matrices
from .tile_common import align_left, each, field, keep, replace_kernel, tile_count, tiles, vector, whole


@register("stencil2row")
@dataclass(frozen=True)
class Stencil2Row:
    """Tiles of ``rows`` x ``cols`` outputs; ``mma`` names the tensor-core shape, or ``fma`` for the CUDA cores.

    ``stages`` 1 copies global memory straight into A and B; more fetches raw tiles ahead (the pipeline pass follows).
    ``explicit`` builds A and B of all tiles in global memory first, by a kernel of its own: the paper's starting point.
    """

    rows: int = 32
    cols: int = 64
    mma: str = "f64.m8n8k4"
    warps: int = 8
    stages: int = 1
    lut: bool = True
    dirty: bool = True
    pad: bool = True
    explicit: bool = False
    blocks: int = 0
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, lambda m, op: _Build(self, op).kernels(m))


@dataclass(frozen=True)
class _Plane:
    """The weights that tensor cores take of one plane: its offset (none on two axes), its place in the table."""

    offset: tuple[int, ...]
    taps: tuple[o.Tap, ...]
    number: int


class _Build:
    """One stencil's kernel, and its parts."""

    def __init__(self, s: Stencil2Row, op: o.Stencil) -> None:
        self.s, self.op, self.loc = s, op, op.loc
        k = 2 * max(op.radius) + 1
        height = 1 if len(op.shape) == 2 and op.radius[0] == 0 else k
        base = "f64.m8n8k4" if s.mma == "fma" else s.mma
        m, group = SHAPES[base].m, k + 1
        if s.cols % (m * group) or s.rows * (s.cols // (m * group)) % s.warps:
            raise ScheduleError(
                f"tile={s.rows}x{s.cols} does not make {m} groups of {group} columns for {s.warps} warps",
                hint=f"an edge of {k} needs columns in multiples of {m * group}",
            )
        if s.explicit and len(op.shape) > 2:
            raise ScheduleError(
                "transform=explicit makes the matrices of one plane, the stencil has several",
                hint="set transform=implicit",
            )
        # in global memory a dirty write costs as much as a real one
        self.ab = Matrices(k, height, s.rows, s.cols, base, s.pad, s.dirty and not s.explicit)
        self.before = height // 2, k // 2
        self.size = (1,) * (len(op.shape) - 2) + (s.rows, s.cols)
        of_plane: dict[tuple[int, ...], list[o.Tap]] = {}
        for tap in op.taps:
            of_plane.setdefault(tap[0][:-2], []).append(tap)
        large = heavy([len(taps) for taps in of_plane.values()], height * k)
        products = [(at, tuple(taps)) for (at, taps), is_large in zip(of_plane.items(), large, strict=True) if is_large]
        self.planes = [_Plane(at, taps, i) for i, (at, taps) in enumerate(products)]
        self.points = tuple(tap for tap in op.taps if tap[0][:-2] not in {p.offset for p in self.planes})

    def _buffer(self, space: Any, tiles_in_memory: int = 1) -> Buffer:
        """A, B and the dirty slot of a tile (or, in global memory, of all tiles)."""
        name = "ab" if space == "shared" else "ab_all"
        return Buffer(name, self.op.dtype, self.ab.size * tiles_in_memory, space, 128)

    def _wide(self, pitch: int) -> int:
        """Elements that one access may move: the only row of a field starts at a 16-byte boundary."""
        return 2 if prod(self.op.shape[:-1]) == 1 else vector(pitch, 2)

    # ------------------------------------------------------------------------------------------------ kernels
    def kernels(self, module: Module) -> Module:
        """The stencil as a kernel, or as two with A and B in global memory between them."""
        s, op = self.s, self.op
        if s.lut and 2 * self.ab.a_size >= 1 << 16:
            raise ScheduleError(
                "lut=on: a tile's offsets do not fit 16 bits", hint="set lut=off or make the tile smaller"
            )
        if not s.explicit:
            return self._fused(module)
        count = tile_count(whole(op), self.size)
        ab, u = self._buffer("global", count), field(op, "u")
        lut, constants = self._lut()
        pads = self._pads(constants)

        def body(loop: t.ForTiles) -> list[Op]:
            return [
                *(t.Zero(ab, p, loop.number, loc=self.loc) for p in pads),
                self._copy(loop, (), u, ab, lut, loop.number),
            ]

        params = (u, ab, *pads, *([lut] if lut else []))
        loop = tiles(whole(op), self.size, 0, body, self.loc)
        func = (t.Slots(ab, count, loc=self.loc), loop)
        transform = t.Func(f"{op.symbol}_stencil2row", params, count, 32 * s.warps, func, loc=self.loc)
        module = replace_kernel(module, op, transform, constants, keep_op=True)
        return self._multiply(module, ab, count)

    def _multiply(self, module: Module, ab: Buffer, count: int) -> Module:
        """The explicit form's second kernel: products straight from global memory."""
        s, op = self.s, self.op
        u, out = field(op, "u"), field(op, "out")
        table, held, load, constants = self._weights()

        def body(loop: t.ForTiles) -> list[Op]:
            return [*self._product(self.planes[0], ab, loop.number, table, held), self._store(loop, u, out)]

        loop = tiles(whole(op), self.size, 0, body, self.loc)
        func = t.Func(op.symbol, (u, ab, out, table), count, 32 * s.warps, (*load, loop), loc=self.loc)
        return replace_kernel(module, op, func, constants)

    def _fused(self, module: Module) -> Module:
        s, op = self.s, self.op
        u, out, ab = field(op, "u"), field(op, "out"), self._buffer("shared")
        table, held, load, constants = self._weights()
        lut, lut_table = self._lut()
        pads = self._pads(constants)
        small = self._small(constants)
        before = align_left(self.before[1], 2)
        height, width = self.ab.window[0], -(-(before + s.cols + self.before[1]) // 2) * 2
        layout_raw = row_major((height, width))
        names = ["raw"] if len(self.planes) == 1 else [f"raw{p.number}" for p in self.planes]
        raw = [Buffer(name, op.dtype, height * width, "shared", 128) for name in names] if s.stages > 1 else []
        shift = before - self.before[1]
        window = layout({"r": height, "c": self.ab.window[1]}, lambda r, c: r * width + c + shift)

        def body(loop: t.ForTiles) -> list[Op]:
            zero = as_expr(0)
            fetches: list[Op] = [
                t.Copy(
                    to, u, loop.y - self.before[0], loop.x - before, height, width, (layout_raw,), zero, zero, op.shape,
                    op.pitch[0], op.sides, self._wide(op.pitch[0]), "async", lead=self._lead(loop, p), loc=self.loc,
                )
                for to, p in zip(raw, self.planes, strict=False)
            ]  # fmt: skip
            sums: list[Op] = []
            for p in self.planes:
                src, src_map = (raw[p.number], window) if raw else (u, None)
                sums.append(self._copy(loop, self._lead(loop, p), src, ab, lut, zero, src_map))
                sums += self._product(p, ab, zero, table, held)
            points = [self._add_points(loop, u, *small)] if small else []
            return [*fetches, *sums, *points, self._store(loop, u, out)]

        count = tile_count(whole(op), self.size)
        blocks = min(s.blocks, count) or count
        loop = tiles(whole(op), self.size, blocks if s.blocks else 0, body, self.loc)
        allocs: list[Op] = [t.Alloc(ab, row_major((2 * self.ab.groups, self.ab.stride)), loc=self.loc)]
        allocs += [t.Alloc(b, layout_raw, loc=self.loc) for b in raw]
        degree = walk_degree(self.ab.padding(), op.dtype.nbytes)
        zero_pads = [t.Zero(ab, p, as_expr(0), degree, loc=self.loc) for p in pads]
        params = (u, out, table, *small, *pads, *([lut] if lut else []))
        func = t.Func(
            op.symbol, params, blocks, 32 * s.warps, (*allocs, *load, *zero_pads, loop), s.min_blocks, loc=self.loc
        )
        return replace_kernel(module, op, func, constants | lut_table)

    # ------------------------------------------------------------------------------------------------ tables
    def _lut(self) -> tuple[Buffer | None, dict[str, Any]]:
        if not self.s.lut:
            return None, {}
        table = self.ab.lookup()
        return Buffer("lut", u32, table.size, "global"), {"lut": table}

    def _pads(self, constants: dict[str, Any]) -> tuple[Buffer, ...]:
        """The table of padding that must be zeroed, if there is any; its values join the kernel's constants."""
        values = self.ab.padding()
        if not values.size:
            return ()
        constants["pads"] = values
        return (Buffer("pads", s32, values.size, "global"),)

    def _small(self, constants: dict[str, Any]) -> tuple[Buffer, ...]:
        """The points of small planes, if there are any: their weights and their offsets."""
        if not self.points:
            return ()
        constants["w"] = np.array([w for _, w in self.points], dtype=self.op.dtype.numpy())
        constants["offsets"] = np.array([offset for offset, _ in self.points], dtype=np.int32).ravel()
        return (
            Buffer("w", self.op.dtype, len(self.points), "param"),
            Buffer("offsets", s32, constants["offsets"].size, "global"),
        )

    def _weights(self) -> tuple[Buffer, Buffer | None, list[Op], dict[str, Any]]:
        """(the table, the registers that hold all of it if they can, how it gets there, its values)."""
        triangles = [self.ab.triangular(p.taps) for p in self.planes]
        if self.s.mma == "fma":
            rows = np.concatenate([w.ravel() for w in triangles]).astype(self.op.dtype.numpy())
            return Buffer("wt", self.op.dtype, rows.size, "global"), None, [], {"wt": rows}
        values = np.concatenate([self.ab.fragments(w) for w in triangles])
        table = Buffer("wt", self.op.dtype, values.size, "global")
        if self.points or (len(self.planes) > 1 and values.size // 32 > HELD):
            return table, None, [], {"wt": values}
        regs = Buffer("wf", self.op.dtype, values.size // 32, "reg")
        return table, regs, [t.Fragments(regs, table, loc=self.loc)], {"wt": values}

    # ------------------------------------------------------------------------------------------------ ops of a tile
    def _lead(self, loop: t.ForTiles, plane: _Plane) -> tuple[Expr, ...]:
        """Where the plane that a product reads is on the axes before the rows."""
        return tuple(at + far for at, far in zip(loop.at, plane.offset, strict=False))

    def _copy(
        self,
        loop: t.ForTiles,
        lead: tuple[Expr, ...],
        src: Buffer,
        dst: Buffer,
        lut: Buffer | None,
        slot: Any,
        raw: Layout | None = None,
    ) -> t.Copy:
        """A tile's window to A and B: out of global memory, or out of a ``raw`` tile."""
        op, (up, left), (height, width) = self.op, self.before, self.ab.window
        dirty = 2 * self.ab.a_size if self.ab.dirty else None
        return t.Copy(
            dst, src, loop.y - up, loop.x - left, height, width, self.ab.windows, as_expr(slot), as_expr(0), op.shape,
            op.pitch[0], op.sides, 1, "plain", raw, dirty, lut, lead, loc=self.loc,
        )  # fmt: skip

    def _acc(self) -> Buffer:
        regs = 2 * SHAPES[self.ab.base].m // 8
        return Buffer("acc", self.op.dtype, self.ab.products // self.s.warps * self.ab.blocks * regs, "reg")

    def _product(self, plane: _Plane, ab: Buffer, slot: Any, table: Buffer, held: Buffer | None) -> list[Op]:
        """The product of a plane, added to those before it; its weights are loaded first if no registers hold them."""
        m, s, load, weights = self.ab, self.s, list[Op](), held or table
        own = 2 * m.depth // 4 * m.blocks  # registers of a plane's weights
        first = plane.number * own
        if s.mma == "fma":
            first *= 32
        elif held is None:
            weights = Buffer(f"wf{plane.number}", self.op.dtype, own, "reg")
            load, first = [t.Fragments(weights, table, first, loc=self.loc)], 0
        kind = t.AddMma if plane.number else t.Mma
        product = kind(
            self._acc(), ab, weights, m.operands, s.mma, m.base, m.products, m.blocks, m.depth, s.warps, slot * m.size,
            first, loc=self.loc,
        )  # fmt: skip
        return [*load, product]

    def _add_points(self, loop: t.ForTiles, u: Buffer, w: Buffer, offsets: Buffer) -> ts.AddPoints:
        op, m = self.op, self.ab
        return ts.AddPoints(
            self._acc(), u, w, offsets, loop.at, self.points, m.base, m.products, m.rows, m.blocks, m.group,
            self.s.warps, op.shape, op.pitch[0], op.sides, self._wide(op.pitch[0]), loc=self.loc,
        )  # fmt: skip

    def _store(self, loop: t.ForTiles, u: Buffer, out: Buffer) -> t.StoreFragments:
        op, m = self.op, self.ab
        return t.StoreFragments(
            out, self._acc(), u, loop.y, loop.x, m.base, m.products, m.rows, m.blocks, m.group, self.s.warps,
            op.pitch[1], op.box, op.shape, keep(op), op.pitch[0], self._wide(op.pitch[1]), loop.at[:-2], loc=self.loc,
        )  # fmt: skip

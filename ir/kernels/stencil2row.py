"""``stencil2row``: a stencil as two matrix products per tile (ConvStencil, PPoPP'24, sections 3.2 to 3.4 and 4).

The window of a tile becomes two matrices A and B of ``group = k + 1`` columns a row (layouts ``stencil2row_a/b``); dual
tessellation multiplies 8 or 16 of their rows with triangular weight matrices and adds both products in one fragment.
A field of one row has windows of one row.  On three axes a tile lies in a plane: the products of all planes of weights
go into the same fragments, and the points of small planes are added on the CUDA cores (``ir/numbers/stencil2row.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from operator import add, neg, sub
from typing import Any

import numpy as np

from .. import op as o
from .. import tile as t
from ..errors import ScheduleError
from ..expr import FALSE, Expr
from ..fragments import SHAPES
from ..layout import Layout, layout, row_major, walk_degree
from ..module import Module
from ..node import Op
from ..numbers.stencil2row import HELD, multiplied
from ..passes.manager import choice, register
from ..spread import Products
from ..types import Buffer, f64, s32, u32
from .common import each, field, grid, over_tiles, shifted, store, tile_count, vector, whole
from .stencil2row_matrices import Matrices


@register("stencil2row")
@dataclass(frozen=True)
class Stencil2Row:
    """Tiles of ``rows`` x ``cols`` outputs; ``mma`` names the tensor-core shape, or ``fma`` for the CUDA cores.

    ``stages`` 1 copies global memory straight into A and B; more fetches raw tiles ahead (the pipeline pass follows).
    ``explicit`` builds A and B of all tiles in global memory first, by a kernel of its own: the paper's starting point.
    On three axes it does so once for each plane, which the products of all planes of weights read.
    """

    rows: int = 32
    cols: int = 64
    mma: str = choice("f64.m8n8k4", "f64.m16n8k4", "f64.m16n8k8", "f64.m16n8k16", "fma")
    warps: int = 8
    stages: int = 1
    lut: bool = True
    dirty: bool = True
    pad: bool = True
    explicit: bool = False
    blocks: int = 0
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        dtypes = () if self.mma == "fma" else (f64,)
        return each(module, o.Stencil, lambda m, op: _Build(self, op).kernels(m), axes=(2, 3), dtypes=dtypes)


@dataclass(frozen=True)
class _Plane:
    """The weights that tensor cores take of one plane: its offset (none on two axes), its place in the table."""

    offset: tuple[int, ...]
    taps: tuple[o.Tap, ...]
    number: int


class _Build:
    """One stencil's kernel, and its parts."""

    def __init__(self, s: Stencil2Row, op: o.Stencil) -> None:
        self.s, self.op = s, op
        k = 2 * max(op.radius) + 1
        height = 1 if len(op.shape) == 2 and op.radius[0] == 0 else k
        base = "f64.m8n8k4" if s.mma == "fma" else s.mma
        m, group = SHAPES[base].m, k + 1
        if s.cols % (m * group) or s.rows * (s.cols // (m * group)) % s.warps:
            raise ScheduleError(
                f"tile={s.rows}x{s.cols} does not make {m} groups of {group} columns for {s.warps} warps",
                hint=f"an edge of {k} needs columns in multiples of {m * group}",
            )
        # in global memory a dirty write costs as much as a real one
        self.ab = Matrices(k, height, s.rows, s.cols, base, s.pad, s.dirty and not s.explicit)
        self.spread = Products(base, self.ab.products, s.rows, self.ab.blocks, self.ab.group, s.warps)
        self.before = height // 2, k // 2
        self.size = (1,) * (len(op.shape) - 2) + (s.rows, s.cols)
        of_plane: dict[tuple[int, ...], list[o.Tap]] = {}
        for tap in op.taps:
            of_plane.setdefault(tap[0][:-2], []).append(tap)
        large = multiplied([len(taps) for taps in of_plane.values()], height * k)
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
        lowest, box = self._transformed()
        count = tile_count((box,), self.size)
        ab, u = self._buffer("global", count), field(op, "u")
        lut, constants = self._lut()
        pads = self._pads(constants)

        def body(loop: t.ForTiles) -> list[Op]:
            return [
                *(t.Zero(dst=ab, table=p, slot=loop.number) for p in pads),
                self._copy(self._window(loop, lowest, self.before), u, ab, lut, loop.number),
            ]

        params = (u, ab, *pads, *([lut] if lut else []))
        module = over_tiles(
            module, op, self.size, body, params=params, constants=constants, threads=32 * s.warps,
            before=(t.Slots(buf=ab, count=count),), symbol=f"{op.symbol}_stencil2row", keep_op=True,
            boxes=(box,),
        )  # fmt: skip
        return self._multiply(module, ab, lowest)

    def _transformed(self) -> tuple[tuple[int, ...], o.Box]:
        """(the lowest plane that products read for plane 0, the cells that A and B are made of).

        Plane i of these cells is plane ``i + lowest`` of the field, so planes beyond the borders are among them: the
        copy knows what they hold.  On two axes there is no lowest one.
        """
        of_axes = list(zip(*(p.offset for p in self.planes), strict=True))
        lowest, highest = tuple(min(axis) for axis in of_axes), tuple(max(axis) for axis in of_axes)
        (cells,) = whole(self.op)
        planes = tuple((0, n + high - low) for (_, n), low, high in zip(cells, lowest, highest, strict=False))
        return lowest, (*planes, *cells[-2:])

    def _multiply(self, module: Module, ab: Buffer, lowest: tuple[int, ...]) -> Module:
        """The explicit form's second kernel: products straight from global memory, plane of weights after plane."""
        s, op = self.s, self.op
        u, out = field(op, "u"), field(op, "out")
        table, held, load, constants = self._weights()
        small = self._small(constants)
        tiles_of_plane = tile_count((whole(op)[0][-2:],), self.size[-2:])

        def body(loop: t.ForTiles) -> list[Op]:
            sums: list[Op] = []
            for p in self.planes:
                further = sum(map(sub, p.offset, lowest)) * tiles_of_plane
                sums += self._product(p, ab, loop.number + further, table, held)
            points = [self._add_points(loop, u, *small)] if small else []
            return [*sums, *points, self._store(loop)]

        return over_tiles(
            module, op, self.size, body, params=(u, ab, out, table, *small), constants=constants, threads=32 * s.warps,
            before=tuple(load),
        )  # fmt: skip

    def _fused(self, module: Module) -> Module:
        s, op = self.s, self.op
        u, out, ab = field(op, "u"), field(op, "out"), self._buffer("shared")
        table, held, load, constants = self._weights()
        lut, lut_table = self._lut()
        pads = self._pads(constants)
        small = self._small(constants)
        before, width, height = self.ab.before, self.ab.width, self.ab.window[0]
        layout_raw = row_major((height, width))
        names = ["raw"] if len(self.planes) == 1 else [f"raw{p.number}" for p in self.planes]
        raw = [Buffer(name, op.dtype, height * width, "shared", 128) for name in names] if s.stages > 1 else []
        shift = before - self.before[1]
        window = layout({"r": height, "c": self.ab.window[1]}, lambda r, c: r * width + c + shift)

        def body(loop: t.ForTiles) -> list[Op]:
            fetches: list[Op] = [
                t.Copy(
                    dst=to, src=u, at=self._window(loop, p.offset, (self.before[0], before)), rows=height, cols=width,
                    grid=grid(op), maps=(layout_raw,), vector=self._wide(op.pitch[0]), mode="async",
                )
                for to, p in zip(raw, self.planes, strict=False)
            ]  # fmt: skip
            sums: list[Op] = []
            for p in self.planes:
                src, src_map = (raw[p.number], window) if raw else (u, None)
                sums.append(self._copy(self._window(loop, p.offset, self.before), src, ab, lut, raw=src_map))
                sums += self._product(p, ab, FALSE, table, held)
            points = [self._add_points(loop, u, *small)] if small else []
            return [*fetches, *sums, *points, self._store(loop)]

        allocs: list[Op] = [t.Alloc(buf=ab, layout=row_major((2 * self.ab.groups, self.ab.stride)))]
        allocs += [t.Alloc(buf=b, layout=layout_raw) for b in raw]
        degree = walk_degree(self.ab.padding(), op.dtype.nbytes)
        zero_pads = [t.Zero(dst=ab, table=p, degree=degree) for p in pads]
        params = (u, out, table, *small, *pads, *([lut] if lut else []))
        return over_tiles(
            module, op, self.size, body, params=params, constants=constants | lut_table, threads=32 * s.warps,
            before=(*allocs, *load, *zero_pads), stay=s.blocks, min_blocks=s.min_blocks,
        )  # fmt: skip

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
        return table, regs, [t.Fragments(regs=regs, table=table)], {"wt": values}

    # ------------------------------------------------------------------------------------------------ ops of a tile
    def _window(self, loop: t.ForTiles, offset: tuple[int, ...], before: tuple[int, int]) -> tuple[Expr, ...]:
        """The first cell of a window in the plane that lies so far off, so many rows and columns before the tile."""
        return shifted((*map(add, loop.at, offset), *loop.at[-2:]), *map(neg, before))

    def _copy(
        self, at: tuple[Expr, ...], src: Buffer, dst: Buffer, lut: Buffer | None, slot: Expr = FALSE,
        raw: Layout | None = None,
    ) -> t.Copy:  # fmt: skip
        """A tile's window to A and B: out of global memory, or out of a ``raw`` tile."""
        height, width = self.ab.window
        return t.Copy(
            dst=dst, src=src, at=at, rows=height, cols=width, grid=grid(self.op), maps=self.ab.windows, slot=slot,
            src_map=raw, dirty=2 * self.ab.a_size if self.ab.dirty else None, table=lut,
        )  # fmt: skip

    def _acc(self) -> Buffer:
        return Buffer("acc", self.op.dtype, self.spread.registers, "reg")

    def _product(self, plane: _Plane, ab: Buffer, slot: Any, table: Buffer, held: Buffer | None) -> list[Op]:
        """The product of a plane, added to those before it; its weights are loaded first if no registers hold them."""
        m, s, load, weights = self.ab, self.s, list[Op](), held or table
        own = 2 * m.depth // 4 * m.blocks  # registers of a plane's weights
        first = plane.number * own
        if s.mma == "fma":
            first *= 32
        elif held is None:
            weights = Buffer(f"wf{plane.number}", self.op.dtype, own, "reg")
            load, first = [t.Fragments(regs=weights, table=table, first=first)], 0
        acc = self._acc()
        product = t.Product(
            new=None if plane.number else acc, acc=acc, src=ab, weights=weights, a=m.operands, shape=s.mma,
            spread=self.spread, depth=m.depth, src_offset=slot * m.size, first=first,
        )  # fmt: skip
        return [*load, product]

    def _add_points(self, loop: t.ForTiles, u: Buffer, w: Buffer, offsets: Buffer) -> t.Points:
        return t.Points(
            acc=self._acc(), src=u, weights=w, offsets=offsets, at=loop.at, taps=self.points, spread=self.spread,
            grid=grid(self.op), vector=self._wide(self.op.pitch[0]),
        )  # fmt: skip

    def _store(self, loop: t.ForTiles) -> t.Store:
        return store(self.op, loop.at, self._acc(), self.spread, self._wide(self.op.pitch[1]))

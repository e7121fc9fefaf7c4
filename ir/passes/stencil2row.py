"""``stencil2row``: a stencil as two matrix products per tile (ConvStencil, PPoPP'24, sections 3.2 to 3.4).

The window of a tile becomes two matrices A and B of ``group = k + 1`` columns a row (layouts ``stencil2row_a/b``); dual
tessellation multiplies 8 or 16 of their rows with triangular weight matrices and adds both products in one fragment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import op as o
from .. import tile as t
from ..errors import ScheduleError
from ..expr import as_expr
from ..fragments import SHAPES
from ..layout import Layout, layout, row_major, stencil2row_a, stencil2row_b, walk_degree
from ..module import Module
from ..node import Op
from ..tile import NOWHERE
from ..types import Buffer, s32, u32
from .manager import register
from .tile_common import align_left, each, field, keep, replace_kernel, tile_count, tiles, vector, whole


def conflict_free(needed: int) -> int:
    """Smallest row stride >= needed (in doubles) that is 4 or 12 mod 16: 8 x 4 fragments load without conflicts."""
    return needed + (4 - needed) % 8


def triangular(op: o.Stencil, k: int, depth: int, blocks: int) -> Any:
    """W_A and W_B, [2, depth, 8 * blocks]: row i*k + j, column c is w[i, j-c] for j >= c, and w[i, j-c+k] for j < c."""
    w = np.zeros((k, k))
    for (dy, dx), value in op.taps:
        w[dy + k // 2, dx + k // 2] = value
    out = np.zeros((2, depth, 8 * blocks))
    for i in range(k):
        for j in range(k):
            for c in range(k + 1):
                if j >= c:
                    out[0, i * k + j, c] = w[i, j - c]
                elif j - c + k >= 0:
                    out[1, i * k + j, c] = w[i, j - c + k]
    return out


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


class _Build:
    """The numbers of one kernel, and its parts."""

    def __init__(self, s: Stencil2Row, op: o.Stencil) -> None:
        self.s, self.op = s, op
        self.k = k = 2 * max(op.radius) + 1
        self.radius, self.group = k // 2, k + 1
        self.base = "f64.m8n8k4" if s.mma == "fma" else s.mma
        m = SHAPES[self.base].m
        self.groups, rest = divmod(s.cols, self.group)
        if rest or self.groups % m or s.rows * (self.groups // m) % s.warps:
            raise ScheduleError(
                f"tile={s.rows}x{s.cols} does not make {m} groups of {self.group} columns for {s.warps} warps",
                hint=f"an edge of {k} needs columns in multiples of {m * self.group}",
            )
        self.products = s.rows * (self.groups // m)
        self.blocks = -(-self.group // 8)
        self.height, self.width = s.rows + k - 1, s.cols + k - 1
        self.depth = -(-k * k // 4) * 4  # wider mma run over the joint of A and B, narrower ones take the rest
        needed = k * (s.rows - 1) + self.depth
        self.stride = conflict_free(needed) if s.pad else needed
        self.a_size = self.groups * self.stride
        self.ab_size = -(-(2 * self.a_size + 1) // 2) * 2
        self.dirty = s.dirty and not s.explicit  # in global memory a dirty write costs as much as a real one
        self.extent = (op.shape[0], op.shape[1])
        self.loc = op.loc

    def _shifted(self, m: Layout) -> Layout:
        return Layout(m.dims, m.extents, (m.index[0] + self.a_size,), m.where)

    def ab(self, space: Any, tiles_in_memory: int = 1) -> Buffer:
        """A, B and the dirty slot of a tile (or, in global memory, of all tiles)."""
        name = "ab" if space == "shared" else "ab_all"
        return Buffer(name, self.op.dtype, self.ab_size * tiles_in_memory, space, 128)

    def windows(self) -> tuple[Layout, Layout]:
        """Where the window's elements go in A and in B (ConvStencil, equations 5 and 6)."""
        to = row_major((self.groups, self.stride))
        a = to @ stencil2row_a(self.k, self.groups, self.height)
        return a, self._shifted(to @ stencil2row_b(self.k, self.groups, self.height))

    def operands(self) -> tuple[Layout, Layout]:
        """(product i, fragment row m, column q) to an element of A, and of B: each product moves on by k elements."""
        k, rows, m_rows, stride = self.k, self.s.rows, SHAPES[self.base].m, self.stride
        dims = {"i": self.products, "m": m_rows, "q": self.depth}
        a = layout(dims, lambda i, m, q: (m + i // rows * m_rows) * stride + i % rows * k + q)
        return a, self._shifted(a)

    def padding(self) -> Any:
        """Elements of A and B that a product reads and no copy writes: they must be zero (0 * NaN is NaN)."""
        read = np.unique(np.concatenate([m.tables()[0].ravel() for m in self.operands()]))
        written = np.concatenate([m.tables()[0][m.mask()] for m in self.windows()])
        return np.setdiff1d(read, written).astype(np.int32)

    def lookup(self) -> Any:
        """For each element of the window: its places in A and B (low, high half), and its (row, column) alike."""
        spare = 2 * self.a_size if self.dirty else NOWHERE
        a, b = (np.where(m.mask(), m.tables()[0], spare) for m in self.windows())
        r, c = np.indices(a.shape)
        return np.stack([a | b << 16, r << 16 | c], axis=-1).astype(np.uint32).ravel()

    def weight_table(self) -> Any:
        """The weight matrices: in fragment order for the tensor cores, row by row for the CUDA cores."""
        w = triangular(self.op, self.k, self.depth, self.blocks)
        if self.s.mma == "fma":
            return w.astype(self.op.dtype.numpy()).ravel()
        lane = np.arange(32)
        slices = w.reshape(2 * self.depth // 4, 4, self.blocks, 8)  # slice, q, block, column
        return slices[:, lane % 4, :, lane // 4].transpose(2, 1, 0).astype(np.float64).ravel()

    # ------------------------------------------------------------------------------------------------ kernels
    def kernels(self, module: Module) -> Module:
        s, op = self.s, self.op
        if s.lut and 2 * self.a_size >= 1 << 16:
            raise ScheduleError(
                "lut=on: a tile's offsets do not fit 16 bits", hint="set lut=off or make the tile smaller"
            )
        if not s.explicit:
            return self._fused(module)
        count = tile_count(whole(op), (s.rows, s.cols))
        ab, u = self.ab("global", count), field(op, "u")
        lut, constants = self._lut()
        pads = self._pads(constants)

        def body(loop: t.ForTiles) -> list[Op]:
            return [
                *(t.Zero(ab, p, loop.number, loc=self.loc) for p in pads),
                self._copy(loop, u, ab, lut, loop.number),
            ]

        params = (u, ab, *pads, *([lut] if lut else []))
        loop = tiles(whole(op), (s.rows, s.cols), 0, body, self.loc)
        transform = t.Func(
            f"{op.symbol}_stencil2row",
            params,
            count,
            32 * s.warps,
            (t.Slots(ab, count, loc=self.loc), loop),
            loc=self.loc,
        )
        module = replace_kernel(module, op, transform, constants, keep_op=True)
        return self._multiply(module, ab, count)

    def _lut(self) -> tuple[Buffer | None, dict[str, Any]]:
        if not self.s.lut:
            return None, {}
        table = self.lookup()
        return Buffer("lut", u32, table.size, "global"), {"lut": table}

    def _pads(self, constants: dict[str, Any]) -> tuple[Buffer, ...]:
        """The table of padding that must be zeroed, if there is any; its values join the kernel's constants."""
        values = self.padding()
        if not values.size:
            return ()
        constants["pads"] = values
        return (Buffer("pads", s32, values.size, "global"),)

    def _copy(
        self, loop: t.ForTiles, src: Buffer, dst: Buffer, lut: Buffer | None, slot: Any, raw: Layout | None = None
    ) -> t.Copy:
        op, r = self.op, self.radius
        return t.Copy(
            dst,
            src,
            loop.y - r,
            loop.x - r,
            self.height,
            self.width,
            self.windows(),
            as_expr(slot),
            as_expr(0),
            self.extent,
            op.pitch[0],
            op.sides,
            1,
            "plain",
            raw,
            2 * self.a_size if self.dirty else None,
            lut,
            loc=self.loc,
        )

    def _products(self, loop: t.ForTiles, ab: Buffer, slot: Any, u: Buffer, out: Buffer, weights: Buffer) -> list[Op]:
        s, op = self.s, self.op
        regs = 2 * SHAPES[self.base].m // 8
        acc = Buffer("acc", op.dtype, self.products // s.warps * self.blocks * regs, "reg")
        return [
            t.Mma(
                acc,
                ab,
                weights,
                self.operands(),
                s.mma,
                self.base,
                self.products,
                self.blocks,
                self.depth,
                s.warps,
                slot * self.ab_size,
                loc=self.loc,
            ),
            t.StoreFragments(
                out,
                acc,
                u,
                loop.y,
                loop.x,
                self.base,
                self.products,
                s.rows,
                self.blocks,
                self.group,
                s.warps,
                op.pitch[1],
                op.box,
                self.extent,
                keep(op),
                op.pitch[0],
                vector(op.pitch[1], 2),
                loc=self.loc,
            ),
        ]

    def _weights(self) -> tuple[Buffer, Buffer, list[Op], dict[str, Any]]:
        """(the table, what the product reads, how it gets there, its values)."""
        values = self.weight_table()
        table = Buffer("wt", self.op.dtype, values.size, "global")
        if self.s.mma == "fma":
            return table, table, [], {"wt": values}
        regs = Buffer("wf", self.op.dtype, values.size // 32, "reg")
        return table, regs, [t.Fragments(regs, table, loc=self.loc)], {"wt": values}

    def _multiply(self, module: Module, ab: Buffer, count: int) -> Module:
        """The explicit form's second kernel: products straight from global memory."""
        s, op = self.s, self.op
        u, out = field(op, "u"), field(op, "out")
        table, regs, load, constants = self._weights()

        def body(loop: t.ForTiles) -> list[Op]:
            return self._products(loop, ab, loop.number, u, out, regs)

        loop = tiles(whole(op), (s.rows, s.cols), 0, body, self.loc)
        func = t.Func(op.symbol, (u, ab, out, table), count, 32 * s.warps, (*load, loop), loc=self.loc)
        return replace_kernel(module, op, func, constants)

    def _fused(self, module: Module) -> Module:
        s, op = self.s, self.op
        u, out, ab = field(op, "u"), field(op, "out"), self.ab("shared")
        table, regs, load, constants = self._weights()
        lut, lut_table = self._lut()
        pads = self._pads(constants)
        before = align_left(self.radius, 2)
        width = -(-(before + s.cols + self.radius) // 2) * 2
        layout_raw = row_major((self.height, width))
        raw = Buffer("raw", op.dtype, self.height * width, "shared", 128)
        shift = before - self.radius
        window = layout({"r": self.height, "c": self.width}, lambda r, c: r * width + c + shift)

        def body(loop: t.ForTiles) -> list[Op]:
            zero = as_expr(0)
            product = self._products(loop, ab, zero, u, out, regs)
            if s.stages == 1:
                return [self._copy(loop, u, ab, lut, 0), *product]
            fetch = t.Copy(
                raw,
                u,
                loop.y - self.radius,
                loop.x - before,
                self.height,
                width,
                (layout_raw,),
                zero,
                zero,
                self.extent,
                op.pitch[0],
                op.sides,
                vector(op.pitch[0], 2),
                "async",
                loc=self.loc,
            )
            return [fetch, self._copy(loop, raw, ab, lut, 0, window), *product]

        count = tile_count(whole(op), (s.rows, s.cols))
        blocks = min(s.blocks, count) or count
        loop = tiles(whole(op), (s.rows, s.cols), blocks if s.blocks else 0, body, self.loc)
        allocs: list[Op] = [t.Alloc(ab, row_major((2 * self.groups, self.stride)), loc=self.loc)]
        allocs += [t.Alloc(raw, layout_raw, loc=self.loc)] if s.stages > 1 else []
        zero_pads = [
            t.Zero(ab, p, as_expr(0), walk_degree(self.padding(), op.dtype.nbytes), loc=self.loc) for p in pads
        ]
        params = (u, out, table, *pads, *([lut] if lut else []))
        func = t.Func(
            op.symbol, params, blocks, 32 * s.warps, (*allocs, *load, *zero_pads, loop), s.min_blocks, loc=self.loc
        )
        return replace_kernel(module, op, func, constants | lut_table)

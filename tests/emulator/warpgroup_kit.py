"""A small program with one product of warpgroups, of which every part can be left out or be another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from emulator_kit import glob, kernel, shared

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.swizzle import Tile, k_major, mn_major, tile_bytes
from sparsegen.ir.types import DType, f16, f32

DEPTH = 32


@dataclass
class Gemm:
    """``out[group] = a[group] @ b`` for 64 x 32 by 32 x ``cols``, filled by stores that write the tiles' images.

    ``without``: parts that are left out; ``say``: called with the builder and its values at each of the places
    ``loaded``, ``issued``, ``committed``, ``waited``.
    """

    cols: int = 16
    dtype: DType = f16
    a_tile: Tile = field(default_factory=lambda: k_major(64))
    a_major: str = "k"
    b_tile: Tile = field(default_factory=lambda: mn_major(32, DEPTH))
    b_major: str = "mn"
    groups: int = 2
    grid: int = 2
    without: frozenset[str] = frozenset()
    say: Any = None
    shift: Any = 0  # of the tile of b, in elements

    def image(self, count: int, tile: Tile, major: str) -> Any:
        """Where each element [count, DEPTH] of an operand lies, in elements, by the reading of the descriptor."""
        steps = [tile_bytes(count, tile, major, self.start(tile, major, k)) // 2 for k in (0, 1)]
        return np.concatenate(steps, axis=1)

    @staticmethod
    def start(tile: Tile, major: str, k: int) -> int:
        """Bytes from the tile of the first 16 k to that of the next."""
        swizzle, lead, stride = tile
        return k * (32 if swizzle and major == "k" else 2 * stride if swizzle else 2 * lead)

    def func(self) -> w.Func:
        a_size, b_size = (int(self.image(n, t, m).max()) + 1 for n, t, m in self.shapes)
        a_size, b_size = (-(-n // 512) * 512 for n in (a_size, b_size))
        gx, gy = glob("x", self.dtype, self.groups * a_size), glob("y", self.dtype, b_size)
        out, align = glob("out", f32, self.grid * self.groups * 64 * self.cols), 1024
        sx, sy = shared("sx", self.dtype, self.groups * a_size, align), shared("sy", self.dtype, b_size, align)
        threads = 128 * self.groups

        def body(b: Builder, v: Any) -> None:
            def step(name: str, emit: Any, *args: Any) -> None:
                if name not in self.without:
                    emit(*args)

            acc = b.alloc("acc", f32, self.cols // 2)
            group = v.warp // 4
            for buf, to in ((gx, sx), (gy, sy)):
                with b.for_("i", v.tid, to.size, threads) as i:
                    b.st(to, i, b.ld(buf, i))
            step("proxy", b.fence, "async")
            step("barrier", b.barrier)
            with b.for_("r", 0, self.cols // 2, unroll=0) as r:
                b.st(acc, r, b.const(f32, 1.0))
            self.at(b, v, "loaded", acc, sx, sy)
            step("fence", b.wgmma_fence)
            for k in (0, 1):
                b.wgmma(acc, sx, group * a_size + self.start(self.a_tile, self.a_major, k) // 2, sy,
                        self.shift + self.start(self.b_tile, self.b_major, k) // 2, cols=self.cols, a_tile=self.a_tile,
                        b_tile=self.b_tile, a_major=self.a_major, b_major=self.b_major)  # fmt: skip
            self.at(b, v, "issued", acc, sx, sy)
            step("commit", b.wgmma_commit)
            self.at(b, v, "committed", acc, sx, sy)
            step("wait", b.wgmma_wait, 0)
            self.at(b, v, "waited", acc, sx, sy)
            with b.for_("r", 0, self.cols // 2, unroll=0) as r:
                row = v.warp % 4 * 16 + v.lane // 4 + r // 2 % 2 * 8
                at = ((v.bx * self.groups + group) * 64 + row) * self.cols + r // 4 * 8 + v.lane % 4 * 2 + r % 2
                b.st(out, at, b.ld(acc, r))

        return kernel(body, (gx, gy, out), (sx, sy), threads=threads, grid=(self.grid, 1, 1))

    @property
    def shapes(self) -> tuple[tuple[int, Tile, str], ...]:
        return (64, self.a_tile, self.a_major), (self.cols, self.b_tile, self.b_major)

    def at(self, b: Builder, v: Any, place: str, *bufs: Any) -> None:
        if self.say is not None:
            self.say(b, v, place, *bufs)

    def args(self, func: w.Func, seed: int = 0) -> tuple[dict[str, Any], Any]:
        """The arguments of a launch, and what ``out`` should be."""
        rng = np.random.default_rng(seed)
        np_type = self.dtype.numpy()
        sizes = {p.name: p.size for p in func.params}  # type: ignore[union-attr]
        a = rng.uniform(-1, 1, (self.groups, 64, DEPTH)).astype(np_type)
        b = rng.uniform(-1, 1, (self.cols, DEPTH)).astype(np_type)
        x, y = np.full((self.groups, sizes["x"] // self.groups), 9, np_type), np.full(sizes["y"], 9, np_type)
        for g in range(self.groups):
            x[g, self.image(*self.shapes[0])] = a[g]
        y[self.image(*self.shapes[1])] = b
        want = 1 + np.einsum("gik,jk->gij", a.astype(np.float64), b.astype(np.float64))
        given = {"x": x.reshape(-1), "y": y, "out": np.zeros(sizes["out"], np.float32)}
        return given, np.tile(want.reshape(-1), self.grid)

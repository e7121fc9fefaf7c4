"""Products of warpgroups: a small one with each way in which tiles lie, one whose a lanes load into registers, and a
ring that copies fill ahead of them.

On the GPU the hardware judges how :func:`sparsegen.ir.swizzle.tile_bytes` reads a descriptor: the host places elements
by it.  The numbers are small integers, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Const, Expr, Value, all_of
from sparsegen.ir.metadata import dense, words
from sparsegen.ir.swizzle import Tile, k_major, mn_major, tile_bytes
from sparsegen.ir.tensor_copy import TensorCopy, TensorMap
from sparsegen.ir.types import Buffer, DType, bf16, f16, f32, u32, u64

from .case import Array, Case

DEPTH: Final = 32
#: 8 rows of 8 elements one behind the other; the next 8 elements of each 2048 bytes on.
PLAIN: Final[Tile] = (0, 2048, 128)
Operand = tuple[Tile, str]
#: a and b: tile and major.
TILES: Final[dict[str, tuple[Operand, Operand]]] = {
    "a128k_b128mn": ((k_major(128), "k"), (mn_major(128, DEPTH), "mn")),
    "a64k_b64mn": ((k_major(64), "k"), (mn_major(64, DEPTH), "mn")),
    "a64k_b128k": ((k_major(64), "k"), (k_major(128), "k")),
    "a128mn_b64k": ((mn_major(128, DEPTH), "mn"), (k_major(64), "k")),
    "a64mn_b32mn": ((mn_major(64, DEPTH), "mn"), (mn_major(32, DEPTH), "mn")),
    "a32mn_b0k": ((mn_major(32, DEPTH), "mn"), (PLAIN, "k")),
    "a0k_b0mn": ((PLAIN, "k"), (PLAIN, "mn")),
    "a0mn_b64mn": ((PLAIN, "mn"), (mn_major(64, DEPTH), "mn")),
}
#: The same of products with a sparse a, whose b is twice as deep.
SPARSE_TILES: Final[dict[str, tuple[Operand, Operand]]] = {
    "a64k_b128mn": ((k_major(64), "k"), (mn_major(128, 2 * DEPTH), "mn")),
    "a128k_b128k": ((k_major(128), "k"), (k_major(128), "k")),
    "a128mn_b64mn": ((mn_major(128, DEPTH), "mn"), (mn_major(64, 2 * DEPTH), "mn")),
    "a0k_b32mn": ((PLAIN, "k"), (mn_major(32, 2 * DEPTH), "mn")),
    "a32mn_b0k": ((mn_major(32, DEPTH), "mn"), (PLAIN, "k")),
    "a0mn_b0mn": ((PLAIN, "mn"), (PLAIN, "mn")),
}
#: b of products with a in registers, of four products' k.
REGISTER_TILES: Final[dict[str, Operand]] = {
    "b128k": (k_major(128), "k"),
    "b0k": (PLAIN, "k"),
    "b128mn": (mn_major(128, 64), "mn"),
    "b64mn": (mn_major(64, 64), "mn"),
    "b32mn": (mn_major(32, 64), "mn"),
    "b0mn": (PLAIN, "mn"),
}
#: Codes of a sparse a's fours: every two places of four, the lower one first.
CODES: Final = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110)
#: Called at places of a program: with the builder, the built-in values, the place, the sums and the two tiles' buffers.
Say = Callable[..., None]


def step_bytes(tile: Tile, major: str, depth: int = 16) -> int:
    """How far behind a tile that of the next ``depth`` k lies."""
    swizzle, lead, stride = tile
    return depth // 8 * (lead if not swizzle else stride) if not swizzle or major == "mn" else 2 * depth


def image(count: int, tile: Tile, major: str, depth: int = 16, times: int = 2) -> Any:
    """Where each element of an operand of products of so many k lies, in elements: ``[count, times * depth]``."""
    steps = [tile_bytes(count, tile, major, k * step_bytes(tile, major, depth), depth) // 2 for k in range(times)]
    return np.concatenate(steps, axis=1)


def _function(
    symbol: str, params: list[Buffer], shared: list[Buffer], threads: int, body: Any, grid: int = 1
) -> w.Func:
    shell = w.Func(symbol, tuple(params), tuple(shared), (grid, 1, 1), threads, ())
    b, at = Builder(), shell.builtins()
    b.reserve(*at, *(x.name for x in (*params, *shared)))
    body(b, at)
    return w.Func(symbol, shell.params, shell.shared, shell.grid, threads, b.ops())


def _integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return rng.integers(-4, 5, shape).astype(dtype.numpy())


# ------------------------------------------------------------------------------------------------ one product
def _store(b: Builder, at: dict[str, Value], acc: Buffer, out: Buffer, number: Expr) -> None:
    """A warpgroup's sums, of 64 rows, to the ``number``-th such matrix of ``out``."""
    with b.for_("r", 0, acc.size, unroll=0) as r:
        row = at["warp"] % 4 * 16 + at["lane"] // 4 + r // 2 % 2 * 8
        line = (number * 64 + row) * (2 * acc.size)
        b.st(out, line + r // 4 * 8 + at["lane"] % 4 * 2 + r % 2, b.ld(acc, r))


@dataclass(frozen=True)
class Gemm:
    """``out[group] = 1 + a[group] @ b`` for 64 x 32 by 32 x ``cols``; stores write the tiles' images.

    ``sparse``: for 64 x 64, of which a keeps half, by 64 x ``cols``; a word of each lane says which, for both products.
    ``without``: parts that are left out; ``say`` adds ops at ``loaded``, ``issued``, ``committed`` and ``waited``;
    ``shift``: of b's tile, in elements.
    """

    cols: int = 16
    dtype: DType = f16
    a: Operand = (k_major(64), "k")
    b: Operand = (mn_major(32, DEPTH), "mn")
    groups: int = 2
    grid: int = 2
    without: frozenset[str] = frozenset()
    say: Say | None = None
    shift: int = 0
    sparse: bool = False

    @property
    def depth(self) -> int:
        """k of one product of b."""
        return 32 if self.sparse else 16

    def sizes(self) -> tuple[int, int]:
        """Elements of the images of both tiles, to a multiple of the widest swizzle's pattern."""
        ends = int(image(64, *self.a).max()), int(image(self.cols, *self.b, self.depth).max())
        a, b = (-(-(end + 1) // 512) * 512 for end in ends)
        return a, b

    def func(self) -> w.Func:
        a_size, b_size = self.sizes()
        threads, regs = 128 * self.groups, self.cols // 2
        x, y = Buffer("x", self.dtype, self.groups * a_size, "global"), Buffer("y", self.dtype, b_size, "global")
        out = Buffer("out", f32, self.grid * self.groups * 64 * self.cols, "global")
        meta = Buffer("meta", u32, threads, "global")
        sx, sy = (Buffer(f"s{p.name}", p.dtype, p.size, "shared", 1024) for p in (x, y))

        def body(b: Builder, at: dict[str, Value]) -> None:
            def step(name: str, emit: Any, *args: Any) -> None:
                if name not in self.without:
                    emit(*args)

            def here(place: str) -> None:
                if self.say is not None:
                    self.say(b, at, place, acc, sx, sy)

            group = at["warp"] // 4
            for source, to in ((x, sx), (y, sy)):
                with b.for_("i", at["tid"], to.size, threads) as i:
                    b.st(to, i, b.ld(source, i))
            step("proxy", b.fence, "async")
            step("barrier", b.barrier)
            acc = b.alloc("acc", f32, regs)
            with b.for_("r", 0, regs, unroll=0) as r:
                b.st(acc, r, b.const(f32, 1.0))
            here("loaded")
            if self.sparse:
                word = b.alloc("word", u32, 1)
                b.st(word, 0, b.ld(meta, at["tid"]))
                here("told")
            step("fence", b.wgmma_fence)
            for k in (0, 1):
                a_at, b_at = k * step_bytes(*self.a) // 2, k * step_bytes(*self.b, self.depth) // 2
                args = acc, sx, group * a_size + a_at, sy, self.shift + b_at
                how: dict[str, Any] = {"cols": self.cols, "a_tile": self.a[0], "b_tile": self.b[0],
                                       "a_major": self.a[1], "b_major": self.b[1]}  # fmt: skip
                if self.sparse:
                    b.wgmma_sp(*args, word, **how, selector=k)
                else:
                    b.wgmma(*args, **how)
            here("issued")
            step("commit", b.wgmma_commit)
            here("committed")
            step("wait", b.wgmma_wait, 0)
            here("waited")
            _store(b, at, acc, out, at["bx"] * self.groups + group)

        params = [x, y, meta, out] if self.sparse else [x, y, out]
        return _function("gemm", params, [sx, sy], threads, body, self.grid)

    def case(self, seed: int = 0) -> Case:
        rng = np.random.default_rng(seed)
        a = _integers(rng, (self.groups, 64, DEPTH), self.dtype)
        b = _integers(rng, (self.cols, 2 * self.depth), self.dtype)
        a_size, b_size = self.sizes()
        x, y = np.full((self.groups, a_size), 9, self.dtype.numpy()), np.full(b_size, 9, self.dtype.numpy())
        x[:, image(64, *self.a)], y[image(self.cols, *self.b, self.depth)] = a, b
        args = {"x": x, "y": y}
        if self.sparse:
            codes = rng.choice(CODES, (self.groups, 64, 16))
            args["meta"] = words(codes.reshape(-1, 16, 16)).astype("u4").reshape(-1)
            a = np.concatenate([dense(a[..., 16 * k :][..., :16], codes[..., 8 * k :][..., :8]) for k in (0, 1)], -1)
        want = 1 + np.einsum("gik,jk->gij", a.astype("f8"), b.astype("f8"))
        want = np.broadcast_to(want, (self.grid, *want.shape)).astype("f4")
        return Case(self.func(), {**args, "out": np.full_like(want, -7)}, {"out": want}, 0.0, ("out",))


# ------------------------------------------------------------------------------------------------ a in registers
@dataclass(frozen=True)
class Fed:
    """``out[group] = 1 + a[group] @ b`` for 64 x 64 by 64 x ``cols``, a in registers that the lanes load.

    Two arrays take turns: one is loaded while the product of the other is in flight.
    ``pending``: groups in flight when it is (1 is right: the product that reads it has ended).
    """

    cols: int = 16
    dtype: DType = f16
    b: Operand = (mn_major(32, 64), "mn")
    groups: int = 2
    pending: int = 1

    def func(self) -> w.Func:
        x = Buffer("x", u32, self.groups * 64 * 32, "global")  # pairs of adjacent k
        y = Buffer("y", self.dtype, self._size(), "global")
        out, sy = (
            Buffer("out", f32, self.groups * 64 * self.cols, "global"),
            Buffer("sy", y.dtype, y.size, "shared", 1024),
        )

        def body(b: Builder, at: dict[str, Value]) -> None:
            with b.for_("i", at["tid"], y.size, 128 * self.groups) as i:
                b.st(sy, i, b.ld(y, i))
            b.fence("async")
            b.barrier()
            acc = b.alloc("acc", f32, self.cols // 2)
            with b.for_("r", 0, acc.size, unroll=0) as r:
                b.st(acc, r, b.const(f32, 1.0))
            arrays = [b.alloc(f"a{n}", u32, 4) for n in (0, 1)]
            row = b.let("row", at["warp"] * 16 + at["lane"] // 4)
            with b.for_("turn", 0, 2, unroll=1) as turn:
                for n, a in enumerate(arrays):
                    step = turn * 2 + n
                    b.wgmma_wait(self.pending)
                    for r in range(4):
                        at_word = (row + r % 2 * 8) * 32 + step * 8 + at["lane"] % 4 + r // 2 * 4
                        b.st(a, r, b.ld(x, at_word))
                    b.wgmma_fence()
                    b.wgmma_rs(acc, a, sy, step * (step_bytes(*self.b) // 2), cols=self.cols, b_tile=self.b[0],
                               b_major=self.b[1])  # fmt: skip
                    b.wgmma_commit()
            b.wgmma_wait(0)
            _store(b, at, acc, out, at["warp"] // 4)

        return _function("fed", [x, y, out], [sy], 128 * self.groups, body)

    def _size(self) -> int:
        return -(-(int(image(self.cols, *self.b, times=4).max()) + 1) // 512) * 512

    def case(self, seed: int = 0) -> Case:
        rng = np.random.default_rng(seed)
        a, b = _integers(rng, (self.groups, 64, 64), self.dtype), _integers(rng, (self.cols, 64), self.dtype)
        y = np.full(self._size(), 9, self.dtype.numpy())
        y[image(self.cols, *self.b, times=4)] = b
        want = (1 + np.einsum("gik,jk->gij", a.astype("f8"), b.astype("f8"))).astype("f4")
        args = {"x": a.reshape(-1).view("u4"), "y": y, "out": np.full_like(want, -7)}
        return Case(self.func(), args, {"out": want}, 0.0, ("out",))


# ------------------------------------------------------------------------------------------------ a ring
@dataclass(frozen=True)
class Ring:
    """One warpgroup adds up products of tiles, which another copies into two slots ahead of it.

    ``bulk``: by bulk copies of swizzled tiles; ``boxes``: by copies that swizzle boxes of a matrix; else by cp.async
    with a fence async of the ``fence`` (``reader``, ``writer`` or none);
    ``arrive``: no thread waits for its cp.async, which are an arrival when they land;
    ``pending``: groups in flight when the slot before is freed (1 is right: its products have ended).
    """

    bulk: bool = False
    boxes: bool = False
    arrive: bool = False
    fence: str = "reader"
    pending: int = 1
    turns: int = 5

    def func(self) -> w.Func:
        size, slots, cols = 64 * 64, 2, 64
        src, out = Buffer("x", f16, self.turns * size, "global"), Buffer("out", f32, 64 * cols, "global")
        tile = Buffer("ring", f16, slots * size, "shared", 1024)
        full, free = (Buffer(name, u64, slots, "shared", 8) for name in ("full", "free"))

        def producer(b: Builder, at: dict[str, Value], turn: Any, slot: Any) -> None:
            with b.if_(turn.ge(slots)):
                b.mbar_wait(free, slot, (turn + slots) // slots % 2)
            if self.bulk or self.boxes:
                with b.if_(at["tid"].eq(128)):
                    b.emit(w.MbarArrive(full, slot, Const(2 * size)))
                    if self.boxes:
                        whole = TensorMap(64 * self.turns, 64, 64, (64, 64), 128)
                        b.emit(TensorCopy(tile, slot * size, src, turn * 64, Const(0), full, slot, whole))
                    else:
                        b.emit(w.BulkCopy(tile, slot * size, src, turn * size, Const(size), full, slot))
                return
            with b.for_("i", 0, size, 1024, unroll=0) as i:
                place = (at["tid"] - 128) * 8 + i
                b.cp_async(tile, slot * size + place, src, turn * size + place, 8)
            if self.arrive:
                b.emit(w.CpArrive(full, slot))
                return
            b.commit()
            b.wait(0)
            if self.fence == "writer":
                b.fence("async")
            b.sync()
            with b.if_(at["lane"].eq(0)):
                b.emit(w.MbarArrive(full, slot))

        def consumer(b: Builder, at: dict[str, Value], turn: Any, slot: Any, acc: Buffer) -> None:
            b.mbar_wait(full, slot, turn // slots % 2)
            if self.fence == "reader" and not (self.bulk or self.boxes):
                b.fence("async")
            b.wgmma_fence()
            with b.for_("k", 0, 4, unroll=0) as k:
                b.wgmma(acc, tile, slot * size + k * 16, tile, slot * size + k * 1024, cols=cols, a_tile=k_major(128),
                        a_major="k", b_tile=mn_major(128, 64), b_major="mn")  # fmt: skip
            b.wgmma_commit()
            b.wgmma_wait(self.pending)
            with b.if_(all_of(turn.ge(1), at["lane"].eq(0))):
                b.emit(w.MbarArrive(free, (turn + slots - 1) % slots))

        def body(b: Builder, at: dict[str, Value]) -> None:
            with b.if_(at["tid"].eq(0)):
                for i in range(slots):
                    b.emit(w.MbarInit(full, Const(i), 1 if self.bulk or self.boxes else 128 if self.arrive else 4))
                    b.emit(w.MbarInit(free, Const(i), 4))
                if self.bulk or self.boxes:
                    b.fence("mbar_init")
            b.barrier()
            with b.if_(at["warp"].ge(4)), b.for_("turn", 0, self.turns, unroll=1) as turn:
                producer(b, at, turn, turn % slots)
            with b.if_(at["warp"].lt(4)):
                acc = b.alloc("acc", f32, cols // 2)
                with b.for_("r", 0, cols // 2, unroll=0) as r:
                    b.st(acc, r, b.const(f32, 0.0))
                with b.for_("turn", 0, self.turns, unroll=1) as turn:
                    consumer(b, at, turn, turn % slots, acc)
                b.wgmma_wait(0)
                _store(b, at, acc, out, Const(0))

        return _function("ring", [src, out], [tile, full, free], 256, body)

    def case(self, seed: int = 0) -> Case:
        """The tile is both operands: a by rows of k, and b as the same bytes read by rows of columns."""
        if self.boxes:
            x = _integers(np.random.default_rng(seed), (self.turns, 64, 64), f16)
            want = np.matmul(x.astype("f8"), x.astype("f8")).sum(0).astype("f4")
            return Case(self.func(), {"x": x, "out": np.full_like(want, -7)}, {"out": want}, 0.0, ("out",))
        x = _integers(np.random.default_rng(seed), (self.turns, 64 * 64), f16)
        a_at, b_at = (np.concatenate([tile_bytes(64, tile, major, k * step) // 2 for k in range(4)], axis=1)
                      for tile, major, step in ((k_major(128), "k", 32), (mn_major(128, 64), "mn", 2048)))  # fmt: skip
        wide = x.astype("f8")
        want = np.einsum("tik,tjk->ij", wide[:, a_at], wide[:, b_at]).astype("f4")
        return Case(self.func(), {"x": x, "out": np.full_like(want, -7)}, {"out": want}, 0.0, ("out",))


def _named() -> dict[str, Gemm | Fed | Ring]:
    out: dict[str, Gemm | Fed | Ring] = {n: Gemm(64, f16, *operands, grid=1) for n, operands in TILES.items()}
    out |= {f"{n}_bf16": Gemm(128, bf16, *TILES[n], grid=1) for n in ("a128k_b128mn", "a128mn_b64k", "a0k_b0mn")}
    out |= {f"n{cols}": Gemm(cols, b=(k_major(64), "k")) for cols in (8, 24, 96, 256)}
    out |= {f"sparse_{n}": Gemm(64, f16, *operands, grid=1, sparse=True) for n, operands in SPARSE_TILES.items()}
    out |= {
        f"sparse_{n}_bf16": Gemm(128, bf16, *SPARSE_TILES[n], grid=1, sparse=True) for n in ("a64k_b128mn", "a0mn_b0mn")
    }
    out |= {f"sparse_n{cols}": Gemm(cols, b=(k_major(128), "k"), sparse=True) for cols in (8, 24, 96, 256)}
    out |= {f"registers_{n}": Fed(64, f16, b) for n, b in REGISTER_TILES.items()}
    out |= {f"registers_{n}_bf16": Fed(128, bf16, REGISTER_TILES[n]) for n in ("b128k", "b128mn")}
    out |= {f"registers_n{cols}": Fed(cols, b=(k_major(128), "k")) for cols in (8, 24, 96, 256)}
    return out | {
        "ring_reader": Ring(),
        "ring_writer": Ring(fence="writer"),
        "ring_bulk": Ring(bulk=True),
        "ring_boxes": Ring(boxes=True),
        "ring_arrive": Ring(arrive=True),
    }


PROGRAMS: Final = _named()

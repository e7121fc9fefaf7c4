"""The warp level: lanes and addresses are explicit, and nothing is decided after it.

The emulator runs these ops and the CUDA printer prints them, each as at most one PTX instruction or one C expression.
All buffers are flat; an index is an integer expression in elements of the buffer's type.  A value belongs to one lane.
Register arrays are buffers in the space ``reg``; their loops stay loops, with ``unroll``, until nvcc.

Built-in values: ``%tid``, ``%lane``, ``%warp`` (``tid // 32``), ``%bx``, ``%by``, ``%bz``, in clusters ``%rank``.
"""

from __future__ import annotations

from .expr import Expr, Value
from .node import Op, attr, bind, buffer, declare, define, operand, region, result
from .types import Buffer, s32

Unroll = int | None  # None: leave it to nvcc; 0: unroll fully; n: by n (1 keeps it rolled)


@define("warp.func")
class Func(Op):
    """A kernel: ``grid`` blocks of ``threads`` threads.  ``min_blocks`` a multiprocessor bounds the registers.

    ``scratch``: shared cells (buffer, first, last) that many threads write and none reads; ``cluster``: blocks of one;
    ``least_shared``: bytes that a block asks for at least, which bounds how many a multiprocessor runs.
    ``together``: all blocks run at the same time, and may wait for one another (a cooperative launch).
    """

    symbol: str = attr()
    params: tuple[Buffer | Value, ...] = declare()
    shared: tuple[Buffer, ...] = declare()
    grid: tuple[int, int, int] = attr()
    threads: int = attr()
    body: tuple[Op, ...] = region()
    min_blocks: int = attr(default=1)
    scratch: tuple[tuple[str, int, int], ...] = attr(default=())
    cluster: int = attr(default=1)
    least_shared: int = attr(default=0)
    together: bool = attr(default=False)

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory: the buffers in order, each at its alignment, or more if it asks for more."""
        return max(self.shared_offsets()[1], self.least_shared)

    def shared_offsets(self) -> tuple[dict[str, int], int]:
        """Byte offset of each shared buffer, and the total."""
        at, out = 0, {}
        for b in self.shared:
            at = -(-at // b.align) * b.align
            out[b.name], at = at, at + b.nbytes
        return out, at

    def builtins(self) -> dict[str, Value]:
        """The values that exist in every function, with the ranges that this launch gives them."""
        gx, gy, gz = self.grid
        tops = {"tid": self.threads - 1, "lane": min(31, self.threads - 1), "warp": (self.threads - 1) // 32,
                "bx": gx - 1, "by": gy - 1, "bz": gz - 1}  # fmt: skip
        tops |= {"rank": self.cluster - 1} if self.cluster > 1 else {}
        return {n: Value(n, s32, 0, hi) for n, hi in tops.items()}


# ------------------------------------------------------------------------------------------------ control
@define("warp.for")
class For(Op):
    """``for (var = start; var < stop; var += step)``; bounds may differ from lane to lane."""

    var: Value = bind()
    start: Expr = operand()
    stop: Expr = operand()
    step: Expr = operand()
    body: tuple[Op, ...] = region()
    unroll: Unroll = attr(default=None)


@define("warp.loop")
class Loop(Op):
    """Repeats its body until a ``break_if`` in it (not in a nested loop) leaves it."""

    body: tuple[Op, ...] = region()


@define("warp.break_if")
class BreakIf(Op):
    """Leaves the innermost ``loop`` where the predicate holds."""

    cond: Expr = operand()


@define("warp.if")
class If(Op):
    """Lanes in which the predicate holds run ``then``, the others ``orelse``."""

    cond: Expr = operand()
    then: tuple[Op, ...] = region()
    orelse: tuple[Op, ...] = region(default=())


# ------------------------------------------------------------------------------------------------ scalars
@define("warp.let")
class Let(Op):
    """Names an integer expression (so that it is computed once)."""

    out: tuple[Value] = result()
    expr: Expr = operand()


@define("warp.const")
class ConstFloat(Op):
    """A floating-point literal."""

    out: tuple[Value] = result()
    value: float = attr()


@define("warp.unary")
class Unary(Op):
    """``neg abs``, ``sqrt`` of floats, ``not``, ``popc``, ``clz``, ``brev`` of one value; popc gives u32.

    ``exp log sin cos tanh`` of f32 and f64 are CUDA's functions, within 1 or 2 units in the last place of the exact
    result (CUDA C++ Programming Guide, mathematical functions); the emulator's are NumPy's, of a like accuracy, so the
    two may differ by the sum.  Both give NaN outside a function's domain, and for ``log`` of 0 -inf.

    ``exp2``: 2 to the power of an f32, as the hardware approximates it (within 2 units in the last place; a result
    below the smallest normal number is 0).
    """

    out: tuple[Value] = result()
    op: str = attr()
    a: Expr = operand()


@define("warp.binary")
class Binary(Op):
    """``add sub mul div min max`` of two values of one type, and for integers ``and or xor shl shr``, wrapping.

    ``pow`` of f32 and f64: the first to the power of the second, within 2 units in the last place (f32: 4) on a GPU; a
    negative number to a power that is not whole is NaN.
    """

    out: tuple[Value] = result()
    op: str = attr()
    a: Expr = operand()
    b: Expr = operand()


@define("warp.fma")
class Fma(Op):
    """``a * b + c`` with one rounding (in f64 two on the emulator: NumPy has no fused form)."""

    out: tuple[Value] = result()
    a: Expr = operand()
    b: Expr = operand()
    c: Expr = operand()


@define("warp.compare")
class Compare(Op):
    """A predicate: ``lt le eq ne`` of two floats (integers: in expressions); with a NaN only ``ne`` holds."""

    out: tuple[Value] = result()
    op: str = attr()
    a: Expr = operand()
    b: Expr = operand()


@define("warp.select")
class SelectValue(Op):
    """``a`` where the predicate holds, else ``b``."""

    out: tuple[Value] = result()
    cond: Expr = operand()
    a: Expr = operand()
    b: Expr = operand()


@define("warp.cvt")
class Convert(Op):
    """The value converted to the result's type, to nearest even (floats) or truncated (to integers)."""

    out: tuple[Value] = result()
    a: Expr = operand()


@define("warp.bitcast")
class Bitcast(Op):
    """The same bits as another type of the same width."""

    out: tuple[Value] = result()
    a: Expr = operand()


@define("warp.pack")
class Pack(Op):
    """Two 16-bit values in one u32, the first in the low half."""

    out: tuple[Value] = result()
    a: Expr = operand()
    b: Expr = operand()


@define("warp.prmt")
class Prmt(Op):
    """PTX ``prmt``: four of the eight bytes of (a, b), by the nibbles of ``sel`` (bit 3 replicates the sign)."""

    out: tuple[Value] = result()
    a: Expr = operand()
    b: Expr = operand()
    sel: Expr = operand()


@define("warp.funnel")
class Funnel(Op):
    """The low 32 bits of (hi:lo) shifted right by ``shift`` mod 32 (PTX ``shf.r.wrap``)."""

    out: tuple[Value] = result()
    lo: Expr = operand()
    hi: Expr = operand()
    shift: Expr = operand()


@define("warp.dp4a")
class Dp4a(Op):
    """``c`` plus the dot product of the four unsigned (u32) or signed (s32) bytes of ``a`` and ``b``."""

    out: tuple[Value] = result()
    a: Expr = operand()
    b: Expr = operand()
    c: Expr = operand()


@define("warp.shfl")
class Shfl(Op):
    """Shuffle of all 32 lanes: ``mode`` is ``idx``, ``up``, ``down`` or ``xor``; out of range gives the lane's own.

    ``scan``, of u32, adds to the lane's own what ``up`` gives, where it is in range (an add under its predicate).
    """

    out: tuple[Value] = result()
    mode: str = attr()
    a: Expr = operand()
    by: Expr = operand()


@define("warp.ballot")
class Ballot(Op):
    """A u32 whose bit i is lane i's predicate; all 32 lanes take part."""

    out: tuple[Value] = result()
    cond: Expr = operand()


@define("warp.clock")
class Clock(Op):
    """The multiprocessor's count of clock cycles (u64), read where it stands among accesses to memory and barriers.

    It only says how much later one read is than another; the emulator, which has no time, counts the reads.
    """

    out: tuple[Value] = result()


# ------------------------------------------------------------------------------------------------ memory
@define("warp.alloc")
class Alloc(Op):
    """A register array of each lane, uninitialised, alive to the end of the enclosing region."""

    buf: Buffer = declare()


@define("warp.ld")
class Ld(Op):
    """Loads ``len(out)`` adjacent elements (1, 2 or 4, of 16 bits also 8; at most 16 bytes, aligned to their size).

    With ``where`` false the lane loads nothing and gets ``other``.  ``cache``: ``""``, ``cg``, ``cs``, ``nc``.
    ``degree``: the worst bank-conflict degree that the program declares for a shared access (1: none).
    """

    out: tuple[Value, ...] = result()
    buf: Buffer = buffer()
    index: Expr = operand()
    where: Expr | None = operand(default=None)
    other: float = attr(default=0.0)
    cache: str = attr(default="")
    degree: int = attr(default=1)


@define("warp.st")
class St(Op):
    """Stores adjacent elements where ``where`` holds; how many at once and ``degree`` as for ``warp.ld``."""

    buf: Buffer = buffer(writes=True, reads=False)
    index: Expr = operand()
    vals: tuple[Expr, ...] = operand()
    where: Expr | None = operand(default=None)
    cache: str = attr(default="")
    degree: int = attr(default=1)


@define("warp.cp_async")
class CpAsync(Op):
    """Copies ``count`` adjacent elements (4, 8 or 16 bytes) from global to shared memory, asynchronously.

    The destination is in flight until this lane waits for the group; where ``where`` is false nothing happens.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    dst_index: Expr = operand()
    src: Buffer = buffer()
    src_index: Expr = operand()
    count: int = attr()
    where: Expr | None = operand(default=None)


@define("warp.cp_commit")
class CpCommit(Op):
    """Closes the lane's group of asynchronous copies."""


@define("warp.cp_wait")
class CpWait(Op):
    """Waits until at most ``pending`` of the lane's latest groups are in flight."""

    pending: int = attr()


@define("warp.cp_arrive")
class CpArrive(Op):
    """One arrival on ``bars[index]``, made when all ``cp_async`` that the lane has started before have landed.

    It hands over these copies alone: stores of the lane itself need an ``mbar_arrive`` or a barrier.
    """

    bars: Buffer = buffer(writes=True)
    index: Expr = operand()


@define("warp.ldmatrix")
class LdMatrix(Op):
    """``ldmatrix`` of len(out) (1, 2, 4) 8x8 matrices of 16-bit elements; lane i gives the row address of row i.

    Each result is a u32 of two elements (bytes count in pairs).  ``index``: of the shared buffer; ``degree``: of rows.
    """

    out: tuple[Value, ...] = result()
    buf: Buffer = buffer()
    index: Expr = operand()
    trans: bool = attr(default=False)
    degree: int = attr(default=1)


@define("warp.mma")
class Mma(Op):
    """``d = a * b + c`` by the tensor core; ``shape`` names an entry of :data:`sparsegen.ir.fragments.SHAPES`.

    ``a``, ``b``, ``c``: the lane's registers of each fragment in the table's order; the shape's name says the types.
    """

    out: tuple[Value, ...] = result()
    shape: str = attr()
    a: tuple[Expr, ...] = operand()
    b: tuple[Expr, ...] = operand()
    c: tuple[Expr, ...] = operand()


# ------------------------------------------------------------------------------------------------ order
@define("warp.barrier")
class Barrier(Op):
    """All threads of the block (``count`` 0), or ``count`` threads on named barrier ``id``, meet and see each other."""

    id: int = attr(default=0)
    count: int = attr(default=0)


@define("warp.sync")
class SyncWarp(Op):
    """The lanes of the warp meet and see each other's memory accesses."""


@define("warp.fence")
class Fence(Op):
    """``gpu``: orders this thread's accesses for the whole GPU, ``block``: for its block, by way of atomics on shared
    memory; ``async``: generic accesses that this thread knows of before asynchronous ones, stores before they are read
    and loads before a copy overwrites what they read, for an arrival or a barrier waits for no load; ``mbar_init``:
    makes mbarrier initialisation visible to the asynchronous proxy."""

    scope: str = attr()


@define("warp.mbar_init")
class MbarInit(Op):
    """Initialises the mbarrier ``bars[index]`` (u64 in shared memory) for ``count`` arrivals a phase."""

    bars: Buffer = buffer(writes=True)
    index: Expr = operand()
    count: int = attr()


@define("warp.mbar_arrive")
class MbarArrive(Op):
    """One arrival; ``expect`` bytes of bulk copies are added to what the phase waits for."""

    bars: Buffer = buffer(writes=True)
    index: Expr = operand()
    expect: Expr | None = operand(default=None)


@define("warp.mbar_try_wait")
class MbarTryWait(Op):
    """Whether a phase has ended (may wait); acquires what its arrivals released, of other blocks with ``cluster``."""

    out: tuple[Value] = result()
    bars: Buffer = buffer()
    index: Expr = operand()
    parity: Expr = operand()
    cluster: bool = attr(default=False)


@define("warp.bulk_copy")
class BulkCopy(Op):
    """Copies ``count`` elements (a multiple of 16 bytes, both ends 16-byte aligned) from global to shared memory.

    One thread issues it; its bytes count towards the phase of the mbarrier ``bars[bar]``.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    dst_index: Expr = operand()
    src: Buffer = buffer()
    src_index: Expr = operand()
    count: Expr = operand()
    bars: Buffer = buffer(writes=True)
    bar: Expr = operand()

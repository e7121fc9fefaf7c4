"""What a schedule of ``bitmap_block`` means for a product in numbers."""

from __future__ import annotations

from typing import Final, NamedTuple

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.bitmap import lane_sums, slot_words
from sparsegen.ir.numbers.bitmap_block import GROUPED, PIECE, exchanged, is_late, longest, operands
from sparsegen.ir.numbers.groups import STAGE
from sparsegen.ir.op_spmm import SLAB, STRIP
from sparsegen.products.geometry import SPARE
from sparsegen.products.product import BitmapNumbers
from sparsegen.schedule import Schedule

#: Registers of a thread besides its sums and operands of x, or for the second fragment of a warpgroup's product.
BASE, SECOND = 36, 4
#: What a slot's chunks are rounded up to, so that matrices of one shape share a kernel.
ALIGN: Final = 64
#: Slots of a ring that are tried, at most.
MOST: Final = 12


class Shape(NamedTuple):
    """What a schedule makes of a product.

    ``runs``: of strips; ``most``: strips of the longest; ``tiles``: of columns of x; ``chunks``: of values that a slot
    has room for; ``shared``: bytes a block; ``resident``: blocks an SM, 0 if none fits.
    """

    runs: int
    most: int
    tiles: int
    blocks: int
    chunks: int
    shared: int
    registers: int
    resident: int


def shape_of(p: BitmapNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not."""
    tiles, runs = -(-p.n // s.cols), runs_of(p, s)
    most = longest(-(-p.m // STRIP), runs, s.rows)
    words, columns, chunks = _slot(p, s, most)
    own = s.rows * lane_sums(False, s.cols)
    sent = 4 * exchanged(own, s.warps, s.splits)
    shared = up(max(s.stages * words, sent), 128) + s.stages * (columns + 16) + 8 * (s.splits > 1)
    shared = up(shared, 16) + staged if (staged := _staged(p, s)) else shared
    x = SECOND if s.mma == GROUPED else operands(s.cols, 4 if s.rows > 1 else 1)
    registers, blocks = BASE + own + x, runs * tiles * s.splits
    resident = min(occupancy(registers, shared, s.threads, device).blocks, -(-blocks // device.sms))
    return Shape(runs, most, tiles, blocks, chunks, shared, registers, resident)


def runs_of(p: BitmapNumbers, s: Schedule) -> int:
    """Runs of strips: as few as warps have room for.  More, for a whole wave of SMs, was no faster."""
    return -(-p.m // (STRIP * int(s.warps[0] * s.rows)))


def deepest(p: BitmapNumbers, s: Schedule, device: DeviceProfile) -> int:
    """Slots for which a block has room, MOST at most; the ``stages`` of the schedule are not asked for."""
    words, columns, _ = _slot(p, s, longest(-(-p.m // STRIP), runs_of(p, s), s.rows))
    rest = device.smem_block - 128 - _staged(p, s)
    many = min(MOST, rest // (words + columns + 16))
    return max(least(s), many // int(s.warps[1]) * int(s.warps[1]))


def least(s: Schedule) -> int:
    """The fewest slots with which the ring runs: each set of warps fills one ahead."""
    return max(3 + is_late(s.mma, s.cols), 2 * int(s.warps[1]))


def widest(p: BitmapNumbers, strips: int) -> int:
    """Chunks of so many adjacent strips of a slab, at most: of more strips than were measured by parts."""
    whole, rest = divmod(strips, len(p.widest))
    return whole * p.widest[-1] + (p.widest[rest - 1] if rest else 0)


def _staged(p: BitmapNumbers, s: Schedule) -> int:
    """Bytes through which single elements of y by rows go."""
    return 4 * STAGE * s.threads // 32 * (p.n > 1 and p.n % PIECE > 0)


def _slot(p: BitmapNumbers, s: Schedule, most: int) -> tuple[int, int, int]:
    """Bytes of a slot's tiles, of ``most`` strips, and of its x, and the chunks of its values."""
    chunks = -(-(widest(p, most) + SPARE) // ALIGN) * ALIGN
    return 4 * slot_words(most, chunks), 2 * SLAB * s.cols, chunks

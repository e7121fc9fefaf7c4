"""``bitmap_block``: bitmap tiles spread into fragments, one ring for all warps of a block (Hopper).

What a schedule means in numbers is in :mod:`sparsegen.products.bitmap_block`, its cost in ``bitmap_block_cost`` beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.spmm.bitmap import FAMILY as BITMAP
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.bitmap_block import BitmapBlock
from sparsegen.ir.numbers.bitmap_block import COLS, GROUP, GROUP_COLS, GROUPED
from sparsegen.ir.op_spmm import SLAB
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.warp_cluster import SIZES
from sparsegen.products.bitmap_block import Shape, deepest, least, shape_of
from sparsegen.products.bitmap_block_cost import price
from sparsegen.products.geometry import MAX_REGISTERS
from sparsegen.products.product import BitmapNumbers
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, pair, text

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Warps of a block, rows x sets, and strips of a warp that are tried; and the most that may be asked for.  Many sets of
#: two or three warps, each of which brings every other slab, were up to 60 % slower than the model says.
WARPS: Final = tuple((n, sets) for sets in (1, 2, 3, 4) for n in range(4, 33, 1 + (sets < 2)) if 12 <= n * sets <= 32)
ROWS, MOST_WARPS, MOST_ROWS = (1, 2), 32, 4
#: Blocks that share a run of strips: of larger clusters not all SMs have one, 8192^2 took twice as long on an H200.
SPLITS: Final = (1, 2)


class BitmapBlockFamily(ListedFamily):
    """``cols``: columns of x that a block works on; ``warps``: those that share its rows x sets of them, which take
    slabs by turns; ``rows``: strips of 16 rows of a warp; ``stages``: slots of the block's ring; ``splits``: blocks, a
    cluster, that share a run of strips, each with a part of the slabs; ``mma``: a warp's shape, or ``wgmma``."""

    name = "bitmap_block"
    telling = ("cols", "mma")
    formats = ("bitmap",)
    scratch = "partial sums; x, row by row and of whole pieces"
    words = (
        Word("mma", text, choices=("f16.m16n8k16", "bf16.m16n8k16", GROUPED)),
        Word("cols", integer, choices=GROUP_COLS), Word("warps", pair),
        Word("rows", integer, None, 1, MOST_ROWS), Word("stages", integer, None, 3, 32),
        Word("splits", integer, choices=SIZES),
    )  # fmt: skip

    def consistent(self, s: Schedule) -> None:
        """The warps fit a block."""
        if s.warps is not None and s.threads > 32 * MOST_WARPS:
            raise ScheduleError(
                f"warps={s.warps[0]}x{s.warps[1]} are {s.threads} threads",
                hint=f"rows x sets, {MOST_WARPS} in all, as in warps=28x1",
            )

    def space(self, facts: BitmapNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""
        for mma in [wanted["mma"]] if "mma" in wanted else (f"{facts.multiplied}.m16n8k16", GROUPED):
            grouped = mma == GROUPED
            known = GROUP_COLS if grouped else COLS
            enough = next((c for c in known if c >= facts.n), known[-1])
            columns = (enough, 64) if grouped and enough == 128 else (enough,)
            tried: dict[str, Any] = {
                "cols": columns, "warps": [n for n in WARPS if not grouped or (n[0] % GROUP == 0 and n[1] == 1)],
                "rows": (1,) if grouped else ROWS, "splits": [n for n in SPLITS if n <= -(-facts.k // SLAB)],
            }  # fmt: skip
            if grouped and "mma" not in wanted and facts.n <= 16:
                continue  # a warp's mma is as fast for so few columns
            tried |= {word: [wanted[word]] for word in tried if word in wanted}
            for words in product(*tried.values()):
                made = dict(zip(tried, words, strict=True))
                yield SpmmSchedule(self.name, mma=mma, stages=wanted.get("stages"), **made)

    def completed(self, facts: BitmapNumbers, schedule: Schedule, device: DeviceProfile) -> Schedule:
        """Without ``stages``, with as many as a block has room for."""
        return schedule if schedule.stages else schedule.but(stages=deepest(facts, schedule, device))

    def shape(self, facts: BitmapNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Runs of strips, bytes and registers."""
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: BitmapNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        s, grouped = schedule, schedule.mma == GROUPED
        if device.compute_capability < HOPPER:
            return ScheduleError(
                f"bitmap_block copies in bulk, which {device.name} ({device.arch}) cannot", hint="take bitmap"
            )
        if grouped and device.compute_capability >= (10, 0):
            return ScheduleError(f"mma=wgmma is Hopper's, {device.name} is {device.arch}", hint="leave mma out")
        if not grouped and not s.mma.startswith(f"{facts.multiplied}."):
            return ScheduleError(
                f"mma={s.mma} does not multiply {facts.dtype} weights", hint=f"set mma={facts.multiplied}.m16n8k16"
            )
        if not grouped and s.cols not in COLS:
            return ScheduleError(f"cols={s.cols} with mma={s.mma}", hint=f"set mma=wgmma, or cols={COLS[-1]} or less")
        if grouped and (s.warps[0] % GROUP or s.warps[1] != 1 or s.rows != 1):
            return ScheduleError(
                f"warps={s.warps[0]}x{s.warps[1]} of {s.rows} strips make no warpgroups",
                hint=f"with mma=wgmma rows=1, and warps={GROUP}x1 or a multiple of that",
            )
        if s.splits * s.warps[1] > (slabs := -(-facts.k // SLAB)):
            return ScheduleError(
                f"splits={s.splits} with {s.warps[1]} sets of warps, but W has {slabs} slabs of {SLAB} columns",
                hint="lower splits, or the second number of warps",
            )
        if s.stages < least(s) or s.stages % s.warps[1]:
            return ScheduleError(
                f"stages={s.stages} with warps={s.warps[0]}x{s.warps[1]}: each set of warps has as many slots, two at "
                "least",
                hint=f"set stages={least(s)}, or more by {s.warps[1]}",
            )
        if shape.registers > MAX_REGISTERS or not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers a thread do not fit an SM",
                hint="lower stages, cols, rows or warps",
            )
        return None

    def cost(self, facts: BitmapNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """The arrays of bitmap tiles, as 32-bit words."""
        return BITMAP.arrays(schedule)

    def read(self, facts: BitmapNumbers, schedule: Schedule) -> dict[str, Prepared]:
        """Those, and a scale that W has of its own."""
        return BITMAP.read(facts, schedule)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel: its ring is its own."""
        s, g = schedule, shape_of(problem.facts, schedule, device)
        row_warps, parts = s.warps
        return [BitmapBlock(s.mma, s.cols, row_warps, parts, s.rows, g.runs, s.splits, s.stages, g.chunks, g.resident)]

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Runs of strips, splits and tiles of columns."""
        g = shape_of(facts, schedule, device)
        return (
            f"{g.blocks}: {g.runs} runs of {g.most} strips x {schedule.splits} splits x {g.tiles} tiles of columns; "
            f"{room(g)}"
        )


FAMILY = register(BitmapBlockFamily())

"""``nm_24``: W that keeps at most 2 of every aligned 4 columns (2:4, 1:4, 1:2), on Hopper's sparse tensor cores."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import least_shared
from sparsegen.families.spmm.warpgroups import WarpgroupFamily, sizes
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.nm_24 import Nm24
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.groups import ROWS, STEP, row_pitch
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.fours_cost import price, shape_of
from sparsegen.products.gather_cost import Shape
from sparsegen.products.nm import NmNumbers
from sparsegen.products.nm_fours import kept_images, kept_words
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Rows of a tile, and slots of a ring that are tried.
TILES: Final = (64, 128, 256)
STAGES: Final = (3, 4, 5, 6, 8)
_KEPT: Final = (
    "kept elements of tiles of {rows} rows: of 64 columns at a time 32 of each row, 64 rows each, the 16-byte pieces "
    "of a row exchanged by its number over 2 mod 4 (kept_images in sparsegen/products/nm_fours.py)"
)
_WORDS: Final = (
    "of each thread that multiplies and 64 columns a word of 4-bit codes: the places of two kept elements of four "
    "columns (kept_words in sparsegen/products/nm_fours.py)"
)


class Nm24Family(WarpgroupFamily):
    """``rows``: of W of a tile, 64 for each warpgroup; ``cols``: columns of x of a block; ``stages``: turns of 64
    columns of W in the ring: one is multiplied while the others are filled."""

    name = "nm_24"
    nonfinite = "a NaN or Inf of x reaches rows that keep its column, and rows that keep fewer than 2 of its 4 columns"
    words = sizes(*TILES)
    tried = MappingProxyType({"rows": TILES, "stages": STAGES})

    def shape(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def cannot(self, facts: NmNumbers) -> ScheduleError | None:
        """Why its kernels cannot take such a W; None if they can."""
        if facts.fours:
            return None
        n, m = facts.pattern[:2]
        return ScheduleError(
            f"W ({n}:{m}) keeps more than 2 of 4 aligned columns somewhere, which sparse tensor cores cannot",
            hint="prune it as n=2, m=4, or take nm_gather or nm_lanes",
        )

    def indexed(self, facts: NmNumbers, schedule: Schedule) -> int:
        """The elements of the largest array that its kernels index."""
        return max(up(facts.m, schedule.rows) * up(facts.k, STEP) // 2, facts.k * row_pitch(facts.n, facts.item))

    def cost(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel, with as many blocks as run at a time."""
        s = schedule
        resident = max(1, shape_of(problem.facts, s, device).resident)
        groups, blocks = s.rows // ROWS, resident * device.sms
        return [
            Nm24(
                groups=groups, cols=s.cols, stages=s.stages, blocks=blocks, min_blocks=resident,
                least_shared=least_shared(resident, device),
            )
        ]  # fmt: skip

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """Kept elements, and which they are."""
        rows = schedule.rows
        return {
            "kept": Prepared(("nm_24 kept", rows), partial(kept_images, rows=rows), _KEPT.format(rows=rows)),
            "words": Prepared(("nm_24 words", rows), partial(kept_words, rows=rows), _WORDS, words=True),
        }

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Tiles, and what a turn moves."""
        g, steps = shape_of(facts, schedule, device), -(-facts.k // STEP)
        return (
            f"{g.tiles} tiles of {schedule.rows} rows x {schedule.cols} columns, each {steps} x 64 columns of W; "
            f"blocks an SM: {g.resident}; {g.shared / 1024:.3g} KiB of shared memory, {g.registers} registers"
        )


FAMILY = register(Nm24Family())

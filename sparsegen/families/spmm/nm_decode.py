"""``nm_decode`` (nmSPARSE): any N:M pattern on Hopper's tensor cores; W's tiles are decoded in shared memory.

For columns of x too many for ``nm_lanes``, and rows of W that do not share their pattern (single elements and blocks).
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import least_shared
from sparsegen.families.spmm.warpgroups import WarpgroupFamily, sizes
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.nm_decode import NmDecode
from sparsegen.ir.numbers.groups import ROWS, row_pitch
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.decode_cost import packed, price, shape_of, steps_of
from sparsegen.products.gather_cost import Shape
from sparsegen.products.nm import NmNumbers
from sparsegen.products.nm_entries import packed_entries
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, Word, integer

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Rows of a tile, and slots of a ring that are tried.
TILES: Final = (64, 128)
STAGES: Final = (3, 4, 6, 8, 16)
#: Teams that copy which are tried, and the most.
TEAMS: Final = (1, 2, 3)
MOST_TEAMS: Final = 4
_ENTRIES: Final = (
    "of each tile of {rows} rows and 64 columns the kept values, two a word, and their places in a swizzled row, a "
    "byte each; of 32 lanes side by side (packed_entries in sparsegen/products/nm_entries.py)"
)


class NmDecodeFamily(WarpgroupFamily):
    """``rows``: of W of a tile, 64 for each warpgroup; ``cols``: columns of x of a block; ``stages``: turns of 64
    columns of W in the ring: one is multiplied while the others are filled; ``teams``: of four warps that fill them,
    turn about."""

    name = "nm_decode"
    nonfinite = "a NaN or Inf of x reaches all rows, as in the dense product"
    because = "what is not stored is multiplied as zero, but not loaded"
    words = (*sizes(*TILES), Word("teams", integer, None, 1, MOST_TEAMS))
    tried = MappingProxyType({"rows": TILES, "stages": STAGES, "teams": TEAMS})

    def consistent(self, s: Schedule) -> None:
        """Each team has a slot: a phase of a slot's mbarrier tells it from the next one only."""
        if s.teams is not None and s.stages is not None and s.teams > s.stages:
            raise ScheduleError(f"teams={s.teams} fill stages={s.stages} slots", hint="raise stages, or lower teams")

    def shape(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def indexed(self, facts: NmNumbers, schedule: Schedule) -> int:
        """The elements of the largest array that its kernels index."""
        return max(packed(facts, schedule.rows) // 4, facts.k * row_pitch(facts.n, facts.item))

    def cost(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel, with as many blocks as run at a time."""
        s, resident = schedule, max(1, shape_of(problem.facts, schedule, device).resident)
        return [
            NmDecode(
                groups=s.rows // ROWS, cols=s.cols, stages=s.stages, teams=s.teams, blocks=resident * device.sms,
                min_blocks=resident, least_shared=least_shared(resident, device),
            )
        ]  # fmt: skip

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """The kept values and their places, packed for the lanes that copy."""
        rows = schedule.rows
        pack = partial(packed_entries, rows=rows)
        return {"entries": Prepared(("nm_decode entries", rows), pack, _ENTRIES.format(rows=rows), words=True)}

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Tiles, and what a turn moves."""
        g = shape_of(facts, schedule, device)
        return (
            f"{g.tiles} tiles of {schedule.rows} rows x {schedule.cols} columns, each {steps_of(facts)} x 64 columns "
            f"of W; blocks an SM: {g.resident}; {g.shared / 1024:.3g} KiB of shared memory, {g.registers} registers"
        )


FAMILY = register(NmDecodeFamily())

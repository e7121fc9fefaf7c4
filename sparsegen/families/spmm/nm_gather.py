"""``nm_gather`` (nmSPARSE): N:M patterns on Hopper's tensor cores; rows of x are gathered as they are loaded.

For many columns of x, and rows of W that share their pattern (vectors of 64 rows or more; rows of a tile that do not
share one keep the columns of all).
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
from sparsegen.ir.kernels.nm_gather import NmGather
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.groups import ROWS, STEP, row_pitch
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.gather_cost import Shape, price, shape_of
from sparsegen.products.nm import NmNumbers
from sparsegen.products.nm_tiles import row_lists, tile_images
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Rows of a tile, and slots of a ring that are tried.
TILES: Final = (64, 128)
STAGES: Final = (3, 4, 5, 6, 8)
#: Columns that a list of 16-bit numbers can name.
MOST_COLUMNS: Final = 1 << 16
_TILES: Final = (
    "values of tiles of {rows} rows: of each the columns that it lists, 64 at a time, 64 rows each, the 16-byte pieces "
    "of row r exchanged by r mod 8 (tile_images in sparsegen/products/nm_tiles.py)"
)
_LISTS: Final = (
    "the columns that each tile of {rows} rows keeps, ascending, the last one again up to a multiple of 64 "
    "(row_lists in sparsegen/products/nm_tiles.py)"
)


class NmGatherFamily(WarpgroupFamily):
    """``rows``: of W of a tile, 64 for each warpgroup; ``cols``: columns of x of a block; ``stages``: turns of 64 kept
    columns in the ring: one is multiplied while the others are filled."""

    name = "nm_gather"
    nonfinite = "a NaN or Inf of x reaches all rows of the tiles that list its column"
    words = sizes(*TILES)
    tried = MappingProxyType({"rows": TILES, "stages": STAGES})

    def shape(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def cannot(self, facts: NmNumbers) -> ScheduleError | None:
        """Why its kernels cannot take such a W; None if they can."""
        if facts.k > MOST_COLUMNS:
            return ScheduleError(
                f"W has {facts.k} columns; lists of 16 bits name {MOST_COLUMNS}", hint="cut W by columns"
            )
        return None

    def indexed(self, facts: NmNumbers, schedule: Schedule) -> int:
        """The elements of the largest array that its kernels index."""
        x = facts.k * row_pitch(facts.n, facts.item)
        return max(up(facts.m, schedule.rows) * facts.steps[schedule.rows] * STEP, x)

    def cost(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel, with as many blocks as run at a time."""
        s, p = schedule, problem.facts
        resident = max(1, shape_of(p, s, device).resident)
        return [
            NmGather(
                groups=s.rows // ROWS, cols=s.cols, stages=s.stages, steps=p.steps[s.rows],
                blocks=resident * device.sms, min_blocks=resident,
                least_shared=least_shared(resident, device),
            )
        ]  # fmt: skip

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """Tiles of values, and the rows of x that they name."""
        rows = schedule.rows
        return {
            "tiles": Prepared(("nm_gather tiles", rows), partial(tile_images, rows=rows), _TILES.format(rows=rows)),
            "rows": Prepared(
                ("nm_gather rows", rows), partial(row_lists, rows=rows), _LISTS.format(rows=rows), words=True
            ),
        }

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Tiles, and what a turn moves."""
        g, steps = shape_of(facts, schedule, device), facts.steps[schedule.rows]
        return (
            f"{g.tiles} tiles of {schedule.rows} rows x {schedule.cols} columns, each {steps} x 64 kept columns; "
            f"blocks an SM: {g.resident}; {g.shared / 1024:.3g} KiB of shared memory, {g.registers} registers"
        )


FAMILY = register(NmGatherFamily())

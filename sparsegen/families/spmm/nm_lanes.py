"""``nm_lanes`` (nmSPARSE): N:M patterns on CUDA cores; a lane has a row of W, and reads x by broadcast.

For few columns of x.  Any pattern: rows that share one are taken row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.cost.occupancy import least_shared
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.nm_lanes import NmLanes
from sparsegen.ir.numbers.nm import LANES
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.nm import NmNumbers, packed_offsets, packed_values
from sparsegen.products.nm_cost import Shape, price, shape_of
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, pair

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: What the search tries: tiles of a block x warps of each, and columns of x of a block.
WARPS: Final = ((1, 8), (1, 16), (2, 8), (2, 16), (1, 32), (4, 4), (4, 8))
COLUMNS: Final = (1, 2, 4, 8)
#: The same for rows of few chunks.
SHORT: Final = (4, 1)
MAX_REGISTERS: Final = 255
_VALUES: Final = (
    "words of the kept values: of each tile of 32 rows, of each chunk of their entries, each 16-byte piece of all rows "
    "side by side (packed_values in sparsegen/products/nm.py)"
)
_OFFSETS: Final = (
    "words of the kept columns' offsets in their windows: of each tile of 32 rows and chunk of their entries, the "
    "words in groups of 4, 2 and 1, each of all rows side by side (packed_offsets in sparsegen/products/nm.py)"
)


class NmLanesFamily(ListedFamily):
    """``cols``: columns of x of a block; ``warps``: tiles of 32 rows of a block x warps that share a tile's entries."""

    name = "nm_lanes"
    formats = ("nm",)
    telling = ("cols", "warps")
    nonfinite = "a NaN or Inf of x reaches the rows that store its column, if only as a zero"
    counted = "two for each kept element and column"
    because = "what is not stored does not multiply"
    words = (Word("cols", integer, choices=COLUMNS), Word("warps", pair))

    def consistent(self, s: Schedule) -> None:
        """The warps fit a block."""
        if s.warps is not None and (min(s.warps) < 1 or s.threads > 1024):
            raise ScheduleError(
                f"warps={s.warps[0]}x{s.warps[1]} are {s.threads} threads",
                hint="tiles x parts, at least one of each and 32 in all, as in warps=1x16",
            )

    def space(self, facts: NmNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``.

        A warp has two chunks of its tile or more (but for short rows): one alone loads nothing ahead, and nvcc spills.
        """
        enough = next((c for c in COLUMNS if c >= facts.n), COLUMNS[-1])
        shared = [warps for warps in WARPS if 2 * warps[1] <= facts.count] or [SHORT]
        for cols in [wanted["cols"]] if "cols" in wanted else [c for c in COLUMNS if c <= enough]:
            for warps in [wanted["warps"]] if "warps" in wanted else shared:
                yield SpmmSchedule("nm_lanes", cols=cols, warps=warps)

    def shape(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run on the device; None if it can."""
        if shape.shared > device.smem_block:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory for {shape.held} rows of x and cols={schedule.cols}; "
                f"a block has {device.smem_block}",
                hint="lower cols"
                if schedule.cols > 1
                else "add up products with matrices of fewer columns (residual=True)",
            )
        left = min(MAX_REGISTERS, device.regs_sm // schedule.threads // 8 * 8)
        if shape.registers > left or not shape.resident:
            return ScheduleError(
                f"{shape.registers} registers a thread; {schedule.threads} threads leave {left}",
                hint="lower cols or warps",
            )
        return None

    def cost(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int]:
        """What costs are sorted by: seconds, then few threads."""
        return round(cost.time, 9), cost.schedule.threads

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel."""
        resident = max(1, shape_of(problem.facts, schedule, device).resident)
        tiles, parts = schedule.warps
        overlap = device.compute_capability >= HOPPER
        return [
            NmLanes(
                row_warps=tiles, parts=parts, cols=schedule.cols, min_blocks=resident, overlap=overlap,
                least_shared=least_shared(resident, device) if overlap else 0,
            )
        ]  # fmt: skip

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """The kept values and their offsets, packed for lanes."""
        return {
            "values": Prepared("nm_lanes values", packed_values, _VALUES, words=True),
            "offsets": Prepared("nm_lanes offsets", packed_offsets, _OFFSETS, words=True),
        }

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every kept element and column."""
        p: NmNumbers = cost.facts
        return 2.0 * p.kept * p.n

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Tiles of rows and of columns."""
        g, (tiles, parts) = shape_of(facts, schedule, device), schedule.warps
        return (
            f"{g.blocks}: {LANES * tiles} rows of W x {schedule.cols} columns of x each; {parts} warps share 32 rows; "
            f"{g.shared / 1024:.3g} KiB of shared memory; about {g.registers} registers"
        )


FAMILY = register(NmLanesFamily())

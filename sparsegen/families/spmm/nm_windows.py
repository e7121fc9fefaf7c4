"""``nm_windows`` (nmSPARSE): N:M patterns on CUDA cores; a lane has a window of W, and a bank of its own to find x in.

The paper's kernel for one column.  Any pattern; ``layout=windows`` shows what it takes without its layout of x.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.nm_windows import NmWindows
from sparsegen.ir.numbers.nm import LANES
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.tile_windows import LAYOUTS
from sparsegen.products.nm import NmNumbers, by_windows, packed_offsets, packed_values
from sparsegen.products.weights import Prepared
from sparsegen.products.windows_cost import Shape, packed, price, shape_of
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, text
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: What the search tries: warps of a block, columns of x of a block.
WARPS: Final = (4, 8, 16, 32)
COLUMNS: Final = (1, 2, 4, 8)
MAX_REGISTERS: Final = 255
_VALUES: Final = (
    "words of the kept values: of each group of rows, of each 32 windows, each 16-byte piece of all lanes, a window "
    "each, side by side (packed_values and by_windows in sparsegen/products/nm.py)"
)
_OFFSETS: Final = (
    "words of the kept columns' offsets in their windows: of each group of rows and 32 windows, the words in groups of "
    "4, 2 and 1, each of all lanes side by side (packed_offsets and by_windows in sparsegen/products/nm.py)"
)


class NmWindowsFamily(ListedFamily):
    """``cols``: columns of x of a block; ``warps``: of a block, a group of rows each; ``layout``: of x in shared
    memory, by offsets, the paper's, or window by window."""

    name = "nm_windows"
    formats = ("nm",)
    telling = ("cols", "warps")
    nonfinite = "a NaN or Inf of x reaches the rows that store its column, if only as a zero"
    counted = "two for each kept element and column"
    because = "what is not stored does not multiply"
    words = (
        Word("cols", integer, choices=COLUMNS), Word("warps", integer, choices=WARPS),
        Word("layout", text, "offsets", choices=LAYOUTS),
    )  # fmt: skip

    def space(self, facts: NmNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""
        enough = next((c for c in COLUMNS if c >= facts.n), COLUMNS[-1])
        for cols in [wanted["cols"]] if "cols" in wanted else [c for c in COLUMNS if c <= enough]:
            for warps in [wanted["warps"]] if "warps" in wanted else WARPS:
                yield SpmmSchedule("nm_windows", cols=cols, warps=warps, layout=wanted.get("layout", "offsets"))

    def shape(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run on the device; None if it can."""
        if packed(facts) // 4 > MAX_CELLS:
            return ScheduleError(
                f"W's values and offsets for 32 windows at a time take {packed(facts) // 4} words; "
                f"indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="take nm_lanes, or cut W by rows",
            )
        if shape.shared > device.smem_block:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory for {shape.pitch} windows of x and cols={schedule.cols}; "
                f"a block has {device.smem_block}",
                hint="lower cols"
                if schedule.cols > 1
                else "add up products with matrices of fewer columns (residual=True)",
            )
        left = min(MAX_REGISTERS, device.regs_sm // (LANES * schedule.warps) // 8 * 8)
        if shape.registers > left or not shape.resident:
            return ScheduleError(
                f"{shape.registers} registers a thread; {LANES * schedule.warps} threads leave {left}",
                hint="lower cols or warps",
            )
        return None

    def cost(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int]:
        """What costs are sorted by: seconds, then few threads."""
        return round(cost.time, 9), cost.schedule.warps

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel."""
        s, resident = schedule, shape_of(problem.facts, schedule, device).resident
        return [NmWindows(warps=s.warps, cols=s.cols, layout=s.layout, min_blocks=max(1, resident))]

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """The kept values and their offsets, packed for lanes of a window each."""
        values, offsets = (partial(pack, cut=by_windows) for pack in (packed_values, packed_offsets))
        return {
            "values": Prepared("nm_windows values", values, _VALUES, words=True),
            "offsets": Prepared("nm_windows offsets", offsets, _OFFSETS, words=True),
        }

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every kept element and column."""
        p: NmNumbers = cost.facts
        return 2.0 * p.kept * p.n

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Groups of rows and of columns."""
        g, high = shape_of(facts, schedule, device), facts.chunks.windows
        return (
            f"{g.blocks}: {high * schedule.warps} rows of W x {schedule.cols} columns of x each, {high} rows a warp; "
            f"{g.shared / 1024:.3g} KiB of shared memory, by {schedule.layout}; about {g.registers} registers"
        )


FAMILY = register(NmWindowsFamily())

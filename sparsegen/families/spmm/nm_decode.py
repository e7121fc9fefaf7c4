"""``nm_decode`` (nmSPARSE): any N:M pattern on Hopper's tensor cores; W's tiles are decoded in shared memory.

For columns of x too many for ``nm_lanes``, and rows of W that do not share their pattern (single elements and blocks).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.families.spmm.nm_gather import TILES
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.nm_decode import NmDecode
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.groups import COLS, LEAST, PIECE, ROWS
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.cost import HOPPER
from sparsegen.products.decode_cost import packed, price, shape_of, steps_of
from sparsegen.products.gather_cost import Shape
from sparsegen.products.nm import NmNumbers
from sparsegen.products.nm_entries import packed_entries
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Slots of a ring that are tried.
STAGES: Final = (3, 4, 6, 8, 16)
#: Teams that copy which are tried, and the most.
TEAMS: Final = (1, 2, 3)
MOST_TEAMS: Final = 4
_ENTRIES: Final = (
    "of each tile of {rows} rows and 64 columns the kept values, two a word, and their places in a swizzled row, a "
    "byte each; of 32 lanes side by side (packed_entries in sparsegen/products/nm_entries.py)"
)


class NmDecodeFamily(ListedFamily):
    """``rows``: of W of a tile, 64 for each warpgroup; ``cols``: columns of x of a block; ``stages``: turns of 64
    columns of W in the ring: one is multiplied while the others are filled; ``teams``: of four
    warps that fill them, in turn."""

    name = "nm_decode"
    formats = ("nm",)
    telling = ("rows", "cols")
    nonfinite = "a NaN or Inf of x reaches all rows, as in the dense product"
    counted = "two for each kept element and column"
    because = "what is not stored is multiplied as zero, but not loaded"
    scratch = "x, row by row and of whole pieces"
    words = (
        Word("rows", integer, choices=TILES), Word("cols", integer, choices=COLS),
        Word("stages", integer, None, LEAST, 16), Word("teams", integer, None, 1, MOST_TEAMS),
    )  # fmt: skip

    def consistent(self, s: Schedule) -> None:
        """Each team has a slot: a phase of a slot's mbarrier tells it from the next one only."""
        if s.teams is not None and s.stages is not None and s.teams > s.stages:
            raise ScheduleError(f"teams={s.teams} fill stages={s.stages} slots", hint="raise stages, or lower teams")

    def space(self, facts: NmNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""
        enough = next((c for c in COLS if c >= facts.n), COLS[-1])
        for cols in [wanted["cols"]] if "cols" in wanted else [c for c in COLS if c <= enough]:
            for rows in [wanted["rows"]] if "rows" in wanted else TILES:
                for stages in [wanted["stages"]] if "stages" in wanted else STAGES:
                    for teams in [wanted["teams"]] if "teams" in wanted else TEAMS:
                        yield SpmmSchedule("nm_decode", rows=rows, cols=cols, stages=stages, teams=teams)

    def shape(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        if device.compute_capability < HOPPER or device.compute_capability >= (10, 0):
            return ScheduleError(
                f"nm_decode multiplies by warpgroups, which {device.name} ({device.arch}) has not",
                hint="take nm_lanes, or a Hopper device (H100, H200)",
            )
        if facts.item != 2:
            return ScheduleError(f"nm_decode multiplies f16 and bf16, not {facts.dtype}", hint="take nm_lanes")
        most = max(packed(facts, schedule.rows) // 4, facts.k * up(facts.n, PIECE))
        if most > MAX_CELLS:
            return ScheduleError(
                f"packed words of W or whole pieces of x are {most}; "
                f"indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut W by rows, or x by columns",
            )
        if not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers a thread do not fit an SM",
                hint="lower stages, cols or rows",
            )
        return None

    def cost(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int, int]:
        """What costs are sorted by: seconds, then many slots, which hide more, then small tiles."""
        return round(cost.time, 9), -cost.schedule.stages, cost.schedule.rows

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel, with as many blocks as run at a time."""
        s, resident = schedule, max(1, shape_of(problem.facts, schedule, device).resident)
        return [
            NmDecode(
                groups=s.rows // ROWS, cols=s.cols, stages=s.stages, teams=s.teams, blocks=resident * device.sms,
                min_blocks=resident,
            )
        ]  # fmt: skip

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """The kept values and their places, packed for the lanes that copy."""
        rows = schedule.rows
        pack = partial(packed_entries, rows=rows)
        return {"entries": Prepared(("nm_decode entries", rows), pack, _ENTRIES.format(rows=rows), words=True)}

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every kept element and column."""
        p: NmNumbers = cost.facts
        return 2.0 * p.kept * p.n

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Tiles, and what a turn moves."""
        g = shape_of(facts, schedule, device)
        return (
            f"{g.tiles} tiles of {schedule.rows} rows x {schedule.cols} columns, each {steps_of(facts)} x 64 columns "
            f"of W; blocks an SM: {g.resident}; {g.shared / 1024:.3g} KiB of shared memory, {g.registers} registers"
        )


FAMILY = register(NmDecodeFamily())

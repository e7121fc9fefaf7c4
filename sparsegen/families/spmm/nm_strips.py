"""``nm_strips`` (nmSPARSE): N:M patterns on tensor cores by ``mma.sync``; warps find their rows of x in a shared tile.

For many columns of x, and rows of W that share their pattern by 16, 32 or 64 (rows of a strip that do not share one
keep the columns of all).  From sm_80 on; on Hopper, warpgroups (``nm_gather``) are faster for longer vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.nm_strips import NmStrips
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.strips import COLS, DEPTH, KEPT, LEAST, MOST_ROWS, PIECE, STRIPS, sums
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.nm import NmNumbers
from sparsegen.products.nm_strips import Strips, strip_places, strip_values, window_rows
from sparsegen.products.strips_cost import Shape, price, shape_of
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, pair
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Strips of a block x warps that share a strip's columns, and slots of a ring that are tried.
WARPS: Final = ((2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (8, 2), (16, 1))
STAGES: Final = (2, 3, 4, 6)
#: Sums of a lane at most: with its fragments and addresses they fill its registers.
MOST_SUMS: Final = 128
#: Columns that a list of 16-bit numbers can name.
MOST_COLUMNS: Final = 1 << 16
MAX_WARPS: Final = 32
_VALUES: Final = (
    "words of the values: of each tile of {rows} rows, turn and strip of {strip}, of each 16 columns and 16 rows the "
    "fragment of an mma, lane by lane (strip_values in sparsegen/products/nm_strips.py)"
)
_PLACES: Final = (
    "of each tile of {rows} rows, turn and strip of {strip}, where in the turn's tile of x the rows of its columns lie "
    "(strip_places in sparsegen/products/nm_strips.py)"
)
_ROWS: Final = (
    "the rows of x of each tile of {rows} rows and turn, in the order in which they lie in shared memory "
    "(window_rows in sparsegen/products/nm_strips.py)"
)


class NmStripsFamily(ListedFamily):
    """``strip``: rows of W of a warp; ``warps``: strips of a block x warps that share a strip's columns of x; ``cols``:
    columns of x of a block; ``kept``: columns of a strip that a turn takes, or fewer, so that windows are whole;
    ``stages``: turns in the ring: one is multiplied while the others are filled."""

    name = "nm_strips"
    formats = ("nm",)
    telling = ("strip", "cols")
    nonfinite = "a NaN or Inf of x reaches all rows of the strips that keep its column"
    counted = "two for each kept element and column"
    because = "what is not stored does not multiply"
    scratch = "x, row by row and of whole pieces"
    words = (
        Word("strip", integer, choices=STRIPS), Word("warps", pair), Word("cols", integer, choices=COLS),
        Word("kept", integer, choices=KEPT), Word("stages", integer, None, LEAST, 16),
    )  # fmt: skip

    def consistent(self, s: Schedule) -> None:
        """The warps fit a block, and the columns the warps."""
        if s.warps is not None and s.threads > 32 * MAX_WARPS:
            raise ScheduleError(
                f"warps={s.warps[0]}x{s.warps[1]} are {s.threads} threads",
                hint=f"strips x parts of the columns, {MAX_WARPS} warps in all, as in warps=8x1",
            )
        if s.warps is not None and s.cols is not None and s.cols % (DEPTH * s.warps[1]):
            raise ScheduleError(
                f"cols={s.cols} are no whole fragments of {DEPTH} columns for each of {s.warps[1]} warps",
                hint="raise cols, or let fewer warps share a strip",
            )

    def space(self, facts: NmNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""

        def tried(name: str, values: Any) -> Any:
            return [wanted[name]] if name in wanted else values

        enough, high = next((c for c in COLS if c >= facts.n), COLS[-1]), facts.pattern[2]
        for strip in tried("strip", [s for s in STRIPS if s <= max(high, STRIPS[0])]):
            for cols in tried("cols", [c for c in COLS if c <= enough]):
                for warps in tried("warps", WARPS):
                    if cols % (DEPTH * warps[1]) or sums(strip, cols // warps[1]) > MOST_SUMS:
                        continue
                    for kept in tried("kept", KEPT):
                        for stages in tried("stages", STAGES):
                            yield SpmmSchedule(
                                "nm_strips", strip=strip, warps=warps, cols=cols, kept=kept, stages=stages
                            )

    def shape(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        if device.compute_capability < AMPERE:
            return ScheduleError(
                f"nm_strips multiplies by mma.m16n8k16 and copies by cp.async, which {device.name} ({device.arch}) "
                "has not",
                hint="take nm_lanes, or a GPU from Ampere on",
            )
        if facts.item != 2:
            return ScheduleError(f"nm_strips multiplies f16 and bf16, not {facts.dtype}", hint="take nm_lanes")
        if facts.k > MOST_COLUMNS:
            return ScheduleError(
                f"W has {facts.k} columns; lists of 16 bits name {MOST_COLUMNS}", hint="cut W by columns"
            )
        down, across = schedule.warps
        parts = -(-facts.m // (schedule.strip * down)) * shape.steps
        most = max(parts * down * schedule.strip * shape.turn.depth, facts.k * up(facts.n, PIECE))
        if most > MAX_CELLS:
            return ScheduleError(
                f"strips of W or whole pieces of x have {most} elements; "
                f"indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut W by rows, or x by columns",
            )
        if shape.copied > MOST_ROWS or sums(schedule.strip, schedule.cols // across) > MOST_SUMS:
            return ScheduleError(
                f"a thread has {sums(schedule.strip, schedule.cols // across)} sums, {MOST_SUMS} at most, and copies "
                f"pieces of {shape.copied} rows of x a turn, {MOST_ROWS} at most",
                hint="take more warps, or lower cols or kept",
            )
        if not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers a thread do not fit an SM",
                hint="lower stages, cols or kept",
            )
        return None

    def cost(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int, int]:
        """What costs are sorted by: seconds, then many slots, which hide more, then few threads."""
        return round(cost.time, 9), -cost.schedule.stages, cost.schedule.threads

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel, with as many blocks as run at a time."""
        s, g = schedule, shape_of(problem.facts, schedule, device)
        resident, (down, across) = max(1, g.resident), s.warps
        return [
            NmStrips(
                strip=s.strip, down=down, across=across, cols=s.cols, kept=s.kept, rows=g.turn.rows,
                stages=s.stages, blocks=resident * device.sms, min_blocks=resident,
            )
        ]  # fmt: skip

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """Strips of values, where their rows of x lie in a turn's tile, and which rows a turn has."""
        s = schedule
        cut = Strips(s.strip, s.warps[0], s.kept)
        told = {"rows": s.strip * s.warps[0], "strip": s.strip}
        return {
            "values": Prepared(
                ("nm_strips values", cut), partial(strip_values, cut=cut), _VALUES.format(**told), words=True
            ),
            "places": Prepared(("nm_strips places", cut), partial(strip_places, cut=cut), _PLACES.format(**told)),
            "rows": Prepared(("nm_strips rows", cut), partial(window_rows, cut=cut), _ROWS.format(**told)),
        }

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every kept element and column."""
        p: NmNumbers = cost.facts
        return 2.0 * p.kept * p.n

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Tiles, and what a turn takes."""
        g, (down, _) = shape_of(facts, schedule, device), schedule.warps
        return (
            f"{g.tiles} tiles of {schedule.strip * down} rows x {schedule.cols} columns, each {g.steps} turns of "
            f"{g.turn.depth} kept columns of {g.turn.windows * facts.pattern[1]}; {room(g)}"
        )


FAMILY = register(NmStripsFamily())

"""``nm_outer`` (nmSPARSE, NM-SpMM): N:M patterns of f32 on CUDA cores, a lane multiplies 8 rows by several columns.

For many columns of x, and rows of W that share their pattern in eights or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, DeviceProfile
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.nm_outer import NmOuter
from sparsegen.ir.numbers.groups import row_pitch
from sparsegen.ir.numbers.outer import ACROSS, EACH, HIGH, LEAST, threads
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.nm import NmNumbers
from sparsegen.products.outer import packed_entries, packed_lists
from sparsegen.products.outer_cost import Shape, packed, price, shape_of
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Rows and columns of a tile, columns of W of a turn at most, slots of a ring that are tried.
ROWS: Final = (32, 64, 128, 256)
COLS: Final = (32, 64, 128, 256)
DEEP: Final = (32, 64, 128)
STAGES: Final = (3, 4)
#: Threads of a block that is tried: more wait for one another, of fewer an SM has none at work while they wait.
THREADS: Final = range(64, 513)
_VALUES: Final = (
    "values of tiles of {rows} rows: turn by turn, of each kept column those of all rows side by side "
    "(packed_entries in sparsegen/products/outer.py)"
)
_LISTS: Final = (
    "the row of x, in its turn, of each kept column of the rows that share them, of tiles of {rows} rows, turn by turn "
    "(packed_lists in sparsegen/products/outer.py)"
)


class NmOuterFamily(ListedFamily):
    """``rows`` x ``cols``: of y of a block; ``each``: columns of a lane, which has 8 rows; ``deep``: columns of W of a
    turn at most, but one whole window or more; ``stages``: turns in the ring: one is multiplied while the others are
    filled."""

    name = "nm_outer"
    formats = ("nm",)
    telling = ("rows", "cols", "each")
    nonfinite = "a NaN or Inf of x reaches the rows that store its column, if only as a zero"
    counted = "two for each kept element and column"
    because = "what is not stored does not multiply"
    scratch = "x, row by row and of whole pieces"
    words = (
        Word("rows", integer, choices=ROWS), Word("cols", integer, choices=COLS), Word("each", integer, choices=EACH),
        Word("deep", integer, choices=DEEP), Word("stages", integer, None, LEAST, 8),
    )  # fmt: skip

    def consistent(self, s: Schedule) -> None:
        """Warps have whole columns of the tile, and fit a block."""
        if None not in (s.rows, s.cols, s.each):
            if s.cols % (ACROSS * s.each):
                raise ScheduleError(
                    f"cols={s.cols} each={s.each}: a warp has {ACROSS * s.each} columns, which do not divide the tile",
                    hint=f"cols is a multiple of {ACROSS} times each",
                )
            if threads(s.rows, s.cols, s.each) > 1024:
                raise ScheduleError(
                    f"rows={s.rows} cols={s.cols} each={s.each} take {threads(s.rows, s.cols, s.each)} threads",
                    hint="a block has 1024 at most: raise each, or lower rows or cols",
                )

    def space(self, facts: NmNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""
        enough = next((c for c in COLS if c >= facts.n), COLS[-1])
        tried = {"rows": ROWS, "cols": [c for c in COLS if c <= enough], "each": EACH, "deep": DEEP, "stages": STAGES}
        free = {name: [wanted[name]] if name in wanted else values for name, values in tried.items()}
        for rows, cols, each, deep, stages in product(*free.values()):
            fits = threads(rows, cols, each) in THREADS or {"rows", "cols"} <= set(wanted)
            if fits and cols % (ACROSS * each) == 0:
                yield SpmmSchedule("nm_outer", rows=rows, cols=cols, each=each, deep=deep, stages=stages)

    def shape(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        if facts.item != 4:
            return ScheduleError(f"nm_outer multiplies f32, not {facts.dtype}", hint="take nm_gather or nm_lanes")
        if facts.pattern[2] % HIGH:
            return ScheduleError(
                f"nm_outer multiplies {HIGH} rows that share their columns; W's vectors have {facts.pattern[2]}",
                hint=f"take nm_lanes, or prune vectors of a multiple of {HIGH} rows",
            )
        if device.compute_capability < AMPERE:
            return ScheduleError(
                f"nm_outer copies asynchronously, which {device.name} ({device.arch}) does not", hint="take nm_lanes"
            )
        most = max(packed(facts, schedule) // 4, facts.k * row_pitch(facts.n, facts.item))
        if most > MAX_CELLS:
            return ScheduleError(
                f"tiles of W or whole pieces of x have {most} elements; "
                f"indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut W by rows, or x by columns",
            )
        if not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers of {shape.threads} threads "
                "do not fit an SM",
                hint="lower stages, deep, cols or rows",
            )
        return None

    def cost(self, facts: NmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int, int]:
        """What costs are sorted by: seconds, then many slots, which hide more, then small tiles."""
        return round(cost.time, 9), -cost.schedule.stages, cost.schedule.rows * cost.schedule.cols

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel."""
        s, resident = schedule, shape_of(problem.facts, schedule, device).resident
        return [
            NmOuter(
                rows=s.rows, cols=s.cols, each=s.each, deep=s.deep, stages=s.stages, min_blocks=max(1, resident)
            )
        ]  # fmt: skip

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """Values of tiles, and the rows of x that they name."""
        rows, deep = schedule.rows, schedule.deep
        return {
            name: Prepared(
                (f"nm_outer {name}", rows, deep), partial(made, rows=rows, deep=deep), about.format(rows=rows)
            )
            for name, made, about in (("values", packed_entries, _VALUES), ("lists", packed_lists, _LISTS))
        }

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every kept element and column."""
        p: NmNumbers = cost.facts
        return 2.0 * p.kept * p.n

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Tiles, and what a turn moves."""
        g = shape_of(facts, schedule, device)
        return (
            f"{g.blocks} tiles of {schedule.rows} rows x {schedule.cols} columns, {HIGH} x {schedule.each} a lane, "
            f"each {g.turns} x {g.entries} kept columns; blocks an SM: {g.resident}; "
            f"{g.shared / 1024:.3g} KiB of shared memory, {g.registers} registers"
        )


FAMILY = register(NmOuterFamily())

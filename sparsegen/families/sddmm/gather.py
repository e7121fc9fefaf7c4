"""``gather`` (Magicube): each warp gathers the columns of b that its own tasks keep; for patterns that keep few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.sddmm import OVERLAP, SampledFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.sddmm_gather import GatheredColumns
from sparsegen.ir.numbers.gathered import COLUMN_BITS, LEAST, MOST
from sparsegen.ir.numbers.sampled import TILE
from sparsegen.ir.passes.manager import Pass
from sparsegen.products import sampled_lists
from sparsegen.products.sddmm import SddmmNumbers
from sparsegen.products.sddmm_gather_cost import Shape, price, shape_of
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SddmmSchedule, Word, integer

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Words that are tried.
TRIED: Final[dict[str, tuple[Any, ...]]] = {
    "warps": (2, 4, 5, 8, 11, 16), "most": MOST, "stages": (2, 3, 4), "overlap": (True, False),
}  # fmt: skip


#: Warps of a block where others are alike: launches that overlap took 14 to 20 % longer with 2 of them (one H200).
WARPS: Final = 4


class GatherFamily(SampledFamily):
    """Blocks of ``warps`` warps, each with a task of no more than ``most`` tiles of 16 vectors of 8 rows of the result,
    and a ring of ``stages`` slots."""

    name = "gather"
    telling = ("stages",)
    large = ("warps", "stages")
    words = (
        Word("warps", integer, None, 1, 32), Word("most", integer, choices=MOST),
        Word("stages", integer, None, LEAST, 8), OVERLAP,
    )  # fmt: skip

    def space(self, facts: SddmmNumbers, wanted: Mapping[str, Any]) -> Iterator[SddmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``; of more tiles than
        any task has one."""
        words = {name: (wanted[name],) if name in wanted else values for name, values in TRIED.items()}
        if "most" not in wanted:
            words["most"] = tuple(dict(zip(reversed(facts.runs), reversed(MOST), strict=True)).values())
        for values in product(*words.values()):
            yield SddmmSchedule(self.name, **dict(zip(words, values, strict=True)))

    def shape(self, facts: SddmmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def fits(self, facts: SddmmNumbers, schedule: Schedule) -> ScheduleError | None:
        """Lists name columns in fewer than 32 bits."""
        if facts.n > 1 << COLUMN_BITS:
            return ScheduleError(f"{facts.n} columns; lists name {1 << COLUMN_BITS}", hint="cut b by columns")
        return None

    def listed(self, shape: Shape, schedule: Schedule) -> int:
        """Columns."""
        return shape.tiles * TILE

    def cost(self, facts: SddmmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int, int]:
        """What costs are sorted by: seconds, then many slots, and blocks of about four warps."""
        return round(cost.time, 9), -cost.schedule.stages, abs(cost.schedule.warps - WARPS)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel."""
        facts: SddmmNumbers = problem.facts
        g = shape_of(facts, schedule, device)
        return [
            GatheredColumns(
                warps=schedule.warps, overlap=schedule.overlap, min_blocks=max(1, g.resident), stages=schedule.stages,
                runs=g.runs, tiles=g.tiles,
            )
        ]  # fmt: skip

    def lists(self, facts: SddmmNumbers, schedule: Schedule) -> dict[str, Prepared]:
        """Tasks of warps, the columns that they gather, and the vectors of the result that these make."""
        most, warps, stride = schedule.most, schedule.warps, facts.stride
        made = {
            "tasks": Prepared(
                ("runs", most, warps), partial(sampled_lists.runs, most=most, warps=warps),
                "s32: of each block and warp four words: 8 rows, the first of its columns, the end (runs in "
                "sparsegen/products/sampled_lists.py)",
            ),
            "columns": Prepared(
                ("columns",), sampled_lists.columns,
                "s32: the column of b of each vector, 8 rows of the result after the other, in whole tiles of 16",
            ),
            "places": Prepared(
                ("places", stride), partial(sampled_lists.places, stride=stride),
                "s32: the vector of the result that each of these makes",
            ),
        }  # fmt: skip
        return made | self.pointers(stride)

    def blocks(self, facts: SddmmNumbers, schedule: Schedule, device: DeviceProfile) -> str:
        """Tasks and tiles."""
        g = shape_of(facts, schedule, device)
        return f"{g.blocks} of {schedule.warps} warps, {g.runs} tasks; {g.tiles} tiles of 16 vectors; {room(g)}"


FAMILY = register(GatherFamily())

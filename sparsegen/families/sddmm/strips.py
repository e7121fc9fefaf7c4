"""``strips`` (Magicube): columns of b stay in shared memory; warps multiply 8 rows of a by those that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.sddmm import OVERLAP, SampledFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.sddmm import SampledStrips
from sparsegen.ir.numbers.sampled import GROUP, STRIPS, TILE
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.tile_tasks import RECORD
from sparsegen.products import sampled_lists
from sparsegen.products.sddmm import SddmmNumbers
from sparsegen.products.sddmm_cost import Shape, cuts, price, shape_of
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SddmmSchedule, Word, integer, switch

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Warps of a block, and blocks of a strip, that are tried: such as fill devices of 108 or 132 SMs among them.
WARPS: Final = (4, 8, 12, 16, 24)
GROUPS: Final = (1, 2, 3, 4, 6, 8, 13, 16, 27, 33, 54, 66, 108, 132, 264)
MOST_GROUPS: Final = 1 << 12
#: Launches that share k, at most.
MOST_PARTS: Final = 1 << 10


class StripsFamily(SampledFamily):
    """Blocks of ``warps`` warps, ``groups`` of them for each strip of ``rows`` columns of b; with ``prefetch`` the rows
    of a of a warp's next task come while it multiplies.  ``parts`` launches share k: of fewer numbers a strip has more
    columns, so that a is read for fewer of them."""

    name = "strips"
    telling = ("rows", "prefetch")
    large = ("rows", "warps")
    words = (
        Word("rows", integer, choices=STRIPS), Word("warps", integer, None, 1, 32),
        Word("groups", integer, None, 1, MOST_GROUPS), Word("prefetch", switch),
        Word("parts", integer, None, 1, MOST_PARTS), OVERLAP,
    )  # fmt: skip

    def space(self, facts: SddmmNumbers, wanted: Mapping[str, Any]) -> Iterator[SddmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""

        enough, least = next((r for r in STRIPS if r >= facts.n), STRIPS[-1]), cuts(facts)[0].parts
        tried = {
            "rows": [r for r in STRIPS if r <= enough], "warps": WARPS,
            "groups": [g for g in GROUPS if g <= -(-facts.m // GROUP)], "prefetch": (True, False),
            "parts": (least, 2 * least), "overlap": (True, False),
        }  # fmt: skip
        words = {name: (wanted[name],) if name in wanted else values for name, values in tried.items()}
        for values in product(*words.values()):
            yield SddmmSchedule("strips", **dict(zip(words, values, strict=True)))

    def shape(self, facts: SddmmNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def fits(self, facts: SddmmNumbers, schedule: Schedule) -> ScheduleError | None:
        """Parts of k are neither too long nor empty."""
        if (parts := cuts(facts, schedule.parts)[0].parts) != schedule.parts:
            return ScheduleError(
                f"k={facts.k} of {facts.dtype} has {parts} parts, not {schedule.parts}", hint=f"take parts={parts}"
            )
        return None

    def listed(self, shape: Shape, schedule: Schedule) -> int:
        """Records of tasks, or entries."""
        return max(int(shape.blocks * shape.length * schedule.warps * RECORD), shape.tiles * TILE)

    def cost(self, facts: SddmmNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int, int]:
        """What costs are sorted by: seconds, then few blocks and threads."""
        return round(cost.time, 9), cost.schedule.groups, cost.schedule.warps

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel."""
        facts: SddmmNumbers = problem.facts
        s, via = schedule, "tensor" if device.compute_capability >= HOPPER else "cp.async"
        resident = self.shape(facts, s, device).resident
        return [
            SampledStrips(
                warps=s.warps, parts=s.parts, overlap=s.overlap, min_blocks=max(1, resident), rows=s.rows,
                groups=s.groups, tiles=facts.tiles[STRIPS.index(s.rows)], prefetch=s.prefetch, via=via,
            )
        ]  # fmt: skip

    def lists(self, facts: SddmmNumbers, schedule: Schedule) -> dict[str, Prepared]:
        """Tasks of warps, entries of vectors, and where these lie in the result."""
        s, stride = schedule, facts.stride
        dealt = {"rows": s.rows, "groups": s.groups, "warps": s.warps}
        made = {
            "tasks": Prepared(
                ("tasks", *dealt.values()), partial(sampled_lists.tasks, **dealt),
                f"s32: of each strip of {s.rows} columns, block, turn and warp four words: 8 rows, first entry, end, "
                "the rows that come next (tasks in sparsegen/products/sampled_lists.py)",
            ),
            "entries": Prepared(
                ("entries", s.rows), partial(sampled_lists.entries, rows=s.rows),
                "u16, u32 where an entry has more bits: of each task its vectors, by tiles of 16 (entries in "
                "sparsegen/products/sampled_lists.py)",
            ),
            "starts": Prepared(
                ("starts", s.rows, stride), partial(sampled_lists.starts, rows=s.rows, stride=stride),
                f"s32: of each vector row and strip of {s.rows} columns the first vector of the result there",
            ),
        }  # fmt: skip
        return made | self.pointers(stride)

    def blocks(self, facts: SddmmNumbers, schedule: Schedule, device: DeviceProfile) -> str:
        """Strips, tasks and tiles."""
        g = shape_of(facts, schedule, device)
        return (
            f"{g.blocks} of {schedule.warps} warps, {schedule.groups} for each strip of {schedule.rows} columns of b; "
            f"{g.tiles} tiles of 16 vectors; {room(g)}"
        )


FAMILY = register(StripsFamily())

"""``vector_strip`` (Magicube): vectors on tensor cores, against strips of x that stay in shared memory.

For matrices with some zeros, where a strip of all rows of x fits into shared memory.  From sm_80 on; on Hopper strips
come by the copy unit, and the first products are made while the rest is on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.spmm.vectors import MAX_WARPS, VALUES, StepFamily, cuts
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.vector_strip import VectorStrip
from sparsegen.ir.numbers.resident import WIDTHS
from sparsegen.ir.numbers.vectors import STEP
from sparsegen.ir.passes.decompose import Decompose
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.tile_vectors import PARTS
from sparsegen.products.vectors import VectorNumbers, cut_in_lists, places, tasks
from sparsegen.products.vectors_cost import Shape, price, shape_of
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Steps of a task at most, beyond those of a warp in the mean, where rows are cut: to add the pieces up takes as long.
BEYOND: Final = 3
#: Steps that a warp must have left to do so that a row is worth a cut.
LEAST: Final = 3
#: What is tried.
WARPS, UNROLL = (8, 16, 32), (1, 2, 4)
#: Columns of W, at 4 bits of both operands, whose sums times 256 are sums of 32 bits.
MOST_COLUMNS: Final = 1 << 16
_PLACES: Final = (
    "where in a strip the row of x of each vector begins, in 16-byte units, swizzled as rows of {wide} bytes are "
    "(places in sparsegen/products/vectors.py)"
)
_TASKS: Final = (
    "records of the vector rows, dealt to {lists} lists of {warps} warps: row, first step, the one after the last, "
    "from which step on parts of a strip are needed (tasks in sparsegen/products/vectors.py)"
)


class VectorStripFamily(StepFamily):
    """``wide``: bytes of a row of x of a strip; ``lists``: blocks that share a strip's vector rows; ``warps``: of a
    block; ``unroll``: steps of a turn; ``parts``: of a strip, multiplied as they come; ``cut``: steps beyond which a
    vector row is cut into several tasks."""

    name = "vector_strip"
    telling = ("wide", "lists")
    words = (
        Word("wide", integer, choices=WIDTHS), Word("lists", integer), Word("warps", integer, None, 1, MAX_WARPS),
        Word("unroll", integer, None, 1, 8), Word("parts", integer, None, 1, PARTS), Word("cut", integer),
    )  # fmt: skip

    def space(self, facts: VectorNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""

        def tried(name: str, values: Any) -> Any:
            return [wanted[name]] if name in wanted else values

        for wide in tried("wide", WIDTHS):
            strips = -(-facts.row_bytes // wide)
            for warps in tried("warps", WARPS):
                most = -(-facts.rows // warps)
                for lists in tried("lists", sorted({max(1, min(n // strips, most)) for n in (66, 132, 264, 528)})):
                    even = round(facts.steps / (lists * warps)) + BEYOND
                    uneven = facts.longest >= even + LEAST
                    for cut in tried("cut", (facts.longest, even) if uneven else (facts.longest,)):
                        for unroll in tried("unroll", UNROLL):
                            for parts in tried("parts", (PARTS,)):
                                yield SpmmSchedule(
                                    self.name, wide=wide, lists=lists, warps=warps, unroll=unroll, parts=parts, cut=cut
                                )

    def shape(self, facts: VectorNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def unfit(self, facts: VectorNumbers, schedule: Schedule, shape: Shape) -> ScheduleError | None:
        """Why blocks of a complete schedule do not fit an SM; None if they do."""
        if facts.k > MOST_COLUMNS:
            return ScheduleError(
                f"W has {facts.k} columns, {MOST_COLUMNS} at most: no strip of x fits into shared memory",
                hint="cut W by columns, and add up the products",
            )
        if not shape.resident:
            return ScheduleError(
                f"a strip of {facts.k} rows of {schedule.wide} bytes, {shape.shared} in all, and {shape.registers} "
                f"registers of {32 * schedule.warps} threads do not fit an SM",
                hint="lower wide, or warps",
            )
        return None

    def cost(self, facts: VectorNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """Digits of the operands, then the kernel."""
        s = schedule
        records = tasks(problem.matrix, s.lists, s.warps, s.parts, s.cut)
        resident = shape_of(problem.facts, s, device).resident
        kernel = VectorStrip(
            warps=s.warps, lists=s.lists, wide=s.wide, unroll=s.unroll, parts=s.parts, steps=problem.facts.steps,
            length=records.shape[1], via="tensor" if device.compute_capability >= HOPPER else "cp.async",
            slots=problem.facts.slots(s.cut, s.lists), min_blocks=max(1, resident),
        )  # fmt: skip
        return [Decompose(), kernel]

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """Places of rows in a strip, values as fragments, and who does what."""
        s = schedule
        how = (s.lists, s.warps, s.parts, s.cut)
        return {
            "places": Prepared(("vector places", s.wide), partial(places, wide=s.wide), _PLACES.format(wide=s.wide)),
            "tasks": Prepared(
                ("vector tasks", *how), lambda w: tasks(w, *how), _TASKS.format(lists=s.lists, warps=s.warps)
            ),
            "values": VALUES,
            "cuts": cuts(s.cut, lambda w: cut_in_lists(w, s.cut, s.lists), s.lists),
        }

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Strips, and what warps do with them."""
        g = shape_of(facts, schedule, device)
        return (
            f"{g.strips} strips of {schedule.wide} bytes of x's rows x {schedule.lists} lists of vector rows; a warp "
            f"has {g.mean:.3g} steps of {STEP} vectors, {g.longest} at most; {room(g)}"
        )


FAMILY = register(VectorStripFamily())

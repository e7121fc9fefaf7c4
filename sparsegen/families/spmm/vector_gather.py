"""``vector_gather`` (Magicube): vectors on tensor cores; each warp gathers the rows of x that it needs.

For matrices with few vectors, and for those with so many columns that no strip of x fits into shared memory.  From
sm_80 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.spmm.vectors import MAX_WARPS, VALUES, StepFamily, cuts
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.vector_gather import VectorGather
from sparsegen.ir.numbers.resident import WIDTHS
from sparsegen.ir.numbers.vectors import STEP
from sparsegen.ir.passes.decompose import Decompose
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.tile_ring import STAGES
from sparsegen.products.ring_cost import Shape, price, shape_of
from sparsegen.products.vectors import VectorNumbers, cut_rows, numbers, parted
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, pair

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Vector rows x parts of a row of x that are tried.
WARPS: Final[tuple[tuple[int, int], ...]] = ((1, 4), (2, 4), (1, 8), (2, 2), (4, 2), (4, 1), (8, 1))
#: Steps of a task at most that are tried.
CUTS: Final = (8, 16, 32)
_NUMBERS: Final = "the row of x of each vector of each step (numbers in sparsegen/products/vectors.py)"
_TASKS: Final = (
    "records of the vector rows, {down} a block, each for {across} warps: row, first step, the one after the last, "
    "which part of x (parted in sparsegen/products/vectors.py)"
)


class VectorGatherFamily(StepFamily):
    """``wide``: bytes of a row of x that a warp gathers; ``warps``: vector rows of a block x warps that share one;
    ``stages``: steps in a warp's ring; ``cut``: steps beyond which a vector row is cut into several tasks."""

    name = "vector_gather"
    telling = ("wide", "warps")
    words = (
        Word("wide", integer, choices=WIDTHS), Word("warps", pair), Word("stages", integer, choices=STAGES),
        Word("cut", integer),
    )  # fmt: skip

    def consistent(self, s: Schedule) -> None:
        """The warps fit a block."""
        if s.warps is not None and s.warps[0] * s.warps[1] > MAX_WARPS:
            raise ScheduleError(
                f"warps={s.warps[0]}x{s.warps[1]}: a block has {MAX_WARPS} at most", hint="write fewer, as in warps=2x4"
            )

    def space(self, facts: VectorNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""

        def tried(name: str, values: Any) -> Any:
            return [wanted[name]] if name in wanted else values

        for wide in tried("wide", WIDTHS):
            for warps in tried("warps", [w for w in WARPS if wide * w[1] < 2 * facts.row_bytes or w[1] == 1]):
                for stages in tried("stages", STAGES):
                    for cut in tried("cut", sorted({facts.longest, *(n for n in CUTS if 2 * n < facts.longest)})):
                        yield SpmmSchedule(self.name, wide=wide, warps=warps, stages=stages, cut=cut)

    def shape(self, facts: VectorNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def unfit(self, facts: VectorNumbers, schedule: Schedule, shape: Shape) -> ScheduleError | None:
        """Why blocks of a complete schedule do not fit an SM; None if they do."""
        if not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers a thread do not fit an SM",
                hint="lower stages, wide or warps",
            )
        return None

    def cost(self, facts: VectorNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """Digits of the operands, then the kernel."""
        s, g = schedule, shape_of(problem.facts, schedule, device)
        (down, across), facts = s.warps, problem.facts
        kernel = VectorGather(
            down=down, across=across, wide=s.wide, stages=s.stages, lists=g.lists, steps=facts.steps,
            slots=cut_rows(problem.matrix, s.cut).slots,
        )  # fmt: skip
        return [Decompose(), kernel]

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """Numbers of rows, values as fragments, and who does what."""
        (down, across), cut = schedule.warps, schedule.cut
        told = _TASKS.format(down=down, across=across)
        return {
            "numbers": Prepared(("vector numbers",), numbers, _NUMBERS),
            "tasks": Prepared(("parted tasks", down, across, cut), lambda w: parted(w, down, across, cut), told),
            "values": VALUES,
            "cuts": cuts(cut, lambda w: cut_rows(w, cut)),
        }

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Vector rows, and what warps do with them."""
        g, (down, across) = shape_of(facts, schedule, device), schedule.warps
        return (
            f"{g.blocks} blocks of {down} vector rows x {across} parts of {schedule.wide} bytes of x's rows, of "
            f"{facts.loads[-1][0]} steps of {STEP} vectors at most; {room(g)}"
        )


FAMILY = register(VectorGatherFamily())

"""``smbd`` (SpInfer, EuroSys'25): the paper's own product with nested bitmap tiles, each of its ideas a word.

Chosen only where it is named: a matrix in ``tca_bme`` is else multiplied as one in bitmap tiles, whose decoding takes a
fraction of the time.  From sm_80 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.smbd import Smbd
from sparsegen.ir.numbers.smbd import COLS, WARPS
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.smbd import ARRAYS, NestedNumbers
from sparsegen.products.smbd_cost import Shape, price, shape_of
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, switch

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Splits that are tried, and the most that may be asked for.
SPLITS: Final = (1, 2, 4, 8, 16)
MOST_SPLITS: Final = 64


class SmbdFamily(ListedFamily):
    """``cols``: columns of x of a block; ``warps``: those that share the strips of a group tile; ``splits``: blocks
    that share a row of group tiles; ``buffers``: slots of shared memory, two so that copies run while the tile before
    is multiplied; ``groups``: of copies, two so that W is decoded while x still comes; ``two_phase``: a second value's
    place follows from the first one's bit, it is not counted; ``ldmatrix``: operands of x come by it."""

    name = "smbd"
    telling = ("cols", "buffers", "groups", "two_phase", "ldmatrix")
    formats = ("tca_bme",)
    most = COLS[-1]  # a block of more columns there is not, and each block reads W anew
    asked = True
    scratch = "partial sums; x, row by row and of whole pieces"
    words = (
        Word("cols", integer, choices=COLS), Word("warps", integer, 4, choices=WARPS),
        Word("splits", integer, None, 1, MOST_SPLITS), Word("buffers", integer, 2, choices=(1, 2)),
        Word("groups", integer, 2, choices=(1, 2)), Word("two_phase", switch, True), Word("ldmatrix", switch, True),
    )  # fmt: skip

    def space(self, facts: NestedNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""
        columns = [wanted["cols"]] if "cols" in wanted else COLS
        splits = [wanted["splits"]] if "splits" in wanted else [n for n in SPLITS if n <= facts.slabs]
        for cols, many in product(columns, splits):
            yield SpmmSchedule(self.name, **{**wanted, "cols": cols, "splits": many})

    def shape(self, facts: NestedNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: NestedNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        if device.compute_capability < AMPERE:
            return ScheduleError(
                f"smbd copies asynchronously, which {device.name} ({device.arch}) cannot",
                hint="take a GPU from Ampere on",
            )
        if schedule.splits > facts.slabs:
            return ScheduleError(
                f"splits={schedule.splits}, but a row has {facts.slabs} group tiles of 64 columns", hint="lower splits"
            )
        if not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers a thread do not fit an SM",
                hint="lower cols, or raise warps",
            )
        return None

    def cost(self, facts: NestedNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """TCA-BME's own bitmaps and values, and where strips begin."""
        return ARRAYS

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel: its pipeline is its own."""
        s, facts = schedule, problem.facts
        resident = shape_of(facts, s, device).resident
        words = s.cols, s.warps, s.splits, s.buffers, s.groups, s.two_phase, s.ldmatrix
        return [Smbd(*words, facts.most, resident)]

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Rows of group tiles, and what a block does with them."""
        g = shape_of(facts, schedule, device)
        return (
            f"{g.blocks} blocks: {facts.rows} rows of group tiles x {schedule.splits} splits x "
            f"{-(-facts.n // schedule.cols)} tiles of columns; {schedule.warps} warps share a group tile, {g.turns} "
            f"turns at most; {room(g)}"
        )


FAMILY = register(SmbdFamily())

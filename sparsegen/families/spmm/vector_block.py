"""``vector_block`` (Magicube, SC'22): the paper's own product with vectors of integers, each of its ideas a word.

Chosen only where it is named: on an H200 it takes two to four times what ``vector_strip`` does.  From sm_80 on; digits
of 4 bits up to Hopper, whose tensor cores have them no more and which takes long for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.spmm.vectors import VectorFamily
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.fragments import SHAPES
from sparsegen.ir.kernels.vector_block import VectorBlock
from sparsegen.ir.numbers.strided import ROWS, SHUFFLED, WIDTHS, stride
from sparsegen.ir.numbers.vectors import digits
from sparsegen.ir.passes.decompose import Decompose
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.tile_strided import shape
from sparsegen.products.strided import columns, most, plane_words, pointers
from sparsegen.products.strided_cost import Shape, bits_of, price, shape_of
from sparsegen.products.vectors import VectorNumbers
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, switch

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

_ABOUT: Final = {
    "ptr": "of each vector row its first vector, a multiple of {size}, and where its vectors end (SR-BCRS)",
    "idx": "the column of each vector of each block of {size}; the largest number fills up{order} (SR-BCRS)",
    "values": "words of W's values: of each block of {size} vectors digit by digit, row by row (plane_words in "
    "sparsegen/products/strided.py)",
}  # fmt: skip


class VectorBlockFamily(VectorFamily):
    """``bits``: of a digit, 4 where x has no more; ``wide``: bytes of x's rows of a block, 32 a warp; ``prefetch``:
    rows of x come a step ahead; ``pad``: shared memory without bank conflicts; ``shuffle``: columns in the order that
    turns digits of 4 bits at once; ``stack``: digits of W in the rows of an mma that short vectors leave free."""

    name = "vector_block"
    telling = ("prefetch", "pad", "shuffle", "stack")
    asked = True
    words = (
        Word("bits", integer, choices=(4, 8)), Word("wide", integer, choices=WIDTHS), Word("prefetch", switch, True),
        Word("pad", switch, True), Word("shuffle", switch), Word("stack", switch, False),
    )  # fmt: skip

    def space(self, facts: VectorNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""
        given = {"bits": bits_of(facts), "shuffle": bits_of(facts) == 4, **wanted}
        for wide in [wanted["wide"]] if "wide" in wanted else WIDTHS:
            yield SpmmSchedule(self.name, **{**given, "wide": wide})

    def shape(self, facts: VectorNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Digits, blocks, registers and bytes; ScheduleError for floats, which have no digits."""
        if not facts.integers:
            raise ScheduleError(
                f"vector_block multiplies integers, W is {facts.dtype}", hint="leave the schedule to the cost model"
            )
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: VectorNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        made, s = shape.planes, schedule
        if s.bits != made.bits:
            return ScheduleError(
                f"bits={s.bits}: x of {facts.x_kind.bits} bits has digits of {made.bits}",
                hint=f"write bits={made.bits}",
            )
        if facts.bits < made.bits:
            return ScheduleError(
                f"x of {facts.x_kind.bits} bits has digits of {made.bits}, and W of {facts.bits} is none",
                hint="pack x to 4 bits (x_dtype='i4'), or leave the schedule to the cost model",
            )
        for used in shapes_of(shape):
            if not SHAPES[used].on(device.compute_capability):
                return ScheduleError(
                    f"vector_block multiplies by mma {used}, which {device.name} ({device.arch}) has not",
                    hint="take x of 8 bits, or leave the schedule to the cost model",
                )
        if s.shuffle and made.bits != 4:
            return ScheduleError("shuffle=on is for x of 4 bits", hint="write shuffle=off")
        if s.stack and not (facts.height < ROWS and len(made.w_digits) > 1):
            return ScheduleError(
                f"stack=on puts digits into rows that vectors leave free: W has {len(made.w_digits)} of "
                f"{facts.height} rows, an mma {ROWS}",
                hint="write stack=off",
            )
        if s.stack and facts.largest > most(made.w_digits):
            return ScheduleError(
                f"stacked digits share a sign, and make numbers up to {most(made.w_digits)}; W's largest is "
                f"{facts.largest}",
                hint="write stack=off, or quantize W to fewer bits",
            )
        if not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers a thread do not fit an SM",
                hint="lower wide",
            )
        return None

    def cost(self, facts: VectorNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """Digits of the operands, then the kernel."""
        s, facts = schedule, problem.facts
        g = shape_of(facts, s, device)
        kernel = VectorBlock(
            wide=s.wide, steps=g.steps, prefetch=s.prefetch, pad=s.pad, shuffle=s.shuffle, stack=s.stack
        )  # fmt: skip
        return [Decompose(bits=bits_of(facts), of=facts.bits, alike=s.stack), kernel]

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """SR-BCRS's own arrays, digits apart."""
        bits, shuffle, stack = schedule.bits, schedule.shuffle, schedule.stack

        def values(w: SparseMatrix) -> Any:
            return plane_words(w, digits(w.kind, bits, of=w.kind.bits, alike=stack))

        order = f", eight in the order {', '.join(map(str, SHUFFLED))}" if shuffle else ""
        about = {name: text.format(size=stride(bits), order=order) for name, text in _ABOUT.items()}
        return {
            "ptr": Prepared(("strided ptr", bits), lambda w: pointers(w, bits), about["ptr"]),
            "idx": Prepared(("strided idx", bits, shuffle), lambda w: columns(w, bits, shuffle), about["idx"]),
            "values": Prepared(("strided values", bits, stack), values, about["values"], words=True),
        }

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Vector rows, and what a block does with them."""
        g = shape_of(facts, schedule, device)
        return (
            f"{g.blocks} blocks of a vector row of {facts.height} rows x {schedule.wide} bytes of x's rows, "
            f"{schedule.wide // 32} warps, of {g.longest} steps of {stride(g.planes.bits)} vectors at most; "
            f"{room(g)}"
        )


def shapes_of(g: Shape) -> list[str]:
    """The mma shapes of a product."""
    return [shape(group[0], x) for group in g.planes.groups for x in g.planes.x_digits]


FAMILY = register(VectorBlockFamily())

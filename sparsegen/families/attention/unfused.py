"""``unfused`` (after Magicube): scores, their softmax and the product with values as three kernels of one call.

Scores and exponentials go through global memory, which costs bytes; but no block keeps k and v, so long sequences of
which a query sees little are not read as a whole.  From sm_80 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.families.attention import AttentionFamily
from sparsegen.families.sddmm.gather import FAMILY as GATHER
from sparsegen.families.sddmm.gather import TRIED, WARPS
from sparsegen.families.spmm.vector_block import FAMILY as BLOCKS
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.sddmm_gather import GatheredColumns
from sparsegen.ir.kernels.softmax import SoftmaxKernel
from sparsegen.ir.kernels.unfuse import Unfuse
from sparsegen.ir.kernels.vector_block import VectorBlock
from sparsegen.ir.numbers.gathered import LEAST, MOST
from sparsegen.ir.numbers.strided import WIDTHS
from sparsegen.ir.passes.decompose import Decompose
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.attention import AttentionNumbers
from sparsegen.products.sampled_lists import filled_columns
from sparsegen.products.sddmm_gather_cost import shape_of as scores_shape
from sparsegen.products.strided_cost import shape_of as values_shape
from sparsegen.products.unfused import BLOCK, products
from sparsegen.products.unfused_cost import Shape, price
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import AttentionSchedule, Schedule, SddmmSchedule, SpmmSchedule, Word, integer
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.problems.attention import AttentionProblem


class UnfusedFamily(AttentionFamily):
    """``most``: tiles of 16 keys of a warp's task of scores; ``stages``: slots of the ring that they come to; ``wide``:
    bytes of v's rows of a block, 32 a warp."""

    name = "unfused"
    telling = ("most", "wide")
    scratch = "scores, exponentials and what each row of these is worth"
    words = (
        Word("most", integer, choices=MOST), Word("stages", integer, None, LEAST, 8),
        Word("wide", integer, choices=WIDTHS),
    )  # fmt: skip

    def space(self, facts: AttentionNumbers, wanted: Mapping[str, Any]) -> Iterator[AttentionSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``; of more tiles than
        any task has one."""
        runs = products(facts).head.runs
        most = tuple(dict(zip(reversed(runs), reversed(MOST), strict=True)).values())
        tried = {"most": most, "stages": TRIED["stages"], "wide": [n for n in WIDTHS if n <= facts.d]}
        words = {name: (wanted[name],) if name in wanted else values for name, values in tried.items()}
        for values in product(*words.values()):
            yield AttentionSchedule(self.name, **dict(zip(words, values, strict=True)))

    def shape(self, facts: AttentionNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Those of its products."""
        found, scores = products(facts), _of_scores(schedule, device)
        return Shape(
            found,
            scores_shape(found.head, scores, device),
            scores_shape(found.scores, scores, device),
            values_shape(found.values, _of_values(schedule), device),
        )

    def refusal(
        self, facts: AttentionNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run on the device; None if it can."""
        if not facts.vectors:
            return ScheduleError("the pattern keeps no element, so there are no scores to store", hint="take fused")
        if (scores := facts.heads * shape.products.blocks * BLOCK * facts.height) > MAX_CELLS:
            return ScheduleError(
                f"{scores} scores are stored; indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="take fused, or call it for fewer heads at a time",
            )
        of_scores, of_values = _of_scores(schedule, device), _of_values(schedule)
        return GATHER.refusal(shape.products.scores, of_scores, device, shape.scores) or BLOCKS.refusal(
            shape.products.values, of_values, device, shape.values
        )

    def cost(self, facts: AttentionNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the formulas of its products expect, and the softmax's."""
        scores = GATHER.cost(shape.products.scores, _of_scores(schedule, device), device, shape.scores)
        values = BLOCKS.cost(shape.products.values, _of_values(schedule), device, shape.values)
        return price(facts, schedule, device, shape, scores, values)

    def order(self, cost: Cost) -> tuple[float, ...]:
        """What costs are sorted by: seconds, then many slots."""
        return round(cost.time, 9), -cost.schedule.stages

    def passes(self, problem: AttentionProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """Attention as three ops, then a kernel of each."""
        facts, overlap = problem.facts, device.compute_capability >= HOPPER
        g, values = self.shape(facts, schedule, device), _of_values(schedule)
        return [
            Unfuse(vectors=facts.vectors, blocks=g.products.blocks, overlap=overlap),
            GatheredColumns(
                warps=WARPS, overlap=overlap, min_blocks=max(1, g.scores.resident), stages=schedule.stages,
                runs=g.head.runs, tiles=g.head.tiles,
            ),
            SoftmaxKernel(),
            Decompose(of=facts.softmax_bits),
            VectorBlock(wide=values.wide, steps=g.products.blocks, prefetch=values.prefetch, pad=values.pad),
        ]  # fmt: skip

    def lists(self, facts: AttentionNumbers, schedule: Schedule) -> dict[str, Prepared]:
        """Tasks of scores, and where keys lie in blocks of vectors, for the softmax and the values too."""
        scores = SddmmSchedule("gather", warps=WARPS, most=schedule.most, stages=schedule.stages, overlap=False)
        about = f"the key of each vector of each block of {BLOCK}; the largest number fills up (SR-BCRS)"
        idx = Prepared(("filled columns", BLOCK), partial(filled_columns, stride=BLOCK), about)
        return {**GATHER.lists(products(facts).head, scores), "idx": idx}

    def operations(self, cost: Cost) -> float:
        """Two products of every kept score."""
        p: AttentionNumbers = cost.facts
        return 4.0 * p.vectors * p.height * p.d * p.heads

    def blocks(self, facts: AttentionNumbers, schedule: Schedule, device: DeviceProfile) -> str:
        """Those of both products."""
        g, scores, values = self.shape(facts, schedule, device), _of_scores(schedule, device), _of_values(schedule)
        of_scores = GATHER.blocks(g.products.scores, scores, device)
        return f"scores: {of_scores}; values: {BLOCKS.blocks(g.products.values, values, device)}"


def _of_scores(s: Schedule, device: DeviceProfile) -> SddmmSchedule:
    """The schedule of the sampled product."""
    overlap = device.compute_capability >= HOPPER
    return SddmmSchedule("gather", warps=WARPS, most=s.most, stages=s.stages, overlap=overlap)


def _of_values(s: Schedule) -> SpmmSchedule:
    """The schedule of the product of exponentials: without digits of 4 bits, and so without what is for these."""
    return SpmmSchedule("vector_block", bits=8, wide=s.wide, prefetch=True, pad=True, shuffle=False, stack=False)


FAMILY = register(UnfusedFamily())

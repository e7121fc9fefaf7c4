"""``fused`` (after Magicube): scores, softmax and values in one kernel, keys and values waiting in shared memory.

From sm_80 on; on Hopper k and v come by tensor copies, and the kernel that joins parts of the keys begins early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, HOPPER, DeviceProfile
from sparsegen.families.attention import AttentionFamily
from sparsegen.formats.bcrs import Bcrs
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.attention import AttentionKernel
from sparsegen.ir.numbers.attention import BLOCKS, ROWS, STEP, part_bytes, part_keys
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.attention import AttentionNumbers
from sparsegen.products.attention_cost import Shape, price, shape_of
from sparsegen.products.attention_tasks import Cut, places, records
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import AttentionSchedule, Schedule, Word, integer
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.problems.attention import AttentionProblem

#: Keys of a block of steps.
KEYS: Final = tuple(STEP * steps for steps in BLOCKS)
#: Warps of a block, and bytes of a part of k and v, that are tried.
WARPS: Final = (8, 12, 16, 24, 32)
SIZES: Final = (224 << 10, 192 << 10, 128 << 10, 96 << 10, 64 << 10, 40 << 10)
#: Groups of rows that are tried: so many blocks an SM in all, or fewer.
WAVES: Final = (1, 2)
_TASKS: Final = (
    "records of four, for each of {parts} parts of the keys and {groups} groups of rows {warps} side by side: a vector "
    "row, its first block of {keys} keys in the part, the one after its last, and 0; the longest first (records in "
    "sparsegen/products/attention_tasks.py)"
)
_PLACES: Final = (
    "words of each block of {keys} keys, lane by lane: where in its part the pieces of two keys lie that the lane "
    "names, and whether a slot has a key (places in sparsegen/products/attention_tasks.py)"
)


class FusedFamily(AttentionFamily):
    """``parts``: of the keys, whose k and v a block keeps; ``groups``: of the rows of the pattern; ``warps``: of a
    block; ``keys``: whose scores a warp makes at once."""

    name = "fused"
    telling = ("parts", "keys")
    words = (
        Word("parts", integer, None, 1, 1 << 12), Word("groups", integer, None, 1, 1 << 12),
        Word("warps", integer, None, 1, 32), Word("keys", integer, choices=KEYS),
    )  # fmt: skip

    def space(self, facts: AttentionNumbers, wanted: Mapping[str, Any]) -> Iterator[AttentionSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""
        rows = [max(1, size // (2 * facts.d * 32)) * 32 for size in SIZES]
        found: dict[AttentionSchedule, None] = {}
        parts = [wanted["parts"]] if "parts" in wanted else dict.fromkeys(-(-facts.n // n) for n in rows)
        for part in parts:
            for warps in [wanted["warps"]] if "warps" in wanted else WARPS:
                most = max(1, facts.rows // warps)
                fill = [max(1, wave * SMS // (facts.heads * part)) for wave in WAVES]
                groups = [wanted["groups"]] if "groups" in wanted else dict.fromkeys(min(most, n) for n in fill)
                for group in groups:
                    for keys in [wanted["keys"]] if "keys" in wanted else KEYS:
                        found[AttentionSchedule("fused", parts=part, groups=group, warps=warps, keys=keys)] = None
        yield from found

    def shape(self, facts: AttentionNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: AttentionNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run on the device; None if it can."""
        if device.compute_capability < AMPERE:
            return ScheduleError(
                f"fused multiplies by mma.m16n8k32 of integers, which {device.name} ({device.arch}) has not",
                hint="take a GPU from Ampere on",
            )
        if part_keys(facts.n, schedule.parts) * (schedule.parts - 1) >= facts.n > 1:
            return ScheduleError(
                f"{schedule.parts} parts of {facts.n} keys, which are whole boxes of a copy, leave one without keys",
                hint="lower parts",
            )
        if schedule.groups > facts.rows:
            return ScheduleError(
                f"groups={schedule.groups} of {facts.rows} vector rows leave blocks without any", hint="lower groups"
            )
        if part_bytes(facts.n, schedule.parts, facts.d) > device.smem_block - 16:
            return ScheduleError(
                f"{part_bytes(facts.n, schedule.parts, facts.d)} bytes of k and v do not fit the shared memory of a "
                f"block, {device.smem_block} bytes",
                hint="raise parts",
            )
        if not shape.resident:
            return ScheduleError(
                f"{schedule.warps} warps of about {shape.registers} registers a thread do not fit an SM",
                hint="lower warps or keys",
            )
        most = max(shape.words, facts.heads * facts.rows * schedule.parts * ROWS * facts.d)
        if most > MAX_CELLS:
            return ScheduleError(
                f"places or partial results have {most} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="lower parts, or call it for fewer heads at a time",
            )
        return None

    def cost(self, facts: AttentionNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, ...]:
        """What costs are sorted by: seconds, then few parts and warps."""
        return round(cost.time, 9), cost.schedule.parts, cost.schedule.warps

    def passes(self, problem: AttentionProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernels, for as many blocks of keys as the pattern has."""
        s = schedule
        blocks, _ = problem.facts.blocks(s.parts, s.keys)
        via = "tensor" if device.compute_capability >= HOPPER else "cp.async"
        resident = shape_of(problem.facts, s, device).resident
        return [
            AttentionKernel(
                s.parts, s.groups, s.warps, s.keys // STEP, max(1, blocks), via, min_blocks=max(1, resident)
            )
        ]

    def lists(self, facts: AttentionNumbers, schedule: Schedule) -> dict[str, Prepared]:
        """The records of tasks, and where their keys lie."""
        s = schedule
        cut = Cut(s.parts, s.groups, s.warps, s.keys // STEP, facts.d)
        own = Cut(s.parts, 0, 0, s.keys // STEP, facts.d)  # places are the same for any groups and warps
        return {
            "tasks": Prepared(("attention tasks", cut), partial(_made, records, cut), _TASKS.format(**s.values)),
            "places": Prepared(("attention places", own), partial(_made, places, own), _PLACES.format(**s.values)),
        }

    def operations(self, cost: Cost) -> float:
        """Two products of every kept score."""
        p: AttentionNumbers = cost.facts
        return 4.0 * p.vectors * p.height * p.d * p.heads

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Parts and groups, and what they have."""
        g, s = shape_of(facts, schedule, device), schedule
        return (
            f"{g.blocks}: {facts.heads} heads x {s.parts} parts of {part_keys(facts.n, s.parts)} keys x {s.groups} "
            f"groups of rows, {g.length} tasks a warp; blocks an SM: {g.resident}; {g.shared / 1024:.3g} KiB of shared "
            f"memory, about {g.registers} registers"
        )


def _made(make: Callable[[Bcrs, Cut], Any], cut: Cut, w: SparseMatrix) -> Any:
    """A table of a pattern."""
    assert isinstance(w, Bcrs)
    return make(w, cut)


#: Multiprocessors of the GPUs for which groups are tried: those of an H100 and an H200, of which few have many more.
SMS: Final = 132

FAMILY = register(FusedFamily())

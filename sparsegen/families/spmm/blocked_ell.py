"""``blocked_ell`` (BSA-SpMM's own baseline): dense tiles in Blocked-ELL on tensor cores, then compressed rows on CUDA
cores, in two launches.

Each is the kernel of another family: ``hybrid`` without other entries, and ``csr`` on top of the sums that it leaves in
f32.  As in the paper every block row takes as long as the one with most tiles, and y is written twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparsegen.choose import Listed, Rejected
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.spmm import ProductFamily, csr, hybrid
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.kernels.blocked_ell import BlockedEll
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.blocked_ell import HIGH, BlockedEllNumbers, columns, records, rest_of, segments, spans, tiles
from sparsegen.products.blocked_ell_cost import PARTS, REST, TILES, price
from sparsegen.products.tiling import expected
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: The family of each kernel, and the words of it that ours are.
FAMILIES: Final[dict[str, ListedFamily]] = {TILES: hybrid.FAMILY, REST: csr.FAMILY}
WORDS: Final = {TILES: ("cols", "warps", "stages"), REST: ("team", "columns", "unroll", "cut")}
#: Words of each kernel that are always the same.
FIXED: Final[dict[str, dict[str, Any]]] = {
    TILES: {"high": HIGH, "mma": "sync", "slices": 1, "unroll": 1},
    REST: {"warps": csr.WARPS},
}
#: What words say of a kernel that there is not, if no line does: nothing that other words contradict.
ABSENT: Final[dict[str, Any]] = {
    "cols": 256, "warps": (1, 1), "stages": 2, "team": (8, 1), "columns": 1, "unroll": 2, "cut": 32
}  # fmt: skip
_FILE: Final = "sparsegen/products/blocked_ell.py"
#: Role -> what makes it of the matrix, and what it is.
_OF_TILES: Final = {
    "spans": (spans, "of each block row its first turn and the one after its last (spans in {file})"),
    "records": (records, "of each row of each block row which row of W it is, 0, 0, and its place (records in {file})"),
    "columns": (
        columns,
        "which columns of W each turn multiplies, by the tile; the number after the last where a turn only fills up "
        "(columns in {file})",
    ),
    "tiles": (tiles, "words of all tiles, zeros that fill block rows up too, as mma fragments (tiles in {file})"),
}


class BlockedEllFamily(ProductFamily):
    """Of the kernel of tiles ``cols``: columns of x of a block; ``warps``: that share a block row's rows x that share
    its columns; ``stages``: tiles in the ring, with their rows of x.  Of that of the other entries ``team``,
    ``columns``, ``unroll`` and ``cut``, as ``csr`` has them."""

    name = "blocked_ell"
    formats = ("blocked_ell",)
    telling = ("cols", "team")
    nonfinite = (
        "a NaN or Inf of x reaches the rows that have an entry for it, and all rows of each block row with a dense "
        "tile in its column: zeros there multiply too"
    )
    counted = "two for each element of a tile, be it one that fills a block row up, each other entry, and column"
    because = "zeros of tiles multiply, what else is not stored does not"
    scratch = "sums of dense tiles, x row by row and of whole pieces, and partial sums"
    words = tuple(FAMILIES[part].by_name[name] for part in PARTS for name in WORDS[part])
    #: What formats ask of it: what a product, in numbers, is expected to take.
    numbers = staticmethod(BlockedEllNumbers.of)
    expected = staticmethod(expected)

    def consistent(self, s: Schedule) -> None:
        """As those of both kernels."""
        for family in FAMILIES.values():
            family.consistent(s)

    def every(self, facts: BlockedEllNumbers, device: DeviceProfile, given: Mapping[str, Any]) -> Listed:
        """The schedules of each kernel beside the best of the other one, as their times add up."""
        found: dict[str, tuple[Cost, ...]] = {}
        rejected: list[Rejected] = []
        for part, numbers in _numbers(facts).items():
            asked = {name: given[name] for name in WORDS[part] if name in given}
            options = FAMILIES[part].every(numbers, device, {**FIXED[part], **asked})
            refused = [
                Rejected(SpmmSchedule(self.name, **{**given, **_words(part, r.schedule)}), r.reason, r.remedy)
                for r in options.rejected
            ]
            if not options.costs:
                return Listed((), refused)
            found[part], rejected = options.costs, rejected + refused
        best = {part: costs[0] for part, costs in found.items()}
        chosen = [best, *({**best, part: one} for part, costs in found.items() for one in costs[1:])]
        costs = [self._priced(facts, device, given, of) for of in chosen]
        return Listed(sorted(costs, key=lambda c: round(c.time, 9)), rejected)

    def _priced(
        self, facts: BlockedEllNumbers, device: DeviceProfile, given: Mapping[str, Any], of: dict[str, Cost]
    ) -> Cost:
        """The cost of the schedule that has the words of the kernels with these costs."""
        words = {**ABSENT, **given}
        for part, cost in of.items():
            words |= _words(part, cost.schedule)
        return price(facts, SpmmSchedule(self.name, **words), device, of)

    def price(self, problem: Any, schedule: Schedule, device: DeviceProfile) -> Cost:
        """The cost of a complete schedule; ScheduleError if it cannot run the product on the device."""
        costs: dict[str, Cost] = {}
        for part, numbers in _numbers(problem.facts).items():
            family, own = FAMILIES[part], schedule_of(part, schedule)
            shape = family.shape(numbers, own, device)
            if error := family.refusal(numbers, own, device, shape):
                raise error
            costs[part] = family.cost(numbers, own, device, shape)
        return price(problem.facts, schedule, device, costs)

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The product as two, then a kernel of each."""
        facts: BlockedEllNumbers = problem.facts
        passes: list[Pass] = [BlockedEll(tiles=facts.tiles is not None)]
        if facts.tiles is not None:
            kernel = hybrid.FAMILY.kernel(facts.tiles, schedule_of(TILES, schedule), device)
            passes.append(replace(kernel, blanks=facts.filling > 0))
        if facts.rest is not None:
            passes.append(csr.kernel_for(rest_of(problem.matrix), schedule_of(REST, schedule)))
        return passes

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """Tiles as fragments, which columns they have, the rows of both kernels, and the other entries."""
        of_tiles = {
            name: Prepared((self.name, name), make, about.format(file=_FILE), name == "tiles")
            for name, (make, about) in _OF_TILES.items()
        }
        cut, warp, block = csr.sharing(schedule_of(REST, schedule))
        about = f"as csr has them, of W's rows: rows of more than {cut} entries in pieces (segments in {_FILE})"
        make = partial(segments, longest=cut, warp=warp, block=block)
        return {**of_tiles, **hybrid.rest_arrays(), "segments": Prepared((self.name, cut, warp, block), make, about)}

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every element of a tile, every other entry, and column."""
        p: BlockedEllNumbers = cost.facts
        return 2.0 * (p.strips * p.width * p.tile**2 + p.entries) * p.n

    def blocks(self, facts: BlockedEllNumbers, schedule: Schedule, device: DeviceProfile) -> str:
        """Block rows, and what both kernels have."""
        said = {
            part: FAMILIES[part].blocks(n, schedule_of(part, schedule), device) for part, n in _numbers(facts).items()
        }
        stored = f"{facts.strips} block rows of {facts.width} tiles, {facts.filling} of them zeros that fill up"
        return "; ".join((stored, *(f"{part}: {text}" for part, text in said.items())))


def _numbers(facts: BlockedEllNumbers) -> dict[str, Any]:
    """The numbers of each kernel that there is."""
    found = {TILES: facts.tiles, REST: facts.rest}
    return {part: numbers for part, numbers in found.items() if numbers is not None}


def _words(part: str, schedule: Schedule) -> dict[str, Any]:
    """The words of a kernel's schedule that are ours."""
    return {name: getattr(schedule, name) for name in WORDS[part]}


def schedule_of(part: str, schedule: Schedule) -> SpmmSchedule:
    """The schedule of a kernel."""
    return SpmmSchedule(FAMILIES[part].name, **FIXED[part], **_words(part, schedule))


FAMILY = register(BlockedEllFamily())

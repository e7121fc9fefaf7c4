"""``csr_strip``: rows of entries on CUDA cores, against strips of x that stay in shared memory.

For matrices of few columns: a strip of *all* rows of x, 32, 64 or 128 bytes wide, is loaded once for a block, where
``csr`` brings a row of x from L2 for every entry.  From sm_80 on; on Hopper strips come by the copy unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, HOPPER, DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.csr_strip import CsrStrip
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.resident import PIECE, WIDTHS
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.csr_strip import cuts, filled, places, records, values
from sparsegen.products.csr_strip_cost import Shape, price, shape_of
from sparsegen.products.ragged import Ragged
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: What is tried; blocks of all strips in multiples of what fills an H200.
WARPS, GROUPS, UNROLL, BLOCKS = (8, 16, 32), (1, 2, 4), (4, 8), (66, 132, 264, 528)
LANES: Final = 32
MAX_WARPS: Final = 32
_PLACES: Final = (
    "where in a strip the row of x of each entry begins, in pieces of 16 bytes, {each} for each row; "
    "rows of entries are filled up to multiples of {unroll} by the row of zeros behind the strip ({file})"
)
_VALUES: Final = "values of the entries; rows are filled up to multiples of {unroll} by zeros ({file})"
_RECORDS: Final = (
    "records of the rows, dealt to {lists} lists of {teams} teams: row, or of a piece of a row that is cut one more "
    "than M and its slot, first entry, the one after the last, 0 ({file})"
)
_CUTS: Final = "of each row that is cut, list by list: row, its first slot, the one after its last, 0 (cuts in {file})"
_FILE: Final = "sparsegen/products/csr_strip.py"


class CsrStripFamily(ListedFamily):
    """``wide``: bytes of a row of x of a strip; ``lists``: blocks that share a strip's rows of W; ``warps``: of a
    block; ``groups``: of lanes that share a row's entries; ``unroll``: entries of a group a turn."""

    name = "csr_strip"
    doubt = 1.04  # fitted with hybrid's
    formats = ("csr",)
    telling = ("wide", "lists")
    nonfinite = "a NaN or Inf of x reaches the rows that have an entry for it; what is not stored does not multiply"
    counted = "two for each entry and column"
    because = "what is not stored does not multiply"
    scratch = "x, row by row and of whole pieces"
    words = (
        Word("wide", integer, choices=WIDTHS), Word("lists", integer), Word("warps", integer, None, 1, MAX_WARPS),
        Word("groups", integer, choices=(1, 2, 4, 8, 16)), Word("unroll", integer, choices=(1, 2, 4, 8)),
    )  # fmt: skip

    def consistent(self, s: Schedule) -> None:
        """A team is a part of a warp."""
        if s.groups is not None and s.wide is not None and s.groups * s.wide // PIECE > LANES:
            raise ScheduleError(
                f"groups={s.groups} of {s.wide // PIECE} lanes, one for each 16 of wide={s.wide} bytes, are more than "
                f"a warp of {LANES}",
                hint="lower groups or wide",
            )

    def space(self, facts: Ragged, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""

        def tried(name: str, values: Any) -> Any:
            return [wanted[name]] if name in wanted else values

        bytes_ = facts.n * facts.item
        for wide in tried("wide", [w for w in WIDTHS if w < 2 * bytes_] or WIDTHS[:1]):
            for warps in tried("warps", WARPS):
                for groups in tried("groups", GROUPS):
                    lanes = wide // PIECE * groups
                    if lanes > LANES:
                        continue
                    most = -(-facts.m * lanes // (LANES * warps))
                    lists = {max(1, min(n // -(-bytes_ // wide), most)) for n in BLOCKS}
                    for each in tried("lists", sorted(lists)):
                        for unroll in tried("unroll", UNROLL):
                            yield SpmmSchedule(
                                self.name, wide=wide, lists=each, warps=warps, groups=groups, unroll=unroll
                            )

    def shape(self, facts: Ragged, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(self, facts: Ragged, schedule: Schedule, device: DeviceProfile, shape: Shape) -> ScheduleError | None:
        """Why a complete schedule cannot run on the device; None if it can."""
        if device.compute_capability < AMPERE:
            return ScheduleError(
                f"csr_strip copies by cp.async, which {device.name} ({device.arch}) has not", hint="take csr"
            )
        if facts.k * up(facts.n, PIECE // facts.item) > MAX_CELLS:
            return ScheduleError(
                f"whole pieces of x have {facts.k * up(facts.n, PIECE // facts.item)} elements; indices are 32 bits "
                f"wide, so {MAX_CELLS} is the most",
                hint="cut x by columns",
            )
        if not shape.resident:
            return ScheduleError(
                f"a strip of {facts.k} rows of {schedule.wide} bytes, {shape.shared} in all, and {shape.registers} "
                f"registers of {schedule.threads} threads do not fit an SM",
                hint="lower wide, warps or unroll, or take csr",
            )
        return None

    def cost(self, facts: Ragged, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int, int]:
        """What costs are sorted by: seconds, then few groups, few entries a turn."""
        return round(cost.time, 9), cost.schedule.groups, cost.schedule.unroll

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel, for as many rows as teams have."""
        s, g = schedule, shape_of(problem.facts, schedule, device)
        rows = records(problem.matrix, s.unroll, s.groups, s.lists, g.teams)
        return [
            CsrStrip(
                wide=s.wide, lists=s.lists, warps=s.warps, groups=s.groups, unroll=s.unroll, length=rows.shape[1],
                slots=g.slots, entries=filled(problem.facts, s.unroll), min_blocks=max(1, g.resident),
                via="tensor" if device.compute_capability >= HOPPER else "cp.async",
            )
        ]  # fmt: skip

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """Places of rows in a strip, values, and who does what."""
        s = schedule
        teams = s.threads // (s.wide // PIECE * s.groups)
        told = {"unroll": s.unroll, "lists": s.lists, "teams": teams, "file": _FILE, "each": s.wide // PIECE}
        dealt = {"unroll": s.unroll, "groups": s.groups, "lists": s.lists, "teams": teams}
        return {
            "places": Prepared(
                ("strip places", s.wide, s.unroll),
                partial(places, wide=s.wide, unroll=s.unroll),
                _PLACES.format(**told),
            ),
            "values": Prepared(("strip values", s.unroll), partial(values, unroll=s.unroll), _VALUES.format(**told)),
            "records": Prepared(("strip records", *dealt.values()), partial(records, **dealt), _RECORDS.format(**told)),
            "cuts": Prepared(("strip cuts", *dealt.values()), partial(cuts, **dealt), _CUTS.format(**told)),
        }

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every entry and column."""
        p: Ragged = cost.facts
        return 2.0 * p.entries * p.n

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Strips, and what teams do with them."""
        g, s = shape_of(facts, schedule, device), schedule
        cut = f" (longer rows in pieces, {g.slots} of a list)" if g.slots else ""
        return (
            f"{g.strips * s.lists}: {g.strips} strips of {s.wide} bytes of x's rows x {s.lists} lists of rows; "
            f"{g.teams} teams of {s.wide // PIECE * s.groups} lanes have {g.turns / (s.lists * g.teams):.3g} turns in "
            f"the mean, {g.last:.0f} at most{cut}; {room(g)}"
        )


FAMILY = register(CsrStripFamily())

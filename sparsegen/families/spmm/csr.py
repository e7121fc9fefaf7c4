"""``csr``: rows of entries on CUDA cores; teams of lanes gather the rows of x that the entries name.

A team has a segment of a row at a time, and rows of more than ``cut`` entries are cut into several.  What bounds a
product is how many gathered rows are on their way, and how fast they come from L2: :mod:`sparsegen.products.csr_cost`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.csr import ALIGN, Csr
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.tile_ragged import RANK
from sparsegen.products.csr_cost import Shape, price, shape_of
from sparsegen.products.ragged import Ragged, segments_of
from sparsegen.products.weights import Prepared, padded
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, pair

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: What the search tries: entries of a lane a turn, and where rows are cut.
UNROLLS, CUTS = (2, 4, 8), (32, 64, 128, 256, 512, 1024, 2048)
#: Lanes of a team, entries of a team a turn, and bytes of rows on their way to a lane: what lies beyond was slower
#: wherever it was measured, or never was.
LEAST, TURN, BYTES = 8, 64, 128
#: Warps of a block that are tried: with 2 and with 8 a product took up to 5 % longer on an H200.
WARPS: Final = 4
LANES: Final = 32
MAX_REGISTERS: Final = 255
_RECORDS: Final = (
    "records of four: a row, its first entry, the one after the last, and {rank} * a + b for a pieces of the row after "
    "this one and b before it. First rows of more than {cut} entries in pieces as even as they come, then records of "
    "row M without entries up to a multiple of {warp} records; then the other rows, those of most binary digits of "
    "their lengths first; then empty ones again up to a multiple of {block} (segments in sparsegen/products/ragged.py)"
)


def _up(n: int) -> int:
    """The next power of two."""
    return 1 << (n - 1).bit_length()


def _powers(most: int) -> list[int]:
    return [1 << i for i in range(most.bit_length())]


class CsrFamily(ListedFamily):
    """``team``: lanes side by side along x's columns x groups of them that share a segment's entries; ``columns``: of x
    that a lane has; ``unroll``: entries of a group a turn; ``cut``: rows of more entries are cut into pieces;
    ``warps``: of a block."""

    name = "csr"
    formats = ("csr",)
    telling = ("team", "columns")
    nonfinite = "a NaN or Inf of x reaches the rows that have an entry for it; what is not stored does not multiply"
    counted = "two for each entry and column"
    because = "what is not stored does not multiply"
    words = (
        Word("team", pair), Word("columns", integer, choices=(1, 2, 4, 8, 16, 32)),
        Word("unroll", integer, choices=(1, 2, 4, 8, 16)), Word("cut", integer, None, 1, 1 << 19),
        Word("warps", integer, None, 1, 32),
    )  # fmt: skip

    def consistent(self, s: Schedule) -> None:
        """A team is a part of a warp."""
        if s.team is not None and LANES % (lanes := s.team[0] * s.team[1]):
            raise ScheduleError(
                f"team={s.team[0]}x{s.team[1]} are {lanes} lanes, which do not divide a warp of {LANES}",
                hint="choose powers of two whose product is at most 32, as in team=16x1",
            )

    def space(self, facts: Ragged, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``.

        A lane has one load of 16 bytes of a row of x, or two; a team as many lanes side by side as the columns need, or
        half as many.
        """
        load = 16 // facts.item
        columns = (
            sorted({min(load, _up(facts.n)), min(2 * load, _up(facts.n))})
            if "columns" not in wanted
            else [wanted["columns"]]
        )
        longest = facts.lengths[-1][0]
        cuts = [c for c in CUTS if c < longest] + [next((c for c in CUTS if c >= longest), CUTS[-1])]
        for each in columns:
            enough = min(LANES, _up(-(-facts.n // each)))
            teams = [(a, b) for a in (enough, enough // 2) if a for b in _powers(LANES // a) if a * b >= LEAST]
            for team in [wanted["team"]] if "team" in wanted else teams:
                unrolls = [u for u in UNROLLS if u * team[1] <= TURN and u * each * facts.item <= BYTES] or UNROLLS[:1]
                for unroll in [wanted["unroll"]] if "unroll" in wanted else unrolls:
                    for cut in [wanted["cut"]] if "cut" in wanted else dict.fromkeys(cuts):
                        yield SpmmSchedule(
                            "csr", team=team, columns=each, unroll=unroll, cut=cut, warps=wanted.get("warps", WARPS)
                        )

    def shape(self, facts: Ragged, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(self, facts: Ragged, schedule: Schedule, device: DeviceProfile, shape: Shape) -> ScheduleError | None:
        """Why a complete schedule cannot run on the device; None if it can."""
        left = min(MAX_REGISTERS, device.regs_sm // schedule.threads // 8 * 8)
        if shape.registers > left:
            return ScheduleError(
                f"{shape.registers} registers a thread; {schedule.threads} threads leave {left}",
                hint="lower columns, unroll or warps",
            )
        if schedule.threads > device.max_threads_sm:
            return ScheduleError(
                f"{schedule.threads} threads a block; {device.name} has {device.max_threads_sm}", hint="lower warps"
            )
        return None

    def cost(self, facts: Ragged, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int, int, int]:
        """What costs are sorted by: seconds, then few parts, few entries a turn, few pieces."""
        s = cost.schedule
        return round(cost.time, 9), s.team[1], s.unroll, -s.cut

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel, for as many segments as the rows have."""
        return [kernel_for(problem.matrix, schedule)]

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """Columns and values of the entries, filled up to whole loads, and the records of the segments."""
        how = sharing(schedule)
        about = f"W.arrays[%r], and zeros up to a multiple of {ALIGN} elements, at least one such"
        entries = {
            name: Prepared((name, ALIGN), partial(padded, name=name, align=ALIGN), about % name)
            for name in ("idx", "values")
        }
        records = _RECORDS.format(rank=RANK, cut=how[0], warp=how[1], block=how[2])
        return {**entries, "segments": Prepared(how, lambda w: segments_of(w, *how).records, records)}

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every entry and column."""
        return 2.0 * cost.values["Z"] * cost.values["N"]

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Segments and tiles of columns."""
        g, (across, parts) = shape_of(facts, schedule, device), schedule.team
        cut = f"{g.walk.cuts:.0f} of them pieces of rows of more than {schedule.cut} entries"
        return (
            f"{g.blocks:.0f}: {g.walk.segments:.0f} segments ({cut if g.walk.cuts else 'no row is cut'}) x {g.tiles} "
            f"tiles of columns; teams of {across * parts} lanes, {across} along the columns; {g.registers} registers"
        )


def kernel_for(w: SparseMatrix, s: Schedule) -> Csr:
    """The kernel of a schedule, for as many segments as the rows of a matrix have."""
    found = segments_of(w, *sharing(s))
    (across, parts), count = s.team, len(found.records)
    return Csr(across, parts, s.columns, s.unroll, s.warps, segments=count, cuts=found.cuts)


def sharing(s: Schedule) -> tuple[int, int, int]:
    """Where rows are cut, and the teams of a warp and of a block."""
    team = s.team[0] * s.team[1]
    return s.cut, LANES // team, s.threads // team


FAMILY = register(CsrFamily())

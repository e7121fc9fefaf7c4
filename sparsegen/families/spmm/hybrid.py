"""``hybrid`` (BSA-SpMM): dense tiles on tensor cores and all other entries on CUDA cores, in one launch.

A block has some rows and columns of y: it adds up both parts and stores once, to the rows as they were given.  Rows of
x come once for all dense tiles of a block that lie on top of each other.  Sums are made in a fixed order.  In f16 and
bf16, and in f32, whose numbers tensor cores multiply as two of tf32 each, from sm_80 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import AMPERE, HOPPER, DeviceProfile
from sparsegen.cost.occupancy import room
from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.csr import ALIGN
from sparsegen.ir.kernels.hybrid import Hybrid
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.mixed import PIECE, ROWS, TILES, fits, groups_of, passes
from sparsegen.ir.numbers.strips import COLS, LEAST, MOST_ROWS, sums
from sparsegen.ir.passes.manager import Pass
from sparsegen.products.hybrid import HEIGHTS, HybridNumbers, columns, images, pieces, records, rounded, spans, tiles
from sparsegen.products.hybrid_cost import Shape, price, shape_of
from sparsegen.products.tiling import expected, tiling
from sparsegen.products.weights import Prepared, padded
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, pair, text
from sparsegen.sizes import MAX_CELLS

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

#: Warps that share a band's rows x its columns, slots of a ring, and other entries of a turn that are tried.
WARPS: Final = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2))
#: Who multiplies dense tiles, warps or warpgroups; these are tried from so many columns on, with so many warps.
MMA: Final = ("sync", "wgmma")
WIDE, GROUPS = 256, ((1, 4), (1, 8))
STAGES: Final = (2, 3, 4, 6)
UNROLLS: Final = (2, 4)
#: Sets of such warps that share k; tried where all blocks have fewer warps than so many: an H200 has
#: places for eight thousand, and what a block waits for is hidden by those that are there.
SLICES: Final = (1, 2, 4, 8)
FEW: Final = 4096
#: Sums of a lane at most, and bytes of rows of x on their way to it.
MOST_SUMS, MOST_BYTES = 64, 64
MAX_WARPS: Final = 32
_SPANS: Final = "of each band, {high} dense tiles high, its first turn and the one after its last (spans in {file})"
_RECORDS: Final = (
    "of each row of each band, {high} dense tiles high: which row of W it is, its first entry outside of dense tiles, "
    "the one after its last, and its place in the band (records in {file})"
)
_PIECES: Final = (
    "of each piece of a row that is cut, band by band, {high} dense tiles high: which row of W that is, its first "
    "entry outside of dense tiles, the one after its last, and its number in the band (pieces in {file})"
)
_COLUMNS: Final = "which columns of W each turn of bands {high} tiles high multiplies, by the tile (columns in {file})"
_TILES: Final = (
    "words of the {high} tiles of each turn, zeros or dense, in the order of mma fragments (tiles in {file})"
)
_IMAGES: Final = (
    "of the {high} tiles of each turn, zeros or dense, the rows, their 16-byte pieces swizzled (images in {file})"
)
_ROUNDED: Final = _TILES.replace("(tiles in", "rounded to tf32 (rounded in")
_REST: Final = f"W.arrays[%r], and zeros up to a multiple of {ALIGN} elements, at least one such"
_FILE: Final = "sparsegen/products/hybrid.py"


class HybridFamily(ListedFamily):
    """``high``: dense tiles on top of each other in a band of rows, which share rows of x; ``cols``: columns of x of a
    block; ``warps``: that share a band's rows x that share its columns, where dense tiles are multiplied; ``mma``: by
    warps (``sync``), or by warpgroups, whose four warps share columns (``wgmma``); ``slices``: sets of so many warps,
    each for a part of k, and more teams for other entries; ``stages``: dense tiles in the ring, with their rows of x;
    ``unroll``: other entries of a row that a group of lanes takes a turn."""

    name = "hybrid"
    doubt = 1.06  # of 294 products on one H200 the choice was within 3 % of the best in 93 %, without it in 91 %
    formats = ("hybrid",)
    telling = ("high", "cols", "mma")
    nonfinite = (
        "a NaN or Inf of x reaches the rows that have an entry for it, and all rows of each band with a dense tile in "
        "its column: zeros there multiply too; of f32 an Inf in a dense tile or beside one makes NaN"
    )
    counted = "two for each element of a dense tile, each other entry, and column"
    because = "zeros of dense tiles multiply, what else is not stored does not"
    scratch = "x, row by row and of whole pieces"
    #: What formats ask of it: alpha and delta for a matrix, and what a product, in numbers, is expected to take.
    numbers = staticmethod(HybridNumbers.of)
    tiling = staticmethod(tiling)
    expected = staticmethod(expected)
    words = (
        Word("high", integer, choices=HEIGHTS), Word("cols", integer, choices=COLS), Word("warps", pair),
        Word("mma", text, choices=MMA), Word("slices", integer, choices=SLICES),
        Word("stages", integer, None, LEAST, 16), Word("unroll", integer, choices=(1, 2, 4, 8)),
    )  # fmt: skip

    def consistent(self, s: Schedule) -> None:
        """The warps fit a block, and the columns the warps."""
        if s.warps is None:
            return
        down, across = s.warps
        if s.threads > 32 * MAX_WARPS or any(n & (n - 1) for n in s.warps) or down > ROWS[-1] // 16:
            raise ScheduleError(
                f"warps={down}x{across}{_more(s)}: no warps that share a band of rows",
                hint=f"1, 2, 4 or 8 that share rows x a power of two that share columns, {MAX_WARPS} in all, slices "
                "too: warps=1x4",
            )
        if s.cols is not None and s.cols % (16 * across):
            raise ScheduleError(
                f"cols={s.cols} are no whole fragments of 16 columns for each of {across} warps",
                hint="raise cols, or let fewer warps share the columns",
            )

    def space(self, facts: HybridNumbers, wanted: Mapping[str, Any]) -> Iterator[SpmmSchedule]:
        """Every complete schedule that is tried, legal or not, with the words that are ``wanted``."""

        def tried(name: str, values: Any) -> Any:
            return [wanted[name]] if name in wanted else values

        enough = next((c for c in COLS if c >= facts.n), COLS[-1])
        heights = [high for high in HEIGHTS if high == 1 or high * facts.tile <= ROWS[-1]]
        columns = [c for c in COLS if c <= enough]
        ways = [("sync", warps) for warps in tried("warps", WARPS)]
        if (facts.n >= WIDE and facts.item == 2) or "mma" in wanted:
            ways += [("wgmma", warps) for warps in tried("warps", GROUPS)]
        for high, cols, (mma, warps) in product(tried("high", heights), tried("cols", columns), ways):
            if cols % (16 * warps[1]) or mma not in tried("mma", MMA):
                continue
            blocks = facts.bands(high) * -(-facts.n // cols)
            for slices in tried("slices", [s for s in SLICES if s == 1 or s * blocks * prod(warps) < FEW]):
                share = *warps, slices
                able = fits(high * facts.tile, cols, share) and (mma == "sync" or groups_of(cols, share) > 0)
                asked = facts.tile not in TILES or not wanted.keys().isdisjoint(("warps", "mma", "slices"))
                if prod(share) > MAX_WARPS or not (able or asked):
                    continue
                for stages, unroll in product(tried("stages", STAGES), tried("unroll", UNROLLS)):
                    share_ = {"warps": warps, "mma": mma, "slices": slices}
                    yield SpmmSchedule("hybrid", high=high, cols=cols, **share_, stages=stages, unroll=unroll)

    def shape(self, facts: HybridNumbers, schedule: Schedule, device: DeviceProfile) -> Shape:
        """Blocks, registers and bytes."""
        return shape_of(facts, schedule, device)

    def refusal(
        self, facts: HybridNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape
    ) -> ScheduleError | None:
        """Why a complete schedule cannot run the product on the device; None if it can."""
        if device.compute_capability < AMPERE:
            return ScheduleError(
                f"dense tiles are multiplied by mma.m16n8k16 and copied by cp.async; {device.name} ({device.arch}) has "
                "neither",
                hint="take csr, or a GPU from Ampere on",
            )
        if facts.tile not in TILES:
            return ScheduleError(
                f"W has dense tiles of {facts.tile} x {facts.tile}, which no mma fills",
                hint=f"encode it again with tile={' or '.join(map(str, TILES))}",
            )
        (down, across), rows = schedule.warps, schedule.high * facts.tile
        if rows > ROWS[-1]:
            return ScheduleError(f"high={schedule.high}: bands of {rows} rows, {ROWS[-1]} at most", hint="lower high")
        if not fits(rows, schedule.cols, (down, across, schedule.slices)):
            return ScheduleError(
                f"warps={down}x{across}{_more(schedule)} do not share {rows} rows and {schedule.cols} columns in "
                "fragments of 16",
                hint=f"let fewer warps share the rows, or raise high{_more(schedule) and '; lower slices'}",
            )
        if schedule.mma == "wgmma" and (error := _no_groups(facts, schedule, device)):
            return error
        copied = passes(facts.tile, schedule.cols, schedule.threads, facts.item)
        if copied > MOST_ROWS or sums(rows // down, schedule.cols // across) > MOST_SUMS:
            return ScheduleError(
                f"a thread has {sums(rows // down, schedule.cols // across)} sums, {MOST_SUMS} at most, and "
                f"copies pieces of {copied} rows of x a turn, {MOST_ROWS} at most",
                hint="take more warps, or lower cols",
            )
        flight = schedule.unroll * shape.team.vec * shape.team.blocks * facts.item
        if flight > 2 * MOST_BYTES:
            return ScheduleError(
                f"{flight} bytes of rows of x on their way to a lane, {2 * MOST_BYTES} at most", hint="lower unroll"
            )
        most = max(facts.k * up(facts.n, PIECE // facts.item), facts.counted(schedule.high).turns * rows * facts.tile)
        if most > MAX_CELLS:
            return ScheduleError(
                f"whole pieces of x, or dense tiles with zeros between them, have {most} elements; indices are 32 bits "
                f"wide, so {MAX_CELLS} is the most",
                hint="cut x by columns, or W by rows",
            )
        if not shape.resident:
            return ScheduleError(
                f"{shape.shared} bytes of shared memory and {shape.registers} registers a thread do not fit an SM",
                hint="lower stages or cols",
            )
        return None

    def cost(self, facts: HybridNumbers, schedule: Schedule, device: DeviceProfile, shape: Shape) -> Cost:
        """The time that the family's formula expects."""
        return price(facts, schedule, device, shape)

    def order(self, cost: Cost) -> tuple[float, int, int]:
        """What costs are sorted by: seconds, then many threads and many slots, which hide more.

        Of schedules that cost alike those with half the threads took up to 1.2 times as long on an H200.
        """
        return round(cost.time, 9), -cost.schedule.threads, -cost.schedule.stages

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel, for as many dense tiles as there are."""
        return [self.kernel(problem.facts, schedule, device)]

    def kernel(self, facts: HybridNumbers, s: Schedule, device: DeviceProfile) -> Hybrid:
        """The kernel of a schedule for a product in numbers."""
        (down, across), g, of = s.warps, shape_of(facts, s, device), facts.counted(s.high)
        return Hybrid(
            rows=s.high * facts.tile, tile=facts.tile, down=down, across=across, cols=s.cols, stages=s.stages,
            slices=s.slices, mma=s.mma, unroll=s.unroll, dense=of.turns, longest=of.longest, cuts=of.cuts,
            min_blocks=max(1, g.resident),
        )  # fmt: skip

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """What bands and their rows have, dense tiles as fragments, and the other entries."""
        high = schedule.high
        packs = {
            "spans": (spans, _SPANS), "records": (records, _RECORDS), "pieces": (pieces, _PIECES),
            "columns": (columns, _COLUMNS), "tiles": (tiles, _TILES),
        }  # fmt: skip
        if schedule.mma == "wgmma":
            packs["tiles"] = images, _IMAGES
        return {name: _packed(pack, told, high) for name, (pack, told) in packs.items()} | rest_arrays()

    def read(self, facts: HybridNumbers, schedule: Schedule) -> dict[str, Prepared]:
        """The same; dense tiles are rounded to the precision in which they are multiplied, if that is not f32's."""
        made = self.arrays(schedule)
        return made | ({"tiles": _packed(rounded, _ROUNDED, schedule.high)} if facts.precision else {})

    def operations(self, cost: Cost) -> float:
        """A multiply-add of every element of a dense tile, every other entry, and column."""
        p: HybridNumbers = cost.facts
        return 2.0 * (p.dense * p.tile**2 + p.entries) * p.n

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Bands, and what they have."""
        g, high = shape_of(facts, schedule, device), schedule.high
        bands, of = facts.bands(high), facts.counted(high)
        cut = f" (long rows in pieces of {of.piece} at most, {of.cuts} of a band)" if of.cuts else ""
        return (
            f"{bands * g.tiles}: {bands} bands of {high * facts.tile} rows x {g.tiles} tiles of columns; {facts.dense} "
            f"dense tiles in {of.turns} turns, {of.longest} of a band at most, and {facts.entries} other entries, "
            f"{facts.most} of a row at most{cut}, by teams of {g.team.lanes} lanes; {room(g)}"
        )


def _no_groups(facts: HybridNumbers, s: Schedule, device: DeviceProfile) -> ScheduleError | None:
    """Why warpgroups cannot multiply the dense tiles; None if they can."""
    if not HOPPER <= device.compute_capability < (10, 0):
        return ScheduleError(
            f"mma=wgmma multiplies by warpgroups, which {device.name} ({device.arch}) has not",
            hint="take mma=sync, or a Hopper device (H100, H200)",
        )
    if facts.item != 2:
        return ScheduleError(f"mma=wgmma multiplies f16 and bf16, not {facts.dtype}", hint="take mma=sync")
    if not groups_of(s.cols, (*s.warps, s.slices)):
        down, across = s.warps
        return ScheduleError(
            f"warps={down}x{across} are no warpgroups that share {s.cols} columns by 64",
            hint="four warps for every 64 columns, or for some times as many: cols=128 warps=1x4",
        )
    return None


def _more(s: Schedule) -> str:
    """The slices of warps in a message, if there are some."""
    return f" slices={s.slices}" if (s.slices or 1) > 1 else ""


def _packed(pack: Callable[..., Any], told: str, high: int) -> Prepared:
    """What is made of a matrix for bands so many dense tiles high."""
    words = pack in (tiles, rounded)
    return Prepared(
        ("hybrid", pack.__name__, high), partial(pack, high=high), told.format(high=high, file=_FILE), words
    )


def rest_arrays() -> dict[str, Prepared]:
    """Columns and values of the entries outside of dense tiles."""
    return {
        name: Prepared((stored, ALIGN), partial(padded, name=stored, align=ALIGN), _REST % stored)
        for name, stored in (("idx", "rest_idx"), ("values", "rest_values"))
    }


FAMILY = register(HybridFamily())

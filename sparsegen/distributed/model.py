"""What a pass over a mesh is predicted to take, by the cost model of one GPU and the figures of its links.

A pass of two pieces a block: while the second piece is worked out, the halos of what was done first travel, and while
the first piece of the next pass is, the others.  So a pass takes the longer of work and exchange, twice.  Of one piece
the tiles at both ends come first where that is possible (``ends-first``): halos travel while the others are worked out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparsegen.choose import Request
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile, load_profile, names
from sparsegen.cost.links import Link
from sparsegen.distributed.local import grain, pass_schedules, reach
from sparsegen.distributed.partition import Partition, Piece, cells, shape
from sparsegen.distributed.sites import bare, busiest, groups, seen
from sparsegen.dsl.stencil import Stencil
from sparsegen.explain.units import seconds
from sparsegen.ir.errors import ArrayError, DeviceError, ScheduleError, SparsegenError
from sparsegen.kernel import Kernel
from sparsegen.problem import Problem
from sparsegen.schedule import Schedule

#: Tiles of a block along the first of three axes that are tried besides what is cheapest for one GPU.
_TILES: Final = (3, 4)


@dataclass(frozen=True)
class Exchange:
    """The predicted passes of a rank in the middle of a mesh, in seconds and bytes.  ``str`` of it is a page.

    ``steps``: time steps of a pass; ``work``: of each piece of a block, with its halo, and with as much to do at sites
    as the busiest one of all ranks; ``travel``: of the halos that each turn sends; ``sent``: bytes that the rank sends
    a pass; ``time``: of a pass; ``alone``: of as many steps of the whole domain on one GPU (as if it had the memory).
    """

    mesh: tuple[int, ...]
    halo: tuple[int, ...]
    steps: int
    work: tuple[float, ...]
    travel: tuple[float, ...]
    sent: int
    time: float
    alone: float
    device: str
    link: Link

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return math.prod(self.mesh)

    @property
    def hidden(self) -> float:
        """Share of the travel that takes no time of its own."""
        travel = sum(self.travel)
        if not travel:
            return 0.0
        return max(0.0, 1.0 - (self.time - sum(self.work)) / travel)

    @property
    def speedup(self) -> float:
        """How much sooner than on one GPU."""
        return self.alone / self.time

    @property
    def efficiency(self) -> float:
        """The speed-up over the number of GPUs."""
        return self.speedup / self.ranks

    def __str__(self) -> str:
        pieces = "a piece" if len(self.work) == 1 else f"{len(self.work)} pieces"
        return "\n".join([
            f"{'x'.join(map(str, self.mesh))} GPUs ({self.device}), a pass of {self.steps} time steps, predicted:",
            f"  work      {seconds(sum(self.work))} in {pieces} with a halo of {'x'.join(map(str, self.halo))} cells",
            f"  exchange  {self.sent} bytes a rank, {seconds(sum(self.travel))} at {self.link.gbs:g} GB/s within "
            f"{self.link.gpus} GPUs, {self.link.network_gbs:g} GB/s beyond (figures of the profile)",
            f"  overlap   {self.hidden:.0%} of the exchange is hidden behind work",
            f"  a pass    {seconds(self.time)}, on one GPU {seconds(self.alone)}: {self.speedup:.2f} times as fast, "
            f"{self.efficiency:.0%} of {self.ranks}",
        ])  # fmt: skip


def planned(
    k: Kernel, mesh: tuple[int, ...], overlap: bool | None, beside: bool = True
) -> tuple[Schedule, Partition]:  # fmt: skip
    """The schedule of passes and how the domain is split; ``beside``: whether an exchange goes on beside kernels.

    ArrayError where the domain or its boundary forbids it, ScheduleError where no schedule runs on all pieces.
    """
    axes = len(k.shape)
    plain = Partition(k.shape, mesh, (0,) * axes, (False,) * axes, (1,) * axes)
    found, refused = list[tuple[float, Schedule, Partition]](), list[SparsegenError]()
    for schedule in pass_schedules(k, shape(plain.blocks[0])):
        try:
            whole = split(k.problem, mesh, schedule)
            for one in _wanted(whole, k.problem, overlap):
                for s in _in_tiles(schedule, one) if beside else [schedule]:
                    for there in _pieces(k.problem, one):
                        there.price(s, k.device, Request(s.steps))
                    exchange = predicted(k.problem, k.device, one, s, beside=beside)
                    found.append((exchange.time / exchange.steps, s, one))
        except (ArrayError, ScheduleError) as error:
            refused.append(error)
    if not found:
        raise refused[0]
    _, schedule, best = min(found, key=lambda each: each[0])
    return schedule, best


def _in_tiles(schedule: Schedule, partition: Partition) -> list[Schedule]:
    """The schedule, and such with more tiles along the first of three axes, where their size is left to the cost model:
    for one GPU it takes few, and of one or two there is none that others could come before."""
    found = [schedule]
    if partition.turns == 1 and partition.ends and any(w.name == "planes" and w.auto for w in schedule.rules.words):
        planes = max(shape(piece.frame)[0] for piece in partition.pieces)
        found += [schedule.but(planes=math.ceil(planes / tiles)) for tiles in _TILES]
    return found


def _pieces(problem: Problem, partition: Partition) -> list[Problem]:
    """What pieces work out: of those of a shape the one that has most to do at sites."""
    every = defaultdict[tuple[int, ...], list[Piece]](list)
    for piece in partition.pieces:
        every[shape(piece.frame)].append(piece)
    if not groups(problem):
        return [problem.at(size) for size in every]
    return [busiest([seen(problem, partition, piece).problem for piece in some]) for some in every.values()]


def _wanted(whole: Partition, problem: Problem, overlap: bool | None) -> list[Partition]:
    """With blocks in one piece, in two, or both where it is not said; ArrayError where two are meant that are none."""
    fits = whole.halves() and 0 not in mixed(problem)
    if overlap and not fits:
        raise ArrayError(
            f"blocks of {shape(whole.blocks[0])[0]} cells on axis 0 cannot be worked out in two halves",
            hint="leave overlap away, or take fewer ranks",
        )
    return [whole] * (not overlap) + [whole.in_turns(2)] * (fits and overlap is not False)


def split(problem: Problem, mesh: tuple[int, ...], schedule: Schedule) -> Partition:
    """The domain of a problem over a mesh, for passes by a schedule; ArrayError as of :func:`planned`."""
    for axis in mixed(problem):
        if axis < len(mesh) and mesh[axis] > 1:
            raise ArrayError(
                f"some fields of {problem.name} are periodic on axis {axis}, and some are not",
                hint=f"split another axis than {axis}, or give all fields a periodic boundary there",
            )
    periodic = tuple(low.kind == "periodic" for low, _ in _sides(problem)[0])
    return Partition(problem.shape, mesh, reach(problem, schedule.steps), periodic, grain(problem, schedule))


def mixed(problem: Problem) -> list[int]:
    """The axes on which some fields are periodic and some are not."""
    kinds = [{sides[axis][0].kind == "periodic" for sides in _sides(problem)} for axis in range(len(problem.shape))]
    return [axis for axis, found in enumerate(kinds) if len(found) > 1]


def _sides(problem: Problem) -> tuple[Any, ...]:
    """The boundary of each field."""
    what = problem.described
    return (what.sides,) if isinstance(what, Stencil) else what.sides


def predicted(
    problem: Problem, device: DeviceProfile, partition: Partition, schedule: Schedule, share: Sequence[int] = (),
    beside: bool = True,
) -> Exchange:  # fmt: skip
    """A pass on the ranks of a partition; ScheduleError where the schedule cannot run its pieces.

    ``beside``: whether halos travel while something is worked out, which they do not over MPI.
    ``share``: cells whose time on one GPU stands, times the ranks, for that of the whole domain: of one too large.
    """
    link, steps = link_of(device), schedule.steps
    middle = partition.rank([n // 2 for n in partition.mesh])
    arrays, item = _written(problem, steps), problem.kind.nbytes

    def work(of: Problem) -> Cost:
        return of.price(schedule, device, Request(steps))

    def at_sites(turn: int) -> float:
        if not groups(problem):
            return 0.0
        pieces = (piece for piece in partition.pieces if piece.turn == turn)
        return work(busiest([seen(problem, partition, piece).problem for piece in pieces])).values.get("sites", 0.0)

    own = [partition.piece(i) for i in partition.of(middle)]
    each = tuple(work(bare(problem).at(shape(piece.frame))).time + at_sites(piece.turn) for piece in own)
    travel, sent, local = [0.0] * partition.turns, 0, 0.0
    messages = [m for m in partition.messages(middle) if m.source in partition.of(middle)]
    for turn in range(partition.turns):
        near = far = boxes = 0
        for m in messages:
            if m.turn != turn:
                continue
            nbytes, to = arrays * item * cells(m.taken), m.target // partition.turns
            if to == middle:
                local += arrays * device.launch_s + 2 * nbytes / device.bw_global
                continue
            boxes += 1
            if to // link.gpus == middle // link.gpus:
                near += nbytes
            else:
                far += nbytes
        if boxes:
            # Cells come into memory of their own, and are copied to where they belong.
            placed = boxes * arrays * device.launch_s + 2 * (near + far) / device.bw_global
            travel[turn] = placed + max(link.seconds(near, apart=False), link.seconds(far, apart=True))
        sent += near + far
    if not beside:
        time = sum(each) + sum(travel) + local
    elif partition.turns == 1:
        early = ahead(work(bare(problem).at(shape(own[0].frame))), partition.ends) if not groups(problem) else 1.0
        time = max(each[0], early * each[0] + travel[0])
    else:
        time = max(each[0], travel[1]) + max(each[1], travel[0]) + local
    alone = work(problem.at(tuple(share or problem.shape))).time * (math.prod(partition.mesh) if share else 1)
    return Exchange(partition.mesh, partition.halo, steps, each, tuple(travel), sent, time, alone, device.name, link)


def ahead(cost: Cost, ends: int) -> float:
    """The share of a launch after which so many cells at both ends of the first axis are done, if its tiles there come
    first (:class:`sparsegen.ir.passes.ends_first.EndsFirst`); else 1."""
    values, s = cost.values, cost.schedule
    size, cells = values.get("P", values.get("R")), values.get("nz", values.get("ny"))
    stays = s.op == "stencil" and s.stages > 1 and not s.levelled
    if not ends or not size or not cells or stays or values.get("rim_blocks"):
        return 1.0
    tiles = math.ceil(cells / size)
    early = math.ceil(ends / size) + tiles - max(0, int(cells) - ends) // int(size)
    return min(1.0, early / tiles)


def _written(problem: Problem, steps: int) -> int:
    """Arrays that a pass writes, whose halos travel."""
    what = problem.described
    return 1 if isinstance(what, Stencil) else sum(min(levels, steps) for _, levels in what.fields)


def link_of(device: DeviceProfile) -> Link:
    """The link of a profile, or of a shipped one of its kind (a measured profile has none); DeviceError without."""
    shipped = (p for p in map(load_profile, names()) if p.compute_capability == device.compute_capability)
    found = device.link or next((p.link for p in shipped if p.link is not None), None)
    if found is None:
        raise DeviceError(
            f"the profile of {device.name} does not say what GPUs talk through",
            hint="give it a table [link], as the shipped profiles have",
        )
    return found

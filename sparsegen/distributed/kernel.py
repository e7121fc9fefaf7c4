"""``sg.distribute``: a kernel over the ranks of a mesh, each with a block of the domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import numpy as np

from sparsegen._version import __version__
from sparsegen.arguments import positive
from sparsegen.arrays import copied
from sparsegen.calls import calls_of
from sparsegen.calls.grid import GridCalls
from sparsegen.callsite import located, user_loc
from sparsegen.distributed.exchange import Lane, Turn, raw
from sparsegen.distributed.group import Ranks
from sparsegen.distributed.local import Held, LocalKernel
from sparsegen.distributed.model import Exchange, planned, predicted
from sparsegen.distributed.over_mpi import MpiRanks
from sparsegen.distributed.over_torch import TorchRanks
from sparsegen.distributed.partition import Box, shape
from sparsegen.distributed.running import run
from sparsegen.distributed.sites import Records, on_block, seen
from sparsegen.distributed.told import Told
from sparsegen.ir.errors import ArrayError, DeviceError, ProductError
from sparsegen.kernel import Kernel
from sparsegen.memo import Memo
from sparsegen.problem import digest
from sparsegen.run.host import HostArray


def distribute(k: Kernel, mesh: Any, *, overlap: bool | None = None) -> DistributedKernel:
    """The kernel ``k`` of a stencil or an update over the ranks of ``mesh``, the domain split along its first axes.

    ``mesh``: a torch DeviceMesh of one or two axes, or a tuple such as ``(2,)`` or ``(2, 2)`` with the default group of
    processes (NCCL for kernels on ``cuda``, gloo for others), or a communicator of mpi4py, Cartesian where it has two
    axes.  Every rank calls this, with an equal kernel.
    ``overlap``: whether halos travel while the rest of a block is worked out, which costs a little more work; by
    default where the cost model expects it to pay.

    ArrayError for a mesh that the domain is too small for; DeviceError without torch or its processes, where ranks
    differ in kernel, shape, steps, mesh or version, and (within a minute) where one of them is gone; ProductError for a
    kernel without a grid.
    """
    with located(user_loc()):
        if not isinstance(k, Kernel) or k.problem.grid is None:
            raise ProductError(
                f"{k!r} has no grid to split", hint="distribute what sg.compile makes of a stencil or an update"
            )
        if k.batch is not None:
            raise DeviceError(
                f"{k!r} works on a batch, and a domain is one grid",
                hint="give each rank some of the items, and call a kernel for so many there; or compile without batch",
            )
        mpi = hasattr(mesh, "Get_topology")  # a communicator of mpi4py
        return DistributedKernel(k, MpiRanks(mesh, k.backend) if mpi else TorchRanks.of(mesh, k.backend), overlap)


class DistributedKernel:
    """What :func:`sparsegen.distribute` gives back.

    ``block``: the cells of this rank, a slice of each axis of the domain; ``block_shape``: how many.  ``partition``
    says the same of all ranks.  ``schedule``: that of the passes on a block; ``halo``: cells on each axis that one
    reaches.
    """

    def __init__(self, k: Kernel, ranks: Ranks, overlap: bool | None = None) -> None:
        self.kernel, self._ranks = k, ranks
        ranks.agree(self._facts(overlap))
        overlap = False if overlap is None and not ranks.beside else overlap
        self.schedule, self.partition = planned(k, ranks.mesh, overlap, ranks.beside)
        self._pieces = {i: self.partition.pieces[i] for i in self.partition.of(ranks.me)}
        self._seen = {i: seen(k.problem, self.partition, piece).on(ranks.device) for i, piece in self._pieces.items()}
        self._records = Records(ranks, self.partition, k.problem)
        self._turns = [Turn(ranks, self.partition, turn) for turn in range(self.partition.turns)]
        # While the last blocks of the first piece run, those of the second fill the SMs that are free.
        self._lanes = [Lane(ranks.device, first=1 - turn) for turn in range(self.partition.turns)]
        self._road = Lane(ranks.device, first=2)
        made = calls_of(on_block(k.problem, self.partition.blocks[ranks.me]), k.backend)
        assert isinstance(made, GridCalls)
        self._calls = made

    @cached_property
    def _kernels(self) -> dict[int, LocalKernel]:
        """The kernel of each piece of this rank; pieces that are alike have one."""
        device, beside = self._ranks.device, self._ranks.beside
        ends = self.partition.ends if beside and device.type == "cuda" else 0
        made = Memo(partial(LocalKernel, self.kernel, schedule=self.schedule, ends=ends, device=device))
        return {i: made.get(found.problem) for i, found in self._seen.items()}

    # -------------------------------------------------------------------------------------------- what it is
    @property
    def block(self) -> tuple[slice, ...]:
        """The cells of this rank in the domain."""
        return tuple(slice(low, high) for low, high in self.partition.blocks[self._ranks.me])

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The cells of this rank on each axis."""
        return shape(self.partition.blocks[self._ranks.me])

    @property
    def halo(self) -> tuple[int, ...]:
        """Cells on each axis that a pass of ``schedule.steps`` time steps reaches."""
        return self.partition.halo

    @property
    def steps(self) -> int:
        """The compiled number of time steps of a call."""
        return self.kernel.steps

    @property
    def overlapped(self) -> bool:
        """Whether halos travel while the other half of a block is worked out."""
        return self.partition.turns == 2

    def explain(self) -> Exchange:
        """What a pass is predicted to take and to send: printed it is a page, its fields are the figures."""
        k = self.kernel
        return predicted(k.problem, k.device, self.partition, self.schedule, beside=self._ranks.beside)

    def __repr__(self) -> str:
        mesh, how = "x".join(map(str, self._ranks.mesh)), ", overlapped" if self.overlapped else ""
        size = "x".join(map(str, self.block_shape))
        return f"<DistributedKernel {self.kernel.problem.name}, {size} of rank {self._ranks.me} in {mesh}{how}>"

    def _facts(self, overlap: bool | None) -> dict[str, str]:
        """What all ranks must have alike."""
        k = self.kernel
        return {
            "version of sparsegen": __version__, "shape": "x".join(map(str, k.shape)), "steps": str(k.steps),
            "mesh": str(self._ranks.mesh), "backend": k.backend, "kernel": digest(repr(k.problem.identity()).encode()),
            "schedule": str(k.schedule), "overlap": str(overlap),
        }  # fmt: skip

    # -------------------------------------------------------------------------------------------- whole fields
    def scatter(self, field: Any = None, root: int = 0) -> Any:
        """This rank's block of a field of the whole domain, which rank ``root`` of the mesh has (a tensor or a NumPy
        array; others leave it away): a tensor on this rank's device.  A collective call."""
        with located(user_loc()):
            torch, ranks = import_module("torch"), self._ranks
            made = torch.empty(self.block_shape, dtype=self._dtype, device=ranks.device)
            if ranks.me != root:
                ranks.exchange([], [(raw(made), root)], "scatter")()
                return made
            whole = self._tensor(field)
            if tuple(whole.shape) != self.kernel.shape or whole.dtype != self._dtype:
                raise ArrayError(
                    f"a field of {tuple(whole.shape)} {whole.dtype} to scatter over {self.kernel.shape}",
                    hint=f"pass the whole field, of {self._dtype}",
                )
            for rank, box in enumerate(self.partition.blocks):
                part = whole[_slices(box)].to(ranks.device).contiguous()
                if rank == root:
                    made.copy_(part)
                else:
                    ranks.exchange([(raw(part), rank)], [], "scatter")()
            return made

    def gather(self, local: Any, root: int = 0) -> Any:
        """The field of the whole domain on rank ``root`` of the mesh, of the blocks of all ranks; None elsewhere.  A
        collective call."""
        with located(user_loc()):
            torch, made = import_module("torch"), None
            for box, part in self._blocks(local, root):
                if made is None:
                    made = torch.empty(self.kernel.shape, dtype=self._dtype, device=self._ranks.device)
                made[_slices(box)].copy_(part)
            return made

    def _on_host(self, local: Any) -> HostArray | None:
        """What ``gather`` gives the first rank, in NumPy: its GPU has room for two blocks, not for the domain."""
        made: HostArray | None = None
        for box, part in self._blocks(local, 0):
            if made is None:
                made = np.empty(self.kernel.shape, self.kernel.dtype)
            made[_slices(box)] = copied(part)
        return made

    def _blocks(self, local: Any, root: int) -> Iterator[tuple[Box, Any]]:
        """On rank ``root`` the cells of each rank and what they hold, one rank after another; nothing elsewhere."""
        next(iter(self._calls.inputs.values()))(local)
        block, ranks = self._tensor(local).to(self._ranks.device).contiguous(), self._ranks
        if ranks.me != root:
            ranks.exchange([(raw(block), root)], [], "gather")()
            return
        for rank, box in enumerate(self.partition.blocks):
            part = block
            if rank != root:
                part = block.new_empty(shape(box))
                ranks.exchange([], [(raw(part), rank)], "gather")()
            yield box, part

    def _tensor(self, field: Any) -> Any:
        """A field of any library as a tensor, where it lies."""
        torch = import_module("torch")
        if isinstance(field, np.ndarray) and field.dtype.kind == "V":  # bfloat16, which torch does not take
            return torch.as_tensor(field.view(np.int16)).view(self._dtype)
        return torch.as_tensor(field)

    @property
    def _dtype(self) -> Any:
        return getattr(import_module("torch"), self.kernel.dtype.name)

    # -------------------------------------------------------------------------------------------- running it
    def __call__(self, /, *args: Any, out: Any = None, steps: int | None = None, **named: Any) -> Any:
        """This rank's blocks after ``steps`` time steps (default: the compiled number), from its blocks before them.

        Arguments and results are those of the kernel, as tensors of ``block_shape`` on this rank's device.  All ranks
        call it with the same ``steps``, the same numbers for scalars and the same signals of all sources; each of them
        gets the records of all receivers.  The result has the numbers of the kernel on one GPU, bit for bit, but for
        schedules whose mma adds in an order that depends on where a cell lies (see docs/distributed.md).
        """
        with located(user_loc()):
            values, _ = self._calls.values(args, named, {"out": out, "steps": steps})
            count = self.kernel.steps if steps is None else positive(steps, "steps")
            calls = self._calls.at(count)
            inputs = calls.views(values)
            made = calls.new(inputs) if out is None else out
            results = {name: calls.arguments[name](a) for name, a in calls.results(made).items()}
            calls.apart(inputs, results)
            given = {name: self._tensor(view.owner) for name, view in inputs.items()}
            new = {name: self._tensor(view.owner) for name, view in results.items()}
            self._run(given, new, count, calls.scalars(values, count))
            return calls.back(made)

    run = run

    def _run(self, given: Mapping[str, Any], new: Mapping[str, Any], count: int, scalars: HostArray | None) -> None:
        """All passes from the arrays that a call is given to those that it gives back."""
        block, device = self.partition.blocks[self._ranks.me], self._ranks.device
        held = {
            i: Held(self._kernels[i], self._seen[i].which, piece, block, given, device, count, scalars)
            for i, piece in self._pieces.items()
        }
        before = {i: one.every() for i, one in held.items()}
        for turn in self._turns:
            turn.swap(before)
            turn.copy(before)
        passes, ready = list(self._passes(count)), {i: [self._road.now()] for i in held}
        for at, steps in enumerate(passes):
            ready = self._pass(held, steps, ready, last=at == len(passes) - 1)
        self._road.wait(end for ends in ready.values() for end in ends)
        for one in held.values():
            one.store(new, block)
        self._records.share({i: one.records for i, one in held.items()}, new)

    def _passes(self, count: int) -> Iterator[int]:
        """Time steps of each pass, in the order of a kernel's: the rest first."""
        whole, rest = divmod(count, self.schedule.steps)
        yield from ([rest] if rest else [])
        yield from (self.schedule.steps for _ in range(whole))

    def _pass(
        self, held: Mapping[int, Held], steps: int, ready: Mapping[int, list[Any]], *, last: bool
    ) -> dict[int, list[Any]]:
        """One pass on each piece, and the exchange of what it makes unless it is the last one.

        ``ready``: for each piece the ends of earlier work that it waits for; back come those of this pass.
        """
        made = {i: one.next(steps) for i, one in held.items()}
        ends: dict[int, list[Any]] = {i: [] for i in held}
        done = list[Any]()
        for (i, one), lane, turn in zip(held.items(), self._lanes, self._turns, strict=True):
            done.append(lane.do(partial(one.run, steps), ready[i]))
            if not last:
                told = one.early(steps)
                end = self._road.do(partial(_swap, turn, made, told), () if told else done)
                for involved in turn.pieces:
                    ends[involved].append(end)
        here = self._lanes[-1].do(partial(self._copy, {} if last else made), done)
        return {i: [*found, here] for i, found in ends.items()}

    def _copy(self, made: Mapping[int, list[Any]]) -> None:
        """From piece to piece of this rank."""
        for turn in self._turns if made else ():
            turn.copy(made)


def _swap(turn: Turn, made: Mapping[int, list[Any]], told: Told | None) -> None:
    """From rank to rank, as soon as the ends of a pass are done if somebody tells."""
    if told:
        told.wait()
    turn.swap(made)


def _slices(box: Any) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)

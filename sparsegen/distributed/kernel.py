"""``sg.distribute``: a kernel over the ranks of a mesh, each with a block of the domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from sparsegen._version import __version__
from sparsegen.arguments import positive
from sparsegen.calls import calls_of
from sparsegen.calls.grid import GridCalls
from sparsegen.callsite import located, user_loc
from sparsegen.distributed.exchange import Lane, Turn, raw
from sparsegen.distributed.group import Ranks
from sparsegen.distributed.local import Held, LocalKernel
from sparsegen.distributed.model import Exchange, planned, predicted
from sparsegen.distributed.partition import shape
from sparsegen.ir.errors import ArrayError, DeviceError, ProductError
from sparsegen.kernel import Kernel
from sparsegen.memo import Memo
from sparsegen.problem import digest
from sparsegen.run.host import HostArray


def distribute(k: Kernel, mesh: Any, *, overlap: bool | None = None) -> DistributedKernel:
    """The kernel ``k`` of a stencil or an update over the ranks of ``mesh``, the domain split along its first axes.

    ``mesh``: a torch DeviceMesh of one or two axes, or a tuple such as ``(2,)`` or ``(2, 2)`` with the default group of
    processes (NCCL for kernels on ``cuda``, gloo for others).  Every rank calls this, with an equal kernel.
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
        return DistributedKernel(k, Ranks.of(mesh, k.backend), overlap)


class DistributedKernel:
    """What :func:`sparsegen.distribute` gives back.

    ``block``: the cells of this rank, a slice of each axis of the domain; ``block_shape``: how many.  ``partition``
    says the same of all ranks.  ``schedule``: that of the passes on a block; ``halo``: cells on each axis that one
    reaches.
    """

    def __init__(self, k: Kernel, ranks: Ranks, overlap: bool | None = None) -> None:
        self.kernel, self._ranks = k, ranks
        ranks.agree(self._facts(overlap))
        self.schedule, self.partition = planned(k, ranks.mesh, overlap)
        self._pieces = {i: self.partition.pieces[i] for i in self.partition.of(ranks.me)}
        self._kernels = Memo(partial(LocalKernel, k, schedule=self.schedule))
        messages = self.partition.messages(ranks.me)
        self._turns = [
            Turn(ranks, self.partition, [m for m in messages if m.turn == turn]) for turn in range(self.partition.turns)
        ]
        self._lane = Lane(ranks.device)
        made = calls_of(k.problem.at(self.block_shape), k.backend)
        assert isinstance(made, GridCalls)
        self._calls = made

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
    def overlapped(self) -> bool:
        """Whether halos travel while the other half of a block is worked out."""
        return self.partition.turns == 2

    def explain(self) -> Exchange:
        """What a pass is predicted to take and to send: printed it is a page, its fields are the figures."""
        return predicted(self.kernel.problem, self.kernel.device, self.partition, self.schedule)

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
            torch, mine = import_module("torch"), self._ranks.me
            made = torch.empty(self.block_shape, dtype=self._dtype, device=self._ranks.device)
            if mine == root:
                whole = torch.as_tensor(field).to(self._ranks.device)
                if tuple(whole.shape) != self.kernel.shape or whole.dtype != self._dtype:
                    raise ArrayError(
                        f"a field of {tuple(whole.shape)} {whole.dtype} to scatter over {self.kernel.shape}",
                        hint=f"pass the whole field, of {self._dtype}",
                    )
                each = self.partition.blocks
                parts = [(whole[_slices(box)].contiguous(), rank) for rank, box in enumerate(each)]
                made.copy_(parts[root][0])
                sends = [(raw(a), rank) for a, rank in parts if rank != root]
                self._ranks.exchange(sends, [], "scatter")()
            else:
                self._ranks.exchange([], [(raw(made), root)], "scatter")()
            return made

    def gather(self, local: Any, root: int = 0) -> Any:
        """The field of the whole domain on rank ``root`` of the mesh, of the blocks of all ranks; None elsewhere.  A
        collective call."""
        with located(user_loc()):
            torch = import_module("torch")
            next(iter(self._calls.inputs.values()))(local)
            block = torch.as_tensor(local).to(self._ranks.device).contiguous()
            if self._ranks.me != root:
                self._ranks.exchange([(raw(block), root)], [], "gather")()
                return None
            whole = torch.empty(self.kernel.shape, dtype=self._dtype, device=self._ranks.device)
            each = list(enumerate(self.partition.blocks))
            made = {rank: block if rank == root else block.new_empty(shape(box)) for rank, box in each}
            others = [(raw(a), rank) for rank, a in made.items() if rank != root]
            self._ranks.exchange([], others, "gather")()
            for rank, box in each:
                whole[_slices(box)].copy_(made[rank])
            return whole

    @property
    def _dtype(self) -> Any:
        return getattr(import_module("torch"), self.kernel.dtype.name)

    # -------------------------------------------------------------------------------------------- running it
    def __call__(self, /, *args: Any, out: Any = None, steps: int | None = None, **named: Any) -> Any:
        """This rank's blocks after ``steps`` time steps (default: the compiled number), from its blocks before them.

        Arguments and results are those of the kernel, as tensors of ``block_shape`` on this rank's device.  All ranks
        call it with the same ``steps``, and the same numbers for scalars.  The result has the numbers of the kernel on
        one GPU, bit for bit, but for schedules whose mma adds in an order that depends on where a cell lies (see
        docs/distributed.md).
        """
        with located(user_loc()):
            calls = self._calls
            values, _ = calls.values(args, named, {"out": out, "steps": steps})
            inputs = calls.views(values)
            made = calls.new(inputs) if out is None else out
            results = {name: calls.arguments[name](a) for name, a in calls.results(made).items()}
            calls.apart(inputs, results)
            count = self.kernel.steps if steps is None else positive(steps, "steps")
            torch = import_module("torch")
            given = {name: torch.as_tensor(view.owner) for name, view in inputs.items()}
            new = {name: torch.as_tensor(view.owner) for name, view in results.items()}
            self._run(given, new, count, calls.scalars(values, count))
            return calls.back(made)

    def _run(self, given: Mapping[str, Any], new: Mapping[str, Any], count: int, scalars: HostArray | None) -> None:
        """All passes from the arrays that a call is given to those that it gives back."""
        block, device = self.partition.blocks[self._ranks.me], self._ranks.device
        held = {
            i: Held(self._kernels.get(shape(piece.frame)), piece, block, given, device, scalars)
            for i, piece in self._pieces.items()
        }
        before = {i: one.every() for i, one in held.items()}
        for turn in self._turns:
            turn.swap(before)
            turn.copy(before)
        passes, ready = list(self._passes(count)), dict[int, list[Any]]()
        for at, steps in enumerate(passes):
            ready = self._pass(held, steps, ready, last=at == len(passes) - 1)
        for one in held.values():
            one.store(new, block)

    def _passes(self, count: int) -> Iterator[int]:
        """Time steps of each pass, in the order of a kernel's: the rest first."""
        whole, rest = divmod(count, self.schedule.steps)
        yield from ([rest] if rest else [])
        yield from (self.schedule.steps for _ in range(whole))

    def _pass(
        self, held: Mapping[int, Held], steps: int, ready: Mapping[int, list[Any]], *, last: bool
    ) -> dict[int, list[Any]]:
        """One pass on each piece, and the exchange of what it makes unless it is the last one.

        ``ready``: for each piece the ends of earlier exchanges that it waits for; back come those of this pass.
        """
        made = {i: one.next(steps) for i, one in held.items()}
        ends: dict[int, list[Any]] = {i: [] for i in held}
        for (i, one), turn in zip(held.items(), self._turns, strict=True):
            for end in ready.get(i, ()):
                self._lane.wait(end)
            one.run(steps)
            if not last:
                end = self._lane.do(partial(turn.swap, made))
                for involved in turn.pieces:
                    ends[involved].append(end)
        for turn in self._turns[: 0 if last else None]:
            turn.copy(made)
        return ends


def _slices(box: Any) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)

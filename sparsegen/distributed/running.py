"""``d.run``: long runs over the ranks of a mesh, with the frames and the checkpoints of a run on one GPU.

A frame has a rank's own blocks: a field of the whole domain may be larger than any memory.  A checkpoint is one file,
which the first rank writes, in the form of :mod:`sparsegen.checkpoint`: it does not say on how many ranks it was made,
and ``k.run`` and ``d.run`` on any mesh go on from it.  The first rank's host has room for the fields of the domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sparsegen.callsite import located, user_loc
from sparsegen.checkpoint import State
from sparsegen.run.host import HostArray
from sparsegen.run.slow import say_if_long
from sparsegen.running import Frames, Run

if TYPE_CHECKING:
    from sparsegen.distributed.kernel import DistributedKernel


def run(
    self: DistributedKernel,
    /,
    *args: Any,
    steps: int | None = None,
    every: int | None = None,
    initial: bool = False,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    **named: Any,
) -> Frames:
    """Frames of ``steps`` time steps as :meth:`Kernel.run` has them, of this rank's blocks: ``d.gather(frame["u"])``
    puts a field together.

    All ranks call it with the same options, and go through the frames together.  The numbers of a frame are those of
    ``k.run``, bit for bit, on any mesh.

    ``checkpoint``: a file that the first rank of the mesh writes, and reads with ``resume``; no other one needs to see
    it.  It is that of ``k.run``: a run goes on from it, bit for bit, on another mesh, or by ``k.run`` on one GPU.  The
    bar is the first rank's.

    RunError on all ranks where the first one has it; DeviceError where ranks differ in options, or one is gone.
    """
    with located(user_loc()):
        told = {"steps": steps, "every": every, "initial": initial, "checkpoint_every": checkpoint_every,
                "resume": resume, "checkpoint": checkpoint is not None}  # fmt: skip
        self._ranks.agree({name: str(value) for name, value in told.items()}, "the start of a run")
        made = SplitRun.begun(
            self, args, named, steps=steps, every=every, checkpoint=checkpoint, checkpoint_every=checkpoint_every,
            resume=resume,
        )  # fmt: skip
        return made.frames(initial, progress and not self._ranks.me)


class SplitRun(Run):
    """A run of which each rank has its blocks.  All of them make the same calls, so a bar moves between no others."""

    between = False

    def __init__(
        self, split: DistributedKernel, args: Sequence[Any], named: Mapping[str, Any], steps: int, every: int
    ) -> None:
        super().__init__(split.kernel, args, named, steps, every, split._calls)
        self.split, self._ranks = split, split._ranks
        self.said = self._ranks.me > 0  # the first rank says what there is to say

    def _call(self, arguments: Mapping[str, Any], steps: int) -> Any:
        return self.split(**arguments, steps=steps)

    def _expect(self) -> None:
        if self.steps > self.at and not self.said and self.kernel.backend == "cuda":
            told, left = self.split.explain(), self.steps - self.at
            self.said = say_if_long(told.time / told.steps * left, "GPUs", self._work(left))

    def _wait(self, fields: Any) -> None:
        if self._ranks.device.type == "cuda":
            import_module("torch.cuda").current_stream(self._ranks.device).synchronize()

    # -------------------------------------------------------------------------------------------- checkpoints
    def keep(self, path: Any, every: int, resume: bool) -> None:
        """Keep the state of all ranks in a file of the first one; go on from what it holds."""
        self.kept_every, self.keeps = every, True
        ranks, found = self._ranks, list[State]()
        given = self._whole(self.given)

        def opened() -> tuple[int, int] | None:
            state = self._opened(path, given, resume)
            found.extend([state] if state else [])
            return (state.step, state.at) if state else None

        reached = ranks.first(opened, "the reading of a checkpoint")
        if reached is None:
            return
        self.fields, _ = self.calls.parted(self.calls.new(self.inputs))
        for name, a in self._arrays().items():
            whole = found[0].arrays[name] if found else None
            self.split._tensor(a).copy_(self.split.scatter(whole))
        self.at, self.base = reached
        self.start = self.base

    def _save(self) -> None:
        state = State(self.at, self.base, self._whole(self._arrays()))
        self._ranks.first(lambda: self._written(state), "the writing of a checkpoint")

    def _written(self, state: State) -> None:
        assert self.file is not None
        self.file.save(state)

    def _whole(self, arrays: Mapping[str, Any]) -> dict[str, HostArray]:
        """The arrays of the whole domain on the host of the first rank; elsewhere there are none."""
        found = {name: self.split._on_host(a) for name, a in arrays.items()}
        return {} if self._ranks.me else cast("dict[str, HostArray]", found)

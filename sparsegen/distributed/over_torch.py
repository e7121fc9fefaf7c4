"""Ranks that are processes of ``torch.distributed``: NCCL between GPUs, gloo between processes on CPUs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from typing import Any

from sparsegen.distributed import group
from sparsegen.distributed.group import Ranks, sizes_of
from sparsegen.distributed.over_nvlink import Written, address, reached
from sparsegen.distributed.partition import Partition
from sparsegen.distributed.post import Post
from sparsegen.ir.errors import ArrayError, DeviceError


def torch_distributed() -> Any:
    """``torch.distributed``; DeviceError without torch, or without a group of processes."""
    try:
        dist = import_module("torch.distributed")
    except ImportError:
        raise DeviceError(
            "sg.distribute sends halos through torch.distributed, and torch is not installed",
            hint="pip install 'sparsegen[torch]'",
        ) from None
    if not dist.is_available() or not dist.is_initialized():
        raise DeviceError(
            "there is no group of processes to distribute over",
            hint="start the script with torchrun --nproc-per-node 2, and call "
            "torch.distributed.init_process_group('nccl') first ('gloo' on CPUs)",
        )
    return dist


@dataclass(frozen=True)
class TorchRanks(Ranks):
    """``world``: the numbers of the mesh's ranks in the default group; ``group``: the group that they talk in;
    ``near``: whether all are GPUs that reach each other's memory."""

    dist: Any
    mesh: tuple[int, ...]
    world: tuple[int, ...]
    me: int
    device: Any
    group: Any = None
    near: bool = False

    @staticmethod
    def of(mesh: Any, backend: str) -> TorchRanks:
        """Those of a DeviceMesh, or of a tuple of sizes with the default group; a collective call.

        ArrayError for what is no mesh, DeviceError where the group cannot send what the backend has.
        """
        dist = torch_distributed()
        torch = import_module("torch")
        if hasattr(mesh, "mesh") and hasattr(mesh, "device_type"):
            sizes, world = tuple(mesh.mesh.shape), tuple(mesh.mesh.flatten().tolist())
        else:
            sizes = sizes_of(mesh)
            world = tuple(range(math.prod(sizes)))
            if len(world) != dist.get_world_size():
                raise ArrayError(
                    f"mesh={mesh!r} has {len(world)} ranks, and {dist.get_world_size()} processes run",
                    hint=f"start {len(world)} processes (torchrun --nproc-per-node), or pass a DeviceMesh of some",
                )
        if dist.get_rank() not in world:
            raise ArrayError(f"rank {dist.get_rank()} is not in the mesh", hint="call sg.distribute on its ranks only")
        kind = "cuda" if backend == "cuda" else "cpu"
        able = dist.get_backend_config()
        wanted = "nccl" if kind == "cuda" else "gloo"
        if f"{kind}:{wanted}" not in able:
            raise DeviceError(
                f"a kernel on the {backend} sends its halos through {wanted}, the processes were started with {able}",
                hint=f"init_process_group('{wanted}'), or compile with backend="
                + ("'reference'" if kind == "cuda" else "'cuda'"),
            )
        device = torch.device("cuda", torch.cuda.current_device()) if kind == "cuda" else torch.device("cpu")
        patience = timedelta(seconds=group.PATIENCE)
        how: dict[str, Any] = {}
        if kind == "cuda":  # its kernels must start while those of a pass fill the GPU
            options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
            options._timeout = patience
            how = {"backend": wanted, "pg_options": options}
        alone = TorchRanks(dist, sizes, world, world.index(dist.get_rank()), device)
        with alone.patient("the start"), _at_once():
            made = dist.new_group(list(world), timeout=patience, use_local_synchronization=True, **how)
        found = replace(alone, group=made)
        if kind == "cpu":
            return found
        near = reached(device, found.everyone(address(device), "the start"))
        return replace(found, near=all(found.everyone(near, "the start")))

    def everyone(self, value: Any, what: str) -> list[Any]:
        every: list[Any] = [None] * len(self.world)
        with self.patient(what), self._here():
            self.dist.all_gather_object(every, value, group=self.group)
        return every

    def exchange(
        self, sends: Sequence[tuple[Any, int]], receives: Sequence[tuple[Any, int]], what: str
    ) -> Callable[[], None]:
        dist = self.dist
        ops = [dist.P2POp(dist.isend, a, self.world[rank], self.group) for a, rank in sends]
        ops += [dist.P2POp(dist.irecv, a, self.world[rank], self.group) for a, rank in receives]
        with self.patient(what):
            works = dist.batch_isend_irecv(ops) if ops else []

        def wait() -> None:
            with self.patient(what):
                for work in works:
                    work.wait()

        return wait

    def post(self, partition: Partition, turn: int, arrays: int, item: int) -> Post:
        if not self.near:
            return super().post(partition, turn, arrays, item)
        numbers = [self.dist.get_group_rank(self.group, rank) for rank in self.world]
        with self.patient("the start of halos"):
            return Written(self.group, numbers, self.me, self.device, partition, turn, arrays, item)

    @contextmanager
    def _here(self) -> Iterator[None]:
        """This rank's GPU is the current one, in whatever thread."""
        with import_module("torch.cuda").device(self.device) if self.device.type == "cuda" else nullcontext():
            yield


@contextmanager
def _at_once() -> Iterator[None]:
    """A group of NCCL that is made here ends its process soon after it found a rank gone, unless the environment says
    how long to wait for reports about it: torch waits four times as long as this, a minute by default."""
    name = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"
    said = name in os.environ
    os.environ.setdefault(name, "500")
    try:
        yield
    finally:
        if not said:
            del os.environ[name]

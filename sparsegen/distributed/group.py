"""The ranks of a mesh: their order, the group that they talk in, and the check that all mean the same kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from sparsegen.ir.errors import ArrayError, DeviceError

#: Seconds that a rank waits for another one before it gives up.
PATIENCE: Final = 50.0


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
class Ranks:
    """The ranks of a mesh in its order.  ``world``: their numbers in the default group; ``me``: this rank's place."""

    dist: Any
    mesh: tuple[int, ...]
    world: tuple[int, ...]
    me: int
    group: Any
    #: Where arrays that are sent lie.
    device: Any

    @staticmethod
    def of(mesh: Any, backend: str) -> Ranks:
        """Those of a DeviceMesh, or of a tuple of sizes with the default group; a collective call.

        ArrayError for what is no mesh, DeviceError where the group cannot send what the backend has.
        """
        dist = torch_distributed()
        torch = import_module("torch")
        if hasattr(mesh, "mesh") and hasattr(mesh, "device_type"):
            sizes, world = tuple(mesh.mesh.shape), tuple(mesh.mesh.flatten().tolist())
        else:
            sizes = _sizes(mesh)
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
        patience = timedelta(seconds=PATIENCE)
        how: dict[str, Any] = {}
        if kind == "cuda":  # its kernels must start while those of a pass fill the GPU
            options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
            options._timeout = patience
            how = {"backend": wanted, "pg_options": options}
        group = dist.new_group(list(world), timeout=patience, use_local_synchronization=True, **how)
        return Ranks(dist, sizes, world, world.index(dist.get_rank()), group, device)

    @contextmanager
    def patient(self, what: str) -> Iterator[None]:
        """DeviceError where another rank is gone, or does not answer in time."""
        try:
            yield
        except RuntimeError as error:  # torch's DistBackendError among them
            raise DeviceError(
                f"rank {self.me} of mesh {'x'.join(map(str, self.mesh))} lost another one during {what}: "
                f"{str(error).strip().splitlines()[0]}",
                hint="look for the first error of the other ranks; start all of them again, from a checkpoint",
            ) from error

    def agree(self, facts: dict[str, str]) -> None:
        """DeviceError unless all ranks have the same facts; a collective call."""
        every: list[Any] = [None] * len(self.world)
        with self.patient("the comparison of kernels"):
            self.dist.all_gather_object(every, facts, group=self.group)
        for rank, others in enumerate(every):
            for name, value in facts.items():
                if others.get(name) != value:
                    raise DeviceError(
                        f"rank {rank} has another {name} than rank {self.me}: {others.get(name)}, not {value}",
                        hint=f"give all ranks the same {name}: run one script, with one sparsegen, on all of them",
                    )

    def exchange(
        self, sends: Sequence[tuple[Any, int]], receives: Sequence[tuple[Any, int]], what: str
    ) -> Callable[[], None]:
        """Start to send and to receive packed tensors of bytes, each with a rank of the mesh; call what comes back to
        wait (on a GPU: make the current stream wait)."""
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


def _sizes(mesh: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(int(n) for n in mesh)
    except (TypeError, ValueError):
        sizes = ()
    if not 1 <= len(sizes) <= 2 or min(sizes) < 1:
        raise ArrayError(
            f"mesh={mesh!r} is no mesh of ranks", hint="pass (2,) or (2, 2), or a DeviceMesh of so many axes"
        )
    return sizes

"""Ranks that talk through MPI, by mpi4py: where a cluster's network is best reached that way, or jobs start so.

MPI knows no streams: an exchange waits for what was enqueued before it, and nothing runs beside it.  Tensors are handed
to MPI as they are, those on a GPU only where MPI was told that it may be given such (``AWARE``); else they go by way of
the host.  Waiting is asking again and again, so that a rank that stands still is noticed: MPI itself would never stop.
"""

from __future__ import annotations

import math
import os
import pickle
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from sparsegen.distributed import group
from sparsegen.distributed.group import Ranks
from sparsegen.ir.errors import ArrayError, DeviceError

#: Variables by which MPICH (Cray's, its own) and Open MPI are told that they are given addresses on a GPU.
AWARE: Final = ("MPICH_GPU_SUPPORT_ENABLED", "MPIR_CVAR_ENABLE_GPU", "OMPI_MCA_opal_cuda_support")
#: Seconds without a pause while one waits, and the pauses after them.
_BRISK, _PAUSE = 0.01, 2e-4


class MpiRanks(Ranks):
    """The ranks of a communicator, in a row or as a Cartesian one has them."""

    beside = False

    def __init__(self, comm: Any, backend: str) -> None:
        """A collective call.  DeviceError without torch; ArrayError for a Cartesian communicator of three axes."""
        try:
            torch = import_module("torch")
        except ImportError:
            raise DeviceError(
                "blocks of several ranks are torch's tensors, and torch is not installed",
                hint="pip install 'sparsegen[torch]'",
            ) from None
        self._mpi = import_module("mpi4py.MPI")
        cartesian = comm.Get_topology() == self._mpi.CART
        self.mesh = tuple(comm.Get_topo()[0]) if cartesian else (comm.Get_size(),)
        if not 1 <= len(self.mesh) <= 2:
            raise ArrayError(
                f"a communicator of {len(self.mesh)} axes is no mesh", hint="comm.Create_cart((2, 2)), or comm itself"
            )
        self.me, self._comm = comm.Get_rank(), comm.Dup()
        gpu = backend == "cuda"
        self.device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
        told = {os.environ.get(name, "").lower() for name in AWARE}
        self._staged = gpu and not told & {"1", "true", "yes", "on"}

    def everyone(self, value: Any, what: str) -> list[Any]:
        mine = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.empty(math.prod(self.mesh), np.int64)
        self._wait([self._comm.Iallgather(np.array([mine.size], np.int64), sizes)], what)
        all_of_it, ends = np.empty(int(sizes.sum()), np.uint8), np.cumsum(sizes)
        told = [all_of_it, (sizes.tolist(), (ends - sizes).tolist()), self._mpi.BYTE]
        self._wait([self._comm.Iallgatherv([mine, self._mpi.BYTE], told)], what)
        return [pickle.loads(part.tobytes()) for part in np.split(all_of_it, ends[:-1])]

    def exchange(
        self, sends: Sequence[tuple[Any, int]], receives: Sequence[tuple[Any, int]], what: str
    ) -> Callable[[], None]:
        if self.device.type == "cuda":
            import_module("torch.cuda").current_stream(self.device).synchronize()
        into = [(a.new_empty(a.shape, device="cpu") if self._staged else a, a, rank) for a, rank in receives]
        requests = [self._comm.Irecv([moved, self._mpi.BYTE], rank) for moved, _, rank in into]
        for a, rank in sends:
            requests.append(self._comm.Isend([a.cpu() if self._staged else a, self._mpi.BYTE], rank))

        def wait() -> None:
            self._wait(requests, what)
            for moved, a, _ in into:
                if moved is not a:
                    a.copy_(moved)

        return wait

    def _wait(self, requests: list[Any], what: str) -> None:
        """Until all is done; DeviceError where that takes longer than a rank is patient."""
        start = time.monotonic()
        with self.patient(what):
            while not self._mpi.Request.Testall(requests):
                waited = time.monotonic() - start
                if waited > group.PATIENCE:
                    raise RuntimeError(f"nothing came within {group.PATIENCE:g} s")
                if waited > _BRISK:
                    time.sleep(_PAUSE)

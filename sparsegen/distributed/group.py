"""The ranks of a mesh: their order, what they say to each other, and the check that all mean the same kernel.

What carries it is one small interface, ``Ranks``: torch's groups (:mod:`sparsegen.distributed.over_torch`) or MPI
(:mod:`sparsegen.distributed.over_mpi`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any, Final, TypeVar, cast

from sparsegen.distributed.partition import Partition
from sparsegen.distributed.post import Post, Sent
from sparsegen.ir.errors import ArrayError, DeviceError, SparsegenError

#: Seconds that a rank waits for another one before it gives up.  NCCL's watchdog may take 15 more to end a process.
PATIENCE: Final = 40.0
#: Seconds after which a rank that others wait for says that it is still there.
BEAT: Final = 10.0
T = TypeVar("T")


class Ranks(ABC):
    """The ranks of a mesh in its order.

    ``mesh``: their numbers on its axes; ``me``: this rank's place; ``device``: where arrays that are sent lie, torch's.
    """

    mesh: tuple[int, ...]
    me: int
    device: Any
    #: Whether an exchange goes on beside kernels on a GPU.
    beside = True

    @abstractmethod
    def everyone(self, value: Any, what: str) -> list[Any]:
        """The value that each rank gives, in their order; a collective call.  DeviceError where one is gone."""

    @abstractmethod
    def exchange(
        self, sends: Sequence[tuple[Any, int]], receives: Sequence[tuple[Any, int]], what: str
    ) -> Callable[[], None]:
        """Start to send and to receive packed tensors of bytes, each with a rank of the mesh; call what comes back to
        wait (on a GPU: make the current stream wait).  DeviceError where a rank is gone."""

    def post(self, partition: Partition, turn: int, arrays: int, item: int) -> Post:
        """What carries the halos of one turn of a partition, of at most so many arrays of ``item`` bytes a cell; a
        collective call."""
        return Sent(self.exchange, self.me, self.device, partition, turn, arrays, item)

    def agree(self, facts: dict[str, str], what: str = "the comparison of kernels") -> None:
        """DeviceError unless all ranks have the same facts; a collective call."""
        for rank, others in enumerate(self.everyone(facts, what)):
            for name, value in facts.items():
                if others.get(name) != value:
                    raise DeviceError(
                        f"rank {rank} has another {name} than rank {self.me}: {others.get(name)}, not {value}",
                        hint=f"give all ranks the same {name}: run one script, with one sparsegen, on all of them",
                    )

    def first(self, work: Callable[[], T], what: str) -> T:
        """What the first rank does while the others wait, however long it takes: its result, or its error, on all.

        A collective call.  ``work`` sends nothing, and its result is small.
        """
        if self.me:
            while (said := self.everyone(None, what)[0]) is None:
                pass
        else:
            said = self._beating(work, what)
            self.everyone(said, what)
        found, error = said
        if error is not None:
            raise error
        return cast("T", found)

    def _beating(self, work: Callable[[], T], what: str) -> tuple[T | None, SparsegenError | None]:
        """The result of work or its error, while a thread tells the others that this rank is there."""
        done = Event()

        def beat() -> None:
            while not done.wait(BEAT):
                self.everyone(None, what)

        with ThreadPoolExecutor(1) as pool:
            beating = pool.submit(beat)
            try:
                return work(), None
            except SparsegenError as error:
                return None, error
            except Exception as error:
                told = DeviceError(f"rank 0 failed in {what}: {error!r}", hint="see what rank 0 says")
                told.__cause__ = error
                return None, told
            finally:
                done.set()
                beating.result()

    @contextmanager
    def patient(self, what: str) -> Iterator[None]:
        """DeviceError where another rank is gone, or does not answer in time."""
        try:
            yield
        except RuntimeError as error:  # torch's DistBackendError among them, and MPI's Exception
            raise DeviceError(
                f"rank {self.me} of mesh {'x'.join(map(str, self.mesh))} lost another one during {what}: "
                f"{str(error).strip().splitlines()[0]}",
                hint="look for the first error of the other ranks; start all of them again, from a checkpoint",
            ) from error


def sizes_of(mesh: Any) -> tuple[int, ...]:
    """The numbers of ranks on the axes of a mesh that is given as a tuple; ArrayError for what is none."""
    try:
        sizes = tuple(int(n) for n in mesh)
    except (TypeError, ValueError):
        sizes = ()
    if not 1 <= len(sizes) <= 2 or min(sizes) < 1:
        raise ArrayError(
            f"mesh={mesh!r} is no mesh of ranks", hint="pass (2,) or (2, 2), or a DeviceMesh of so many axes"
        )
    return sizes

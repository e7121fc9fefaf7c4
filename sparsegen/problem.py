"""What is to be computed, with its sizes: all that schedules, costs, programs and calls depend on."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from sparsegen.batch import Batch
from sparsegen.choose import Options, Request
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.errors import Loc, ProductError, ScheduleError
from sparsegen.ir.module import Module
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.types import DTYPES, DType
from sparsegen.schedule import Schedule


def digest(data: bytes) -> str:
    """A short name for bytes: equal ones have the same."""
    return hashlib.sha256(data).hexdigest()


def of_batch(batch: Batch | None) -> dict[str, Any]:
    """What a batch adds to the identity of a problem."""
    return {"batch": batch.items, "shared": sorted(batch.shared)} if batch else {}


class Problem(ABC):
    """A described computation on arrays of known sizes.  Immutable; equal problems compute the same thing.

    Families of schedules are registered for an ``op`` and a ``format``.
    """

    #: The operation: ``stencil``, ``update``, ``spmm``, ``sddmm`` or ``attention``.
    op: ClassVar[str]

    #: What the user described: a Stencil, an Update, a Product or a Sampled product.
    what: Any
    #: The sizes: cells of each axis of a grid (of each item of a batch), or M, K and n of a product.
    shape: tuple[int, ...]
    #: The items that a call works on at once; None where arrays have no axis for them.
    batch: Batch | None = None

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The cells of each axis of a grid of time steps; None for what has none."""
        return None

    @property
    def items(self) -> int:
        """How many grids a call works on."""
        return self.batch.items if self.batch else 1

    @property
    def stacked(self) -> tuple[int, ...]:
        """The shape of an array of a call: of a batch with the items first."""
        return (self.batch.items, *self.shape) if self.batch else self.shape

    @property
    def shared(self) -> tuple[str, ...]:
        """Roles of arrays that all items of a batch read."""
        return ()

    def of_batch(self, batch: Batch) -> Problem:
        """The same for each item of a batch; ProductError for what has no grid."""
        raise ProductError(
            f"batch={batch.items} means nothing to {self.name}",
            hint="give a product more columns, n=...; attention has a batch= of its own",
        )

    @property
    def takes(self) -> tuple[str, ...]:
        """The operations whose schedules it takes, its own first."""
        return (self.op,)

    @property
    def described(self) -> Any:
        """What the user described: ``what``, where that was not made of it."""
        return self.what

    @property
    def format(self) -> str:
        """The format of the sparse matrix; empty where there is none."""
        return ""

    @property
    def name(self) -> str:
        """What its kernels are called."""
        return str(self.what.name)

    @property
    def loc(self) -> Loc | None:
        """The user's line that described it."""
        return getattr(self.what, "loc", None)

    @property
    def dtype(self) -> str:
        """The element type of the arrays of a call, such as ``f64``."""
        return str(self.what.dtype)

    @property
    def kind(self) -> DType:
        """The type of the elements of the arrays of a call."""
        return DTYPES[self.dtype]

    def nbytes(self, schedule: Any) -> int:
        """Bytes of a product's arrays under a schedule, once each; 0 for what has a grid."""
        return 0

    @abstractmethod
    def describe(self, variant: Hashable = None) -> Module:
        """The op level, for arrays of one variant: what of their layouts the code depends on (None: packed by rows)."""

    @abstractmethod
    def passes(self, schedule: Any, device: DeviceProfile, steps: int) -> Sequence[Pass]:
        """The passes from the op level to the tile level, for ``steps`` time steps at once; ScheduleError if the
        schedule cannot do them."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What it computes, as JSON has it, ``what`` and ``of`` for people: no names that change nothing."""

    def seconds(self, cost: Cost, steps: int) -> float:
        """The predicted time of a call of ``steps`` time steps with a schedule's cost."""
        return cost.time * steps

    @abstractmethod
    def options(self, wanted: Schedule | None, device: DeviceProfile, request: Request) -> Options:
        """All schedules (with the words that ``wanted`` has), their costs, and what is refused."""

    def at(self, shape: tuple[int, ...]) -> Problem:
        """The same on fields of another shape; itself where there is no grid."""
        return self

    def under(self, schedule: Any) -> Problem:
        """The problem as a schedule has it, where that is another one: a matrix in the format that it reads."""
        return self

    @abstractmethod
    def price(self, schedule: Any, device: DeviceProfile, request: Request) -> Cost:
        """The cost of a complete schedule; ScheduleError if it cannot do what is asked for on the device."""

    def none(self, device: DeviceProfile, options: Options, wanted: Schedule | None) -> ScheduleError:
        """The error where no schedule (with the words that ``wanted`` has) can do what is asked for."""
        why = options.rejected[0]
        what = f"no {wanted} schedule" if wanted else "no schedule"
        return ScheduleError(f"{what} can run {self.name} on {device.name}: {why.reason}", hint=why.remedy)

    def __str__(self) -> str:
        items = f"{self.batch}, each of " if self.batch else ""
        return f"{self.what} on {items}{'x'.join(map(str, self.shape))}"

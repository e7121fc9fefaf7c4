"""The elements of a product of two dense matrices that a pattern keeps."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, cast

from sparsegen.choose import Options, Request
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.spmm import ProductFamily
from sparsegen.formats.format import held
from sparsegen.ir.module import Module
from sparsegen.ir.op_sddmm import ALIGNED, Sddmm
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import DType, s4, s8
from sparsegen.problems.matrices import Merged, OfMatrices
from sparsegen.products.sddmm import Sampled, SddmmNumbers
from sparsegen.registry import families
from sparsegen.schedule import Schedule


class Variant(NamedTuple):
    """What of the arrays of a call the code depends on: the type of the elements as they lie (integers of 4 bits may
    lie in bytes), the orders of a and b, and the bytes of which their addresses and rows are multiples."""

    dtype: str
    a: str
    b: str
    a_vec: int
    b_vec: int


def aligned(nbytes: int, at: int = 0) -> int:
    """The most bytes that divide runs of so many and an address."""
    return next(n for n in ALIGNED[::-1] if nbytes % n == 0 and at % n == 0)


@dataclass(frozen=True)
class SddmmProblem(OfMatrices):
    """``C = a @ b`` where a pattern keeps it; ``shape`` is M, k and N."""

    op: ClassVar[str] = "sddmm"
    what: Sampled

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        m, n = self.what.pattern.shape
        return m, self.what.k, n

    @property
    def format(self) -> str:
        return self.what.result.name

    @property
    def kind(self) -> DType:
        return held(self.what.kind)

    @property
    def facts(self) -> SddmmNumbers:
        """The numbers that schedules and costs depend on."""
        return SddmmNumbers.of(self.what)

    @property
    def packed(self) -> Variant:
        """The variant of aligned arrays, a by rows and b by columns, 4-bit integers two to a byte."""
        run = aligned(self.what.k * self.what.kind.bits // 8)
        return Variant(str(self.what.kind), "row", "column", run, run)

    def describe(self, variant: Hashable = None) -> Module:
        p, v = self.facts, variant if isinstance(variant, Variant) else self.packed
        wide = self.what.kind is s4 and v.dtype != str(s4)
        op = Sddmm(
            symbol=symbol(self.name), m=p.m, n=p.n, k=p.k, dtype=s8 if wide else self.what.kind, height=p.height,
            vectors=p.vectors, stored=p.stored, stride=p.stride, a_order=v.a, b_order=v.b, a_vec=v.a_vec,
            b_vec=v.b_vec,
        )  # fmt: skip
        return Module(self.name, (op,))

    def nbytes(self, schedule: Any) -> int:
        """a, b and the result."""
        p = self.facts
        return (p.m + p.n) * p.k * self.what.kind.bits // 8 + p.nbytes

    def identity(self) -> dict[str, Any]:
        """Its numbers."""
        return {"what": "sampled product", **asdict(self.facts)}

    def options(self, wanted: Schedule | None, device: DeviceProfile, request: Request) -> Options:
        """The schedules of all families, or of that of ``wanted``."""
        every = [cast("ProductFamily", f) for f in families("sddmm").values()]
        found = [f for f in every if wanted is None or f.name == wanted.family]
        return Merged(tuple(f.options(self, wanted, device) for f in found))

"""Sparse attention: which keys a query sees is known beforehand."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from sparsegen.choose import Options, Request
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.attention import AttentionFamily
from sparsegen.ir.module import Module
from sparsegen.ir.op_attention import Attention as AttentionOp
from sparsegen.ir.symbols import symbol
from sparsegen.problem import digest
from sparsegen.problems.matrices import Merged, OfMatrices
from sparsegen.products.attention import Attention, AttentionNumbers
from sparsegen.registry import families
from sparsegen.schedule import Schedule


@dataclass(frozen=True)
class AttentionProblem(OfMatrices):
    """``softmax(q k^T / sqrt(d) where the pattern is) v``; ``shape``: heads of all batches, queries, keys, d."""

    op: ClassVar[str] = "attention"
    what: Attention

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.what.heads * self.what.batch, *self.what.pattern.shape, self.what.d)

    @property
    def facts(self) -> AttentionNumbers:
        """The numbers that schedules and costs depend on."""
        return AttentionNumbers.of(self.what)

    def describe(self, variant: Hashable = None) -> Module:
        w, p = self.what, self.facts
        op = AttentionOp(
            symbol(self.name), p.heads, p.m, p.n, p.d, p.height, w.quantized, w.bits, w.softmax_bits
        )  # fmt: skip
        return Module(self.name, (op,))

    def identity(self) -> dict[str, Any]:
        """Its sizes and bits, and which keys are seen."""
        p, host = self.facts, self.what.pattern.to_host()
        seen = digest(b"".join(host.arrays[name].tobytes() for name in ("ptr", "idx")))
        return {
            "what": "attention", "of": f"{self.what.bits}-bit", "shape": self.shape, "height": p.height,
            "pattern": seen, "bits": p.bits, "softmax_bits": p.softmax_bits, "quantized": p.quantized,
        }  # fmt: skip

    def nbytes(self, schedule: Schedule) -> int:
        return self.facts.nbytes

    def options(self, wanted: Schedule | None, device: DeviceProfile, request: Request) -> Options:
        every = [cast("AttentionFamily", f) for f in families(self.op).values()]
        tried = [f for f in every if wanted is None or f.name == wanted.family]
        return Merged(tuple(f.options(self, wanted, device) for f in tried))

"""What a family of schedules of sparse attention is."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from sparsegen.families.spmm.listed import ListedFamily
from sparsegen.products.attention import AttentionNumbers
from sparsegen.products.weights import Prepared
from sparsegen.schedule import Schedule


class AttentionFamily(ListedFamily):
    """A family of schedules of sparse attention."""

    op = "attention"
    nonfinite: ClassVar[str] = (
        "a NaN or Inf of q, k or v is refused on the host, and makes all of its head's result NaN"
    )
    counted: ClassVar[str] = "four for each kept score and element of a head"
    because: ClassVar[str] = "what the pattern leaves out is not multiplied"
    scratch: ClassVar[str] = "results of parts of the keys, with their sums"

    @abstractmethod
    def lists(self, facts: AttentionNumbers, schedule: Schedule) -> dict[str, Prepared]:
        """What its kernels read of the pattern, by role: how each is made of it."""

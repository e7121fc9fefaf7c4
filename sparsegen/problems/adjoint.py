"""Time steps of an adjoint that is an update."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sparsegen.adjoint.transpose import Transposed
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import Update
from sparsegen.ir.formula import scalars
from sparsegen.problems.update import UpdateProblem


@dataclass(frozen=True)
class AdjointProblem(UpdateProblem):
    """``what`` is the step of ``made``; ``forward`` is what was transposed, whose parameters a call has."""

    backwards: ClassVar[bool] = True
    made: Transposed
    forward: Stencil | Update

    def at(self, shape: tuple[int, ...]) -> AdjointProblem:
        return replace(self, shape=shape)

    @property
    def remark(self) -> str:
        """What the transposed step reads and writes besides what the step does."""
        coefs = self.forward.coefs if isinstance(self.forward, Update) else ()
        read = len(self.what.coefs) - len(self.made.tables)
        told = [f"the transposed step of {self.forward.name}"]
        if self.made.tables:
            arrays = f"array{'s' * (len(self.made.tables) > 1)}"
            listed = ", ".join(table.about for table in self.made.tables)
            told.append(f"it reads {len(self.made.tables)} {arrays} more: {listed}")
        if any(level for _, level in self.made.levels):
            told.append("each level of a field is a field of its own, written at every pass")
        if scalars(self.what.code):
            told.append("its scalars are those of the steps from the last one to the first")
        if self.what.sites:
            told.append("its sources are at the receivers, and its receivers at the sources")
        if read < len(coefs):
            told.append("coefficients that add to a field alone have no part in it")
        return "; ".join(told)

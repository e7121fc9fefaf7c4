"""How kernels are called: a module for each operation, and what they have in common."""

from __future__ import annotations

from typing import Any, Final

from sparsegen.calls.adjoint import AdjointCalls, AdjointSiteCalls
from sparsegen.calls.attention import AttentionCalls
from sparsegen.calls.base import Calls
from sparsegen.calls.product import SpmmCalls
from sparsegen.calls.sddmm import SddmmCalls
from sparsegen.calls.sites import SiteCalls
from sparsegen.calls.stencil import StencilCalls
from sparsegen.calls.stencil_update import StencilUpdateCalls
from sparsegen.calls.update import UpdateCalls
from sparsegen.problem import Problem
from sparsegen.problems.adjoint import AdjointProblem
from sparsegen.problems.stencil_update import StencilUpdate
from sparsegen.problems.update import UpdateProblem

#: operation of a problem -> its calls: made of the problem and the back end.
_CALLS: Final[dict[str, Any]] = {
    "stencil": StencilCalls, "update": UpdateCalls, "spmm": SpmmCalls, "sddmm": SddmmCalls, "attention": AttentionCalls,
}  # fmt: skip


def calls_of(problem: Problem, backend: str) -> Calls:
    """The calls of a problem's kernels."""
    if isinstance(problem, StencilUpdate):
        return StencilUpdateCalls(problem, backend)
    if isinstance(problem, AdjointProblem):
        return (AdjointSiteCalls if problem.what.sites else AdjointCalls)(problem, backend)
    if isinstance(problem, UpdateProblem) and problem.what.sites:
        return SiteCalls(problem, backend)
    made: Calls = _CALLS[problem.op](problem, backend)
    return made


__all__ = ["Calls", "calls_of"]

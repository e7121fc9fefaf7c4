"""How kernels are called: a module for each operation, and what they have in common."""

from __future__ import annotations

from typing import Any, Final

from sparsegen.calls.attention import AttentionCalls
from sparsegen.calls.base import Calls
from sparsegen.calls.product import SpmmCalls
from sparsegen.calls.sddmm import SddmmCalls
from sparsegen.calls.stencil import StencilCalls
from sparsegen.calls.update import UpdateCalls

#: operation of a problem -> its calls: made of the problem and the back end.
CALLS: Final[dict[str, Any]] = {
    "stencil": StencilCalls, "update": UpdateCalls, "spmm": SpmmCalls, "sddmm": SddmmCalls, "attention": AttentionCalls,
}  # fmt: skip

__all__ = ["CALLS", "Calls"]

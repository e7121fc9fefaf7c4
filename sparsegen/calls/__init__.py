"""How kernels are called: a module for each operation, and what they have in common."""

from __future__ import annotations

from typing import Any, Final

from sparsegen.calls.base import Calls
from sparsegen.calls.product import SpmmCalls
from sparsegen.calls.stencil import StencilCalls
from sparsegen.calls.update import UpdateCalls

#: operation of a problem -> its calls: made of the problem and the back end.
CALLS: Final[dict[str, Any]] = {"stencil": StencilCalls, "update": UpdateCalls, "spmm": SpmmCalls}

__all__ = ["CALLS", "Calls"]

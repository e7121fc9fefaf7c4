"""The page of any kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparsegen.explain import stencil
from sparsegen.explain.explanation import Explanation
from sparsegen.products.explain import explain as of_product
from sparsegen.updates.explain import explain as of_update

_PAGES: Final[dict[str, Callable[..., Explanation]]] = {
    "stencil": stencil.explain,
    "update": of_update,
    "spmm": of_product,
}


def explain(kernel: Any, choice: Any, target: Any, plan: Any) -> Explanation:
    """What ``Kernel.explain`` gives back."""
    return _PAGES[kernel.problem.op](kernel, choice, target, plan)

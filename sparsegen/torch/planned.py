"""What modules with a plan have in common: it is made anew wherever they are copied to or loaded.

And how those say so that have no gradient, and how a graph is told apart from a call.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch

from sparsegen.callsite import user_loc
from sparsegen.ir.errors import ArrayError


class Planned(torch.nn.Module):
    """A module whose operator is given ``plan``, which stands for what is known as long as the module lives.

    A plan belongs to one process: copies and pickles leave it out, and make one anew.
    """

    plan: Any
    _plan: Any

    @abstractmethod
    def _planned(self) -> Any:
        """The plan, which has a ``handle``."""

    def _renew(self) -> None:
        """A plan for what is new, or elsewhere."""
        self._plan = self._planned()
        self.plan = self._plan.handle

    def __getstate__(self) -> dict[str, Any]:
        """Without the plan."""
        return {name: value for name, value in self.__dict__.items() if name not in ("plan", "_plan")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._renew()


def in_graph() -> bool:
    """Whether ``torch.compile`` traces, but not ``torch.export``, whose programs hold the weights themselves."""
    # what is behind torch.compiler.is_exporting, which torch 2.11 has as true in every graph; older ones have neither
    exporting = getattr(torch.compiler, "_is_exporting_flag", False)
    traced: bool = torch.compiler.is_dynamo_compiling() and not exporting
    return traced


def refuse_gradient(module: str, **tensors: Any) -> None:
    """ArrayError for a tensor that requires grad while torch records gradients: none would come back."""
    if torch.is_grad_enabled():
        for name, tensor in tensors.items():
            if getattr(tensor, "requires_grad", False):
                raise ArrayError(
                    f"{name} requires grad, and {module} has no gradient: it is for inference",
                    hint=f"call it under torch.no_grad(); or pass {name}.detach(), where none is wanted",
                    loc=None if torch.compiler.is_compiling() else user_loc(),  # which no graph holds
                )

"""What modules with a plan have in common: each has one of its own, wherever it is copied to or loaded."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch


class Planned(torch.nn.Module):
    """A module whose operator is given ``plan``, an integer that is known as long as the module lives.

    A plan belongs to one module and one process: copies and pickles leave it out, and make one anew.
    """

    plan: int
    _plan: Any

    @abstractmethod
    def _planned(self) -> Any:
        """A new plan, which has a ``number``."""

    def _renew(self) -> None:
        """A plan of its own for what is new, or elsewhere: graphs that know the old number are not reused."""
        self._plan = self._planned()
        self.plan = self._plan.number

    def __getstate__(self) -> dict[str, Any]:
        """Without the plan."""
        return {name: value for name, value in self.__dict__.items() if name not in ("plan", "_plan")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._renew()

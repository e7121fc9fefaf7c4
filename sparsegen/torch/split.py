"""Which part of a layer's weights is a rank's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Split:
    """How a layer is cut: along which ``axis`` of W [out_features, in_features], over how many ``ranks``, and whose
    part this one is."""

    axis: int
    ranks: int
    rank: int

    def own(self, features: Sequence[int]) -> Any:
        """The numbers of this rank's features, int64: of several layers one after another its part of each."""
        parts, first = [], 0
        for many in features:
            part = many // self.ranks
            parts.append(torch.arange(first + part * self.rank, first + part * (self.rank + 1)))
            first += many
        return torch.cat(parts)

    def of(self, w: Any, own: Any) -> Any:
        """The rows or columns ``own`` of a matrix, packed."""
        return (w[own] if self.axis == 0 else w[:, own]).contiguous()

    def bias(self, bias: Any, own: Any) -> Any:
        """What a rank adds: the numbers of its rows; of a layer that is cut by columns the first rank adds all."""
        if bias is None or (self.axis == 1 and self.rank):
            return None
        return bias if self.axis == 1 else torch.nn.Parameter(bias.detach()[own].clone(), bias.requires_grad)

    def __str__(self) -> str:
        return f"{('rows', 'columns')[self.axis]} of rank {self.rank} of {self.ranks}"

"""``FusedLinear``: linear layers of one input, as a query, key and value projection, in one launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from sparsegen.callsite import located, user_loc
from sparsegen.ir.errors import ProductError
from sparsegen.products.stack import together
from sparsegen.torch.linear import SparseLinear


class FusedLinear(torch.nn.Module):
    """Several :class:`SparseLinear` layers that are given the same x, as one layer ``whole`` of all their features.

    A call gives a tuple of what each would give, views of one tensor [..., features of all].  Layers of zeros make one
    for ``load_state_dict``; numbers of tokens are built ahead by ``whole.prepare``.
    """

    def __init__(self, layers: Sequence[SparseLinear]) -> None:
        """From layers of one format, dtype and device, whose weights and biases are copied; they share
        ``dense_above`` of the first.  ProductError for layers that do not go together."""
        super().__init__()
        with located(user_loc()):
            for layer in layers:
                if not isinstance(layer, SparseLinear):
                    raise ProductError(
                        f"{type(layer).__name__} is no SparseLinear",
                        hint="make it one: SparseLinear.from_linear(layer)",
                    )
                if layer.split is not None:
                    raise ProductError(
                        "a layer that is split over ranks cannot be fused", hint="leave it as it is: it is a part only"
                    )
            w, _ = together([layer._bound().matrix for layer in layers])
            first, *_ = layers
            pattern = None if first.format == "bitmap" else first.format
            self._features = tuple(layer.out_features for layer in layers)
            self.whole = SparseLinear(
                first.in_features, sum(self._features), False, first.values.device, first.dtype, first.dense_above,
                pattern=pattern, **first.options,
            )  # fmt: skip
            self.whole._install(w)
            if any(layer.bias is not None for layer in layers):
                self.whole.bias = torch.nn.Parameter(torch.cat([_bias(layer) for layer in layers]))
            self.train(first.training)

    @property
    def features(self) -> tuple[int, ...]:
        """Those of each layer that are made here: all, or this rank's rows."""
        split = self.whole.split
        ranks = 1 if split is None or split.axis else split.ranks
        return tuple(n // ranks for n in self._features)

    def forward(self, x: Any) -> tuple[Any, ...]:
        """x [..., in_features] -> a tensor [..., features] of each layer; ArrayError for what a layer does not take."""
        parts: tuple[Any, ...] = self.whole(x).split(self.features, -1)
        return parts

    def extra_repr(self) -> str:
        """What ``print(module)`` says."""
        return f"features={self.features}"


def outermost(model: Any) -> Iterator[tuple[str, Any]]:
    """The modules of a model by name, but for what is inside of a FusedLinear."""
    inside = ""
    for name, module in model.named_modules():
        if not inside or not name.startswith(inside):
            yield name, module
            inside = f"{name}." if isinstance(module, FusedLinear) else ""


def _bias(layer: SparseLinear) -> Any:
    """The bias of a layer, zeros where it has none."""
    zeros = layer.values.new_zeros(layer.out_features, dtype=layer.dtype)
    return zeros if layer.bias is None else layer.bias.detach()

"""What layers are given when a model runs on a user's data: the norms of their inputs, and a few of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from sparsegen.ir.errors import ArrayError

#: Rows of a layer's input that are kept, to compare outputs.
KEPT: Final = 16


class Seen:
    """What one layer was given: the sum of squares of each input [K] in f32, and the first rows [at most KEPT, K]."""

    squares: Any = None
    rows: Any = None

    def add(self, module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """A hook before the layer's forward."""
        x = args[0] if args else named["input"]
        flat = x.detach().reshape(-1, x.shape[-1])
        if not flat.shape[0]:
            return
        squares = flat.float().square().sum(0)
        self.squares = squares if self.squares is None else self.squares + squares
        if self.rows is None:
            self.rows = flat[:KEPT].clone()

    @property
    def norms(self) -> Any:
        """|x| of each input [K], over all that came; None if nothing did."""
        return None if self.squares is None else self.squares.sqrt()


def watch(model: Any, layers: Mapping[str, Any], loader: Iterable[Any]) -> dict[str, Seen]:
    """What each of the layers is given while the model runs on what the loader yields, without gradients.

    Each item is a tensor, a tuple or list of arguments, or a dict of named ones.  ArrayError if there is none, if the
    model reaches no layer, or if a layer is given what is not finite.
    """
    if isinstance(loader, (torch.Tensor, Mapping)) or not isinstance(loader, Iterable):
        raise ArrayError(
            f"calibration is a {type(loader).__qualname__}", hint="pass several inputs: a loader, or a list of tensors"
        )
    seen = {name: Seen() for name in layers}
    hooks = [layer.register_forward_pre_hook(seen[name].add, with_kwargs=True) for name, layer in layers.items()]
    count, training = 0, [module for module in model.modules() if module.training]
    try:
        model.eval()
        with torch.no_grad():
            for item in loader:
                count += 1
                if isinstance(item, Mapping):
                    model(**item)
                else:
                    model(*(item if isinstance(item, (tuple, list)) else (item,)))
    finally:
        for hook in hooks:
            hook.remove()
        for module in training:
            module.training = True
    if not count or (seen and all(each.squares is None for each in seen.values())):
        raise ArrayError(
            f"calibration yields {f'{count} inputs, none of which reaches a layer' if count else 'nothing'}",
            hint="pass inputs of the model; an iterator that was used up is empty: make it anew, or pass a list",
        )
    for name, each in seen.items():
        if each.squares is not None and not bool(each.squares.isfinite().all()):
            raise ArrayError(
                f"calibration gives {name} a NaN or an infinity",
                hint="leave such inputs out, or run the model in bfloat16 or float32",
            )
    return seen

"""Which weights stay: pruning by magnitude, on the device where the weights are."""

from __future__ import annotations

from typing import Any, Final

import torch

from sparsegen.ir.errors import ArrayError, ProductError
from sparsegen.ir.types import DType, bf16, f16

#: All bits of a 16-bit number but its sign: as an integer it orders f16 and bf16 by magnitude, NaN above all.
_MAGNITUDE: Final = 0x7FFF
DTYPES: Final[dict[Any, DType]] = {torch.float16: f16, torch.bfloat16: bf16}


def check_weight(weight: Any) -> None:
    """ArrayError for weights that are no dense matrix of f16 or bf16."""
    if not isinstance(weight, torch.Tensor):
        raise ArrayError(f"weight is a {type(weight).__qualname__}", hint="pass a torch tensor, such as linear.weight")
    if weight.dtype not in DTYPES:
        raise ArrayError(
            f"weight has dtype {weight.dtype}; sparse weights are float16 or bfloat16",
            hint="convert the layer first: linear.half() or linear.bfloat16(); nothing is cast",
        )
    if weight.layout != torch.strided or weight.ndim != 2 or weight.numel() == 0 or weight.device.type == "meta":
        raise ArrayError(
            f"weight is a {weight.layout} tensor of shape {tuple(weight.shape)} on {weight.device}",
            hint="pass a dense matrix [out_features, in_features] that holds numbers",
        )


def magnitude_mask(weight: Any, sparsity: float) -> Any:
    """A boolean tensor like ``weight`` [M, K], f16 or bf16: True for the elements of largest magnitude.

    Exactly ``M * K - round(sparsity * M * K)`` stay; of those that are equal to the threshold the first ones in row
    order.  One threshold for the whole matrix.  ArrayError for other weights, ProductError for a sparsity that is not
    from 0 to 1.
    """
    check_weight(weight)
    if isinstance(sparsity, bool) or not isinstance(sparsity, (int, float)) or not 0 <= sparsity <= 1:
        raise ProductError(
            f"sparsity={sparsity!r} is no share of the weights", hint="from 0 (all stay) to 1; 0.6 prunes 60 %"
        )
    magnitude = weight.detach().contiguous().view(torch.int16) & _MAGNITUDE
    stay = weight.numel() - round(sparsity * weight.numel())
    reach = torch.bincount(magnitude.reshape(-1), minlength=_MAGNITUDE + 1).flip(0).cumsum(0).flip(0)
    threshold = (reach >= stay).sum() - 1  # reach[t]: elements of magnitude t and more, so it falls with t
    mask = magnitude > threshold
    ties = (magnitude == threshold).reshape(-1).nonzero()[: stay - int(mask.sum()), 0]
    mask.view(-1)[ties] = True
    return mask

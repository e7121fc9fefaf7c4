"""Which weights of a layer stay, on the device where they are, and in which format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from sparsegen.formats.encode import found
from sparsegen.formats.matrix import NAMES
from sparsegen.ir.errors import ArrayError, ProductError
from sparsegen.ir.types import DType, bf16, f16, f32
from sparsegen.pruning import OPTIONS, prune
from sparsegen.schedule import nearest

#: All bits of a 16-bit number but its sign: as an integer it orders f16 and bf16 by magnitude, NaN above all.
_MAGNITUDE: Final = 0x7FFF
DTYPES: Final[dict[Any, DType]] = {torch.float16: f16, torch.bfloat16: bf16, torch.float32: f32}
#: torch's dtype -> the method that converts to it.
_METHODS: Final = {torch.float16: "half", torch.bfloat16: "bfloat16", torch.float32: "float"}
#: The pattern of a layer's weights -> their format; without one they may stay anywhere.
_FORMATS: Final = {None: "bitmap", "nm": "nm"}


def taken(format: str) -> tuple[Any, ...]:
    """torch's dtypes that weights in a format may have."""
    return tuple(dtype for dtype, kind in DTYPES.items() if NAMES[kind] in found(format).dtypes)


def conversions(format: str, name: str) -> str:
    """What converts a module of this name to one of them, in words."""
    return " or ".join(f"{name}.{_METHODS[dtype]}()" for dtype in taken(format))


def in_words(format: str) -> str:
    """What dtypes weights have, in words."""
    return "sparse weights are " + " or ".join(str(dtype).removeprefix("torch.") for dtype in taken(format))


def format_of(pattern: Any, **words: Any) -> tuple[str, dict[str, Any]]:
    """The format of a pattern and its options: those of the words that are not None.

    ProductError for an unknown pattern, and for words that it does not take.
    """
    if not isinstance(pattern, (str, type(None))) or pattern not in _FORMATS:
        raise ProductError(
            f"there is no pattern {pattern!r} of a layer's weights",
            hint=f'{nearest(str(pattern), [name for name in _FORMATS if name])}take pattern="nm" with n, m and vector; '
            "or none, with sparsity or mask, and weights may stay anywhere",
        )
    given = {name: word for name, word in words.items() if word is not None}
    if pattern is None:
        if given:
            raise ProductError(
                f"{', '.join(given)} without a pattern",
                hint='add pattern="nm"; numbers of tokens to build kernels for are tokens=(1, 8)',
            )
    elif foreign := [name for name in given if name not in OPTIONS[pattern]]:
        raise ProductError(
            f'the pattern "{pattern}" takes no {" and no ".join(foreign)}',
            hint=f"leave it away: it takes {', '.join(OPTIONS[pattern])} and importance",
        )
    return _FORMATS[pattern], given


def kept(
    weight: Any, sparsity: Any, mask: Any, pattern: str | None, options: Mapping[str, Any], importance: Any
) -> Any:
    """A weight with zeros where it is pruned: by a mask, to a pattern, or to a share.

    ArrayError for a mask or an importance that does not fit, ProductError for what does not go together.
    """
    if importance is not None and (pattern is None or mask is not None):
        raise ProductError(
            "importance is given " + ("without a pattern" if pattern is None else "beside a mask"),
            hint='give pattern="nm" and no mask; or the mask of sg.prune(w, "unstructured", sparsity=0.6, '
            "importance=importance) != 0",
        )
    if mask is not None:
        return weight.masked_fill(~checked_mask(mask, weight), 0)
    if pattern is not None:
        return prune(weight, pattern, importance=importance, **options)
    return weight if sparsity is None else weight.masked_fill(~magnitude_mask(weight, sparsity), 0)


def check_weight(weight: Any, format: str = "bitmap") -> None:
    """ArrayError for weights that are no dense matrix of the format's dtypes."""
    if not isinstance(weight, torch.Tensor):
        raise ArrayError(f"weight is a {type(weight).__qualname__}", hint="pass a torch tensor, such as linear.weight")
    if weight.dtype not in taken(format):
        raise ArrayError(
            f"weight has dtype {weight.dtype}; {in_words(format)}",
            hint=f"convert the layer first: {conversions(format, 'linear')}; nothing is cast",
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


def checked_mask(mask: Any, weight: Any) -> Any:
    """The mask; ArrayError if it does not say of each weight whether it stays."""
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or mask.shape != weight.shape:
        what = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, torch.Tensor) else f"a {type(mask)}"
        raise ArrayError(
            f"mask is {what}; a boolean tensor of shape {tuple(weight.shape)} is needed",
            hint="True for each weight that stays: scores > threshold",
        )
    if mask.device != weight.device:
        raise ArrayError(
            f"mask is on {mask.device}, the weight on {weight.device}", hint=f"pass mask.to({str(weight.device)!r})"
        )
    return mask

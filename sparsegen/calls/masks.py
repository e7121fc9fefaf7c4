"""Masks as calls take them: arrays of bool, or of 0 and 1 of any type, made numbers of the kernel's type."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.arrays import describe, host_array
from sparsegen.ir.errors import ArrayError


def numbers(mask: Any, name: str, dtype: np.dtype[Any], stream: object = None) -> Any:
    """The mask in the kernel's type, of the same library on the same device; one that is in it as it is.

    It is converted on the current stream of its library, so ArrayError for an array of a GPU that would have to be, if
    the call is for another ``stream``, and for one of a library that cannot.
    """
    torch, how = sys.modules.get("torch"), f"convert it once, to {dtype}"
    if torch is not None and isinstance(mask, torch.Tensor):  # not looked at: torch.compile may be tracing
        wanted = getattr(torch, dtype.name)
        if mask.dtype == wanted or mask.is_complex():
            return mask
        if mask.is_cuda and stream is not None:
            raise ArrayError(f"{name} has dtype {mask.dtype}, and the call goes to stream={stream!r}", hint=how)
        return mask.to(wanted)
    layout = describe(mask).layout
    if layout.dtype == dtype or layout.problem is not None or layout.dtype.kind not in "biuf":
        return mask  # or what the call refuses
    if layout.device_kind == "host":
        return host_array(describe(mask)).astype(dtype)
    if stream is not None or not hasattr(mask, "astype"):
        why = "its library does not convert it" if stream is None else f"the call goes to stream={stream!r}"
        raise ArrayError(f"{name} has dtype {layout.dtype}, and {why}", hint=how)
    return mask.astype(dtype)


def random(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """A mask of which every fourth cell or so is in the region."""
    return rng.random(shape) < 0.25

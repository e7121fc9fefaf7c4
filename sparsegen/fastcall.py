"""The short way through ``k(u, out=o)`` for torch tensors, where a call of one launch costs only microseconds.

The long way asks a tensor for everything and looks the answers up.  Here the answers of the call before are compared
with what the tensors say now; a difference of any kind, or anything out of the ordinary, gives False, nothing has
happened, and the long way decides (and words the error).  So this file holds no rule of its own: it may only say yes
where the long way has said yes to the same layouts.

What is *not* remembered: addresses (arrays may take turns, and each call checks alignment and overlap, three
comparisons) and objects (a tensor can change its shape, type or memory in place).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsegen.arrays import ArrayView
    from sparsegen.backends.cuda.runtime import Launch

FastCall = Callable[[Any, Any], bool]


def fast_call(
    source: ArrayView, target: ArrayView, alignment: tuple[int, int], launch: Launch, any_stream: bool
) -> FastCall | None:
    """A function of (u, out) that launches and returns True, or does nothing and returns False.

    ``source`` and ``target`` have passed every check; None if they are not plain torch tensors on a GPU.  ``launch``
    takes (input, output) and a stream, and is safe for threads; ``any_stream``: it takes streams of other libraries.
    """
    u, out = source.owner, target.owner
    tensor = type(u)
    torch: Any = sys.modules.get("torch")
    # A subclass of Tensor may answer differently from one call to the next: not here.
    if torch is None or tensor is not torch.Tensor or type(out) is not tensor or source.layout.device_index is None:
        return None
    current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if current_stream is None:
        return None
    # All of it in cells of this closure: a cell costs less than an attribute.
    dtype, shape, device = u.dtype, u.shape, u.get_device()
    u_strides, out_strides = u.stride(), out.stride()
    u_span, out_span = source.layout.span, -target.layout.span
    size = source.layout.dtype.itemsize  # a power of two, as every alignment is
    u_odd, out_odd = max(alignment[0], size) - 1, max(alignment[1], size) - 1

    def call(u: Any, out: Any) -> bool:
        if type(u) is not tensor or type(out) is not tensor:
            return False
        try:
            # get_device is an int (-1 on the host), where .device would make an object.
            if (
                u.dtype is not dtype
                or out.dtype is not dtype
                or u.shape != shape
                or out.shape != shape
                or u.stride() != u_strides
                or out.stride() != out_strides
                or u.get_device() != device
                or out.get_device() != device
                or u.requires_grad
                or out.requires_grad
            ):
                return False
            a, b = u.data_ptr(), out.data_ptr()
        except (RuntimeError, NotImplementedError):  # sparse, nested, meta: no strides, no address
            return False
        if a & u_odd or b & out_odd or out_span < b - a < u_span:
            return False
        stream = current_stream(device)
        if stream and not any_stream:
            return False
        launch((a, b), stream)
        return True

    return call

"""The short way through ``k(x, out=y, bias=b)`` for torch tensors, where a call costs only microseconds.

As :mod:`sparsegen.fastcall` does for stencils: what the tensors say now is compared with what the last call by the long
way has accepted.  Any difference, or anything out of the ordinary, gives None, nothing has happened, and the long way
decides (and words the error).  Addresses are not remembered: alignment and overlap are checked in each call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparsegen.products.arguments import order
from sparsegen.products.pipelines import IN, OUT

if TYPE_CHECKING:
    from sparsegen.arrays import ArrayView
    from sparsegen.backends.cuda.runtime import Launch
#: (x, out, the epilogue's arrays by name, None for each that is not given) -> the result.
FastCall = Callable[[Any, Any, Mapping[str, Any]], Any]


def fast_call(
    x: ArrayView,
    out: ArrayView,
    operands: Mapping[str, ArrayView],
    absent: tuple[str, ...],
    alignment: Mapping[str, int],
    launch: Launch,
    matrix: tuple[int, ...],
    spaces: Mapping[int, tuple[int, ...]] | None,
) -> FastCall | None:
    """A function of (x, out or None, other arrays) that launches and returns the result, or does nothing and returns
    None.

    ``x``, ``out`` and ``operands`` (in the order of the launch) have passed every check; None if they are not plain
    torch tensors on a GPU.  ``absent``: operands that the product does not have.  ``alignment``: bytes, by role.
    ``launch`` takes any stream and is called with (x, out, *matrix, *operands, *workspace); ``spaces``: the workspace
    of each stream, where there is one.
    """
    first = x.owner
    tensor, torch = type(first), sys.modules.get("torch")
    # A subclass of Tensor may answer differently from one call to the next: not here.
    if torch is None or tensor is not torch.Tensor or x.layout.device_index is None:
        return None
    if any(type(view.owner) is not tensor for view in (out, *operands.values())):
        return None
    current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
    if current_stream is None or capturing is None:
        return None
    # All of it in cells of this closure: a cell costs less than an attribute.
    dtype, device, where, empty = first.dtype, first.get_device(), first.device, torch.empty
    size = x.layout.dtype.itemsize  # a power of two, as every alignment is

    def facts(role: str, view: ArrayView) -> tuple[Any, ...]:
        return view.owner.shape, view.owner.stride(), max(alignment[role], size) - 1, view.layout.span

    known = [facts(IN, x), *(facts(name, view) for name, view in operands.items())]
    names = tuple(operands)
    shape, strides, odd, span = facts(OUT, out)
    turned = order(out.layout) == "column"
    fresh = tuple(shape[::-1]) if turned else tuple(shape)

    def call(x: Any, out: Any, given: Mapping[str, Any]) -> Any:
        made = out is None
        for name in absent:
            if given[name] is not None:
                return None
        pointers: list[int] = []
        target = 0
        try:
            for a, (a_shape, a_strides, a_odd, _) in zip((x, *[given[n] for n in names]), known, strict=True):
                if (
                    type(a) is not tensor
                    or a.dtype is not dtype
                    or a.shape != a_shape
                    or a.stride() != a_strides
                    or a.get_device() != device
                    or a.requires_grad
                ):
                    return None
                at = a.data_ptr()
                if at & a_odd:
                    return None
                pointers.append(at)
            if not made:
                if (
                    type(out) is not tensor
                    or out.dtype is not dtype
                    or out.shape != shape
                    or out.stride() != strides
                    or out.get_device() != device
                    or out.requires_grad
                ):
                    return None
                target = out.data_ptr()
                if target & odd:
                    return None
                for at, (_, _, _, a_span) in zip(pointers, known, strict=True):
                    if -span < target - at < a_span:
                        return None
        except (RuntimeError, NotImplementedError):  # sparse, nested, meta: no strides, no address
            return None
        stream = current_stream(device)
        space: tuple[int, ...] = ()
        if spaces is not None:
            found = None if capturing() else spaces.get(stream)
            if found is None:
                return None
            space = found
        if made:
            out = empty(fresh, dtype=dtype, device=where)
            if turned:
                out = out.t()
            target = out.data_ptr()
        launch((pointers[0], target, *matrix, *pointers[1:], *space), stream)
        return out

    return call

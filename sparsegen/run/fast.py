"""The short way through a call with torch tensors, where one launch costs only microseconds of host time.

The long way asks a tensor for everything and looks the answers up.  Here what the tensors say now is compared with what
the last call by the long way has accepted; a difference of any kind, or anything out of the ordinary, gives None,
nothing has happened, and the long way decides (and words the error).  So this file holds no rule of its own: it may
only say yes where the long way has said yes to the same layouts.

What is *not* remembered: addresses (arrays may take turns, and each call checks alignment and overlap) and objects (a
tensor can change its shape, type or memory in place).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

from sparsegen.backends.cuda.runtime import Launch
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.views import ArrayView

#: Bytes that workspaces begin at multiples of, as what torch's allocator gives does.
SPACE: Final = 256

#: (arguments by position, out, arguments by name) -> the result, or None.
FastCall = Callable[[tuple[Any, ...], Any, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Call:
    """A call that the long way has done: how its arguments were passed, their views, and the launch that it was.

    ``alignment``: bytes, by array; ``order``: the arrays of the launch, a table's address among them; ``fixed``:
    addresses of arrays that no call brings; ``spaces``: bytes of workspace arrays by name; ``streams``: their addresses
    for each stream, None where torch gives memory to each call; ``turned``: whether a new result would be packed by
    columns; ``any_stream``: whether the launch takes streams of other libraries.  ``library``: what is called in place
    of a launch, with the inputs by name and the result, where the work is torch's own; it goes to the current stream.
    """

    args: tuple[Any, ...]
    named: Mapping[str, Any]
    inputs: Mapping[str, ArrayView]
    output: tuple[str, ArrayView]
    alignment: Mapping[str, int]
    launch: Launch
    order: Sequence[str | int]
    fixed: Mapping[str, int]
    spaces: Mapping[str, int]
    streams: Mapping[int, tuple[int, ...]] | None
    turned: bool
    any_stream: bool
    library: Callable[[Mapping[str, Any], Any], None] | None = None


def library_call(
    args: tuple[Any, ...], named: Mapping[str, Any], inputs: Mapping[str, ArrayView], output: tuple[str, ArrayView],
    turned: bool, library: Callable[[Mapping[str, Any], Any], None],
) -> Call:  # fmt: skip
    """A call that torch's own functions do: nothing is launched, so addresses need no alignment but an element's."""
    name = output[0]
    aligned = dict.fromkeys([*inputs, name], 1)
    return Call(
        args=args, named=named, inputs=inputs, output=output, alignment=aligned, launch=_nothing, order=(name,),
        fixed={}, spaces={}, streams=None, turned=turned, any_stream=True, library=library,
    )  # fmt: skip


def _nothing(pointers: Sequence[int], stream: int | None = None) -> None:
    """In place of a launch."""


def fast_call(known: Call) -> FastCall | None:
    """A function that launches and returns the result, or does nothing and returns None.

    None if the arguments were anything but plain torch tensors on a GPU, one for each input.
    """
    torch: Any = sys.modules.get("torch")
    result_name, result = known.output
    tensor = type(result.owner)
    # A subclass of Tensor may answer differently from one call to the next: not here.
    if torch is None or tensor is not torch.Tensor or result.layout.device_index is None:
        return None
    current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
    if current_stream is None or capturing is None:
        return None
    out_last = bool(known.args) and known.args[-1] is result.owner
    by_position = known.args[:-1] if out_last else known.args
    keys = tuple(key for key, a in known.named.items() if a is not None)
    absent = tuple(key for key, a in known.named.items() if a is None)
    passed = (*by_position, *(known.named[key] for key in keys))
    names: list[str] = []
    for a in passed:
        names += [name for name, view in known.inputs.items() if view.owner is a and name not in names][:1]
    if len(names) != len(passed) or len(names) != len(known.inputs) or any(type(a) is not tensor for a in passed):
        return None
    # All of it in cells of this closure: a cell costs less than an attribute.
    like = result.owner
    dtype, device, where, empty = like.dtype, like.get_device(), like.device, torch.empty_strided

    def facts(name: str, view: ArrayView) -> tuple[Any, ...]:
        item = view.layout.dtype.itemsize  # a power of two, as every alignment is
        odd = max(known.alignment[name], item) - 1
        return view.owner.shape, view.owner.stride(), odd, view.layout.span, view.owner.dtype

    inputs = [facts(name, known.inputs[name]) for name in names]
    shape, strides, odd, span, _ = facts(result_name, result)
    packed = result.layout.contiguous if not known.turned else strides == (1, shape[0])
    count, many = len(known.args), len(known.named)
    streams, any_stream, launch, library = known.streams, known.any_stream, known.launch, known.library
    # One piece of torch's memory for all workspaces: each call of its allocator takes microseconds.
    offsets = list(accumulate((up(nbytes, SPACE) for nbytes in known.spaces.values()), initial=0))
    total, byte = (offsets.pop(),), torch.uint8 if known.spaces else None
    more = bool(known.spaces) or library is not None
    # The launch takes its pointers in an order of its own: those of the inputs, the result, what never changes, and the
    # workspace.
    tables = [address for address in known.order if isinstance(address, int)]
    constants = (*tables, *known.fixed.values())
    listed = [*names, result_name, *tables, *known.fixed, *known.spaces]
    pick = itemgetter(*(listed.index(name) for name in known.order))

    def call(args: tuple[Any, ...], out: Any, named: Mapping[str, Any]) -> Any:
        if len(args) != count or len(named) != many:
            return None
        if out_last:
            if out is not None:
                return None
            out, args = args[-1], args[:-1]
        pointers: list[int] = []
        target = 0
        try:
            for name in absent:
                if named[name] is not None:
                    return None
            if keys:
                args = (*args, *[named[key] for key in keys])
            for a, (a_shape, a_strides, a_odd, _, kind) in zip(args, inputs):  # noqa: B905  (as many, and strict costs)
                # get_device is an int (-1 on the host), where .device would make an object.
                if (
                    type(a) is not tensor
                    or a.dtype is not kind
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
            if out is not None:
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
                for at, (_, _, _, a_span, _) in zip(pointers, inputs):  # noqa: B905
                    if -span < target - at < a_span:
                        return None
            elif not packed:
                return None
        except (
            KeyError,
            RuntimeError,
            NotImplementedError,
        ):  # other names; sparse, nested, meta: no strides, no address
            return None
        stream = current_stream(device)
        if stream and not any_stream:
            return None
        space: tuple[int, ...] = ()
        if more:
            if library is not None:
                out = empty(shape, strides, dtype=dtype, device=where) if out is None else out
                library(dict(zip(names, args)), out)  # noqa: B905  (as many)
                return out
            if streams is None:
                held = empty(total, (1,), dtype=byte, device=where)  # until all is enqueued
                first = held.data_ptr()
                space = tuple([first + offset for offset in offsets])
            else:
                found = None if capturing() else streams.get(stream)
                if found is None:
                    return None
                space = found
        if out is None:
            out = empty(shape, strides, dtype=dtype, device=where)
            target = out.data_ptr()
        launch(pick((*pointers, target, *constants, *space)), stream)
        return out

    return call

"""Handles: tensors of 16 bytes that stand for plans in the arguments of operators.

``torch.compile`` makes integers, and the sizes of a module's tensors, a part of its graphs; both differ from matrix to
matrix.  Handles have one size, so layers of one kind share a graph.  A handle is known by its address, and a copy that
torch has made of it by what it holds: the number of the plan, twice.
"""

from __future__ import annotations

from itertools import count
from threading import Lock
from typing import Any, Final

import torch

from sparsegen.ir.errors import DeviceError

#: Bytes of a handle, and the alignment that compiled graphs want of what they are given, else each call copies it.
_BYTES: Final = 16
#: Handles that are allocated at once.
_ROOM: Final = 1024
_lock, _firsts = Lock(), count(1, _ROOM)
#: device -> what is left there for handles: memory, the place in it, the number it holds.
_left: dict[Any, list[tuple[Any, int, int]]] = {}
#: No memory of a handle is given back, and none is taken twice: a CUDA graph that torch has recorded for a plan that is
#: gone would else be replayed for a new one at the same address.
_kept: list[Any] = []


def refuse_capture(device: Any, what: str, remedy: str) -> None:
    """DeviceError while a CUDA graph is captured on the device's current stream: ``what`` cannot be done then."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise DeviceError(f"{what} while a CUDA graph is being captured", hint=remedy)


def fresh(dtype: Any, device: Any) -> tuple[Any, int]:
    """A handle on a device, of the dtype of the weights, and the number that it holds; 0 where it can hold none.

    DeviceError while a CUDA graph is captured.
    """
    handle = torch.empty(_BYTES // dtype.itemsize, dtype=dtype, device=device)
    if handle.is_meta or type(handle) is not torch.Tensor:  # a fake one
        return handle, 0
    refuse_capture(handle.device, "weights cannot be made or moved", "do so before the capture")
    with _lock, torch.inference_mode(False):
        left = _left.setdefault(handle.device, [])
        if not left:
            first = next(_firsts)
            numbers = torch.arange(first, first + _ROOM, device="cpu").repeat_interleave(2).to(handle.device)
            _kept.append(numbers)
            left += [(numbers.untyped_storage(), at, first + at) for at in reversed(range(_ROOM))]
        memory, at, number = left.pop()
        made = torch.empty(0, dtype=dtype, device=handle.device)
        made.set_(memory, at * handle.numel(), handle.shape)
    # what torch._dynamo.mark_static_address does, which takes seconds to import: CUDA graphs need no copy of it
    made._dynamo_static_input_type = "unguarded"
    return made, number


def held(handle: Any) -> int:
    """The number that a handle or a copy of one holds; DeviceError while a CUDA graph is captured."""
    refuse_capture(handle.device, "a copy of a plan cannot be read", "pass module.plan itself")
    return int(handle.reshape(-1).view(torch.int64)[0]) if handle.nbytes == _BYTES else 0

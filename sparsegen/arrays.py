"""Arrays in and out: NumPy arrays, and device arrays of torch, CuPy, pycuda, numba or anything with
``__cuda_array_interface__`` or DLPack.

``describe`` gives an ``ArrayView``: an address and a ``Layout``. Layouts are interned, one object for each (library,
dtype, shape, strides, device, ...), so whatever was once checked for a layout need not be checked again: ``Expect``
keeps the layouts it has accepted, and a repeated call costs an address and a set look-up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sparsegen.ir.errors import ArrayError

AnyDType = np.dtype[Any]


@dataclass(frozen=True, eq=False)
class ArrayLayout:
    """All of an array but its address. ``strides`` in bytes; ``device_index`` is None on the host.

    ``problem`` says why no kernel can use an array of this layout at all (None if one can), with its remedy.
    """

    library: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: AnyDType
    device_kind: str
    device_index: int | None
    readonly: bool = False
    problem: tuple[str, str] | None = None

    @cached_property
    def pitch(self) -> int:
        """Bytes from one row to the next (of the last axis); the row itself for fewer than two axes."""
        if len(self.shape) > 1 and self.shape[-2] > 1:
            return self.strides[-2]
        return self.shape[-1] * self.dtype.itemsize if self.shape else self.dtype.itemsize

    @cached_property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one; 0 for an empty array."""
        if 0 in self.shape:
            return 0
        steps = ((n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True))
        return sum(steps) + self.dtype.itemsize

    @cached_property
    def contiguous(self) -> bool:
        """Whether the elements are packed in C order."""
        packed = c_strides(self.shape, self.dtype.itemsize)
        pairs = zip(self.shape, self.strides, packed, strict=True)
        return 0 in self.shape or all(extent == 1 or have == want for extent, have, want in pairs)

    @cached_property
    def rows_contiguous(self) -> bool:
        """Whether the last axis is packed and the others are in C order, rows possibly with a pitch, none shared."""
        step = self.dtype.itemsize
        for axis in range(len(self.shape) - 1, -1, -1):
            extent, stride = self.shape[axis], self.strides[axis]
            if extent > 1:
                last = axis == len(self.shape) - 1
                if (stride != step if last else stride < step) or stride % self.dtype.itemsize:
                    return False
                step = extent * stride
        return True

    def where(self) -> str:
        """The device in words: ``the host`` or ``cuda:0``."""
        return "the host" if self.device_kind == "host" else f"cuda:{self.device_index}"


class ArrayView(NamedTuple):
    """An array as a kernel sees it: address, layout, the object itself, and the producer's stream, if it told one."""

    pointer: int
    layout: ArrayLayout
    owner: Any
    stream: int | None = None


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The strides, in bytes, of a packed array in C order."""
    strides = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


Probe = Callable[[Any], ArrayView]
_probes: dict[type, Probe] = {}
_layouts: dict[Any, ArrayLayout] = {}
_LAYOUTS_KEPT = 4096


def _intern(key: Any, layout: ArrayLayout) -> ArrayLayout:
    if len(_layouts) >= _LAYOUTS_KEPT:
        _layouts.clear()
    return _layouts.setdefault(key, layout)


def describe(array: Any) -> ArrayView:
    """The view of any array; ArrayError for an object that is none. Never copies, never moves data."""
    probe = _probes.get(type(array))
    if probe is None:
        probe = _find_probe(array)
        _probes[type(array)] = probe
    return probe(array)


def _find_probe(array: Any) -> Probe:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch_probe(torch)
    if isinstance(array, np.ndarray):
        return _probe_numpy
    from sparsegen import interop

    return interop.find_probe(array)


# ------------------------------------------------------------------------------------------------------------ NumPy


def _probe_numpy(array: Any) -> ArrayView:
    if isinstance(array, np.ma.MaskedArray):
        raise ArrayError("a masked array: what its masked elements are is not said", hint="pass a.filled(0)")
    flags = array.flags
    key = (array.dtype, array.shape, array.strides, flags.writeable, flags.aligned)
    layout = _layouts.get(key)
    if layout is None:
        problem = None
        if not array.dtype.isnative:
            problem = (
                f"an array of dtype {array.dtype.str}, not in this machine's byte order",
                "convert it: a.astype(a.dtype.newbyteorder('='))",
            )
        elif not flags.aligned:
            problem = ("an array whose elements are not aligned", "copy it: a.copy()")
        layout = _intern(
            key,
            ArrayLayout("numpy", array.shape, array.strides, array.dtype, "host", None, not flags.writeable, problem),
        )
    return ArrayView(array.__array_interface__["data"][0], layout, array)


def host_array(view: ArrayView) -> np.ndarray[Any, Any]:
    """The NumPy array that shares memory with a host view (a NumPy array, or a CPU tensor); ArrayError otherwise."""
    if view.layout.device_kind != "host":
        raise ArrayError(f"the array is on {view.layout.where()}", hint="copy it to the host first")
    if isinstance(view.owner, np.ndarray):
        return np.asarray(view.owner)  # of np.matrix and other subclasses the plain array
    if view.layout.library == "torch":
        tensor = view.owner.detach()
        if view.layout.dtype.name == "bfloat16":
            tensor = tensor.view(sys.modules["torch"].int16)
        shared: np.ndarray[Any, Any] = tensor.numpy()
        return shared.view(view.layout.dtype)
    return np.from_dlpack(view.owner)


# ------------------------------------------------------------------------------------------------------------ torch


def torch_dtypes(torch: Any) -> dict[Any, AnyDType]:
    """NumPy's dtype for each torch dtype that a kernel may use (bfloat16 through ml_dtypes)."""
    import ml_dtypes

    names = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
    table = {getattr(torch, name): np.dtype(name) for name in names}
    table[torch.bfloat16] = np.dtype(ml_dtypes.bfloat16)
    return table


def _torch_probe(torch: Any) -> Probe:
    dtypes = torch_dtypes(torch)
    new_tuple = tuple.__new__
    layouts: dict[Any, ArrayLayout] = {}

    def layout_of(tensor: Any, key: Any) -> ArrayLayout:
        kind, index = tensor.device.type, tensor.device.index
        dtype = dtypes.get(tensor.dtype)
        problem: tuple[str, str] | None = None
        if dtype is None:
            problem = (f"a torch tensor of dtype {tensor.dtype}", f"use one of {', '.join(map(str, dtypes))}")
        elif kind not in ("cuda", "cpu"):
            problem = (f"a torch tensor on device {kind!r}", "move it to 'cuda' or 'cpu'")
        elif tensor.requires_grad:
            problem = ("a torch tensor that requires grad: no gradient can flow through a kernel", "pass u.detach()")
        elif tensor.is_conj() or tensor.is_neg():
            problem = ("a torch tensor with a pending conjugation or negation", "pass u.resolve_conj().resolve_neg()")
        dtype = np.dtype(np.void) if dtype is None else dtype
        size = tensor.element_size()
        strides = tuple(int(s) * size for s in tensor.stride())
        host = kind == "cpu"
        layout = ArrayLayout(
            "torch",
            tuple(tensor.shape),
            strides,
            dtype,
            "host" if host else kind,
            None if host else index or 0,
            problem=problem,
        )
        if len(layouts) >= _LAYOUTS_KEPT:
            layouts.clear()
        return layouts.setdefault(key, layout)

    def probe(tensor: Any) -> ArrayView:
        try:
            key = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)
            pointer = tensor.data_ptr()
        except (RuntimeError, NotImplementedError) as e:  # sparse, nested, meta
            raise ArrayError(
                f"a torch tensor of layout {tensor.layout} has no address", hint="pass a dense tensor"
            ) from e
        # What ArrayView(...) does, without a Python frame of its own.
        return new_tuple(ArrayView, (pointer, layouts.get(key) or layout_of(tensor, key), tensor, None))

    return probe


# ----------------------------------------------------------------------------------------------------------- checks


class Expect:
    """What an argument must be: a fixed shape and dtype, an own name for messages. Call it with an array.

    ``writable`` is for outputs. Returns the array's view; raises ArrayError with the value and the remedy. What was
    accepted once costs a set look-up.
    """

    __slots__ = ("_accepted", "_last", "dtype", "itemsize", "name", "shape", "writable")

    def __init__(self, name: str, shape: Sequence[int], dtype: Any, *, writable: bool = False) -> None:
        self.name, self.shape, self.writable = name, tuple(shape), writable
        self.dtype = np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self._accepted: set[ArrayLayout] = set()
        self._last: ArrayLayout | None = None

    def __call__(self, array: Any) -> ArrayView:
        probe = _probes.get(type(array))
        view = describe(array) if probe is None else probe(array)
        layout = view[1]
        if layout is not self._last:
            if layout not in self._accepted:
                self._check(layout)
                if len(self._accepted) >= _LAYOUTS_KEPT:
                    self._accepted.clear()
                self._accepted.add(layout)
            self._last = layout
        if view[0] % self.itemsize:
            raise ArrayError(
                f"{self.name} starts at address {view.pointer:#x}, not a multiple of its {self.itemsize}-byte elements",
                hint="copy the array",
            )
        return view

    def _check(self, layout: ArrayLayout) -> None:
        name = self.name
        if layout.problem is not None:
            raise ArrayError(f"{name} is {layout.problem[0]}", hint=layout.problem[1])
        if layout.dtype != self.dtype:
            raise ArrayError(
                f"{name} has dtype {layout.dtype}, the kernel was compiled for {self.dtype}",
                hint=f"convert it to {self.dtype}"
                + (f", or compile with dtype={layout.dtype.name!r}" if layout.dtype.kind in "fV" else "")
                + "; nothing is cast",
            )
        if len(layout.shape) != len(self.shape):
            raise ArrayError(
                f"{name} has {len(layout.shape)} axes (shape {layout.shape}), the kernel {len(self.shape)}",
                hint=f"pass an array of shape {self.shape}",
            )
        if layout.shape != self.shape:
            raise ArrayError(
                f"{name} has shape {layout.shape}, the kernel was compiled for {self.shape}",
                hint=f"compile with shape={layout.shape}",
            )
        if not layout.rows_contiguous:
            raise ArrayError(
                f"{name} has strides {layout.strides} (bytes): its last axis must be packed and its axes in C order",
                hint="copy it: np.ascontiguousarray(a), or a.contiguous() in torch; rows may have a pitch",
            )
        if self.writable and layout.readonly:
            raise ArrayError(f"{name} is read-only", hint="pass an array that can be written, such as a.copy()")


def overlap(a: ArrayView, b: ArrayView) -> bool:
    """Whether two arrays share an element's memory. Blocks of columns of one array, side by side, do not."""
    la, lb = a.layout, b.layout
    distance = b.pointer - a.pointer
    if distance >= la.span or -distance >= lb.span:
        return False
    if la.device_kind != lb.device_kind or la.device_index != lb.device_index or not (la.span and lb.span):
        return False
    pitch = la.pitch
    if len(la.shape) == len(lb.shape) == 2 and pitch == lb.pitch and pitch > 0:
        start, end = (la, lb) if distance >= 0 else (lb, la)
        column = abs(distance) % pitch
        first, second = (layout.shape[1] * layout.dtype.itemsize for layout in (start, end))
        return column < first or column + second > pitch
    return True


def check_together(inputs: Sequence[tuple[str, ArrayView]], out: tuple[str, ArrayView] | None = None) -> None:
    """Refuse arrays on different devices, and an ``out`` that shares memory with an input: ArrayError."""
    first_name, first = inputs[0]
    a = first.layout
    for name, view in inputs[1:] if out is None else (*inputs[1:], out):
        b = view.layout
        if a is not b and (a.device_kind != b.device_kind or a.device_index != b.device_index):
            raise ArrayError(
                f"{first_name} is on {a.where()} and {name} on {b.where()}", hint="move them to one device"
            )
    if out is not None:
        for name, view in inputs:
            if overlap(view, out[1]):
                raise ArrayError(
                    f"{out[0]} shares memory with {name} (at {out[1].pointer:#x} and {view.pointer:#x})",
                    hint="pass another array as out, or leave it away to get a new one",
                )


def empty_like(view: ArrayView, shape: Sequence[int] | None = None, dtype: Any = None) -> Any:
    """A new, packed, uninitialised array of the same library on the same device, by default of the same shape.

    ``dtype`` is a NumPy dtype. ArrayError if the library is not known: then ``out`` must be given.
    """
    layout = view.layout
    size = layout.shape if shape is None else tuple(shape)
    kind = layout.dtype if dtype is None else np.dtype(dtype)
    if layout.library == "numpy":
        return np.empty(size, kind)
    if layout.library == "torch":
        torch: Any = sys.modules["torch"]
        wanted = view.owner.dtype
        if kind != layout.dtype:
            wanted = next(t for t, n in torch_dtypes(torch).items() if n == kind)
        return torch.empty(size, dtype=wanted, device=view.owner.device)
    from sparsegen import interop

    return interop.empty(view, size, kind)


def launch_stream(view: ArrayView, stream: object = None) -> int | None:
    """The stream handle to launch on for an input: the one given, else its library's current or producing stream.

    None and 0 are the default stream. torch: the current stream of the tensor's device. CuPy and others: the stream
    that the array interface names; launching on that one needs no further synchronisation.
    """
    if stream is not None:
        from sparsegen.backends.cuda.runtime import stream_handle

        return stream_handle(stream)
    if view.layout.device_kind == "host":
        return None
    if view.layout.library == "torch":
        return _torch_stream(view.layout.device_index or 0)
    return None if view.stream in (None, 1) else view.stream


def _torch_stream(device: int) -> int:
    torch: Any = sys.modules["torch"]
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(raw(device) if raw is not None else torch.cuda.current_stream(device).cuda_stream)

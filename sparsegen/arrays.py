"""Arrays in and out: NumPy arrays, and device arrays of torch, CuPy, pycuda, numba or anything with
``__cuda_array_interface__`` or DLPack.

``describe`` gives an ``ArrayView``.  ``Expect`` keeps the layouts it has accepted, and a repeated call costs an address
and a set look-up.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sparsegen import interop
from sparsegen.backends.cuda.runtime import stream_handle
from sparsegen.ir.errors import ArrayError
from sparsegen.sizes import MAX_CELLS
from sparsegen.views import LAYOUTS_KEPT, AnyDType, ArrayLayout, ArrayView, Probe, probe_numpy

_probes: dict[type, Probe] = {}


def describe(array: Any) -> ArrayView:
    """The view of any array; ArrayError for an object that is none. Never copies, never moves data."""
    probe = _probes.get(type(array))
    if probe is None:
        probe = _probes[type(array)] = _find_probe(array)
    return probe(array)


def _find_probe(array: Any) -> Probe:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch_probe(torch)
    if isinstance(array, np.ndarray):
        return probe_numpy
    return interop.find_probe(array)


def detached(array: Any) -> Any:
    """A torch tensor without its history; anything else as it is."""
    torch = sys.modules.get("torch")
    return array.detach() if torch is not None and isinstance(array, torch.Tensor) else array


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


def copied(array: Any) -> np.ndarray[Any, Any]:
    """What an array of any library holds, as a NumPy array: of a host array the same memory, of a GPU's a copy.

    ArrayError for what is no array, and for one of a library that is not known.
    """
    view = describe(detached(array))
    if view.layout.device_kind == "host":
        return host_array(view)
    if view.layout.library == "torch":
        return host_array(describe(view.owner.cpu()))
    ways = (getattr(view.owner, name, None) for name in ("get", "copy_to_host"))  # CuPy and pycuda; numba
    if (way := next(filter(callable, ways), None)) is None:
        raise ArrayError(f"a {type(array).__qualname__} on {view.layout.where()}", hint="copy it to the host first")
    return np.asarray(way())


# ------------------------------------------------------------------------------------------------------------ torch


def torch_dtypes(torch: Any) -> dict[Any, AnyDType]:
    """NumPy's dtype for each torch dtype that it has one for, by itself or through ml_dtypes."""
    import ml_dtypes

    found = {}
    for kind in {kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}:
        name = str(kind).removeprefix("torch.")
        with suppress(TypeError):
            found[kind] = np.dtype(getattr(ml_dtypes, name, name))
    return found


def _torch_probe(torch: Any) -> Probe:
    dtypes = torch_dtypes(torch)
    new_tuple = tuple.__new__
    layouts: dict[Any, ArrayLayout] = {}

    def layout_of(tensor: Any, key: Any) -> ArrayLayout:
        kind, index = tensor.device.type, tensor.device.index
        dtype = dtypes.get(tensor.dtype)
        problem: tuple[str, str | None] | None = None
        if dtype is None:
            problem = (f"a torch tensor of dtype {tensor.dtype}", None)
        elif kind not in ("cuda", "cpu"):
            problem = (f"a torch tensor on device {kind!r}", "move it to 'cuda' or 'cpu'")
        elif tensor.requires_grad:
            problem = ("a torch tensor that requires grad: no gradient can flow through a kernel", "pass u.detach()")
        elif tensor.is_conj() or tensor.is_neg():
            problem = ("a torch tensor with a pending conjugation or negation", "pass u.resolve_conj().resolve_neg()")
        shape, size = tuple(tensor.shape), tensor.element_size()
        strides = tuple(int(s) * size for s in tensor.stride())
        place, at = ("host", None) if kind == "cpu" else (kind, index or 0)
        dtype = np.dtype(np.void) if dtype is None else dtype
        layout = ArrayLayout("torch", shape, strides, dtype, place, at, problem=problem)
        if len(layouts) >= LAYOUTS_KEPT:
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
    """What a field must be: a shape, a dtype, an order, a place, and a name for messages.  Call it with an array.

    ``writable`` is for outputs; ``backend``: where the kernel runs, as only ``cuda`` takes arrays of a GPU;
    ``described``: NumPy's names of dtypes that such a problem may be described in.  Returns the array's view; raises
    ArrayError with the value and the remedy.  What was accepted once costs a set look-up.
    Subclasses say what shape and order mean to them.
    """

    __slots__ = ("_accepted", "_last", "backend", "described", "dtype", "itemsize", "name", "shape", "writable")

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        *,
        writable: bool = False,
        backend: str = "cuda",
        described: Sequence[str] = (),
    ) -> None:
        self.described = described
        self.name, self.shape, self.writable, self.backend = name, tuple(shape), writable, backend
        self.dtype = np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self._accepted: set[ArrayLayout] = set()
        self._last: ArrayLayout | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of such an array, packed."""
        return int(math.prod(self.shape) * self.itemsize)

    def __call__(self, array: Any) -> ArrayView:
        probe = _probes.get(type(array))
        view = describe(array) if probe is None else probe(array)
        layout = view[1]
        if layout is not self._last:
            if layout not in self._accepted:
                self.check(layout)
                if len(self._accepted) >= LAYOUTS_KEPT:
                    self._accepted.clear()
                self._accepted.add(layout)
            self._last = layout
        if view[0] % self.itemsize:
            raise ArrayError(
                f"{self.name} starts at address {view.pointer:#x}, not a multiple of its {self.itemsize}-byte elements",
                hint="copy the array",
            )
        return view

    def check(self, layout: ArrayLayout) -> None:
        """Return for a layout that a kernel takes, else raise ArrayError."""
        name = self.name
        if layout.problem is not None:
            raise ArrayError(f"{name} is {layout.problem[0]}", hint=layout.problem[1] or f"convert it to {self.dtype}")
        if layout.dtype != self.dtype or layout.shape != self.shape:
            what, remedy = self._other_dtype(layout) if layout.dtype != self.dtype else self._other_shape(layout)
            raise ArrayError(what, hint=remedy)
        self._order(layout)
        if self.writable and layout.readonly:
            raise ArrayError(f"{name} is read-only", hint="pass an array that can be written, such as a.copy()")
        if layout.device_kind != "host" and self.backend != "cuda":
            raise ArrayError(
                f"{name} is on {layout.where()}, but this kernel runs on the {self.backend}",
                hint="compile with backend='cuda', or copy the array to the host",
            )

    def _other_dtype(self, layout: ArrayLayout) -> tuple[str, str]:
        """What is wrong, and the remedy."""
        remedy = f"convert it to {self.dtype}"
        if "complex" in layout.dtype.name:
            remedy = f"call the kernel for its real and its imaginary part, a.real.astype({self.dtype.name!r}), ..."
        elif layout.dtype.name in self.described:
            remedy += f", or describe the stencil with dtype={layout.dtype.name!r} and compile that"
        return (
            f"{self.name} has dtype {layout.dtype}, the kernel was compiled for {self.dtype}",
            f"{remedy}; nothing is cast",
        )

    def _other_shape(self, layout: ArrayLayout) -> tuple[str, str]:
        """What is wrong, and the remedy."""
        if len(layout.shape) != len(self.shape):
            return (
                f"{self.name} has {len(layout.shape)} axes (shape {layout.shape}), the kernel {len(self.shape)}",
                f"pass an array of shape {self.shape}",
            )
        return (
            f"{self.name} has shape {layout.shape}, the kernel was compiled for {self.shape}",
            f"compile with shape={layout.shape}",
        )

    def _order(self, layout: ArrayLayout) -> None:
        """ArrayError for strides that no kernel takes: here, of a field, but for a packed last axis and indices."""
        if not layout.rows_contiguous:
            raise ArrayError(
                f"{self.name} has strides {layout.strides} (bytes): its last axis must be packed and its axes in C "
                "order",
                hint="copy it: np.ascontiguousarray(a), or a.contiguous() in torch; rows may have a pitch",
            )
        if layout.device_kind == "host":  # packed copies are made of these
            return
        pitch, hint = layout.pitch, "pass a packed copy: np.ascontiguousarray(a), or a.contiguous() in torch"
        if -(-layout.span // pitch) * pitch > MAX_CELLS * self.itemsize:
            raise ArrayError(
                f"{self.name} has rows {pitch} bytes apart, so that it ends beyond element {MAX_CELLS}: "
                "indices are 32 bits wide",
                hint=hint,
            )
        apart = pitch
        for axis in range(len(layout.shape) - 3, -1, -1):
            apart *= layout.shape[axis + 1]
            if layout.strides[axis] != apart:
                raise ArrayError(
                    f"{self.name} has planes {layout.strides[axis]} bytes apart, {apart // pitch} rows of {pitch} "
                    "bytes: planes must follow one another",
                    hint=hint,
                )


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


def check_together(inputs: Sequence[tuple[str, ArrayView]], out: tuple[str, ArrayView]) -> None:
    """Refuse arrays on different devices, and an ``out`` that shares memory with an input: ArrayError."""
    first_name, first = inputs[0]
    a = first.layout
    for name, view in (*inputs[1:], out):
        b = view.layout
        if a is not b and (a.device_kind != b.device_kind or a.device_index != b.device_index):
            raise ArrayError(
                f"{first_name} is on {a.where()} and {name} on {b.where()}", hint="move them to one device"
            )
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
        return torch.empty(size, dtype=getattr(torch, kind.name), device=view.owner.device)
    return interop.empty(view, size, kind)


def launch_stream(view: ArrayView, stream: object = None) -> int | None:
    """The stream handle to launch on for an input: the one given, else its library's current or producing stream.

    None and 0 are the default stream. torch: the current stream of the tensor's device. CuPy and others: the stream
    that the array interface names; launching on that one needs no further synchronisation.
    """
    if stream is not None:
        return stream_handle(stream)
    if view.layout.device_kind == "host":
        return None
    if view.layout.library == "torch":
        torch, device = sys.modules["torch"], view.layout.device_index or 0
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        return int(raw(device) if raw is not None else torch.cuda.current_stream(device).cuda_stream)
    return None if view.stream in (None, 1) else view.stream

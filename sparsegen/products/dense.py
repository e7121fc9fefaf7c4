"""The dense product, by the arrays' own library: torch's or CuPy's, with the epilogue's steps one after another.

The library rounds the product to W's dtype before the epilogue.  Sums of integers, which torch alone multiplies on
tensor cores, are exact; the epilogue is worked out in f32, and rounded once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from sparsegen.formats.library import NUMPY
from sparsegen.ir.errors import ArrayError
from sparsegen.memo import Memo
from sparsegen.plan import IN, OUT
from sparsegen.products.product import Product
from sparsegen.products.weights import device_of
from sparsegen.views import ArrayView

_REMEDY = "pass {} on a GPU, or compile with another schedule, as sg.schedules(product) lists them"
#: What multiplies tensors on a GPU, by name, into a result, on the current stream.
Multiply = Callable[[Mapping[str, Any], Any], None]
#: Bytes that the address of an x of integers is a multiple of: cuBLAS wants 4 at least, and is faster with 16.
_ALIGNMENT = 16


class DenseProduct:
    """W as a dense matrix in the library and on the device of each call's arrays, made once for each."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._weights: Memo[Any] = Memo(partial(_dense, product))

    def run(self, arrays: Mapping[str, ArrayView], stream: int | None) -> None:
        """Enqueue the product into ``out``; asynchronous.  ArrayError for arrays of another library, or the host's."""
        x, out = arrays[IN], arrays[OUT]
        library, device = x.layout.library, x.layout.device_index
        known = ("torch",) if self._product.types.x.is_int else ("torch", "cupy")
        if device is None or library not in known:
            names = ["torch", "CuPy"][: len(known)]
            raise ArrayError(
                f"x is an array of {library} on {x.layout.where()}; schedule='dense' is the product of "
                f"{' or '.join(names)}" + " where W holds integers" * self._product.types.x.is_int,
                hint=_REMEDY.format(f"{' or '.join(names)} arrays"),
            )
        owners = {name: arrays[name].owner for name in self._product.epilogue.operands}
        if library == "torch":
            self._torch(x.owner, out.owner, owners, device, stream)
        else:
            self._cupy(x.owner, out.owner, owners, device, stream)

    def on_torch(self, device: int) -> Multiply:
        """What multiplies on a GPU: all that a call must do."""
        return by_torch(self._product, self._weights.get("torch", device))

    def _torch(self, x: Any, out: Any, operands: Mapping[str, Any], device: int, stream: int | None) -> None:
        torch: Any = sys.modules["torch"]
        on: Any = nullcontext()
        if stream is not None and stream != torch.cuda.current_stream(device).cuda_stream:
            other = torch.cuda.ExternalStream(stream, device=device) if stream else torch.cuda.default_stream(device)
            on = torch.cuda.stream(other)
        with torch.no_grad(), torch.cuda.device(device), on:
            self.on_torch(device)({IN: x, **operands}, out)

    def _cupy(self, x: Any, out: Any, operands: Mapping[str, Any], device: int, stream: int | None) -> None:
        cupy: Any = sys.modules["cupy"]
        if self._product.w.dtype == "bf16":
            raise ArrayError("CuPy multiplies no bfloat16 matrices", hint=_REMEDY.format("torch tensors"))

        def gelu(y: Any) -> None:
            z = y.astype(cupy.float32)
            y[...] = z / 2 * (1 + cupy.tanh(0.7978845608028654 * (z + 0.044715 * z**3)))

        def silu(y: Any) -> None:
            z = y.astype(cupy.float32)
            y[...] = z / (1 + cupy.exp(-z))

        apply = {"relu": lambda y: cupy.maximum(y, 0, out=y), "gelu": gelu, "silu": silu}
        on = nullcontext() if stream is None else cupy.cuda.ExternalStream(stream)
        with cupy.cuda.Device(device), on:
            out[...] = cupy.matmul(self._weights.get("cupy", device), x)
            _finish(self._product, out, operands, apply)


def by_torch(product: Product, w: Any) -> Multiply:
    """What multiplies by ``w``, the matrix as a dense tensor, where that is."""
    torch: Any = sys.modules["torch"]
    gelu: Any = torch.nn.functional.gelu
    apply = {"relu": torch.relu_, "gelu": lambda y: y.copy_(gelu(y, approximate="tanh")),
             "silu": lambda y: torch.nn.functional.silu(y, inplace=True)}  # fmt: skip
    if product.types.x.is_int:
        return _integers(product, w, torch, apply)
    mm, plain = torch.matmul if product.batch else torch.mm, not product.epilogue.steps

    def multiply(tensors: Mapping[str, Any], out: Any) -> None:
        mm(w, tensors[IN], out=out)
        if not plain:
            _finish(product, out, tensors, apply)

    return multiply


def _integers(product: Product, w: Any, torch: Any, apply: Mapping[str, Any]) -> Multiply:
    """The same of int8, in the order of x and y that the product is chosen for; others cost a copy.

    Both matrices have adjacent k: cuBLAS has no fast kernels for other orders, and for some none at all.
    """
    mm, turned, whole = torch._int_mm, product.columns, product.types.y.is_int

    def multiply(tensors: Mapping[str, Any], out: Any) -> None:
        xt = tensors[IN].t().contiguous()
        xt = xt.clone() if xt.data_ptr() % _ALIGNMENT else xt
        a, b, into = (xt, w.t(), out.t()) if turned else (w, xt.t(), out)
        if whole and into.is_contiguous():
            mm(a, b, out=into)
            return
        sums = mm(a, b)
        y = into if whole or into.dtype == torch.float32 else torch.empty_like(sums, dtype=torch.float32)
        y.copy_(sums)
        if not whole:
            _finish(product, y.t() if turned else y, tensors, apply)
        if y is not into:
            into.copy_(y)

    return multiply


def _finish(product: Product, y: Any, operands: Mapping[str, Any], apply: Mapping[str, Any]) -> None:
    """The epilogue in place, in y's dtype."""
    if "scale" in operands:
        y *= operands["scale"][:, None]
    if "bias" in operands:
        y += operands["bias"][:, None]
    if product.epilogue.activation is not None:
        apply[product.epilogue.activation](y)
    if "residual" in operands:
        y += operands["residual"]


def _dense(product: Product, library: str, device: int) -> Any:
    """W as a dense matrix of a library on a GPU, done there: later calls may be on other streams."""
    w = product.w
    if w.library.name != library or device_of(w) != device:
        w = w.to_host()
    dense = w.to_dense()
    if library == "cupy":
        cupy: Any = sys.modules["cupy"]
        made = cupy.asarray(dense)
        cupy.cuda.get_current_stream().synchronize()
        return made
    torch: Any = sys.modules["torch"]
    if w.library is NUMPY:
        kind = getattr(torch, dense.dtype.name)
        dense = torch.from_numpy(dense.view("int16")).view(kind).to(f"cuda:{device}")
    torch.cuda.current_stream(device).synchronize()
    return dense

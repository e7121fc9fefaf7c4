"""Plans: what is behind the integer in the arguments of ``sparsegen::spmm_linear``.

A plan is one matrix: its shape, its dtype, how many elements it keeps, and the kernels that multiply by it, wherever
its tensors are.  The operator is given the tensors themselves and finds the kernels by their addresses, so a copy that
torch has made (for a compiled graph, say) works too: its kernels are made when it is first met.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from math import prod
from threading import Lock
from typing import Any, Final
from weakref import WeakValueDictionary

import torch

from sparsegen.compiler import compile
from sparsegen.formats.bitmap import Bitmap, bitmap
from sparsegen.formats.library import Torch
from sparsegen.ir.errors import ArrayError, DeviceError, FormatError, ProductError
from sparsegen.ir.types import DType
from sparsegen.kernel import SpmmKernel
from sparsegen.memo import Memo
from sparsegen.products.product import spmm
from sparsegen.sizes import MAX_CELLS

#: The tensors of a matrix, in the operator's order, and torch's dtype for the words of each.
PARTS: Final = {"values": torch.int64, "masks": torch.int32, "index": torch.int32}
#: Tokens of one launch at most: more are multiplied piece by piece.
PIECE: Final = 64
#: device type -> where its products run.
BACKENDS: Final = {"cuda": "cuda", "cpu": "reference"}
#: Bytes that the address of each tensor of a matrix, and of x, is a multiple of: the widest loads.
ALIGNMENT: Final = 16
#: Places of one matrix whose kernels are kept, and its tensors with them: the module's own, and one copy.
_PLACES: Final = 2
#: Products that ``prepare`` builds at once: each is a process of nvcc.
_BUILDERS: Final = 8


def empty(shape: tuple[int, int], kind: DType, device: Any) -> Bitmap:
    """The matrix [M, K] of zeros, which needs no dense one to be made."""
    sizes = bitmap(kind).shapes(shape, 0)
    if (words := max(map(prod, sizes.values()))) > MAX_CELLS:
        raise FormatError(
            f"W {shape[0]}x{shape[1]} has an array of {words} words; indices have 32 bits, so {MAX_CELLS} is the most",
            hint="cut the layer into several of fewer features",
        )
    arrays = {name: torch.zeros(sizes[name], dtype=dtype, device=device) for name, dtype in PARTS.items()}
    return Bitmap(bitmap(kind), shape, Torch(torch, arrays["masks"].device), arrays, 0)


def assembled(shape: tuple[int, int], kind: DType, nnz: int, tensors: Mapping[str, Any]) -> Bitmap:
    """The matrix that ``tensors`` (by the names of PARTS) hold, not copied.

    FormatError if they contradict one another, so that a kernel would read astray: it is found on their device, from
    all masks.  What the values are is not looked at.
    """
    first = tensors["masks"]
    for name, dtype in PARTS.items():
        t = tensors[name]
        if t.dtype != dtype or t.device != first.device or not t.is_contiguous() or t.data_ptr() % ALIGNMENT:
            raise FormatError(
                f"{name} is a tensor of {t.dtype} on {t.device} with strides {t.stride()}; a packed one of {dtype} on "
                f"{first.device} is needed, at an address that {ALIGNMENT} divides",
                hint="take the tensors of one SparseLinear, as state_dict() gives them",
            )
    matrix = Bitmap(bitmap(kind), shape, Torch(torch, first.device), tensors, nnz)
    matrix.check()
    return matrix


def refuse_capture(device: Any, what: str, remedy: str) -> None:
    """DeviceError while a CUDA graph is captured on the device's current stream: ``what`` cannot be done then."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise DeviceError(f"{what} while a CUDA graph is being captured", hint=remedy)


class Bound:
    """A matrix at its addresses, with its kernels.  Safe for threads."""

    def __init__(self, matrix: Bitmap) -> None:
        self.matrix = matrix
        self._compiled: Memo[SpmmKernel] = Memo(partial(_compiled, matrix))
        self._built: dict[tuple[int, bool], Any] = {}

    def multiply(self, x: Any, bias: Any, y: Any) -> None:
        """y [n, M] = x [n, K] @ W.T + bias, all packed, x aligned."""
        tokens = x.shape[0]
        if 0 < tokens <= PIECE:
            self._launch(x, bias, y)
        elif tokens and self._kernel((PIECE, bias is not None)) == self._decoded:
            self._decoded(x.t(), y.t(), bias)
        elif tokens:
            # The last piece overlaps that before it rather than being shorter: no other kernel is needed for it.
            for first in (*range(0, tokens - PIECE, PIECE), tokens - PIECE):
                self._launch(x[first : first + PIECE], bias, y[first : first + PIECE])

    def prepare(self, tokens: Sequence[int], biased: bool) -> None:
        """Build the kernels for these numbers of tokens, load them, and run each once."""
        (m, k), lib, device = self.matrix.shape, self.matrix.library, self.matrix.masks.device
        stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        zeros = partial(torch.zeros, dtype=lib.dtype(self.matrix.kind), device=device)

        def build(n: int) -> None:
            with torch.cuda.stream(stream):  # a thread has a current stream of its own; None: as it is
                self.multiply(zeros(n, k), zeros(m) if biased else None, zeros(n, m))

        with ThreadPoolExecutor(min(_BUILDERS, os.cpu_count() or 1)) as pool:
            list(pool.map(build, tokens))

    def _launch(self, x: Any, bias: Any, y: Any) -> None:
        key = (x.shape[0], bias is not None)
        kernel = self._built.get(key) or self._kernel(key)
        kernel(x.t(), out=y.t(), bias=bias)
        self._built[key] = kernel

    def _decoded(self, x: Any, out: Any, bias: Any) -> None:
        """The dense product, by torch, of W decoded once: out [M, n] = W @ x [K, n] + bias."""
        w = self.matrix.once("dense", self._decode)
        if bias is None:
            torch.mm(x.t(), w.t(), out=out.t())
        else:
            torch.addmm(bias, x.t(), w.t(), out=out.t())

    def _decode(self) -> Any:
        w = self.matrix.to_dense()
        if w.is_cuda:  # later calls may be on other streams
            torch.cuda.current_stream(w.device).synchronize()
        return w

    def _kernel(self, key: tuple[int, bool]) -> Any:
        """What multiplies so many tokens; DeviceError where it would have to be built while a graph is captured."""
        if key in self._built:
            return self._built[key]
        tokens, biased = key
        refuse_capture(
            self.matrix.masks.device,
            f"the kernel for {tokens} tokens is not built yet, and cannot be",
            f"build it before the capture: module.prepare(tokens=({tokens},))",
        )
        kernel = self._compiled.get(tokens, biased)
        return self._decoded if kernel.schedule.family == "dense" else kernel


def _compiled(matrix: Bitmap, tokens: int, biased: bool) -> SpmmKernel:
    return compile(spmm(matrix, n=tokens, bias=biased), backend=BACKENDS[matrix.library.device.type])


_serial = count(1)
_plans: WeakValueDictionary[int, Plan] = WeakValueDictionary()


class Plan:
    """A matrix [M, K] that keeps ``nnz`` elements, as the operator knows it: by ``number``.  Safe for threads.

    It is known as long as somebody holds it.  ``auto``: on a GPU W may be decoded, and kept so, for the numbers of
    tokens for which the cost model has the dense product as the faster one.
    """

    def __init__(self, shape: tuple[int, int], kind: DType, nnz: int, auto: bool = False) -> None:
        self.shape, self.kind, self.nnz, self.auto = shape, kind, nnz, auto
        self.dtype = getattr(torch, kind.numpy().name)
        # torch keeps compiled graphs in files and finds them by what is in the graph, such as this number. The size of
        # the result depends on it, so M is a part of it: else a process with other layers may be given that graph.
        self.number = next(_serial) << 32 | shape[0]
        self._lock = Lock()
        self._bound: OrderedDict[tuple[int, ...], Bound] = OrderedDict()
        _plans[self.number] = self

    @staticmethod
    def of(number: int) -> Plan:
        """The plan of a number; ProductError if there is none."""
        if (found := _plans.get(number)) is None:
            raise ProductError(
                f"there is no plan {number}",
                hint="a plan belongs to one SparseLinear, its weights, and its process: pass module.plan, and keep the "
                "module alive",
            )
        return found

    def at(self, values: Any, masks: Any, index: Any) -> Bound:
        """The matrix with these tensors, which must hold what the plan was made for.

        FormatError if they cannot, DeviceError for an unknown copy of them while a graph is captured.
        """
        key = (values.data_ptr(), masks.data_ptr(), index.data_ptr())
        return self._bound.get(key) or self._bind(key, {"values": values, "masks": masks, "index": index})

    def _bind(self, key: tuple[int, ...], tensors: Mapping[str, Any]) -> Bound:
        if (device := tensors["masks"].device).type not in BACKENDS:
            raise ArrayError(f"the weights are on {device}", hint="move the module to 'cuda' or 'cpu'")
        refuse_capture(
            device,
            "these weights have not been used at their address, and their kernels cannot be built",
            "build them before the capture: module.prepare(tokens=(...,))",
        )
        with self._lock:
            if key not in self._bound:
                plain = {name: t.detach() for name, t in tensors.items()}
                matrix = assembled(self.shape, self.kind, self.nnz, plain)
                matrix.auto = self.auto and device.type == "cuda"
                self._bound[key] = Bound(matrix)
                if len(self._bound) > _PLACES:
                    self._bound.popitem(last=False)
            return self._bound[key]

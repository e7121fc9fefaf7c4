"""Plans: what is behind the handle in the arguments of ``sparsegen::spmm_linear``.

A plan is one matrix: its shape, its dtype, how many elements it keeps, its tensors, and the kernels that multiply by
it.  Where the operator is given tensors too, it finds the kernels by their addresses, so copies that torch has made
(for another GPU, say) work as well: their kernels are made when they are first met.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, lru_cache, partial
from math import prod
from threading import Lock
from typing import Any, Final
from weakref import WeakValueDictionary

import torch

from sparsegen.callsite import user_loc
from sparsegen.compiler import compile
from sparsegen.formats.encode import found
from sparsegen.formats.format import Format
from sparsegen.formats.library import Torch
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ArrayError, FormatError, ProductError, SparsegenError
from sparsegen.kernel import SpmmKernel
from sparsegen.memo import Memo
from sparsegen.products.product import spmm
from sparsegen.sizes import MAX_CELLS
from sparsegen.torch.handle import fresh, held, refuse_capture

#: Up to so many tokens each number has a kernel of its own.
FEW: Final = 64
#: device type -> where its products run.
BACKENDS: Final = {"cuda": "cuda", "cpu": "reference"}
#: Bytes that the address of each tensor of a matrix, and of x, is a multiple of: the widest loads.
ALIGNMENT: Final = 16
#: Places of one matrix whose kernels are kept, and its tensors with them: the module's own, and one copy.
_PLACES: Final = 2
#: Products that ``prepare`` builds at once: each is a process of nvcc.
_BUILDERS: Final = 8


def parts(spec: Format) -> tuple[str, str, str | None]:
    """The names of a format's arrays in the operator's order: values, its sparse axis's own, pointers if it has any."""
    *pointers, own, values = [stored.name for stored in spec.stored]
    return values, own, pointers[0] if pointers else None


def empty(spec: Format, shape: tuple[int, int], device: Any) -> SparseMatrix:
    """The matrix [M, K] of zeros."""
    if (words := max(map(prod, spec.shapes(shape, spec.least(shape)).values()))) > MAX_CELLS:
        raise FormatError(
            f"W {shape[0]}x{shape[1]} has an array of {words} words; indices have 32 bits, so {MAX_CELLS} is the most",
            hint="cut the layer into several of fewer features",
        )
    library = Torch(torch, device)
    return found(spec.name).matrix(spec, shape, library, spec.zeros(library, shape), 0)


def assembled(spec: Format, shape: tuple[int, int], nnz: int, tensors: Mapping[str, Any]) -> SparseMatrix:
    """The matrix that ``tensors`` (by the names of the format's arrays) hold, not copied.

    FormatError if they contradict one another, so that a kernel would read astray: it is found on their device.
    """
    library = Torch(torch, tensors["values"].device)
    for stored in spec.stored:
        t, dtype = tensors[stored.name], library.dtype(stored.dtype)
        if t.dtype != dtype or t.device != library.device or not t.is_contiguous() or t.data_ptr() % ALIGNMENT:
            raise FormatError(
                f"{stored.name} is a tensor of {t.dtype} on {t.device} with strides {t.stride()}; a packed one of "
                f"{dtype} on {library.device} is needed, at an address that {ALIGNMENT} divides",
                hint="take the tensors of one SparseLinear, as state_dict() gives them",
            )
    matrix = found(spec.name).matrix(spec, shape, library, tensors, nnz)
    matrix.check()
    return matrix


@lru_cache(maxsize=1024)
def launches(tokens: int) -> tuple[tuple[int, int], ...]:
    """The first token and the number of tokens of each launch for more than FEW tokens, so that few kernels are built.

    Two of 64, 96, 128, 192, 256, ...; the last one overlaps that before it rather than being shorter.
    """
    sizes = [n << i for i in range((tokens // FEW).bit_length()) for n in (FEW, FEW + FEW // 2)]
    size = max(n for n in sizes if n <= tokens)
    if size == tokens:
        return ((0, tokens),)
    rest = min(n for n in sizes if n >= tokens - size)
    return (0, size), (tokens - rest, rest)


class Bound:
    """A matrix at its addresses, with its kernels.  Safe for threads."""

    def __init__(self, matrix: SparseMatrix) -> None:
        self.matrix = matrix
        self._compiled: Memo[SpmmKernel] = Memo(partial(_compiled, matrix))
        self._built: dict[tuple[int, bool], Any] = {}

    def multiply(self, x: Any, bias: Any, y: Any) -> None:
        """y [n, M] = x [n, K] @ W.T + bias, all packed, x aligned."""
        tokens = x.shape[0]
        kernel = self._built.get((tokens, bias is not None))
        if kernel is not None:
            kernel(x.t(), out=y.t(), bias=bias)
        elif tokens <= FEW:
            if tokens:
                self._kernel(tokens, tokens, bias is not None)(x.t(), out=y.t(), bias=bias)
        else:
            for first, size in launches(tokens):
                kernel = self._kernel(size, tokens, bias is not None)
                if not first and kernel == self._decoded:
                    self._decoded(x.t(), y.t(), bias)
                    return
                kernel(x[first : first + size].t(), out=y[first : first + size].t(), bias=bias)

    def prepare(self, tokens: Iterable[int], biased: bool) -> None:
        """Build the kernels for these numbers of tokens, several at a time; on a GPU load them, and run each once."""
        kernels = {n: self._compiled.get(n, biased) for n in sorted(set(tokens))}
        if (device := self.matrix.library.device).type == "cuda":
            first = partial(self._first, after=torch.cuda.current_stream(device), biased=biased)
            try:
                with ThreadPoolExecutor(min(_BUILDERS, os.cpu_count() or 1)) as pool:
                    list(pool.map(first, kernels.values()))
            except SparsegenError as error:
                error.loc = user_loc()  # not the thread's
                raise
        for n, kernel in kernels.items():
            self._built[n, biased] = self._decoded if kernel.schedule.family == "dense" else kernel

    def _first(self, kernel: SpmmKernel, after: Any, biased: bool) -> None:
        """Run a kernel for the first time: in a thread and on a stream of its own, ``after`` what is on that one.

        What it makes of W must not lie in the memory of a CUDA graph that torch is warming up: such memory is that of
        the caller's thread and stream.
        """
        m, k, n = kernel.shape
        zeros = partial(torch.zeros, dtype=self.matrix.library.dtype(self.matrix.kind), device=after.device)
        with torch.cuda.stream(aside := _aside(after.device)):
            aside.wait_stream(after)
            if kernel.schedule.family == "dense":
                self.matrix.once("dense", self._decode)
            else:
                kernel(zeros(n, k).t(), out=zeros(n, m).t(), bias=zeros(m) if biased else None)
            aside.synchronize()

    def _kernel(self, tokens: int, of: int, biased: bool) -> Any:
        """What multiplies so many tokens, a part ``of`` so many; DeviceError where it would have to be built while a
        graph is captured."""
        if (tokens, biased) not in self._built:
            refuse_capture(
                self.matrix.library.device,
                f"the kernel for {tokens} tokens is not built yet, and cannot be",
                f"build it before the capture: module.prepare(tokens=({of},))",
            )
            self.prepare((tokens,), biased)
        return self._built[tokens, biased]

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


@cache
def _aside(device: Any) -> Any:
    """The stream of a device on which kernels run for the first time."""
    return torch.cuda.Stream(device)


def _compiled(matrix: SparseMatrix, tokens: int, biased: bool) -> SpmmKernel:
    product = replace(spmm(matrix, n=tokens, bias=biased), columns=True)
    return compile(product, backend=BACKENDS[matrix.library.device.type])


#: The address of a handle, and the number in it -> the plan.
_places: WeakValueDictionary[int, Plan] = WeakValueDictionary()
_plans: WeakValueDictionary[int, Plan] = WeakValueDictionary()


class Plan:
    """A matrix [M, K] that keeps ``nnz`` elements, as the operator knows it: by ``handle``.  Safe for threads.

    ``tensors``: values, own, pointers (:func:`parts`).  It is known as long as somebody holds it.  ``auto``: on a GPU W
    may be decoded, and kept so, for the numbers of tokens for which the cost model has the dense product as the faster
    one.
    """

    def __init__(
        self, spec: Format, shape: tuple[int, int], nnz: int, tensors: Sequence[Any], auto: bool = False
    ) -> None:
        self.spec, self.shape, self.nnz, self.tensors, self.auto = spec, shape, nnz, tuple(tensors), auto
        self.dtype = getattr(torch, spec.dtype.numpy().name)
        self._lock = Lock()
        self._bound: OrderedDict[tuple[int, ...], Bound] = OrderedDict()
        self.handle, self.number = fresh(self.dtype, self.tensors[0].device)
        if self.number:
            _plans[self.number] = _places[self.handle.data_ptr()] = self

    @staticmethod
    def of(handle: Any, shape: tuple[int, int]) -> Plan:
        """The plan of a handle, or of a copy of one; ProductError if there is none of this shape."""
        if (found := _places.get(handle.data_ptr())) is None and (found := _plans.get(held(handle))) is None:
            raise ProductError(
                "there is no such plan",
                hint="a plan belongs to one SparseLinear, its weights, and its process: pass module.plan, and keep the "
                "module alive",
            )
        if found.shape != shape:
            raise ProductError(
                f"the plan is of weights {found.shape[0]}x{found.shape[1]}, not {shape[0]}x{shape[1]}",
                hint="pass in_features and out_features of its module",
            )
        return found

    def at(self, values: Any, own: Any, pointers: Any) -> Bound:
        """The matrix with these tensors, which must hold what the plan was made for; its own where they are None.

        FormatError if they cannot, DeviceError for an unknown copy of them while a graph is captured.
        """
        if values is None:
            values, own, pointers = self.tensors
        key = (values.data_ptr(), own.data_ptr(), 0 if pointers is None else pointers.data_ptr())
        return self._bound.get(key) or self._bind(key, values, own, pointers)

    def _bind(self, key: tuple[int, ...], *tensors: Any) -> Bound:
        device, names = tensors[0].device, parts(self.spec)
        if device.type not in BACKENDS:
            raise ArrayError(f"the weights are on {device}", hint="move the module to 'cuda' or 'cpu'")
        if (names[2] is None) != (tensors[2] is None):
            raise FormatError(
                f"weights in {self.spec.name} are {2 if names[2] is None else 3} tensors: "
                f"{', '.join(filter(None, names))}",
                hint="pass the tensors of one SparseLinear, in this order, and None where there are two",
            )
        refuse_capture(
            device,
            "these weights have not been used at their address, and their kernels cannot be built",
            "build them before the capture: module.prepare(tokens=(...,))",
        )
        with self._lock:
            if key not in self._bound:
                plain = {name: t.detach() for name, t in zip(names, tensors, strict=True) if name is not None}
                matrix = assembled(self.spec, self.shape, self.nnz, plain)
                matrix.auto = self.auto and device.type == "cuda"
                self._bound[key] = Bound(matrix)
                if len(self._bound) > _PLACES:
                    self._bound.popitem(last=False)
            return self._bound[key]

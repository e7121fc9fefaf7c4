"""cuSPARSE's products of a csr matrix, on torch's tensors: the library that torch brings, through ctypes."""

from __future__ import annotations

import ctypes
import glob
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from sparsegen.ir.errors import DeviceError

#: Numbers of cusparse.h and library_types.h: types of elements, of columns and pointers, orders, algorithms.
KINDS: Final = {"f16": 2, "f32": 0, "bf16": 14}
INDEX_32, FROM_ZERO, ROWS, F32 = 2, 0, 2, 0
SPMM: Final = {"default": 0, "csr_alg1": 4, "csr_alg2": 6, "csr_alg3": 12}
SPMV: Final = {"spmv_default": 0, "spmv_alg1": 2, "spmv_alg2": 3}


def library() -> Any:
    """The loaded library; DeviceError where there is none."""
    found = [file for folder in sys.path for file in glob.glob(f"{folder}/nvidia/*/lib/libcusparse.so*")]
    for name in (*found, "libcusparse.so.12", "libcusparse.so.13", "libcusparse.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError("suite csr needs cuSPARSE", hint="pip install torch, which brings it")


class CuSparse:
    """A handle of the library; ``torch``: the module, whose current stream products run on."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._lib = torch, library()
        self._handle = self._made("cusparseCreate")

    def _checked(self, call: str, *args: Any) -> None:
        if code := getattr(self._lib, call)(*args):
            raise DeviceError(f"{call} failed with code {code}", hint="measure without cuSPARSE's other users")

    def products(self, w: Any, dtype: str, x: Any, y: Any) -> Iterator[tuple[str, Callable[[], None]]]:
        """Each algorithm with what enqueues it, y = w @ x; ``w``: a torch tensor of layout ``sparse_csr``.

        Algorithms that the library refuses are left out.
        """
        torch, (m, k), n = self._torch, w.shape, x.shape[1]
        tables = [a.to(torch.int32) for a in (w.crow_indices(), w.col_indices())]
        one, zero, kind = ctypes.c_float(1), ctypes.c_float(0), KINDS[dtype]
        sizes = (ctypes.c_int64(size) for size in (m, k, w.values().shape[0]))
        pointers = (ctypes.c_void_p(each.data_ptr()) for each in (*tables, w.values()))
        a = self._made("cusparseCreateCsr", *sizes, *pointers, INDEX_32, INDEX_32, FROM_ZERO, kind)
        dense = [self._dense(each, kind) for each in (x, y)]
        kinds: list[tuple[str, dict[str, int], list[Any], tuple[int, ...]]] = [("SpMM", SPMM, dense, (0, 0))]
        if n == 1:
            kinds.append(("SpMV", SPMV, [self._vector(each, kind) for each in (x, y)], (0,)))
        for call, algorithms, (into, out), turned in kinds:
            for name, number in algorithms.items():
                args = (
                    self._handle, *turned, ctypes.byref(one), a, into, ctypes.byref(zero), out, F32, number
                )  # fmt: skip
                need = ctypes.c_size_t()
                if getattr(self._lib, f"cusparse{call}_bufferSize")(*args, ctypes.byref(need)):
                    continue
                space = torch.empty(max(need.value, 16), dtype=torch.uint8, device=x.device)
                prepare = getattr(self._lib, f"cusparse{call}_preprocess", None)
                if prepare is not None:
                    prepare(*args, ctypes.c_void_p(space.data_ptr()))
                torch.cuda.synchronize()
                yield name, self._launch(f"cusparse{call}", args, (space, tables))

    def _launch(self, call: str, args: tuple[Any, ...], held: tuple[Any, ...]) -> Callable[[], None]:
        space = ctypes.c_void_p(held[0].data_ptr())

        def launch(_held: Any = held) -> None:
            stream = ctypes.c_void_p(self._torch.cuda.current_stream().cuda_stream)
            self._checked("cusparseSetStream", self._handle, stream)
            self._checked(call, *args, space)

        return launch

    def _made(self, call: str, *args: Any) -> ctypes.c_void_p:
        """What one of the library's functions creates."""
        made = ctypes.c_void_p()
        self._checked(call, ctypes.byref(made), *args)
        return made

    def _dense(self, a: Any, kind: int) -> ctypes.c_void_p:
        rows, cols = a.shape
        sizes = (ctypes.c_int64(size) for size in (rows, cols, cols))
        return self._made("cusparseCreateDnMat", *sizes, ctypes.c_void_p(a.data_ptr()), kind, ROWS)

    def _vector(self, a: Any, kind: int) -> ctypes.c_void_p:
        return self._made("cusparseCreateDnVec", ctypes.c_int64(a.shape[0]), ctypes.c_void_p(a.data_ptr()), kind)

"""A matrix in a sparse format: its stored arrays, where they are, and what the format derives from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from sparsegen.formats import file
from sparsegen.formats.format import Format, held
from sparsegen.formats.library import NUMPY, Library
from sparsegen.formats.stats import Stats, measured
from sparsegen.ir.errors import FormatError
from sparsegen.ir.types import DType, bf16, e4m3, e5m2, f16, f32, f64, s4, s8, s12, s16, s32, sum_type, u4, u8, u16
from sparsegen.memory import host_room
from sparsegen.notebook import facts

if TYPE_CHECKING:
    from typing_extensions import Self

Arrays = Mapping[str, Any]
#: The dtypes of elements by their names for users.
KINDS: Final[dict[str, DType]] = {
    "f64": f64, "f32": f32, "f16": f16, "bf16": bf16, "i16": s16, "i12": s12, "i8": s8, "i4": s4, "u16": u16,
    "u8": u8, "u4": u4, "i32": s32, "e4m3": e4m3, "e5m2": e5m2,
}  # fmt: skip
NAMES: Final = {kind: name for name, kind in KINDS.items()}
Made = TypeVar("Made")

_lock = RLock()
_made: WeakKeyDictionary[SparseMatrix, dict[Hashable, Any]] = WeakKeyDictionary()


def check_room(shape: tuple[int, ...], kind: DType) -> None:
    """FormatError for a matrix that takes more memory, dense, than this machine has."""
    nbytes, left = shape[0] * shape[1] * held(kind).nbytes, host_room()
    if left is not None and nbytes > left[1]:
        raise FormatError(
            f"a matrix {shape[0]}x{shape[1]} {kind} takes {nbytes} bytes dense, this machine has {left[1]}",
            hint="leave it sparse: sg.sparse(w, format='csr') of a scipy matrix, W.to_scipy()",
        )


class SparseMatrix:
    """A matrix [M, K] in a sparse format, on the host or a device. Made by ``sparsegen.sparse``.

    ``arrays``: the stored arrays by name, in the format's order; ``spec``: the format.  An element is kept if any of
    its bits is set: NaN, infinities and -0.0 come back bit for bit.
    """

    def __init__(self, spec: Format, shape: tuple[int, int], library: Library, arrays: Arrays, nnz: int) -> None:
        self.spec, self.shape, self.library, self.nnz = spec, shape, library, nnz
        self.arrays = {stored.name: arrays[stored.name] for stored in spec.stored}
        #: made with ``format="auto"``: a product may multiply by the dense matrix, or read it in one of its
        #: ``others``, where that is faster
        self.auto = False
        #: of 8-bit elements: f32 [M], in the library and on the device of ``arrays``, by which products multiply the
        #: sums of each row; ``to_dense`` does not
        self.scale: Any = None

    # ----------------------------------------------------------------------------------------------------- there, back
    @classmethod
    def encode(cls, spec: Format, lib: Library, bits: Any) -> Self:
        """Encode a dense matrix, given as its signed bits with any strides, where it is."""
        with lib.active():
            arrays, nnz = spec.encode(lib, bits)
            return cls(spec, (int(bits.shape[0]), int(bits.shape[1])), lib, arrays, nnz)

    def __reduce__(self) -> Any:
        """A pickle has the arrays, in their library, and the name of the format."""
        restored = import_module("sparsegen.formats.encode").restored
        said = {"shape": self.shape, "nnz": self.nnz, "auto": self.auto, "scale": self.scale}
        return restored, (self.format, self.dtype, dict(self.spec.options), said, self.arrays)

    def to_dense(self) -> Any:
        """The dense matrix, in an array of the library and on the device that this one lives on.

        FormatError on the host where that has less memory than it takes.
        """
        if self.library.where == "cpu":
            check_room(self.shape, self.kind)
        with self.library.active():
            bits = self.spec.decode(self.library, self.arrays, self.shape)
            return self.library.elements(bits, held(self.kind))

    def to_host(self) -> Self:
        """The same matrix in NumPy arrays: itself if it is there already."""
        if self.library is NUMPY:
            return self
        arrays = {s.name: self.library.to_host(self.arrays[s.name], s.dtype) for s in self.spec.stored}
        host = type(self)(self.spec, self.shape, NUMPY, arrays, self.nnz)
        host.auto = self.auto
        host.scale = None if self.scale is None else self.library.to_host(self.scale, f32)
        return host

    def check(self) -> None:
        """FormatError if the arrays contradict one another, so that a kernel would read astray."""
        with self.library.active():
            self.spec.check(self.library, self.arrays, self.shape, self.nnz)

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array`` of float32 values (float64 of f64), or integers, in which a kept -0.0 stays an
        explicit entry."""
        import scipy.sparse

        dense = self.to_host().to_dense()
        rows, pieces = 1 << 10, []
        for first in range(0, self.shape[0], rows):  # by rows, so that coordinates in 64 bits stay few
            piece = dense[first : first + rows]
            row, col = np.nonzero(piece.view(self.spec.raw))
            kind = sum_type(self.kind).numpy() if self.kind.kind == "float" else piece.dtype
            values = piece[row, col].astype(kind)
            pieces.append((np.bincount(row, minlength=len(piece)), col.astype(np.int32), values))
        counts, cols, values = (np.concatenate(part) for part in zip(*pieces, strict=True))
        starts = np.concatenate([[0], np.cumsum(counts)])
        return scipy.sparse.csr_array((values, cols, starts), shape=self.shape)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the matrix to a file that ``sparsegen.load`` reads: whole and checksummed, or not at all."""
        host = self.to_host()
        said = {
            "format": self.format,
            "options": dict(self.spec.options),
            "shape": self.shape,
            "dtype": self.dtype,
            "nnz": self.nnz,
            "auto": self.auto,
        }
        file.write(path, said, host.arrays if host.scale is None else {**host.arrays, "scale": host.scale})

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What ``make`` makes of the matrix, made once for a key and kept as long as the matrix lives."""
        with _lock:
            kept = _made.setdefault(self, {})
            if key not in kept:
                kept[key] = make()
            made: Made = kept[key]
            return made

    # --------------------------------------------------------------------------------------------------------- figures
    @property
    def format(self) -> str:
        """The name of the format."""
        return self.spec.name

    @property
    def kind(self) -> DType:
        """The dtype of the elements."""
        return self.spec.dtype

    @property
    def dtype(self) -> str:
        """The dtype's name as ``sparse`` takes it: "f64", "f32", "f16", "bf16", "i8", "u4", ..."""
        return NAMES[self.kind]

    def stats(self) -> Stats:
        """How the elements lie: lengths of rows, tiles and vectors that hold any; measured once, where they are."""
        with self.library.active():
            return self.once("stats", lambda: measured(self.spec, self.library, self.arrays, self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of the stored arrays, and of the scale if there is one."""
        arrays = [*self.arrays.values(), *([] if self.scale is None else [self.scale])]
        return sum(int(np.prod(a.shape)) * int(a.itemsize) for a in arrays)

    @property
    def sparsity(self) -> float:
        """The share of elements that are left out, 0 to 1."""
        return 1 - self.nnz / max(1, self.shape[0] * self.shape[1])

    @property
    def compression(self) -> float:
        """Bytes of the dense matrix, two elements of 4 bits to a byte, over ``nbytes``."""
        return self.shape[0] * self.shape[1] * self.spec.width / 8 / max(1, self.nbytes)

    def _repr_html_(self) -> str:
        rows = {
            "format": self.format, "shape": f"{self.shape[0]} × {self.shape[1]}", "type": self.dtype,
            "nonzeros": f"{self.nnz:,} ({100 * self.sparsity:.4g} % zeros)",
            "bytes": f"{self.nbytes:,} ({self.compression:.3g} times smaller than dense)",
            "where": f"{self.library.name} on {self.library.where}",
        }  # fmt: skip
        return facts("sparse matrix", rows.items())

    def __repr__(self) -> str:
        where = "" if self.library is NUMPY else f", {self.library.name} on {self.library.where}"
        return (
            f"<sparse {self.format} {self.shape[0]}x{self.shape[1]} {self.dtype}, {100 * self.sparsity:.4g} % zeros, "
            f"{self.nbytes:,} bytes ({self.compression:.3g} times smaller than dense)"
            f"{', a scale a row' * (self.scale is not None)}{where}>"
        )

"""What all sparse formats have in common: a matrix of 16-bit floating-point numbers whose zeros are left out."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sparsegen.formats.library import NUMPY, Library
from sparsegen.formats.nest import Nest
from sparsegen.ir.errors import FormatError
from sparsegen.ir.types import DType

if TYPE_CHECKING:
    from typing_extensions import Self

Arrays = Mapping[str, Any]


class SparseMatrix(ABC):
    """A matrix [M, K] of f16 or bf16 in a sparse format, on the host or a device. Made by ``sparsegen.sparse``.

    An element is kept if any of its 16 bits is set: NaN, infinities and -0.0 come back bit for bit.
    """

    format: ClassVar[str]
    nest: ClassVar[Nest]
    parts: ClassVar[Mapping[str, str]]  #: the stored arrays: name -> NumPy's name of the dtype

    def __init__(self, shape: tuple[int, int], kind: DType, library: Library, arrays: Arrays, nnz: int) -> None:
        self.shape, self.kind, self.library, self.arrays, self.nnz = shape, kind, library, dict(arrays), nnz
        #: made with ``format="auto"``: a product may multiply by the dense matrix where that is faster
        self.auto = False

    # ---------------------------------------------------------------------------------------------- what a format says
    @classmethod
    @abstractmethod
    def _words(cls, lib: Library, octets: Any) -> tuple[Any, Any]:
        """From ``Nest.octets``: the words that say what is kept [blocks, ...]; counts of a block's parts, int64."""

    @classmethod
    @abstractmethod
    def _stream(cls, lib: Library, values: Any) -> Any:
        """A band's kept values (int16, blocks aligned) as they are stored."""

    @classmethod
    @abstractmethod
    def _assemble(cls, lib: Library, grid: tuple[int, int], words: Any, counts: Any, streams: list[Any]) -> Arrays:
        """The stored arrays from those of all bands: words and counts of all blocks, the values band by band."""

    @abstractmethod
    def _band(self, first: int, last: int) -> tuple[Any, Any, Any]:
        """The inverse for the blocks first .. last-1: octets, kept per block (int64), aligned values (int16)."""

    @abstractmethod
    def check(self) -> None:
        """FormatError if the arrays (on the host) contradict one another, so that a kernel would read astray."""

    # ----------------------------------------------------------------------------------------------------- there, back
    @classmethod
    def encode(cls, lib: Library, bits: Any, kind: DType) -> Self:
        """Encode a dense matrix, given as its int16 bits with any strides, where it is."""
        nest = cls.nest
        shape: tuple[int, int] = (int(bits.shape[0]), int(bits.shape[1]))
        words, counts, streams = [], [], []
        with lib.active():
            for band in nest.bands(shape, lib.band):
                blocks = nest.gather(lib, bits, band)
                present = blocks != 0
                word, count = cls._words(lib, nest.octets(lib, present))
                nest.fill(lib, present, count.sum(-1))
                streams.append(cls._stream(lib, lib.pick(blocks, present)))
                words.append(word)
                counts.append(count)
            kept = lib.concatenate(counts)
            arrays = cls._assemble(lib, nest.grid(shape), lib.concatenate(words), kept, streams)
            return cls(shape, kind, lib, arrays, int(kept.sum()))

    def to_dense(self) -> Any:
        """The dense matrix, in an array of the library and on the device that this one lives on."""
        nest, lib = self.nest, self.library
        strips, slabs = nest.grid(self.shape)
        inner = strips if nest.order[0] == "slab" else slabs
        with lib.active():
            out = lib.zeros(self.shape, "int16")
            for band in nest.bands(self.shape, lib.band):
                octets, counts, values = self._band(band[0] * inner, band[1] * inner)
                present = nest.from_octets(lib, octets)
                nest.fill(lib, present, counts)
                blocks = lib.zeros(present.shape, "int16")
                lib.put(blocks, present, values)
                nest.scatter(lib, blocks, out, band)
            return lib.floats(out, self.kind)

    def to_host(self) -> Self:
        """The same matrix in NumPy arrays: itself if it is there already."""
        if self.library is NUMPY:
            return self
        lib = self.library
        host = type(self)(self.shape, self.kind, NUMPY, {n: lib.to_host(a) for n, a in self.arrays.items()}, self.nnz)
        host.auto = self.auto
        return host

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array`` of float32 values, in which a kept -0.0 stays an explicit entry."""
        import scipy.sparse

        dense = self.to_host().to_dense()
        rows, pieces = 1 << 10, []
        for first in range(0, self.shape[0], rows):  # by rows, so that coordinates in 64 bits stay few
            piece = dense[first : first + rows]
            row, col = np.nonzero(piece.view(np.int16))
            values = piece[row, col].astype(np.float32)
            pieces.append((np.bincount(row, minlength=len(piece)), col.astype(np.int32), values))
        counts, cols, values = (np.concatenate(part) for part in zip(*pieces, strict=True))
        starts = np.concatenate([[0], np.cumsum(counts)])
        return scipy.sparse.csr_array((values, cols, starts), shape=self.shape)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the matrix to a file that ``sparsegen.load`` reads: whole and checksummed, or not at all."""
        from sparsegen.formats.file import write

        write(self, path)

    # --------------------------------------------------------------------------------------------------------- figures
    @property
    def dtype(self) -> str:
        """``"f16"`` or ``"bf16"``."""
        return self.kind.name

    @property
    def nbytes(self) -> int:
        """Bytes of the stored arrays."""
        return sum(int(np.prod(a.shape)) * int(a.itemsize) for a in self.arrays.values())

    @property
    def sparsity(self) -> float:
        """The share of elements that are left out, 0 to 1."""
        return 1 - self.nnz / (self.shape[0] * self.shape[1])

    @property
    def compression(self) -> float:
        """Bytes of the dense matrix over ``nbytes``."""
        return self.shape[0] * self.shape[1] * self.kind.nbytes / self.nbytes

    def __repr__(self) -> str:
        where = "" if self.library is NUMPY else f", {self.library.name} on {self.library.where}"
        return (
            f"<sparse {self.format} {self.shape[0]}x{self.shape[1]} {self.dtype}, {100 * self.sparsity:.4g} % zeros, "
            f"{self.nbytes:,} bytes ({self.compression:.3g} times smaller than dense){where}>"
        )

    def _expect(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """FormatError unless the arrays have these shapes and the dtypes of ``parts``."""
        for name, shape in shapes.items():
            array = self.arrays[name]
            if tuple(array.shape) != shape or array.dtype != np.dtype(self.parts[name]):
                raise FormatError(
                    f"{name} of a {self.format} matrix {self.shape[0]}x{self.shape[1]} is {array.dtype} "
                    f"{tuple(array.shape)}, it must be {self.parts[name]} {shape}",
                    hint="encode the matrix anew with sparsegen.sparse",
                )


def limit(what: str, count: int, bits: int) -> None:
    """FormatError if ``count`` does not fit an unsigned integer of so many bits."""
    if count >= 1 << bits:
        raise FormatError(
            f"the matrix has {count} {what}; the format counts them in {bits} bits",
            hint="cut the matrix into pieces of fewer rows",
        )

"""Matrices of integers as Magicube's own product reads them: SR-BCRS with a stride of the mma's k, digits apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.sr_bcrs import sr_bcrs
from sparsegen.formats.vectors import OfVectors
from sparsegen.ir.kernels.vector_block import index_type
from sparsegen.ir.numbers.strided import SHUFFLED, stride
from sparsegen.ir.op_spmm import Digit
from sparsegen.ir.types import DTYPES

Counts = tuple[tuple[int, int], ...]


def loads(w: SparseMatrix) -> Counts:
    """(vectors, vector rows of W's own height that have so many), ascending; worked out once."""

    def count() -> Counts:
        ptr = np.asarray(w.library.to_host(w.arrays["ptr"], DTYPES["s32"]))
        ends = ptr.reshape(-1, 2) if w.format == "sr_bcrs" else np.stack([ptr[:-1], ptr[1:]], axis=1)
        kinds, rows = np.unique(ends[:, 1] - ends[:, 0], return_counts=True)
        return tuple(zip(kinds.tolist(), rows.tolist(), strict=True))

    with w.library.active():
        return w.once("vectors of W's height", count)


def steps(counts: Counts, bits: int) -> int:
    """Steps of all vector rows, of digits of so many bits; one where there are none, as arrays are never empty."""
    return max(1, sum(-(-vectors // stride(bits)) * rows for vectors, rows in counts))


def most(found: tuple[Digit, ...]) -> int:
    """The largest number that digits make."""
    return sum(d.range[1] << shift for shift, d in found)


def largest(w: SparseMatrix) -> int:
    """W's largest integer if it has a sign and digits, else 0; worked out once."""

    def find() -> int:
        lib, stored = w.library, w.arrays["values"]
        if w.kind.kind != "int" or w.kind.bits < 8 or not stored.shape[0]:
            return 0
        return int(lib.view(stored, w.spec.raw).max())

    with w.library.active():
        return w.once("largest", find)


def _listed(host: SparseMatrix, size: int) -> tuple[Any, Any, npt.NDArray[np.int64]]:
    """``ptr``, ``idx`` and the values of each vector, [vectors, height], of blocks of ``size`` vectors."""
    spec, shape = host.spec, host.shape
    options = dict(spec.options)
    other = sr_bcrs(spec.dtype, options["height"], size, index_type(shape[1]).bits)
    with host.library.active():
        arrays: Mapping[str, Any] = host.arrays
        if other != spec:
            arrays = OfVectors.encode(other, host.library, spec.decode(host.library, arrays, shape)).arrays
        values = other.values(host.library, arrays, 0, len(arrays["idx"])).astype(np.int64)
    if spec.dtype.kind == "uint":
        values &= (1 << spec.dtype.bits) - 1
    return arrays["ptr"], arrays["idx"], values.reshape(-1, options["height"])


def pointers(w: SparseMatrix, bits: int) -> Any:
    """Of each vector row its first vector, a multiple of the stride, and where its vectors end (on the host)."""
    return _listed(w.to_host(), stride(bits))[0].reshape(-1)


def columns(w: SparseMatrix, bits: int, shuffle: bool) -> Any:
    """The column of each vector (on the host); with ``shuffle`` eight by eight in the paper's order."""
    _, found, _ = _listed(w.to_host(), stride(bits))
    found = found if found.size else np.full(stride(bits), -1).astype(f"u{index_type(w.shape[1]).nbytes}")
    return found.reshape(-1, len(SHUFFLED))[:, SHUFFLED].reshape(-1) if shuffle else found


def plane_words(w: SparseMatrix, found: tuple[Digit, ...]) -> Any:
    """Words of W's values: of each step digit by digit, row by row, those of its vectors (on the host)."""
    bits = found[0][1].bits
    size = stride(bits)
    _, _, rest = _listed(w.to_host(), size)
    rest = rest if rest.size else np.zeros((size, rest.shape[1]), np.int64)
    planes = list[npt.NDArray[np.int64]]()
    for _, kind in reversed(found[1:]):  # the lowest first; a digit with a sign takes from the one above it
        low = kind.range[0]
        planes.append((rest - low & (1 << bits) - 1) + low)
        rest = rest - planes[-1] >> bits
    whole = np.stack([rest, *reversed(planes)])  # digit, vector, row
    laid = whole.reshape(len(found), -1, size, whole.shape[2]).transpose(1, 0, 3, 2)  # step, digit, row, vector
    if bits == 4:
        laid = laid[..., 0::2] & 15 | (laid[..., 1::2] & 15) << 4
    return np.ascontiguousarray((laid & 255).astype(np.uint8)).reshape(-1).view(np.uint32)

"""The formats that a product may read a matrix in besides its own one, and the matrix in each of them.

Only matrices that were made with ``format="auto"`` have any, and those in SpInfer's nested tiles, which bitmap's
kernels multiply faster than the paper's own one.  What a format can gain is judged by figures that cost little
(elements, and vectors of 8 rows that hold any); the matrix is encoded again only for a product that looks at the
format's schedules, once, where the matrix is, and kept as long as it lives.
"""

from __future__ import annotations

from typing import Final

from sparsegen.formats.bitmap import Bitmap
from sparsegen.formats.csr import Csr, csr
from sparsegen.formats.hybrid import Hybrid, hybrid
from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import Nm
from sparsegen.formats.sr_bcrs import SrBcrs, sr_bcrs

#: The share of elements up to which rows are worth listing, or sorting; beyond it products are bound by what x costs.
LISTED: Final = 0.25
#: The same of f32, whose dense tiles are multiplied by tensor cores, which libraries' dense products do not use.
TILED: Final = 0.5
#: The share of elements in vectors of 8 rows that hold any, up to which keeping whole ones saves something.
VECTORS: Final = 0.75
#: Columns in 16 bytes: where a row has no whole number of these, libraries' dense products are slow, and vectors faster
#: however many there are.
ALIGNED: Final = 8
#: The share of elements from which on bits say where they are in less than a column each, about.
BITS: Final = 1 / 32
#: Elements of a dense matrix that formats are made by way of.
ROOM: Final = 1 << 28
#: Entries and rows up to which rows are put in another order: it takes the host a second (8192 rows with 2.1 million
#: entries in random places), and beyond that many.
SORTED_ENTRIES, SORTED_ROWS = 1 << 22, 1 << 15


def others(w: SparseMatrix) -> tuple[str, ...]:
    """The formats besides its own one in which kernels may be faster, first those that cost least to make."""
    if w.format == "tca_bme":
        return ("bitmap",)
    if not w.auto or w.kind.bits not in (16, 32) or w.kind.is_int:
        return ()
    narrow = w.kind.bits == 16  # f32 has kernels in csr and hybrid only
    if isinstance(w, Nm):  # where something repeats, kernels gain by what rows or columns share
        return ("bitmap",) if narrow and w.vector == (1, 1) else ()
    if not isinstance(w, (Bitmap, Csr)):
        return ()
    cells = w.shape[0] * w.shape[1]
    few = 0 < w.nnz <= LISTED * cells
    small = narrow and 0 < cells <= ROOM
    found = {
        "bitmap": isinstance(w, Csr) and small and w.nnz >= BITS * cells,
        "csr": isinstance(w, Bitmap) and few,
        "sr_bcrs": small and (w.shape[1] % ALIGNED > 0 or (few and w.stats().vectors * 8 <= VECTORS * cells)),
        "hybrid": 0 < w.nnz <= (LISTED if narrow else TILED) * cells
        and w.nnz <= SORTED_ENTRIES
        and w.shape[0] <= SORTED_ROWS,
    }
    return tuple(name for name, worth in found.items() if worth)


def read_as(w: SparseMatrix, name: str) -> SparseMatrix:
    """The matrix that kernels of one of those formats are given; ``w`` itself for bitmap, whose kernels make their own
    tiles of any matrix."""
    if name in ("", "bitmap", w.format):
        return w
    return w.once(("read as", name), lambda: _encoded(w, name))


def _encoded(w: SparseMatrix, name: str) -> SparseMatrix:
    lib: Library = w.library
    with lib.active():
        if name == "hybrid":
            rows = read_as(w, "csr")
            assert isinstance(rows, Csr)
            return Hybrid.of_rows(hybrid(w.kind), rows)
        bits = w.spec.decode(lib, w.arrays, w.shape)
        return Csr.encode(csr(w.kind), lib, bits) if name == "csr" else SrBcrs.encode(sr_bcrs(w.kind), lib, bits)

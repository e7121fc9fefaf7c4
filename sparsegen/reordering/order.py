"""``reorder``: an order of a matrix's rows, what it does to the matrix, and the matrix in that order."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from sparsegen.arguments import one_of, positive, real
from sparsegen.arrays import describe, detached
from sparsegen.callsite import located, user_loc
from sparsegen.cost.devices import DeviceProfile
from sparsegen.formats import file
from sparsegen.formats.csr import Csr
from sparsegen.formats.library import NUMPY, library_of
from sparsegen.formats.rows import Rows, checked_scipy, listed, rows_of
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.types import f16, s64
from sparsegen.registry import families
from sparsegen.reordering import bsa, parallel
from sparsegen.reordering.blocks import VARIANTS, Blocks, Variant, encoded
from sparsegen.reordering.report import GAIN, Figures, both, gain, table

#: A share of elements or of similarity, or that the cost model chooses it.
Share = float | Literal["auto"]
#: The columns of x that products are expected to have where nobody says.  Shares that are chosen for 128 are within
#: 1 % of the best for 32 on ten matrices, as what a product costs there is the same by shares; for 512 others were up
#: to 1.7 times as fast by the model, so who has as many says it.
COLUMNS: Final = 128
Method = Literal["bsa", "degree", "rcm", "none"]
METHODS: Final[tuple[Method, ...]] = ("bsa", "degree", "rcm", "none")
WIDEST: Final = 1024  #: columns of a block
#: On the host the paper's own clustering is taken where rows times the blocks that they touch are at most so many: it
#: takes about a second, if no row is like another.
SEQUENTIAL: Final = 10**8


@dataclass(frozen=True, eq=False)
class Reordering:
    """An order of the rows of a matrix of ``shape``, made by ``sparsegen.reorder``.

    ``permutation``: int64 [rows], new -> old: row ``permutation[i]`` comes to place i.  ``clusters``: of rows that have
    entries (1 of methods that make none).  ``before`` and ``after``: the figures of the matrix, for tiles of ``tile``
    that are dense above the share ``delta``.
    """

    permutation: Any
    shape: tuple[int, int]
    nnz: int
    method: Method
    tile: int
    alpha: float
    delta: float
    variant: Variant
    clusters: int
    before: Figures
    after: Figures
    #: What the cost model expects of products, where it chose alpha or delta.
    expected: str = ""

    def __post_init__(self) -> None:
        """FormatError, with the place, for a permutation that does not name each row once."""
        with located(user_loc()):
            check_permutation(self.permutation, self.shape[0])

    @property
    def gain(self) -> float:
        """How many times nonzeros per vector of 8 x 1 rise."""
        return gain(self.before, self.after)

    @property
    def advised(self) -> bool:
        """Whether that is enough for a product to be faster: 1.5 times or more."""
        return self.gain >= GAIN

    def report(self) -> str:
        """Rows, clusters, and what the order does to tiles and vectors, as text."""
        said = f"{self.method}, tiles {self.tile}x{self.tile}"
        if self.method == "bsa":
            said += f", alpha {self.alpha:g}{', as the authors code has it' * (self.variant == 'artifact')}: "
            said += f"{self.clusters:,} cluster{'s' * (self.clusters != 1)}"
        head = f"{self.shape[0]:,} rows, {self.shape[1]:,} columns, {self.nnz:,} nonzeros; {said}"
        figures = table(self.nnz, self.tile, self.delta, self.before, self.after)
        return "\n".join([head, figures, *filter(None, [self.expected])])

    def __repr__(self) -> str:
        return f"<reordering of {self.shape[0]} rows by {self.method}, {self.clusters} clusters>"

    def apply(self, a: Any) -> Any:
        """A copy of a matrix with its rows in this order; sparse ones of torch, SciPy and CuPy come back by rows.

        ``a``: as ``sparsegen.reorder`` takes it, of as many rows, or any array whose first axis is that long.
        """
        with located(user_loc()):
            if len(a.shape) < 1 or a.shape[0] != self.shape[0]:
                raise ArrayError(
                    f"a has shape {tuple(a.shape)}, the order is one of {self.shape[0]} rows",
                    hint="pass the matrix that was reordered, or one with as many rows",
                )
            scipy_sparse: Any = sys.modules.get("scipy.sparse")
            if scipy_sparse is not None and scipy_sparse.issparse(a):
                return checked_scipy(a).tocsr()[self.permutation]
            if (rows := listed(a)) is not None:
                lib, _ = library_of(describe(detached(rows.values)))
                with lib.active():
                    order = lib.constant(self.permutation)
                    if lib.name == "torch":
                        return a.to_sparse_coo().index_select(0, order).coalesce().to_sparse_csr()
                    return a.tocsr()[order]
            lib, _ = library_of(describe(detached(a)))
            with lib.active():
                return a[lib.constant(self.permutation)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the order and its figures to a file that ``Reordering.load`` reads: whole and checksummed."""
        said = {name: value for name, value in vars(self).items() if name not in ("permutation", "before", "after")}
        figures = {"before": asdict(self.before), "after": asdict(self.after)}
        file.write(path, {**said, **figures}, {"permutation": self.permutation})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Reordering:
        """Read what ``save`` wrote; FormatError for any other file, and for one that holds no permutation."""
        with located(user_loc()):
            return file.read(path, _read, "reordering", "Reordering.save")


def _read(said: Mapping[str, Any], arrays: Mapping[str, Any]) -> Reordering:
    """The order of a file's header and array; ValueError and the like if they are wrong."""
    permutation = arrays["permutation"].view(np.int64)
    rows, cols = said["shape"]
    if any(type(said[name]) is not int for name in ("nnz", "tile", "clusters")) or type(cols) is not int:
        raise ValueError("its numbers are none")
    before, after = (Figures(**said[name]) for name in ("before", "after"))
    method = METHODS[METHODS.index(said["method"])]
    variant = VARIANTS[VARIANTS.index(said["variant"])]
    alpha, delta = float(said["alpha"]), float(said["delta"])
    return Reordering(
        permutation, (rows, cols), said["nnz"], method, said["tile"], alpha, delta, variant, said["clusters"], before,
        after, str(said.get("expected", "")),
    )  # fmt: skip


def check_permutation(permutation: Any, rows: int) -> None:
    """FormatError, with the place, for anything but integers of NumPy that name each of so many rows once."""
    if not isinstance(permutation, np.ndarray) or permutation.dtype.kind not in "iu":
        raise FormatError(f"{type(permutation).__name__} {permutation!r:.40} is no permutation", hint=_NONE)
    if permutation.shape != (rows,):
        raise FormatError(f"a permutation of shape {permutation.shape} for {rows} rows", hint=_NONE)
    if (place := NUMPY.first((permutation < 0) | (permutation >= rows))) is not None:
        raise FormatError(f"place {place} of the permutation is {permutation[place]}, of {rows} rows", hint=_NONE)
    seen = np.bincount(permutation, minlength=rows)
    if (row := NUMPY.first(seen != 1)) is not None:
        raise FormatError(f"the permutation names row {row} {seen[row]} times", hint=_NONE)


_NONE: Final = "make it by sparsegen.reorder: each row comes once"


def reorder(
    a: Any,
    method: Method = "bsa",
    *,
    tile: int = 32,
    alpha: Share = 0.3,
    delta: Share = 0.3,
    variant: Variant = "paper",
    columns: int = COLUMNS,
    device: str | Path | DeviceProfile | None = None,
) -> Reordering:
    """An order of the rows of a matrix [M, K] that brings rows with entries in the same columns together.

    ``a``: a dense array of NumPy, torch or CuPy, or a sparse matrix of SciPy, torch or CuPy; only where its entries are
    matters (of sparse ones explicit zeros are entries).  ``method``:

    - ``"bsa"``: BSA-SpMM (Euro-Par 2024).  Rows are vectors of how many entries each block of ``tile`` columns (1 to
      1024) holds.  By ascending dispersion, each row joins the first cluster whose representative, the sum of its rows,
      has a weighted Jaccard similarity above ``alpha`` (0 to 1) with it, or begins one.  Empty rows come first.
      Matrices on a GPU, and large ones, are clustered by a parallel algorithm instead, there where they are.
      ``variant="artifact"``: the dispersion as the authors' code has it, ``nnz * nnzb + zf``.
    - ``"degree"``: rows with the most entries first, as Sputnik has them.
    - ``"rcm"``: reverse Cuthill-McKee, by SciPy, of a square matrix.
    - ``"none"``: as they are.

    ``delta`` (0 to 1): the report counts tiles as dense above this share of their elements.  Each of ``alpha`` and
    ``delta`` may be ``"auto"``: that with which the cost model expects the soonest product in f16, in the format
    ``hybrid``, with ``columns`` columns of x on ``device`` (as ``compile`` takes it); the report says what it expects,
    and where no dense tile pays.

    Raises ArrayError (what ``a`` is) or FormatError (an unknown method, options out of their ranges).
    """
    with located(user_loc()):
        check_options(method, tile, alpha, delta)
        one_of(variant, VARIANTS, "variant", FormatError)
        positive(columns, "columns", FormatError)
        if not check_device(device, alpha, delta):
            return of_rows(rows_of(a), method, int(tile), float(alpha), float(delta), variant)
        asked = {"tile": int(tile), "method": method, "alpha": alpha, "delta": delta}
        return _soonest(rows_of(a), {**asked, "columns": columns, "device": device or "auto"}, variant)


def check_options(method: Any, tile: Any, alpha: Any, delta: Any) -> None:
    """FormatError for an unknown method, and for numbers out of their ranges."""
    one_of(method, METHODS, "method", FormatError)
    if positive(tile, "tile", FormatError) > WIDEST:
        raise FormatError(
            f"tile={tile!r}: a block has up to {WIDEST} columns", hint="pass tile=32, as the paper has it"
        )
    for name, value in (("alpha", alpha), ("delta", delta)):
        number = None if isinstance(value, bool) else real(value)
        if (number is None or not 0 <= number <= 1) and not (isinstance(value, str) and value == "auto"):
            raise FormatError(f"{name}={value!r} is outside 0..1", hint=f'pass a share, as in {name}=0.3, or "auto"')


def check_device(device: Any, alpha: Any, delta: Any) -> bool:
    """Whether alpha or delta is left to the cost model; FormatError for a device whose model is not asked."""
    left = any(isinstance(share, str) for share in (alpha, delta))
    if device is not None and not left:
        raise FormatError(
            f"device={device!r} says whose cost model chooses, and nothing is left to it",
            hint='leave device away, or pass alpha="auto" or delta="auto"',
        )
    return left


def of_rows(rows: Rows, method: Method, tile: int, alpha: float, delta: float, variant: Variant) -> Reordering:
    """The order of rows by a method whose options were checked, with its figures."""
    with rows.library.active():
        blocks = encoded(rows, tile)
        permutation, clusters = ordered(rows, blocks, method, alpha, variant)
        found = both(rows, blocks, permutation, delta)
        return Reordering(permutation, rows.shape, rows.nnz, method, tile, alpha, delta, variant, clusters, *found)


def _soonest(rows: Rows, options: dict[str, Any], variant: Variant) -> Reordering:
    """The order with which a product is expected to be soonest; ``options`` as the format ``hybrid`` has them."""
    lib, tile, method = rows.library, options["tile"], options["method"]
    model: Any = families("spmm")["hybrid"]  # it is made of formats, which are made of orders: so it is found here
    with lib.active():
        values = lib.view(lib.zeros((rows.nnz,), "int16"), f16)
        matrix = Csr.of(f16, lib, rows.shape, rows.ptr, rows.idx, values)
        w, clusters, expected = model.tiling(matrix, options, variant)
        permutation = lib.to_host(lib.cast(w.order, s64), s64)
        alpha, delta = (dict(w.spec.options)[name] for name in ("alpha", "delta"))
        found = both(rows, encoded(rows, tile), permutation, delta)
        return Reordering(
            permutation, rows.shape, rows.nnz, method, tile, alpha, delta, variant, clusters, *found, str(expected)
        )


def ordered(rows: Rows, blocks: Blocks, method: Method, alpha: float, variant: Variant) -> tuple[Any, int]:
    """The permutation of rows by a method, int64 in NumPy, and the clusters of those that have entries."""
    if method == "bsa":
        on_host = rows.library is NUMPY and rows.shape[0] * int(blocks.row.shape[0]) <= SEQUENTIAL
        found = (bsa if on_host else parallel).clusters(blocks, alpha, variant)
        return found.permutation, found.count
    if method == "degree":
        return np.argsort(-np.diff(rows.to_host().ptr), kind="stable"), 1
    if method == "rcm":
        return _rcm(rows.to_host()), 1
    return np.arange(rows.shape[0], dtype=np.int64), 1


def _rcm(rows: Rows) -> Any:
    """Reverse Cuthill-McKee of a matrix and its transpose together."""
    if rows.shape[0] != rows.shape[1]:
        raise FormatError(
            f'method="rcm" orders the nodes of a graph, the matrix is {rows.shape[0]}x{rows.shape[1]}',
            hint='take "bsa" or "degree" for a matrix that is not square',
        )
    try:
        graphs, sparse = import_module("scipy.sparse.csgraph"), import_module("scipy.sparse")
    except ImportError as e:
        raise FormatError('method="rcm" needs SciPy, which is not installed', hint="pip install scipy") from e
    ones = np.ones(rows.nnz, np.float32)
    graph = sparse.csr_array((ones, rows.idx.astype(np.int32), rows.ptr.astype(np.int32)), shape=rows.shape)
    return graphs.reverse_cuthill_mckee(graph).astype(np.int64)

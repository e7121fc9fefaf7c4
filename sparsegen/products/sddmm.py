"""``sddmm``: a sampled product as the user describes it, and its size as the compiler sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from sparsegen.arguments import one_of, positive
from sparsegen.callsite import located, user_loc
from sparsegen.formats.bcrs import Bcrs, bcrs
from sparsegen.formats.format import Format
from sparsegen.formats.library import Library
from sparsegen.formats.matrix import KINDS, SparseMatrix
from sparsegen.formats.sr_bcrs import SrBcrs, sr_bcrs
from sparsegen.formats.vectors import OfVectors
from sparsegen.ir.errors import ProductError
from sparsegen.ir.numbers.gathered import MOST, runs
from sparsegen.ir.numbers.sampled import GROUP, STRIPS, tiles
from sparsegen.ir.types import DType, s32
from sparsegen.products.sampling import vectors_of
from sparsegen.sizes import MAX_CELLS

#: The dtypes of a and b, and the orders of the result's values.
DTYPES: Final = ("i8", "i4", "i16")
ORDERS: Final = ("bcrs", "sr_bcrs")


@dataclass(frozen=True)
class Sampled:
    """``C = a @ b`` where ``pattern`` keeps vectors, a [M, k] and b [k, N]; made by :func:`sparsegen.sddmm`.

    ``result``: the format of C.
    """

    pattern: Bcrs
    k: int
    dtype: str
    result: Format

    #: Axes of a grid: it has none.
    ndim: ClassVar[int] = 0
    #: What its kernels are called.
    name: ClassVar[str] = "sddmm"

    @property
    def kind(self) -> DType:
        """The type of the elements of a and b."""
        return KINDS[self.dtype]

    @property
    def stored(self) -> int:
        """Values of the result, those that fill it up among them."""
        return int(self.index(self.pattern.library)["idx"].shape[0]) * self.pattern.height

    def index(self, lib: Library) -> dict[str, Any]:
        """The result's ``ptr`` and ``idx`` in arrays of a library, made once."""

        def make() -> dict[str, Any]:
            own = self.pattern if lib == self.pattern.library else self.pattern.to_host()
            found = {"ptr": own.arrays["ptr"], "idx": own.arrays["idx"]}
            if self.result.name == "sr_bcrs":
                with own.library.active():
                    found = _filled_up(own, self.result)
            if own.library == lib:
                return found
            with lib.active():
                return {s.name: lib.constant(_signed(lib, found[s.name])) for s in self.result.stored[:-1]}

        return self.pattern.once(("index", self.result, lib), make)

    def matrix(self, lib: Library, values: Any) -> OfVectors:
        """The result with these values, an array of a library."""
        made = SrBcrs if self.result.name == "sr_bcrs" else Bcrs
        return made(self.result, self.pattern.shape, lib, {**self.index(lib), "values": values}, self.pattern.nnz)

    def __str__(self) -> str:
        (m, n), w = self.pattern.shape, self.pattern
        return f"a @ b, {m}x{self.k} by {self.k}x{n} {self.dtype}, where {w.height}x1 vectors keep {1 - w.sparsity:.1%}"


def _signed(lib: Library, array: Any) -> Any:
    """The array of the host as a library takes it: torch has no unsigned integers to speak of."""
    return array.view(f"i{array.itemsize}") if lib.name == "torch" else array


def _filled_up(w: Bcrs, result: Format) -> dict[str, Any]:
    """Pointers and columns of the vectors with each vector row filled up to whole blocks."""
    lib, stride = w.library, int(dict(result.options)["stride"])
    own = result.sparse.own.dtype
    starts = w.spec.starts(lib, w.arrays, 0, w.strips)
    counts = starts[1:] - starts[:-1]
    ends = lib.cumsum((counts + (stride - 1)) // stride * stride)
    ptr = lib.zeros((w.strips, 2), "int64")
    ptr[1:, 0] = ends[:-1]
    ptr[:, 1] = ptr[:, 0] + counts
    idx = lib.zeros((int(ends[-1]),), "int64") + own.range[1]
    count = int(w.arrays["idx"].shape[0])
    strip = lib.fibers(starts, count)
    idx[lib.arange(count) + (ptr[:, 0] - starts[:-1])[strip]] = lib.wide(w.arrays["idx"])
    return {"ptr": lib.cast(ptr, s32), "idx": lib.cast(idx, own)}


def sddmm(
    pattern: Any, k: int, dtype: str = "i8", *, out: str = "bcrs", height: int | None = None, stride: int | None = None
) -> Sampled:
    """The elements of ``a @ b`` that a pattern keeps: a [M, k], b [k, N], both integers; the result has the pattern.

    ``pattern``: a bool mask [M, N] or any ``scipy.sparse`` matrix (its entries) made of whole vectors of 8, 4 or 2 rows
    and one column, or an ``sg.sparse`` matrix; ``height`` says which vectors, by default the highest that there are.
    ``dtype`` of a and b: ``"i8"``, ``"i16"`` or ``"i4"`` (packed by ``sg.pack4`` along k, or int8 from -8 to 7).

    A call gives the result as a matrix of int32, exact modulo 2^32, in the order ``out``: ``"bcrs"``, in which the
    elements of a vector are adjacent, or ``"sr_bcrs"``, in blocks of ``stride`` vectors (32, or those of a pattern in
    sr_bcrs).  ProductError or ArrayError for anything else.
    """
    with located(user_loc()):
        count = positive(k, "k", ProductError)
        one_of(dtype, DTYPES, "dtype", ProductError)
        one_of(out, ORDERS, "out", ProductError)
        kept = vectors_of(pattern, height)
        (m, n), index = kept.shape, kept.spec.sparse.own.dtype.bits
        if out == "sr_bcrs":
            stride = pattern.stride if stride is None and isinstance(pattern, SrBcrs) else stride
            result = sr_bcrs(s32, kept.height, stride, index)
        elif stride is not None:
            raise ProductError(f"stride={stride!r} is of blocks, which bcrs has not", hint='add out="sr_bcrs"')
        else:
            result = bcrs(s32, kept.height, index)
        if not kept.nnz:
            raise ProductError("the pattern keeps no element", hint="there is nothing to compute: leave the call out")
        if dtype == "i4" and count % 2:
            raise ProductError(f"k={count} is odd: a byte holds two integers", hint="add a column of zeros to a and b")
        made = Sampled(kept, count, dtype, result)
        for what, size in (("a", m * count), ("b", count * n), ("the result", made.stored)):
            if size > MAX_CELLS:
                raise ProductError(
                    f"{what} has {size} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                    hint="take fewer rows or columns at a time",
                )
        return made


@dataclass(frozen=True)
class SddmmNumbers:
    """A sampled product in numbers, as far as schedules and costs are concerned.

    ``vectors`` of ``height`` rows are kept; ``stored``: values of the result, in blocks of ``stride`` vectors (0: one
    by one); ``nbytes``: of the result; ``tiles`` and ``longest``: of 16 vectors, for each width of a strip of columns
    that is tried: all tiles, and those of the longest task, 8 rows of the result in a strip.  ``whole``: tiles of tasks
    of 8 rows of the result and all columns, and ``runs``: tasks where these have no more tiles than are tried.
    """

    m: int
    n: int
    k: int
    dtype: str
    height: int
    vectors: int
    stored: int
    stride: int
    nbytes: int
    tiles: tuple[int, ...]
    longest: tuple[int, ...]
    whole: int
    runs: tuple[int, ...]

    @staticmethod
    def of(what: Sampled) -> SddmmNumbers:
        """The numbers of a product."""
        w = what.pattern

        def measured() -> tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]:
            with w.library.active():
                each = [tiles(task_counts(w, rows)) for rows in STRIPS]
                whole = tiles(task_counts(w, w.shape[1]))
            of_strips = tuple(int(t.sum()) for t in each), tuple(int(t.max()) for t in each)
            return *of_strips, int(whole.sum()), tuple(int(runs(whole, most).sum()) for most in MOST)

        each, longest, whole, split = w.once("sampled tiles", measured)
        sizes = what.index(w.library)
        nbytes = 4 * what.stored + sum(int(np.prod(a.shape)) * int(a.itemsize) for a in sizes.values())
        stride = int(dict(what.result.options).get("stride", 0))
        return SddmmNumbers(
            *w.shape,
            what.k,
            what.dtype,
            w.height,
            int(w.arrays["idx"].shape[0]),
            what.stored,
            stride,
            nbytes,
            each,
            longest,
            whole,
            split,
        )


def task_counts(w: Bcrs, rows: int) -> Any:
    """The vectors of each task, 8 rows of the result in a strip of so many columns: int64 [strips, groups of rows]."""
    lib, (m, n) = w.library, w.shape
    strips, groups = -(-n // rows), -(-m // GROUP)
    strip = lib.wide(w.arrays["idx"]) // rows
    group = vector_rows(w) // (GROUP // w.height)
    return lib.xp.bincount(strip * groups + group, minlength=strips * groups).reshape(strips, groups)


def vector_rows(w: Bcrs) -> Any:
    """The vector row of each vector, int64."""
    starts = w.spec.starts(w.library, w.arrays, 0, w.strips)
    return w.library.fibers(starts, int(w.arrays["idx"].shape[0]))


def is_matrix(array: Any, what: Sampled) -> bool:
    """Whether an array is a matrix in the format of a product's result."""
    return isinstance(array, SparseMatrix) and array.spec == what.result and array.shape == what.pattern.shape

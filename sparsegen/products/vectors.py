"""Matrices in vectors, in numbers and as kernels with ``mma`` read them: steps of 32 vectors, lane by lane.

A *vector row* is 8 rows of W, the columns of an ``mma``: of vectors of 4 or 2 rows as many as make 8, which take the
columns that any of them has.  Its vectors are cut into steps of 32, in an order in which the rows of x of each eight
that follow one another lie in different banks, as far as that goes (sparsegen/products/banks.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import FormatError
from sparsegen.ir.numbers.resident import padded_rows, place
from sparsegen.ir.numbers.vectors import HIGH, SPARE, STEP, Sums, digits, number_type, words
from sparsegen.ir.tile_vectors import BITS, PARTS
from sparsegen.ir.types import DTYPES, DType, s16, u16, u32
from sparsegen.products import strided
from sparsegen.products.banks import SLOTS, slots
from sparsegen.products.product import OfProduct, Product
from sparsegen.products.strided import Counts
from sparsegen.products.tasks import (
    Pieces,
    Records,
    deal,
    deal_lists,
    loads_of,
    pieces,
    pieces_of_lists,
    slots_of,
)
from sparsegen.sizes import MAX_CELLS

#: Steps that a task costs a warp besides its own (measured on an H200: some 600 clocks).
OF_TASK: Final = 2


@dataclass(frozen=True)
class VectorNumbers(OfProduct):
    """The numbers of a product with vectors.

    ``loads``: (steps, vector rows that have so many), ascending; ``vectors``: of 8 rows; ``nbytes``: of W's arrays;
    ``operands``: of bias, scale and residual; ``x`` and ``y``: their types, as the IR names them; ``after``: steps of
    the epilogue.  ``own``: (vectors, vector rows that have so many) of W's own height; ``bits``: of W's elements, and
    ``largest`` of these.
    """

    m: int
    k: int
    n: int
    dtype: str
    x: str
    y: str
    height: int
    columns: bool
    vectors: int
    nbytes: int
    operands: int
    loads: tuple[tuple[int, int], ...]
    after: int = 0
    own: Counts = ()
    bits: int = 0
    largest: int = 0

    @staticmethod
    def of(product: Product) -> VectorNumbers:
        """The numbers of a product; FormatError for a matrix that no kernel reads."""
        w, (m, k) = product.w, product.w.shape
        if not m or not k:
            raise FormatError(f"W has shape {m}x{k}: there is nothing to multiply", hint="leave the product out")
        if w.kind.bits > 16:
            raise FormatError(
                f"W is {w.dtype}; integers of 4 to 16 bits are multiplied", hint="quantize W: sg.quantize(w, bits=16)"
            )
        found = lengths(w)
        steps = -(-found // STEP)
        if (int(steps.sum()) + SPARE) * STEP * words(digits(w.kind)) > MAX_CELLS:
            raise FormatError(
                f"W has {int(found.sum())} vectors of 8 rows; indices are 32 bits wide",
                hint="cut the matrix into pieces of fewer rows",
            )
        if (longest := int(found.max(initial=0))) > (most := held(product)):
            raise FormatError(
                f"8 rows of W have {longest} vectors; 32 bits hold sums of {most} products of {w.dtype} by "
                f"{product.x_dtype}, as y_dtype={product.y_dtype!r} needs them",
                hint="cut W by columns, and add up the products",
            )
        kinds, rows = np.unique(steps, return_counts=True)
        kept = s16 if w.kind.bits == 12 else w.kind
        return VectorNumbers(
            m, k, product.n, kept.name, product.types.x.name, product.types.y.name,
            int(dict(w.spec.options)["height"]), product.columns, int(found.sum()), w.nbytes, product.operand_bytes,
            tuple(zip(kinds.tolist(), rows.tolist(), strict=True)), product.epilogue.steps, strided.loads(w),
            w.kind.bits, strided.largest(w),
        )  # fmt: skip

    @property
    def integers(self) -> bool:
        """Whether W and x are integers."""
        return self.x_kind.is_int

    @property
    def stored(self) -> dict[str, Any]:
        """What the op level says of W, and of integers of types."""
        types = {"x_type": DTYPES[self.x], "y_type": DTYPES[self.y]} if self.integers else {}
        return {"chunks": 0, "entries": self.vectors, "height": self.height, **types}

    @property
    def x_kind(self) -> DType:
        """The type of x."""
        return DTYPES[self.x]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of x."""
        return -(-self.n * self.x_kind.bits // 8)

    @property
    def steps(self) -> int:
        """Steps of all vector rows."""
        return sum(steps * rows for steps, rows in self.loads)

    @property
    def rows(self) -> int:
        """Vector rows."""
        return -(-self.m // HIGH)

    @property
    def longest(self) -> int:
        """Steps of the longest vector row."""
        return max(self.loads[-1][0], 1)

    def cut(self, most: int) -> list[tuple[int, int]]:
        """(steps, pieces of vector rows that have so many), where rows of more than ``most`` steps are cut."""
        found = [(steps, rows, max(-(-steps // most), 1)) for steps, rows in self.loads]
        return sorted((-(-steps // pieces), rows * pieces) for steps, rows, pieces in found)

    def slots(self, most: int, lists: int) -> int:
        """Slots of a list of such pieces."""
        return slots_of(self.loads, most, lists)

    @property
    def words(self) -> int:
        """Words of W's values that a lane has of a step."""
        return words(digits(DTYPES[self.dtype]))


def held(product: Product) -> int:
    """How many products of a row may be added up so that no sum of digits wraps.

    y of i32 may wrap; but not sums that are 16 times as large for each operand of 4 bits, until they are shifted.  Of
    floats none does.
    """
    if not product.w.kind.is_int:
        return MAX_CELLS
    w, x = digits(product.w.kind), digits(product.types.x)
    sums = Sums(w, x, 1)
    if product.types.y.is_int and not sums.over:
        return MAX_CELLS
    pairs = [(i + j, max(-a.range[0], a.range[1]) * max(-b.range[0], b.range[1])) for i, a in w for j, b in x]
    largest = max(sum(most for at, most in pairs if at == shift) for shift in sums.shifts)
    return (2**31 - 1) // (largest << sums.over)


class Steps(NamedTuple):
    """A matrix cut into steps: ``begin`` and ``end`` of each vector row (on the host), the ``column`` of each vector of
    each step, [steps * 32], and whether one is ``there``.

    What fills a step up has a column of the same vector row, of the same eight where these have any: of others a NaN or
    Inf of x would come into its sums.
    """

    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    column: Any
    there: Any


def lengths(w: SparseMatrix) -> npt.NDArray[np.int64]:
    """Vectors of 8 rows of each vector row, on the host; worked out once."""

    def count() -> npt.NDArray[np.int64]:
        with w.library.active():
            kept = w.library.cast(_mask(w).sum(-1), DTYPES["s64"])
            return np.asarray(w.library.to_host(kept, DTYPES["s64"]))

    return w.once("vectors a row", count)


def _groups(w: SparseMatrix) -> Any:
    """The elements' signed bits as vector rows, [vector rows, 8, K]."""
    bits, lib = w.spec.decode(w.library, w.arrays, w.shape), w.library
    rows = -(-w.shape[0] // HIGH)
    if bits.shape[0] < rows * HIGH:
        whole = lib.zeros((rows * HIGH, w.shape[1]), f"int{8 if w.kind.bits <= 8 else 16}")
        whole[: bits.shape[0]] = bits
        bits = whole
    return lib.packed(bits).reshape(rows, HIGH, w.shape[1])


def _mask(w: SparseMatrix) -> Any:
    """Which columns a vector row has vectors in, bool [vector rows, K]."""
    return (_groups(w) != 0).any(1)


def steps_of(w: SparseMatrix) -> Steps:
    """How the matrix is cut into steps; worked out once."""

    def cut() -> Steps:
        lib, kept = w.library, _mask(w)
        steps = -(-lengths(w) // STEP)
        end = np.cumsum(steps)
        begin = end - steps
        row, number = np.nonzero(lib.to_host(lib.cast(kept, DTYPES["s8"]), DTYPES["s8"]))
        column = np.full(int(end[-1]) * STEP, -1)
        column[slots(row, number, steps * (STEP // SLOTS))] = number
        there, some = column >= 0, steps > 0
        of_row = np.repeat(column[begin[some] * STEP], steps[some] * STEP)
        of_phase = np.repeat(column[::SLOTS], SLOTS)
        full = np.where(there, column, np.where(of_phase >= 0, of_phase, of_row))
        return Steps(begin, end, lib.constant(full), lib.constant(there))

    with w.library.active():
        return w.once("steps of vectors", cut)


def places(w: SparseMatrix, wide: int) -> Any:
    """Where in a strip, with swizzled rows of ``wide`` bytes, the row of x of each vector begins: in 16-byte units."""
    with w.library.active():
        return _spared(w.library, place(steps_of(w).column, wide), u16)


def numbers(w: SparseMatrix) -> Any:
    """The row of x of each vector."""
    with w.library.active():
        return _spared(w.library, steps_of(w).column, number_type(w.shape[1]))


def _spared(lib: Library, found: Any, kind: DType) -> Any:
    """The numbers, and zeros for the steps behind the last one."""
    made = lib.zeros((found.shape[0] + SPARE * STEP,), "int64")
    made[: found.shape[0]] = found
    return lib.cast(made, kind)


def values(w: SparseMatrix) -> Any:
    """Words of the values, step by step and lane by lane: of each digit the second operand of an mma.

    Slot 16 h + 8 p + 2 t + i of a step, in row g, is byte 2 p + i of register h of lane 4 g + t; elements of 4 bits
    have both registers in one word, the first in the low halves of its bytes.  Of floats it is half i of register p of
    the mma of part h.
    """
    lib = w.library
    with lib.active():
        cut = steps_of(w)
        rows, total = len(cut.begin), int(cut.end[-1])
        groups = _groups(w)
        row = lib.constant(np.repeat(np.arange(rows), (cut.end - cut.begin) * STEP))
        found = groups[row, :, cut.column] * lib.cast(cut.there, DTYPES["s8"]).reshape(-1, 1)  # [slots, 8 rows]
        size = len(digits(w.kind))
        bits = lib.view(lib.packed(found), "int8" if w.kind.is_int else "int16")
        held = bits.reshape(total, 2, 2, 4, 2, HIGH, size)  # step, h, p, t, i, g, digit
        if w.kind.bits == 4:
            low, high = held[:, 0] & 15, held[:, 1] & 15
            word = lib.packed(lib.transpose((low | high * 16)[..., 0], (0, 4, 2, 1, 3)))  # step, g, t, p, i
        else:
            turned = lib.transpose(lib.xp.flip(held, (6,)), (0, 5, 3, 6, 1, 2, 4))  # the high byte first
            word = lib.packed(turned)  # step, g, t, digit, h, p, i
        flat = lib.view(word.reshape(-1), u32)
        made = lib.zeros((flat.shape[0] + SPARE * 32 * words(digits(w.kind)),), "int32")
        made = lib.view(made, u32)
        made[: flat.shape[0]] = flat
        return made


def cut_rows(w: SparseMatrix, most: int) -> Pieces:
    """The vector rows in pieces of at most so many steps; worked out once."""

    def cut() -> Pieces:
        whole = steps_of(w)
        return pieces(whole.begin, whole.end, most)

    return w.once(("cut rows", most), cut)


def cut_in_lists(w: SparseMatrix, most: int, lists: int) -> Pieces:
    """The same with all pieces of a row in one of so many lists; worked out once.  ``slots``: of each list."""

    def cut() -> Pieces:
        whole = steps_of(w)
        room = slots_of(loads_of(whole.end - whole.begin), most, lists)
        return pieces_of_lists(whole.begin, whole.end, most, lists, room, OF_TASK)

    return w.once(("cut in lists", most, lists), cut)


def tasks(w: SparseMatrix, lists: int, warps: int, parts: int, most: int) -> Records:
    """Records of all pieces of vector rows for ``tile.each_task``, on the host, with the steps that need a part of x's
    strip.

    Steps are counted from the task's first one; BITS bits for each part but the first.
    """

    def dealt() -> Records:
        cut, found = steps_of(w), cut_in_lists(w, most, lists)
        each = padded_rows(w.shape[1], parts) // parts
        column = w.library.to_host(w.library.packed(cut.column), DTYPES["s64"])
        last = column.reshape(-1, STEP).max(1, initial=0)
        word = np.zeros(len(found.begin), dtype=np.int64)
        never = (1 << BITS) - 1
        for part in range(1, PARTS):
            there = np.append(np.flatnonzero(last >= part * each), 1 << 40)
            first = there[np.searchsorted(there, found.begin)]
            need = np.where(first < found.end, np.minimum(first - found.begin, never - 1), never)
            word |= need << BITS * (part - 1)
        if found.slots:
            return deal_lists(found, word, lists, warps, OF_TASK)
        return deal(found.begin, found.end, word, lists, warps, found.row, len(cut.begin))

    return w.once(("vector tasks", lists, warps, parts, most), dealt)


def parted(w: SparseMatrix, down: int, across: int, most: int) -> Records:
    """Records of all pieces of vector rows, ``down`` a list, each for ``across`` warps, by their word."""

    def dealt() -> Records:
        found = cut_rows(w, most)
        lists = -(-len(found.row) // down)
        rows = deal(found.begin, found.end, np.zeros_like(found.row), lists, down, found.row, len(found.cuts))
        made = np.repeat(rows[..., None, :], across, axis=-2)
        made[..., 3] = np.arange(across)
        return made.reshape(lists, -1, down * across, made.shape[-1])

    return w.once(("parted tasks", down, across, most), dealt)

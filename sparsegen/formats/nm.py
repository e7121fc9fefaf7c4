"""N:M patterns as in nmSPARSE: of every ``m`` consecutive columns ``n`` are kept, alike in ``r`` adjacent rows or not.

The matrix is cut into *groups* of r rows (the last one may be short) and *windows* of m columns (the last one may be
short), and each window into blocks of r x c, of which n / c are kept: single elements (EW: r = c = 1), vectors
(VW: c = 1) or blocks (BW).  Group by group, and in a group window by window:

- ``idx`` uint8 [groups * windows * n/c]: the positions of the kept blocks in their window, counted in blocks,
  ascending.  Block j of window t of group g is ``idx[(g * windows + t) * (n // c) + j]``.
- ``values`` [groups * windows * n/c * r * c]: these blocks in the same order, each row by row.

A window that holds fewer blocks stores blocks of zeros too, at its first positions that are free.  So every window of
every group has n / c positions, all different, and kernels need no counts.  What lies beyond the matrix is zero: the
rows of a short last group, and the columns of a block over its right edge.  The positions of a short last window lie
inside the matrix as long as it has enough; if it has s < n / c blocks they are 0 .. n / c - 1, of which those from s
on lie beyond column K: their values are zero, and x must not be read there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import index
from typing import Any, Final

from sparsegen.formats.axes import AGAIN, Crowded, Dense, Fixed, Stored
from sparsegen.formats.blocks import Blocked
from sparsegen.formats.format import Format
from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import FormatError
from sparsegen.ir.types import DType, u8

WIDEST: Final = 64  #: columns of a window
TALLEST: Final = 1024  #: rows of a vector

Vector = int | Sequence[int]


def nm(dtype: DType, n: int = 2, m: int = 4, vector: Vector = 1) -> Format:
    """The format for f32, f16 or bf16; ``vector``: r or (r, c).  FormatError for numbers that make no pattern."""
    return _format(dtype, *checked(n, m, vector))


def checked(n: Any, m: Any, vector: Any) -> tuple[int, int, tuple[int, int]]:
    """n, m and the (rows, columns) of a block as plain integers; FormatError for numbers that make no pattern."""
    kept, width = whole(n), whole(m)
    if kept is None or width is None or not 1 <= kept < width <= WIDEST:
        raise FormatError(
            f"n={n!r} of every m={m!r} columns",
            hint=f"give whole numbers, 1 <= n < m <= {WIDEST}: n=2, m=4, or n=8, m=32",
        )
    rows, cols = vector if isinstance(vector, (tuple, list)) and len(vector) == 2 else (vector, 1)
    r, c = whole(rows), whole(cols)
    if r is None or c is None or not 1 <= r <= TALLEST or c < 1:
        raise FormatError(
            f"vector={vector!r} is no number of rows, nor a block's (rows, columns)",
            hint=f"give the rows that share a pattern, 1 to {TALLEST}, such as vector=64, or a block: vector=(4, 4)",
        )
    if kept % c or width % c:
        raise FormatError(
            f"blocks {r}x{c} do not divide n={kept} and m={width}, which count columns",
            hint=f"choose n and m that are multiples of {c}, or blocks whose columns divide both",
        )
    return kept, width, (r, c)


def whole(number: Any) -> int | None:
    """An integer of Python or NumPy as Python's; None for anything else, a bool too."""
    try:
        return None if isinstance(number, bool) else index(number)
    except TypeError:
        return None


@cache
def _format(dtype: DType, n: int, m: int, vector: tuple[int, int]) -> Format:
    rows, cols = vector
    kept = Fixed("slab", Stored("idx", u8), n // cols, m // cols)
    options = (("n", n), ("m", m), ("vector", vector))
    return Format("nm", dtype, Blocked.plain(rows, cols), (Dense("strip"), kept, Dense("element")), options=options)


class Nm(SparseMatrix):
    """A matrix of an N:M pattern, with what products ask of it."""

    @property
    def n(self) -> int:
        """Columns kept of each window."""
        return int(dict(self.spec.options)["n"])

    @property
    def m(self) -> int:
        """Columns of a window."""
        return int(dict(self.spec.options)["m"])

    @property
    def vector(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.spec.blocks.rows, self.spec.blocks.cols

    @property
    def groups(self) -> int:
        """Groups of rows, a short last one counted."""
        return self.spec.fibers(self.shape)[0][0]

    @property
    def windows(self) -> int:
        """Windows of a row, a short last one counted."""
        return self.spec.fibers(self.shape)[0][1]

    @classmethod
    def encode(cls, spec: Format, lib: Library, bits: Any) -> Nm:
        """Encode a dense matrix, given as its signed bits; FormatError for the first window that breaks the pattern."""
        try:
            return super().encode(spec, lib, bits)
        except Crowded as e:
            raise _broken(spec, bits, *divmod(e.fiber, spec.fibers(bits.shape)[0][1]), e.count) from None

    def to_torch_semi_structured(self) -> Any:
        """A ``torch.sparse.SparseSemiStructuredTensor``, which torch multiplies by ``mma.sp``.

        Of a matrix of f16 or bf16 in torch on a GPU with 2 of 4 columns, or fewer, kept; FormatError for any other, and
        where torch takes no matrix of its shape.  A -0.0 may come out as 0.
        """
        if (self.n, self.m) not in ((2, 4), (1, 4), (1, 2)) or self.kind.bits != 16 or self.library.name != "torch":
            raise FormatError(
                f"torch has no semi-structured tensor for {self.n}:{self.m} of {self.dtype} in {self.library.name}",
                hint='encode a torch tensor on a GPU: sg.sparse(w.half().cuda(), "nm", n=2, m=4)',
            )
        try:
            return self.library.xp.sparse.to_sparse_semi_structured(self.to_dense())
        except RuntimeError as e:
            raise FormatError(
                f"torch makes no semi-structured tensor of {self!r}: {e}",
                hint="it takes matrices on a GPU whose rows and columns are multiples of 64; sg.spmm takes all",
            ) from e

    def check(self) -> None:
        """FormatError if the arrays contradict one another, or hold anything beyond the matrix."""
        super().check()
        (r, c), (rows, cols) = self.vector, self.shape
        with self.library.active():
            blocks = self.groups * self.windows * (self.n // c)
            values = self.spec.values(self.library, self.arrays, 0, blocks)
            values = values.reshape(self.groups, self.windows, self.n // c, r, c)
            last = self.library.wide(self.arrays["idx"]).reshape(self.groups, self.windows, self.n // c)[:, -1]
            width = cols - (self.windows - 1) * self.m
            column = last.reshape(*last.shape, 1) * c + self.library.arange(c)
            beyond = (values[:, -1] != 0).any(2) & (column >= width)
            below = values[-1, :, :, rows - (self.groups - 1) * r :]
            if bool((last >= max(-(-width // c), self.n // c)).any()) or bool(beyond.any()) or bool((below != 0).any()):
                raise FormatError(f"the arrays hold elements beyond the matrix {rows}x{cols}", hint=AGAIN)


def _broken(spec: Format, bits: Any, group: int, window: int, count: int) -> FormatError:
    """What is wrong with the first window that has too many blocks."""
    options, (r, c) = dict(spec.options), (spec.blocks.rows, spec.blocks.cols)
    n, m = options["n"], options["m"]
    top, left = group * r, window * m
    bottom, right = (min(at + by, end) for at, by, end in zip((top, left), (r, m), bits.shape, strict=True))
    piece = bits[top:bottom, left:right]
    rows = f"row {top}" if r == 1 else f"rows {top}..{bottom - 1} (group {group})"
    what = "columns" if c == 1 else f"blocks of {c} columns"
    vector = "" if r == c == 1 else f", vector={r if c == 1 else (r, c)}"
    negative = bool(((piece != 0) & (piece + piece == 0)).any())
    return FormatError(
        f"{rows}, window {window} (columns {left}..{right - 1}): {count} {what} hold elements, {n}:{m} keeps {n // c}",
        hint=f'prune it first: sg.prune(w, "nm", n={n}, m={m}{vector})'
        + ("; -0.0 is an element too, which w + 0 makes 0" if negative else ""),
    )

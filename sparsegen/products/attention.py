"""``attention``: sparse attention as the user describes it, and its size as the compiler sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from sparsegen.arguments import positive
from sparsegen.callsite import located, user_loc
from sparsegen.formats.bcrs import Bcrs
from sparsegen.ir.errors import ProductError
from sparsegen.ir.numbers.attention import SOFTMAX_BITS, STEP, WIDTHS, blocks_of
from sparsegen.products.attention_tasks import counted
from sparsegen.products.sampling import vectors_of
from sparsegen.sizes import MAX_CELLS

#: Bits of q, k and v.
BITS: Final = (4, 8)


@dataclass(frozen=True)
class Attention:
    """``softmax(q k^T / sqrt(d) where pattern) v`` of each head; made by :func:`sparsegen.attention`."""

    pattern: Bcrs
    heads: int
    d: int
    bits: int = 8
    softmax_bits: int = 8
    batch: int = 1
    quantized: bool = False

    #: Axes of a grid: it has none.
    ndim: ClassVar[int] = 0
    #: What its kernels are called.
    name: ClassVar[str] = "attention"
    #: The element type of the result.
    dtype: ClassVar[str] = "f16"

    @property
    def lead(self) -> tuple[int, ...]:
        """The axes of q, k, v and the result before rows: [batch, heads], or [heads] for a batch of one."""
        return (self.batch, self.heads) if self.batch > 1 else (self.heads,)

    def __str__(self) -> str:
        (m, n), w = self.pattern.shape, self.pattern
        times = f"{self.batch} x " * (self.batch > 1)
        given = "int8" if self.quantized else f"f16 as {self.bits}-bit"
        return (
            f"softmax(q @ k.T / sqrt({self.d})) @ v, {times}{self.heads} heads, {m} queries x {n} keys, {given}, "
            f"where {w.height}x1 vectors keep {1 - w.sparsity:.1%}"
        )


def attention(
    pattern: Any, heads: int, d: int, *, bits: int = 8, softmax_bits: int = 8, batch: int = 1, quantized: bool = False
) -> Attention:
    """Sparse attention, ``softmax(q k^T / sqrt(d) where pattern) v`` of each head, by products of 8-bit integers.

    ``pattern``: which keys a query sees, the same for all heads: a bool mask [M, N] of M queries and N keys, or a
    ``scipy.sparse`` matrix (its entries), made of whole vectors of 8, 4 or 2 queries and one key, as
    ``sg.pattern.vectors`` makes them; or an ``sg.sparse`` matrix of vectors.  A query that sees no key gets 0.

    A call takes q [batch, heads, M, d], k and v [batch, heads, N, d] (without the first axis for ``batch=1``) in f16
    and gives f16 of q's shape.  ``d`` is 32, 64 or 128.  Each of q, k and v is rounded to integers of ``bits`` bits (8,
    or 4) times its largest element over the largest integer; a NaN or infinity in them is refused where they are on the
    host, and spoils the result where they are not.  With ``quantized=True`` they are int8, and a call takes
    ``q_scale``, ``k_scale`` and ``v_scale``, a positive number each.  Exponentials are rounded to ``softmax_bits`` bits
    (8 or 16), the largest of a row's being the largest integer.  Scores of any size are fine.

    ProductError or ArrayError for anything else.
    """
    with located(user_loc()):
        count, many = positive(heads, "heads", ProductError), positive(batch, "batch", ProductError)
        for name, value, known in (
            ("d", d, WIDTHS),
            ("bits", bits, BITS),
            ("softmax_bits", softmax_bits, SOFTMAX_BITS),
        ):
            if isinstance(value, bool) or value not in known:
                listed = ", ".join(map(str, known))
                raise ProductError(
                    f"{name}={value!r}: there is none but {listed}", hint=f"give one of these: {name}={known[0]}"
                )
        if not isinstance(quantized, bool):
            raise ProductError(f"quantized is {quantized!r}, it must be True or False", hint="q, k, v in int8: True")
        made = Attention(vectors_of(pattern, None), count, d, bits, softmax_bits, many, quantized)
        (m, n), each = made.pattern.shape, count * many * d
        for what, size in (("q", m * each), ("k", n * each)):
            if size > MAX_CELLS:
                raise ProductError(
                    f"{what} has {size} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                    hint="call it for fewer heads at a time",
                )
        return made


@dataclass(frozen=True, eq=False)
class AttentionNumbers:
    """Attention in numbers, as far as schedules and costs are concerned: ``heads`` of all batches.

    ``vectors`` of ``height`` queries and one key are kept.
    """

    w: Bcrs
    m: int
    n: int
    heads: int
    d: int
    height: int
    vectors: int
    bits: int
    softmax_bits: int
    quantized: bool

    @staticmethod
    def of(what: Attention) -> AttentionNumbers:
        """The numbers of a described attention; the same ones for the same."""
        w, heads = what.pattern, what.heads * what.batch
        vectors = int(w.arrays["idx"].shape[0])

        def numbers() -> AttentionNumbers:
            return AttentionNumbers(
                w, *w.shape, heads, what.d, w.height, vectors, what.bits, what.softmax_bits, what.quantized
            )

        return w.once(("attention", heads, what.d, what.bits, what.softmax_bits, what.quantized), numbers)

    @property
    def rows(self) -> int:
        """Vector rows."""
        return -(-self.m // self.height)

    def blocks(self, parts: int, keys: int) -> tuple[int, int]:
        """Blocks of so many keys that all rows have in all parts, and the most of one row in one part."""
        each = blocks_of(counted(self.w, parts), keys // STEP)
        return int(each.sum()), int(each.max())

    @property
    def nbytes(self) -> int:
        """Of q, k, v and the result."""
        item = 1 if self.quantized else 2
        return self.heads * self.d * (self.m * (item + 2) + 2 * self.n * item)

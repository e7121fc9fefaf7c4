"""Sparse attention as two products in numbers: one that samples scores, and one of their exponentials by v.

Of both the model knows what it knows of any such product; heads are a batch of it, which costs what one product of so
many times the rows does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sparsegen.formats.sr_bcrs import sr_bcrs
from sparsegen.ir.numbers.strided import stride
from sparsegen.ir.types import s8, s32
from sparsegen.products.attention import AttentionNumbers
from sparsegen.products.attention_tasks import counted
from sparsegen.products.sddmm import Sampled, SddmmNumbers
from sparsegen.products.vectors import VectorNumbers

#: Vectors of a block of scores, which is a step of the product of their exponentials.
BLOCK = stride(8)


class Products(NamedTuple):
    """The numbers of the sampled product of one head, and of both products of all heads; ``blocks`` of a head's
    scores."""

    head: SddmmNumbers
    scores: SddmmNumbers
    values: VectorNumbers
    blocks: int


def products(p: AttentionNumbers) -> Products:
    """The two products of an attention, worked out once."""
    return p.w.once(("products", p.heads, p.d, p.softmax_bits), lambda: _products(p))


def _products(p: AttentionNumbers) -> Products:
    result = sr_bcrs(s32, p.height, BLOCK, p.w.spec.sparse.own.dtype.bits)
    head, each = SddmmNumbers.of(Sampled(p.w, p.d, "i8", result)), counted(p.w, 1)[0]
    several = ("m", "n", "vectors", "stored", "nbytes", "whole")
    scores: dict[str, Any] = {name: p.heads * getattr(head, name) for name in several}
    scores |= {name: tuple(p.heads * n for n in getattr(head, name)) for name in ("tiles", "runs")}
    vectors, rows = np.unique(each, return_counts=True)
    own = tuple(zip(vectors.tolist(), (p.heads * rows).tolist(), strict=True))
    m, item = p.heads * p.rows * p.height, p.softmax_bits // 8
    values = VectorNumbers(
        m=m, k=p.heads * p.n, n=p.d, dtype=f"u{p.softmax_bits}", x=s8.name, y="f16", height=p.height, columns=False,
        vectors=p.heads * p.vectors, nbytes=p.heads * head.stored * item, operands=4 * m, loads=(), own=own,
        bits=p.softmax_bits,
    )  # fmt: skip
    return Products(head, replace(head, **scores), values, max(1, int((-(-each // BLOCK)).sum())))

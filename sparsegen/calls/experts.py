"""What a call of a product with several matrices makes arrays of: counts of columns, which are whose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparsegen.arguments import positive
from sparsegen.arrays import Expect, describe, host_array
from sparsegen.counts.launch import WHOLE
from sparsegen.formats.library import library_of
from sparsegen.ir.errors import ArrayError, ProductError
from sparsegen.products.product import Product
from sparsegen.views import ArrayLayout, ArrayView

#: The names by which a call is told, and the role of the array.
GIVEN: Final = ("counts", "offsets")
OFFSETS: Final = "offsets"


class Offsets(Expect):
    """Sums of counts, from 0 on: expert e has the columns from offsets[e] on up to offsets[e + 1]."""

    __slots__ = ("n",)

    def __init__(self, experts: int, n: int, backend: str) -> None:
        super().__init__(OFFSETS, (experts + 1,), np.int32, backend=backend)
        self.n = n

    def __call__(self, array: Any) -> ArrayView:
        """Also ArrayError for numbers on the host that are no sums; those of a GPU are not read."""
        view = super().__call__(array)
        if view.layout.device_kind == "host":
            sums = host_array(view)
            falls = np.flatnonzero(np.diff(sums) < 0)
            if len(falls) or sums[0] < 0 or sums[-1] > self.n:
                at = int(falls[0]) + 1 if len(falls) else 0 if sums[0] < 0 else len(sums) - 1
                raise ArrayError(
                    f"offsets[{at}] is {sums[at]}: they rise from 0 up to the {self.n} columns of x, at most",
                    hint="pass sums of counts, np.cumsum([0, *counts]), or the counts themselves",
                )
        return view

    def _other_dtype(self, layout: ArrayLayout) -> tuple[str, str]:
        return f"offsets has dtype {layout.dtype}", "convert it to int32"

    def _other_shape(self, layout: ArrayLayout) -> tuple[str, str]:
        return (
            f"offsets has shape {layout.shape}, it must be {self.shape}: one more than experts",
            "pass sums of counts: torch.cumsum(counts, 0), with a 0 in front",
        )

    def _order(self, layout: ArrayLayout) -> None:
        if not layout.contiguous:
            raise ArrayError("offsets is not packed", hint="copy it: a.contiguous() in torch")

    def even(self) -> npt.NDArray[Any]:
        """Offsets by which columns are spread as evenly as they go."""
        experts = self.shape[0] - 1
        return (np.arange(experts + 1) * self.n // experts).astype(np.int32)


def offsets(values: Mapping[str, Any], check: Offsets) -> Any:
    """The array of offsets of a call, beside its x; None where it says nothing.

    ArrayError for both ways of saying it, and for counts that do not fit.
    """
    counts, given = (values.get(name) for name in GIVEN)
    if counts is not None and given is not None:
        raise ArrayError("counts and offsets are given", hint="pass one of them: counts on the host, or their sums")
    if counts is None:
        return given
    each = _counts(counts, check.shape[0] - 1)
    if (total := sum(each)) != check.n:
        raise ArrayError(
            f"counts sum to {total}, x has {check.n} columns",
            hint=f"compile sg.spmm(..., n={total}, ragged=True); or pass offsets, whose last one may be less than n",
        )
    lib, _ = library_of(describe(values["x"]))
    with lib.active():
        return lib.constant(np.cumsum([0, *each], dtype=np.int32))


def counted(product: Product, check: Offsets) -> npt.NDArray[Any]:
    """The offsets that a product's instructions are counted with; ProductError for one that is too large for that."""
    elements = prod(product.w.shape)
    if elements > WHOLE:
        raise ProductError(
            f"{product.stack} of {elements} elements in all: their blocks are counted one by one",
            hint=f"count a product of up to {WHOLE} elements, or of one expert, which may have more",
        )
    return check.even()


def beside(x: Any, what: str) -> None:
    """ArrayError where a call with a stream of its own would have an array made on another one, for an x on a GPU."""
    layout = describe(x).layout
    if layout.device_kind != "host":
        raise ArrayError(
            f"{what} is made one array on the current stream of {layout.library}; the call has a stream of its own",
            hint="pass one array (offsets in place of counts), or make that stream the current one and leave it away",
        )


def _counts(counts: Any, experts: int) -> list[int]:
    """Counts as integers; ArrayError for what are none, or not one an expert."""
    try:
        found = [positive(int(n) if isinstance(n, np.integer) else n, f"counts[{i}]", ArrayError, least=0)
                 for i, n in enumerate(_listed(counts))]  # fmt: skip
    except TypeError:
        raise ArrayError(f"counts is {counts!r}", hint="pass a list of whole numbers, one an expert") from None
    if len(found) != experts:
        raise ArrayError(f"counts are {len(found)}, there are {experts} experts", hint="pass one an expert, 0 for none")
    return found


def _listed(counts: Any) -> Sequence[Any]:
    """A sequence, or an array of the host, as a list; ArrayError for an array of a GPU, whose numbers are not here."""
    if isinstance(counts, (list, tuple)):
        return counts
    view = describe(counts)
    if view.layout.device_kind != "host":
        raise ArrayError(
            f"counts is on {view.layout.where()}: its numbers are not known to the host",
            hint="pass offsets=..., their sums: an int32 array with a 0 in front, made where they are",
        )
    found: list[int] = host_array(view).reshape(-1).tolist()
    return found

"""The scale that a matrix of 8-bit elements may have: one number a row, which every product multiplies its sums by."""

from __future__ import annotations

from numbers import Real
from typing import Any, Final

import numpy as np

from sparsegen.arrays import describe, detached
from sparsegen.formats.format import Format
from sparsegen.formats.library import Library, library_of
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.op_spmm import NARROW
from sparsegen.ir.types import f32

#: The formats whose products read it.
FORMATS: Final = ("bitmap",)


def scale_of(spec: Format, lib: Library, scale: Any, rows: int) -> Any:
    """``scale`` as f32 [rows], a copy in a library where the matrix is; one number becomes that of all rows.

    ``scale``: an f32 array [rows] or of one element, of the matrix's library on its device, or one number.  FormatError
    for a matrix that has none of its own, ArrayError for another array, and for a scale that is 0, negative, infinite
    or NaN, with the first row that has it.
    """
    if spec.name not in FORMATS or spec.dtype not in NARROW:
        raise FormatError(
            f"scale is given, but only 8-bit elements in {' or '.join(FORMATS)} have one of their own, not "
            f"{spec.dtype} in {spec.name}",
            hint="pass it to the calls of the product: sg.spmm(W, n, scale=True), k(x, scale=...)",
        )
    given = _array(lib, scale)
    if tuple(given.shape) not in ((rows,), (1,), ()):
        raise ArrayError(
            f"scale has shape {tuple(given.shape)}, W has {rows} rows",
            hint=f"pass one number, or one a row, of shape ({rows},): sg.quantize(w, rows=True).scale",
        )
    made = lib.view(lib.zeros((rows,), "int32"), f32)
    made[...] = given
    if (row := lib.first(~((made > 0) & (made < float("inf"))))) is not None:
        raise ArrayError(
            f"the scale of row {row} is {float(made[row])}: it must be positive and finite",
            hint="give a row of zeros the scale 1; turn the signs of the row's elements instead of a negative one; "
            "sg.quantize(w, rows=True) makes such scales",
        )
    return made


def _array(lib: Library, scale: Any) -> Any:
    """The scale as an array of the library, or the number."""
    if isinstance(scale, Real) and not isinstance(scale, bool):
        return np.asarray(scale, np.float64)[()]
    view = describe(detached(scale))
    mine, _ = library_of(view)
    if view.layout.problem is not None or view.layout.dtype != f32.numpy():
        what = view.layout.problem[0] if view.layout.problem else f"of dtype {view.layout.dtype}"
        raise ArrayError(
            f"scale is {what}, not of f32", hint="convert it: scale.astype(np.float32); in torch scale.float()"
        )
    if mine != lib:
        raise ArrayError(
            f"scale is an array of {mine.name} on {mine.where}, w one of {lib.name} on {lib.where}",
            hint="pass both in one library, on one device",
        )
    return view.owner

"""``quantize``: weights of few bits times a scale, where the weights are; ``pack4``: 4-bit integers two a byte.

Symmetric, as in Magicube: w is about scale * q, the zero point is 0, and q is in -(2^(bits-1) - 1) .. 2^(bits-1) - 1.
The lowest integer of the bits (-128 of 8) is left out: then -w has exactly the integers -q, and no side is cut off.  So
do Wu et al. ("Integer Quantization for Deep Learning Inference", 2020) and TensorFlow Lite for weights.  Magicube's own
code multiplies by constants and sets no range.  Of 8-bit floats the largest finite one stands for the largest |w|.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import numpy as np

from sparsegen.arrays import describe, detached
from sparsegen.callsite import located, user_loc
from sparsegen.formats.library import NUMPY, Library, floats, library_of
from sparsegen.formats.nm import whole
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.types import DType, e4m3, e5m2, f32, f64, s8, s16

BITS: Final = (4, 8, 12, 16)
#: The largest finite number of each type of 8-bit floats.
FINITE: Final = {e4m3: 448.0, e5m2: 57344.0}
#: The bits of -0 in each of them, as int8.
MINUS_ZERO: Final = -128
#: The smallest scale, f32's smallest normal number: a smaller one would be rounded coarsely, or flushed to 0 on a GPU.
LEAST: Final = 2.0**-126
LARGEST: Final = (2 - 2.0**-23) * 2.0**127  #: the largest number of f32


@dataclass(frozen=True, eq=False)
class Quantized:
    """``values`` of few bits and the ``scale`` (f32) that makes them numbers again; made by :func:`sparsegen.quantize`.

    ``values``: of the shape of the weights, packed in C order; int8 for 4 and 8 ``bits``, int16 for 12 and 16; or 8-bit
    floats.
    ``scale``: one number, and ``values * scale`` are the weights; or one a row, of the shape of the weights without the
    last axis, and ``values * scale[..., None]`` are.
    """

    values: Any
    scale: Any
    bits: int


def quantize(w: Any, bits: int = 8, *, rows: bool = False, zero_point: int = 0, dtype: str | None = None) -> Quantized:
    """Weights as integers of ``bits`` bits (4, 8, 12 or 16) times a scale; ``w`` is not changed.

    ``w``: an array of NumPy, CuPy or torch in f16, bf16, f32 or f64, of any shape.  Values and scale are arrays of the
    same library on the same device.  A tensor that requires grad gives those that do not.

    The scale is the largest |w| divided by the largest integer, 2^(bits-1) - 1: 127 for 8 bits; of the whole array, or
    of each row (along the last axis) with ``rows=True``.  It is 1 where all are 0, and never below 2^-126.  A value is
    w / scale rounded to the nearest integer, of two the even one, so that ``values * scale`` differs from w by half a
    scale at most.  The ``zero_point`` is always 0: no product takes another.

    With ``dtype`` ``"e4m3"`` or ``"e5m2"`` values are such floats of 8 bits, of which the largest (448, 57344) stands
    in place of the largest integer: within 2^-4 or 2^-3 of w each, or of the smallest normal number times the scale.
    What rounds to -0 is 0.  CuPy has no such arrays.

    Raises ArrayError (what ``w`` is: a NaN or infinity is refused too) or FormatError (other bits, another zero point).
    """
    with located(user_loc()):
        width, kind = _checked(bits, rows, zero_point), _kind(bits, dtype)
        view = describe(detached(w))
        if view.layout.dtype.kind in "iu":
            raise ArrayError(
                f"w has dtype {view.layout.dtype}: it holds integers already",
                hint="use them as they are; or convert them all the same: w.astype(np.float32); in torch w.float()",
            )
        view = floats(w, "quantised")
        if not view.layout.shape or 0 in view.layout.shape:
            raise ArrayError(
                f"w has shape {view.layout.shape}", hint="pass an array of at least one element and one axis"
            )
        lib, _ = library_of(view)
        with lib.active():
            array = np.asarray(view.owner) if lib is NUMPY else view.owner  # of np.matrix the plain array
            if kind in FINITE and lib.name == "cupy":
                raise ArrayError("CuPy has no 8-bit floats", hint="quantise in torch: torch.as_tensor(w)")
            values, scale = _quantized(lib, array.reshape(-1, array.shape[-1]), array.shape, width, kind, rows)
            return Quantized(values.reshape(array.shape), scale.reshape(array.shape[:-1] if rows else ())[()], width)


def _quantized(lib: Library, w: Any, shape: tuple[int, ...], bits: int, kind: DType, rows: bool) -> tuple[Any, Any]:
    """Values [M, K] and scales [M] or [1] of weights [M, K], which the user gave in another ``shape``."""
    most = FINITE[kind] if kind in FINITE else 2 ** (bits - 1) - 1
    step = max(1, lib.band // w.shape[1])
    bands = [slice(first, first + step) for first in range(0, w.shape[0], step)]
    tops = lib.zeros(w.shape[:1], "float64")
    for band in bands:
        tops[band] = lib.xp.amax(abs(lib.cast(w[band], f64)), -1)
    if (row := lib.first(~(tops <= most * LARGEST))) is not None:  # a NaN is not either
        col = lib.first(~(abs(lib.cast(w[row], f64)) <= most * LARGEST)) or 0
        raise _no_scale(lib, _index(row * w.shape[1] + col, shape), float(w[row, col]), bits)
    if not rows:
        tops = lib.xp.amax(tops.reshape(1, -1), -1)
    scale = lib.cast(lib.xp.where(tops == 0, 1.0, lib.xp.clip(tops / most, LEAST, None)), f32)
    # As the scale is that of the largest |w|, rounded by 2^-24 of it, no quotient is rounded beyond ``most``.
    by = lib.xp.broadcast_to(lib.cast(scale, f64).reshape(-1, 1), (w.shape[0], 1))
    values = lib.zeros(w.shape, f"int{kind.bits}")
    for band in bands:
        exact = lib.cast(w[band], f64) / by[band]
        if kind.is_int:
            values[band] = exact.round()
        else:
            made = lib.view(lib.cast(exact, kind), "int8")
            values[band] = made * (made != MINUS_ZERO)
    return values if kind.is_int else lib.elements(values, kind), scale


def pack4(x: Any) -> Any:
    """Integers of 4 bits two a byte: uint8 [..., n / 2] of int8 [..., n] that holds -8 .. 7.

    ``x``: an array of NumPy, CuPy or torch; the result is one of the same library on the same device, in C order.
    Of the pair at 2i and 2i + 1 on the last axis the first is in the low half of byte i, in two's complement.
    ArrayError for another dtype, an odd last axis and integers of more bits.
    """
    with located(user_loc()):
        lib, x = _bytes(x, "x", "int8", "give what sg.quantize(w, bits=4).values has, or convert it: x.astype(np.int8)")
        if x.shape[-1] % 2:
            raise ArrayError(
                f"x has {x.shape[-1]} integers on its last axis, shape {tuple(x.shape)}: a byte holds two",
                hint="add one of zeros, such as by np.pad, and take it off again after unpack4",
            )
        with lib.active():
            if (place := lib.first(((x < -8) | (x > 7)).reshape(-1))) is not None:
                raise ArrayError(
                    f"x{_index(place, x.shape)} is {int(x.reshape(-1)[place])}: 4 bits hold -8 to 7",
                    hint="quantise the numbers to 4 bits: sg.quantize(w, bits=4).values",
                )
            return lib.view(lib.packed((x[..., ::2] & 15) | (x[..., 1::2] * 16)), "uint8")


def unpack4(packed: Any) -> Any:
    """The integers that :func:`sparsegen.pack4` packed: int8 [..., n] of uint8 [..., n / 2]; ArrayError for others."""
    with located(user_loc()):
        lib, pairs = _bytes(packed, "packed", "uint8", "give what sg.pack4 made")
        with lib.active():
            both = lib.xp.stack((((pairs & 15) ^ 8) - 8, pairs >> 4), -1)  # both with the sign of their own 4 bits
            return both.reshape(*pairs.shape[:-1], 2 * pairs.shape[-1])


# -------------------------------------------------------------------------------------------------------------- checks
def _checked(bits: Any, rows: Any, zero_point: Any) -> int:
    """The bits as a plain integer; FormatError for options that there are not."""
    width = whole(bits)
    if width is None or width not in BITS:
        raise FormatError(f"bits={bits!r}: integers have 4, 8, 12 or 16 bits", hint="give one of these, as in bits=8")
    if not isinstance(rows, bool):
        raise FormatError(
            f"rows={rows!r} is neither True nor False", hint="rows=True for a scale a row, rows=False for one in all"
        )
    if whole(zero_point) != 0:
        raise FormatError(
            f"zero_point={zero_point!r}: quantisation is symmetric only, its zero point is 0",
            hint="leave it away; subtract an offset before, w - offset, and add its part of the product to the bias",
        )
    return width


def _kind(bits: int, dtype: Any) -> DType:
    """The type of values; FormatError for one that there is not."""
    if dtype is None:
        return s8 if bits <= 8 else s16
    found = {kind.name: kind for kind in FINITE}
    if not isinstance(dtype, str) or dtype not in found or bits != 8:
        raise FormatError(
            f"dtype={dtype!r} of {bits} bits: there are floats of 8 bits, {' and '.join(found)}",
            hint="name one of these and leave bits away; or leave dtype away, for integers",
        )
    return found[dtype]


def _index(place: int, shape: Sequence[int]) -> list[int]:
    """The coordinates of a place of an array, counted in C order."""
    return [int(i) for i in np.unravel_index(place, tuple(shape))]


def _no_scale(lib: Library, index: list[int], value: float, bits: int) -> ArrayError:
    """Why there is no scale for a weight."""
    what = f"w{index} is {value}"
    if isfinite(value):
        return ArrayError(
            f"{what}: its scale for {bits} bits is beyond f32's largest number", hint="scale the weights down before"
        )
    return ArrayError(
        f"{what}, which no integer stands for",
        hint=f"find out where it comes from, or set such weights to 0: w[~{lib.name}.isfinite(w)] = 0",
    )


def _bytes(array: Any, name: str, dtype: str, remedy: str) -> tuple[Library, Any]:
    """The library of an array of bytes, and its bits as int8; ArrayError for other arrays."""
    view = describe(array)
    layout = view.layout
    if layout.problem is not None or layout.dtype.name != dtype or not layout.shape:
        what = layout.problem[0] if layout.problem else f"of dtype {layout.dtype} and shape {layout.shape}"
        raise ArrayError(f"{name} is {what}, not {dtype} of one axis or more", hint=remedy)
    return library_of(view)

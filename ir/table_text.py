"""Constant tables as ``.sgir`` text: short ones as numbers, long ones compressed; both are read back bit for bit.

::

    constant "stencil.w" f64[3] [0.25, 0.5, 0.25]
    constant "stencil.lut" u32[5320] zlib [
      "eNpjYGBg...",
    ]
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .errors import IRError
from .types import DTYPES, DType

#: Tables of so many numbers are readable.
SHORT: Final = 32
#: Characters of a line of compressed data.
LINE: Final = 104


def scalar_type(array: Any) -> DType:
    """The type of an array's elements; IRError for one that no table has."""
    for t in DTYPES.values():
        if t.bits % 8 == 0 or t.kind == "pred":
            if t.name != "tf32" and t.numpy() == array.dtype:
                return t
    raise IRError(f"no constant is an array of {array.dtype}", hint=f"convert it to one of {', '.join(DTYPES)}")


#: Bytes of a table that a text may hold.
MOST_BYTES = 1 << 34


def packed(array: Any) -> list[str]:
    """An array's bytes (as in memory: little endian, row by row), compressed, as lines of base64."""
    text = base64.b64encode(zlib.compress(array.tobytes(), 9)).decode()
    return [text[at : at + LINE] for at in range(0, len(text), LINE)]


def unpacked(lines: Sequence[str], dtype: DType, shape: tuple[int, ...]) -> Any:
    """The array that :func:`packed` made lines of; IRError if they hold something else."""
    kind = dtype.numpy()
    want = math.prod(shape) * kind.itemsize
    if want > MOST_BYTES:
        raise IRError(f"a table of {want} bytes", hint=f"at most {MOST_BYTES}: pass it as an array of the launch")
    try:
        data = zlib.decompressobj().decompress(base64.b64decode("".join(lines), validate=True), want + 1)
    except (ValueError, zlib.error) as e:  # a text that is no base64, or not ASCII; data that is not compressed
        raise IRError(f"cannot read the data of a table: {e}", hint="copy the lines of the text as they are") from e
    if len(data) != want:
        raise IRError(f"a table of {want} bytes has data of {len(data) if len(data) < want else 'more'}",
                      hint="change the shape with the data, or write the numbers as a [list]")  # fmt: skip
    return np.frombuffer(data, kind).reshape(shape)


def listed(values: Sequence[Any], dtype: DType, shape: tuple[int, ...]) -> Any:
    """The array of these numbers, row by row; IRError if there are too few, too many, or other than ``dtype`` holds."""
    if len(values) != math.prod(shape):
        raise IRError(f"a table of {'x'.join(map(str, shape))} elements lists {len(values)}",
                      hint="give the shape that the list has")  # fmt: skip
    for v in values:
        fits = type(v) is float or type(v) is int if dtype.kind == "float" else type(v) in (int, bool)
        if not fits or (dtype.kind != "float" and not dtype.range[0] <= v <= dtype.range[1]):
            raise IRError(f"a table of {dtype} cannot hold {v!r}", hint="list numbers of its type")
    return np.array(values, dtype.numpy()).reshape(shape)

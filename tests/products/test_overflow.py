"""Where sums of integers wrap in an int32 result, a check says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.formats.format import held
from sparsegen.formats.matrix import KINDS
from sparsegen.ir.errors import FormatError
from tests.vectors_kit import exact, kernel, quantized


def product(**how: Any) -> Any:
    """One row of large numbers in a matrix of 16 bits."""
    w = np.zeros((16, 64), "i2")
    w[:8, :32], w[3] = 1, 32767
    return sg.spmm(sg.sparse(w, format="sr_bcrs", height=8), n=16, x_dtype="i16", **how)


def test_a_check_names_the_largest_sum() -> None:
    x = np.ones((64, 16), "i2")
    x[:, 4], x[:, 9] = -32768, 32767
    x[2:, 9] = 0  # a sum that is just held
    k = kernel(product())
    assert np.array_equal(k(x), exact(k.product.w, x))
    report = k.check(x)
    (note,) = report.notes
    assert report.ok and (note.kind, note.buffer) == ("overflow", "out")
    assert f"1 of 256 sums wrap, modulo 2^32: the largest is {-64 * 32767 * 32768}, at [3, 4]" in note.message
    assert "y_dtype='f32'" in note.remedy and "overflow: 1 of 256" in str(report)


def test_sums_at_the_ends_of_int32_do_not_wrap() -> None:
    """-2^31 and 2^31 - 1 are held, 2^31 is not."""
    w, x = np.zeros((8, 6), "i2"), np.zeros((6, 3), "i2")
    w[0] = 16384, 16384, 16384, 16384, 16384, 1
    x[:4] = -32768, 32767, 32767
    x[4:] = (0, 4, 4), (0, -1, 0)
    k = kernel(sg.spmm(sg.sparse(w, format="sr_bcrs", height=8), n=3, x_dtype="i16"))
    assert k(x)[0].tolist() == [-(2**31), 2**31 - 1, -(2**31)]
    (note,) = k.check(x).notes
    assert note.message.startswith("1 of 24 sums wrap")


def test_what_does_not_wrap_has_no_note() -> None:
    x = np.full((64, 16), 32767, "i2")
    k = kernel(product(y_dtype="f32"))
    assert not k.check(x).notes and k(x)[3, 0] == np.float32(64 * 32767**2)
    assert not kernel(sg.spmm(quantized((24, 64)), n=8)).check().notes


@pytest.mark.parametrize(
    ("kind", "x_kind", "y", "most"),
    [
        ("u4", "u4", "i32", 37282), ("i4", "u4", "i32", 69905), ("i8", "u4", "i32", 69905), ("u8", "u8", "f32", 33025),
        ("i16", "i16", "f16", 32896), ("u16", "u16", "f32", 16512),
    ],
)  # fmt: skip
def test_as_many_columns_as_sums_of_32_bits_hold(kind: str, x_kind: str, y: str, most: int) -> None:
    """At their ends they are right, and one more is refused."""
    for k in (most, most + 1):
        w = sg.sparse(np.full((1, k), KINDS[kind].range[kind[0] == "u"], held(KINDS[kind]).numpy()), format="sr_bcrs",
                      height=2, dtype=kind)  # fmt: skip
        product = sg.spmm(w, n=1, x_dtype=x_kind, y_dtype=y)
        if k > most:
            with pytest.raises(
                FormatError, match=f"8 rows of W have {k} vectors; 32 bits hold sums of {most} products"
            ):
                kernel(product)
            continue
        x = np.full((k, 1), KINDS[x_kind].range[x_kind[0] == "u"], held(KINDS[x_kind]).numpy())
        want = float(k) * float(w.to_dense()[0, 0]) * float(x[0, 0])
        with np.errstate(over="ignore"):
            assert kernel(product)(x)[0, 0] == np.array(want).astype(product.types.y.numpy())

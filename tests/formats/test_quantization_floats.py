"""``sg.quantize`` to 8-bit floats, against rounding number by number; and how 8-bit matrices take what it makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.ir.errors import FormatError
from sparsegen.ir.types import ELEMENTS

LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}


def codes(dtype: str) -> tuple[Any, Any]:
    """Finite numbers of the type in ascending order, and their codes, -0 left out."""
    every = np.arange(256, dtype=np.uint8)
    numbers = every.view(ELEMENTS[dtype].numpy()).astype(float)
    kept = np.flatnonzero(np.isfinite(numbers) & (every != 128))
    order = kept[np.argsort(numbers[kept])]
    return numbers[order], every[order]


def nearest(x: float, dtype: str) -> int:
    """The code of the nearest number, of two the one with an even mantissa."""
    numbers, found = codes(dtype)
    off = abs(numbers - x)
    best = np.flatnonzero(off == off.min())
    return int(found[min(best, key=lambda at: found[at] % 2)])


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("rows", [True, False])
def test_each_value_is_the_nearest(dtype: str, rows: bool, kind: str) -> None:
    rng = np.random.default_rng(2)
    w = (rng.standard_normal((5, 40)) * np.exp(rng.uniform(-12, 1, (5, 40)))).astype(kind)
    w[rng.random(w.shape) < 0.4] = 0
    w[1] = 0
    q = sg.quantize(w, rows=rows, dtype=dtype)
    tops = abs(w.astype(float)).max(-1) if rows else np.full(5, abs(w.astype(float)).max())
    scale = np.where(tops == 0, 1, tops / LARGEST[dtype]).astype(np.float32)
    assert (
        q.bits == 8 and q.values.dtype == ELEMENTS[dtype].numpy() and np.array_equal(np.broadcast_to(q.scale, 5), scale)
    )
    wanted = [[nearest(x / s, dtype) for x in row] for row, s in zip(w.astype(float), scale.astype(float), strict=True)]
    assert np.array_equal(q.values.view(np.uint8), wanted)
    assert abs(q.values.astype(float)).max() == LARGEST[dtype]


@pytest.mark.parametrize("dtype", [None, *LARGEST])
def test_products_of_what_it_makes_are_near_those_of_the_weights(dtype: str | None) -> None:
    rng = np.random.default_rng(4)
    w = np.where(rng.random((60, 200)) < 0.6, 0, rng.standard_normal((60, 200))).astype(np.float32)
    q = sg.quantize(w, rows=True, dtype=dtype)
    k = sg.compile(sg.spmm(sg.sparse(q.values, scale=q.scale), n=6), device="h200", backend="emulator")
    x = rng.uniform(-1, 1, (200, 6)).astype(np.float16)
    exact = w @ x.astype(float)
    off = np.linalg.norm(k(x).astype(float) - exact) / np.linalg.norm(exact)
    assert off < {None: 2**-6, "e4m3": 2**-5, "e5m2": 2**-4}[dtype]  # at most half a unit of each weight


@pytest.mark.parametrize(("bits", "dtype"), [(8, "f16"), (8, "e3m4"), (4, "e4m3"), (16, "e5m2"), (8, 8)])
def test_other_types_are_refused(bits: int, dtype: Any) -> None:
    with pytest.raises(FormatError, match="e4m3 and e5m2") as e:
        sg.quantize(np.ones((2, 3), np.float32), bits, dtype=dtype)
    assert repr(dtype) in e.value.message and e.value.loc is not None

"""The functions of formulas, exp to clip: in the reference NumPy's meaning, and on the emulator in all families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.updates import TOLERANCE, Array, arrays, error, made

#: Name: the function of two reads, and what it means by NumPy.
FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Array, Array], Array]]] = {
    "exp": (lambda a, b: sg.exp(a - b), lambda a, b: np.exp(a - b)),
    "log": (lambda a, b: sg.log(a * b), lambda a, b: np.log(a * b)),
    "sin": (lambda a, b: sg.sin(a + b), lambda a, b: np.sin(a + b)),
    "cos": (lambda a, b: sg.cos(a + b), lambda a, b: np.cos(a + b)),
    "tanh": (lambda a, b: sg.tanh(a - b), lambda a, b: np.tanh(a - b)),
    "pow": (lambda a, b: sg.pow(a, b), np.power),
    "pow of a constant": (lambda a, b: 2.5**a + sg.pow(b, -1.25), lambda a, b: 2.5**a + b**-1.25),
    "root": (lambda a, b: a**0.5 - b**-0.5, lambda a, b: np.sqrt(a) - 1 / np.sqrt(b)),
    "clip": (lambda a, b: sg.clip(a, 0.25, b), lambda a, b: np.fmin(np.fmax(a, 0.25), b)),
}
#: A line of each family, and a shape.
LINES: dict[str, tuple[int, ...]] = {
    "direct column=2": (7, 40), "stream levels=2 cols=8 rows=16": (21, 150),
    "column lines=2 planes=4 warps=2": (5, 9, 40), "tiled levels=2 cols=2 rows=3 warps=4": (14, 70),
    "resident tiles=2x2 rows=5 cols=2 warps=4 every=2": (30, 70),
}  # fmt: skip


def of_two(function: Callable[[Any, Any], Any], ndim: int = 2, **options: Any) -> sg.Update:
    """The function of a cell and the one before it in its row."""
    own, before = (0,) * ndim, (0,) * (ndim - 1) + (-1,)
    return made(lambda u: function(u[own], u[before]), **options)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_reference_is_numpy(name: str, dtype: str) -> None:
    """With numbers that a function has no value for among them: NaN and infinities come out as NumPy's do."""
    function, meaning = FUNCTIONS[name]
    kernel = sg.compile(of_two(function, dtype=dtype), (4, 32), backend="reference")
    u = np.random.default_rng(1).uniform(-3, 3, (4, 32)).astype(f"f{int(dtype[1:]) // 8}")
    u[1, :6] = 0.0, -0.0, np.inf, -np.inf, np.nan, 60000.0
    wide = u.astype(np.float64 if dtype == "f64" else np.float32)
    want = meaning(wide, np.roll(wide, 1, 1)).astype(u.dtype)
    np.testing.assert_array_equal(kernel(u), want)
    assert not np.isfinite(want).all() and np.isfinite(want).sum() > 20


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("line", LINES)
def test_every_family_agrees(line: str, dtype: str) -> None:
    """Steps of all functions in a sum, near 1, so that none leaves its domain."""
    shape = LINES[line]

    def every(a: Any, b: Any) -> Any:
        values = [function(a, b) for function, _ in FUNCTIONS.values()]
        return 0.5 + sg.tanh(sum(values[1:], values[0]) / len(values)) / 4

    update = of_two(every, len(shape), boundary=sg.neumann, dtype=dtype)
    found = {name: (u.astype(np.float32) * 0.5 + 0.5).astype(u.dtype) for name, u in arrays(update, shape).items()}
    got = sg.compile(update, shape, 2, device="h200", backend="emulator", schedule=line)(**found)
    want = sg.compile(update, shape, 2, backend="reference")(**found)
    assert error(got.astype(np.float64), want.astype(np.float64)) <= 2 * TOLERANCE[dtype]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_has_no_value_on_the_emulator(name: str) -> None:
    update = of_two(FUNCTIONS[name][0])
    u = np.random.default_rng(2).uniform(-3, 3, (4, 32))
    u[2, :6] = 0.0, -0.0, np.inf, -np.inf, np.nan, 800.0
    got = sg.compile(update, u.shape, device="h200", backend="emulator", schedule="direct")(u)
    np.testing.assert_allclose(got, sg.compile(update, u.shape, backend="reference")(u), rtol=1e-14)

"""Calls of the public API with a wrong thing in one place: an answer, or an error with a remedy."""

from __future__ import annotations

import fractions
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsegen as sg
from tests.fuzz.finding import Draw, refused
from tests.products_kit import matrix

NUMBERS: tuple[Any, ...] = (
    True, 0, -1, 1, 2**31, 10**30, 1.5, float("nan"), float("inf"), 1 + 2j, np.float32(2), np.int64(4), np.array(5),
    fractions.Fraction(1, 3),
)  # fmt: skip
STRINGS: tuple[Any, ...] = (
    "",
    "auto",
    "f64",
    "\0",
    "a" * 5000,
    b"x",
    "direct",
    "bitmap cols=8",
    pathlib.Path("/nowhere"),
)
SEQUENCES: tuple[Any, ...] = (
    [], (), {}, set(), [[]], [1, [2]], (3, 3), (0, 0), (-1, 4), (10**12, 10**12), (3.0, 3), ("a", "b"), range(3),
)  # fmt: skip
ARRAYS: tuple[Any, ...] = (
    np.zeros(3), np.zeros((3, 3)), np.zeros((0, 3)), np.array(["a"]), np.array(None), np.full((3, 3), np.nan),
    np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]), np.ones((3, 3), complex), np.ones((3, 3), object),
)  # fmt: skip
JUNK = (None, object(), int, len, slice(2), Ellipsis, np.dtype("f8"), *NUMBERS, *STRINGS, *SEQUENCES, *ARRAYS)
HEAT = sg.Stencil.from_weights(np.array([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]]))
W = matrix(48, 64)
ON: dict[str, Any] = {"device": "h200", "backend": "emulator"}
K = sg.compile(HEAT, (16, 32), 2, **ON)
P = sg.compile(sg.spmm(W, n=4, bias=True), **ON)

#: Functions with arguments that they take.
CALLS: tuple[tuple[Callable[..., Any], dict[str, Any]], ...] = (
    (sg.Stencil.from_weights, {"w": np.ones((3, 3)), "boundary": sg.periodic, "name": "a", "dtype": "f64"}),
    (sg.compile, {"stencil": HEAT, "shape": (16, 32), "steps": 2, "schedule": "auto", "nonfinite": "any", **ON}),
    (sg.compile, {"stencil": sg.spmm(W, n=4), "shape": (), "steps": 1, "schedule": "auto", **ON}),
    (sg.schedules, {"stencil": HEAT, "shape": (16, 32), "steps": 2, "device": "h200"}),
    (sg.spmm, {"w": W, "n": 4, "bias": False, "scale": False, "residual": False, "activation": None}),
    (sg.sparse, {"w": np.eye(16, dtype=np.float16), "format": "bitmap", "dtype": "f16"}),
    (sg.load, {"path": "/nowhere"}),
    (sg.dirichlet, {"value": 1.0}),
    (sg.Schedule.parse, {"line": "tiled tile=8x32"}),
    (sg.StencilSchedule, {"family": "tiled", "tile": (8, 32), "warps": 2, "stages": 2, "fuse": 1}),
    (sg.SpmmSchedule, {"family": "bitmap", "cols": 8, "warps": (1, 4), "rows": 1}),
    (K, {"u": np.zeros((16, 32)), "out": np.zeros((16, 32)), "steps": 2, "stream": None}),
    (P, {"x": np.zeros((64, 4), np.float16), "bias": np.zeros(48, np.float16), "out": None, "stream": None}),
    (K.random, {"seed": 1}),
    (K.check, {"u": np.zeros((16, 32))}),
    (K.ir, {"level": "warp"}),
    (P.ir, {"level": "tile"}),
)


def api(draw: Draw) -> None:
    """One argument, or two, of a call replaced."""
    function, arguments = draw.choice(CALLS)
    given = dict(arguments)
    for _ in range(draw.choice((1, 1, 1, 2))):
        name = draw.choice(list(given))
        given[name] = draw.choice([j for j in JUNK if name != "steps" or not isinstance(j, int) or not 9 < j < 2**63])
    said = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(lambda: function(**given), f"{getattr(function, '__qualname__', function)}({said})")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:100]}..."

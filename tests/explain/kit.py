"""What the tests of ``explain`` share: a page of each kind of kernel, and the form that its JSON must have."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import sparsegen as sg
from sparsegen.explain import page
from sparsegen.explain.explanation import Explanation
from tests.products_kit import matrix
from tests.updates import wave

SQUARE = (10240, 10240)


@sg.stencil(boundary=sg.periodic)
def heat(u: Any) -> Any:
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])


@cache
def stencil(device: str = "h200", schedule: str = "auto") -> sg.Kernel:
    """Heat on the square; made once, so tests must leave it as it is."""
    return sg.compile(heat, SQUARE, 100, device, "emulator", schedule)


@cache
def product(device: str = "h200", n: int = 16) -> sg.SpmmKernel:
    """A sparse product with all that an epilogue can have."""
    w = matrix(2048, 1024, 0.6, format="auto")  # where no sparse schedule is legal, dense is
    return sg.compile(sg.spmm(w, n=n, bias=True, residual=True), device=device, backend="emulator")


@cache
def update(device: str = "h200") -> sg.UpdateKernel:
    """The wave equation."""
    return sg.compile(wave(), (4096, 4096), 9, device, "emulator")


_MAKERS: dict[str, Callable[[], Any]] = {
    "stencil": stencil,
    "given": lambda: stencil(schedule="stencil2row mma=f64.m8n8k4 fuse=3 stages=2"),
    "v100": lambda: stencil("v100"),
    "a100": lambda: stencil("a100"),
    "3d": lambda: sg.compile(sg.Stencil.from_weights(np.full((3,) * 3, 1 / 27)), (256,) * 3, 6, "h200", "emulator"),
    "product": product,
    "product, v100": lambda: product("v100"),
    "update": update,
    "update, v100": lambda: update("v100"),
}


class _Pages(dict[str, Explanation]):
    """Pages that are made when they are first asked for."""

    def __missing__(self, name: str) -> Explanation:
        self[name] = made = _MAKERS[name]().explain()
        return made


@cache
def pages() -> _Pages:
    """A page of each kind, some for the GPU that nothing can be compiled for."""
    return _Pages()


def check(value: Any, kind: Any = page.Page, where: str = "page") -> None:
    """AssertionError where plain data is not of the type that the page's dataclasses declare."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        assert isinstance(value, dict) and list(value) == list(hints), where
        for name, own in hints.items():
            check(value[name], own, f"{where}.{name}")
    elif origin is tuple:
        assert isinstance(value, list), where
        for at, each in enumerate(value):
            check(each, args[0], f"{where}[{at}]")
    elif origin is typing.Literal:
        assert value in args, where
    elif origin in (types.UnionType, typing.Union):
        assert value is None or [check(value, own, where) for own in args if own is not type(None)], where
    elif kind is float:
        assert isinstance(value, (int, float)) and not isinstance(value, bool), where
    else:
        assert type(value) is kind, f"{where} is a {type(value).__name__}"

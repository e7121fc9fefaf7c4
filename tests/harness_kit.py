"""A stand-in for a GPU, for tests of the harness: memory of the host, and NumPy for the harness's kernels."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from sparsegen.backends.reference.stencil import run as reference


def view(pointer: int, count: int) -> np.ndarray[Any, Any]:
    return np.ctypeslib.as_array((ctypes.c_double * count).from_address(pointer))


@dataclass
class Gpu:
    """A Runtime, as far as the harness needs one; every call between two events takes ``seconds``."""

    seconds: float = 1e-3
    held: dict[int, Any] = field(default_factory=dict)
    flushes: int = 0

    def alloc(self, nbytes: int) -> int:
        memory = np.zeros(nbytes // 8)
        self.held[memory.ctypes.data] = memory
        return memory.ctypes.data

    def free(self, pointer: int) -> None:
        del self.held[pointer]

    def zero(self, pointer: int, nbytes: int) -> None:
        view(pointer, nbytes // 8)[:] = 0

    def to_device(self, pointer: int, a: np.ndarray[Any, Any]) -> None:
        view(pointer, a.size)[:] = a.ravel()

    def synchronize(self) -> None: ...

    def on_device(self, target: int, source: int, nbytes: int) -> None:
        self.copy(target, source, nbytes)

    def info(self) -> Any:
        return SimpleNamespace(arch="sm_90a")

    def timer(self) -> Any:
        return SimpleNamespace(start=lambda _: None, stop=lambda _: None, seconds=lambda: self.seconds)

    # ------------------------------------------------------------------ what ``Naive`` does
    def random(self, pointer: int, count: int, dtype: str, seed: int) -> None:
        view(pointer, count)[:] = np.random.default_rng(seed).random(count)

    def poison(self, pointer: int, count: int, dtype: str) -> None:
        view(pointer, count)[:] = np.nan

    def read(self, pointer: int, nbytes: int) -> None:
        self.flushes += 1

    def run(self, stencil: Any, shape: tuple[int, ...], steps: int, u: int, out: int, spare: int) -> None:
        n = math.prod(shape)
        view(out, n)[:] = reference(view(u, n).reshape(shape), stencil.weights, stencil.sides, steps).ravel()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        view(target, nbytes // 8)[:] = view(source, nbytes // 8)

    def error(self, a: int, b: int, count: int, dtype: str) -> float:
        x, y = view(a, count), view(b, count)
        return float(np.abs(x - y).max() / np.abs(y).max()) if np.isfinite(x).all() else np.inf

"""What the tests of products of vectors share: random operands of all types, and exact references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import sparsegen as sg
from sparsegen.cost.devices import DeviceProfile
from sparsegen.formats.format import held
from sparsegen.formats.matrix import KINDS, SparseMatrix
from sparsegen.ir.warp import Func
from sparsegen.run.emulator import poisoned
from sparsegen.run.host import flat

Array = npt.NDArray[Any]
#: Schedules of every family, small enough for tests.
LINES = (
    "vector_strip wide=32 lists=2 warps=2 unroll=1 parts=1",
    "vector_strip wide=64 lists=1 warps=3 unroll=2 parts=3",
    "vector_strip wide=128 lists=3 warps=1 unroll=4 parts=4",
    "vector_strip wide=32 lists=2 warps=2 unroll=2 parts=2 cut=2",
    "vector_gather wide=32 warps=1x2 stages=2",
    "vector_gather wide=64 warps=2x2 stages=4 cut=1",
    "vector_gather wide=128 warps=3x1 stages=8",
)


def integers(rng: np.random.Generator, kind: str, shape: tuple[int, ...], extreme: bool = False) -> Array:
    """Random integers of a type; ``extreme``: its smallest and largest ones only."""
    low, high = KINDS[kind].range
    dtype = held(KINDS[kind]).numpy()
    if extreme:
        return rng.choice(np.array([low, high], dtype), shape)
    return rng.integers(low, high, shape, dtype, endpoint=True)


def quantized(
    shape: tuple[int, int], kind: str = "i8", height: int = 8, kept: float = 0.3, seed: int = 0, extreme: bool = False
) -> SparseMatrix:
    """A matrix of vectors, of which a share is kept, at random."""
    rng = np.random.default_rng(seed)
    w = integers(rng, kind, shape, extreme)
    w[~sg.pattern.vectors(rng.random(shape) < kept / height, height)] = 0
    return sg.sparse(w, format="sr_bcrs", height=height, dtype=kind)


def floats(
    shape: tuple[int, int],
    kind: str = "f16",
    height: int = 8,
    kept: float = 0.3,
    seed: int = 0,
    format: str = "sr_bcrs",
) -> SparseMatrix:
    """A matrix of vectors of floats from -1 to 1, of which a share is kept, at random."""
    rng = np.random.default_rng(seed)
    w = rng.uniform(-1, 1, shape).astype(KINDS[kind].numpy())
    w[~sg.pattern.vectors(rng.random(shape) < kept / height, height)] = 0
    return sg.sparse(w, format=format, height=height)


def exact(w: SparseMatrix, x: Array) -> Array:
    """The product modulo 2^32, as int32."""
    return (w.to_dense().astype("i8") @ x.astype("i8")).astype("i4")


def pairs(x: Array) -> Array:
    """Integers of 4 bits, an even number a row, two a byte."""
    return ((x[:, ::2] & 15) | (x[:, 1::2] & 15) << 4).astype("u1")


def kernel(product: Any, line: str = "auto", device: Any = "h200") -> Any:
    """The kernel of a schedule on the emulator."""
    return sg.compile(product, device=device, backend="emulator", schedule=line)


def launched(
    product: Any, line: str, device: str | DeviceProfile = "h200"
) -> tuple[Func, Callable[[], dict[str, Array]], Array]:
    """The only launch of a product with random arrays by rows, fresh arguments of it by parameter, and y, flat."""
    k = kernel(product, line, device)
    made, given = k._plan(0).main, k._calls.random()
    (func,), (launch,) = made.warp.funcs, made.warp.launches
    assert isinstance(func, Func)
    wanted = k._calls.reference(given, 0)["out"]
    tables = {**k.weights(), **given, "out": poisoned(wanted.size, wanted.dtype)}

    def arguments() -> dict[str, Array]:
        made = {}
        for role, p in zip(launch.args, func.params, strict=True):
            given = tables[role] if role in tables else poisoned(p.size, p.dtype.numpy(), role)
            made[p.name] = flat(np.asarray(given)).view(p.dtype.numpy()).copy()
        return made

    return func, arguments, wanted.reshape(-1)

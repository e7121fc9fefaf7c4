"""What the tests of sampled products share: random patterns and arrays, and the result in int64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import sparsegen as sg
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.warp import Func
from sparsegen.run.host import flat

Array = npt.NDArray[Any]
RANGES: dict[str, tuple[Any, int, int]] = {
    "i8": (np.int8, -128, 127), "i16": (np.int16, -32768, 32767), "i4": (np.int8, -8, 7),
}  # fmt: skip


class Case(NamedTuple):
    """A product and arrays for it; ``packed``: of 4 bits, two to a byte."""

    mask: Array
    product: Any
    a: Array
    b: Array
    given: dict[str, Array]

    @property
    def wanted(self) -> Array:
        """The dense result, exact modulo 2^32."""
        full = self.a.astype(np.int64) @ self.b.astype(np.int64)
        return np.where(self.mask, full, 0).astype(np.uint64).astype(np.uint32).view(np.int32)


def mask(m: int, n: int, height: int, sparsity: float, seed: int = 0) -> Array:
    """A mask of vectors, of which so many are left out."""
    kept = np.random.default_rng(seed).random((-(-m // height), n)) >= sparsity
    return kept.repeat(height, 0)[:m]


def case(
    m: int, n: int, k: int, height: int = 8, sparsity: float = 0.7, dtype: str = "i8", *, orders: str = "CF",
    packed: bool = True, seed: int = 0, **options: Any,
) -> Case:  # fmt: skip
    """Random numbers of the whole range, its ends among them; ``orders`` of a and b, C by rows and F by columns."""
    rng, (kind, low, high) = np.random.default_rng(seed), RANGES[dtype]
    kept = mask(m, n, height, sparsity, seed)
    a, b = (rng.integers(low, high + 1, shape).astype(kind) for shape in ((m, k), (k, n)))
    a[rng.random(a.shape) < 0.2] = b[rng.random(b.shape) < 0.2] = low
    product = sg.sddmm(kept, k=k, dtype=dtype, height=height, **options)
    held = (a, b)
    if dtype == "i4" and packed:
        held = (sg.pack4(a), sg.pack4(np.ascontiguousarray(b.T)).T)
    given = {name: np.asarray(x, order=o) for name, x, o in zip("ab", held, orders, strict=True)}  # type: ignore[call-overload]
    return Case(kept, product, a, b, given)


def agrees(found: Any, case: Case) -> None:
    """AssertionError unless a result is right, bit for bit, and has the pattern."""
    found.check()
    assert np.array_equal(found.to_dense(), case.wanted)
    rows = found.to_scipy()
    assert np.array_equal(rows.toarray(), case.wanted) and rows.nnz == case.mask.sum()


def called(case: Case, schedule: str = "auto", device: Any = "h200") -> Any:
    """The kernel on the emulator; AssertionError unless a call of it is right."""
    kernel = sg.compile(case.product, device=device, backend="emulator", schedule=schedule)
    agrees(kernel(**case.given), case)
    return kernel


def launched(
    case: Case, line: str, device: str | DeviceProfile = "h200"
) -> tuple[Func, Callable[[], dict[str, Array]], Array]:
    """The only kernel, fresh arguments of a launch of it by parameter, and the values that it has to write."""
    kernel = sg.compile(case.product, device=device, backend="emulator", schedule=line)
    made = kernel._plan(0).main
    (func,), (launch,) = made.warp.funcs, made.warp.launches
    assert isinstance(func, Func)
    tables = kernel._calls.fixed_host(kernel.schedule)

    def arguments() -> dict[str, Array]:
        given = {**tables, **{name: flat(x) for name, x in case.given.items()}}
        out = np.full(case.product.stored, 77, np.int32)
        return {p.name: given.get(role, out).copy() for role, p in zip(launch.args, func.params, strict=True)}

    return func, arguments, kernel._calls.reference(case.given, 0)["out"]

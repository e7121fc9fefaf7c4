"""What the tests of sparse products share: random matrices, calls, and what a result may differ by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import sparsegen as sg
from sparsegen.backends.reference import spmm as reference
from sparsegen.cost.devices import DeviceProfile, load_profile
from sparsegen.formats import SparseMatrix
from sparsegen.formats.stack import halves
from sparsegen.ir.warp import Func
from sparsegen.pipelines import Program, lower
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.products.product import Product
from sparsegen.products.stack import Gated
from sparsegen.products.weights import host_arrays
from sparsegen.schedule import SpmmSchedule

Array = npt.NDArray[Any]
DTYPES: dict[str, Any] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
    "i8": np.dtype("i1"),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
#: Orders of x and y, and epilogues, for ``parametrize``.
ORDERS = (("x_order", "y_order"), [(x, y) for x in ("row", "column") for y in ("row", "column")])
EPILOGUES = (("activation", "operands"), [
    (None, ()), ("relu", ("bias",)), ("gelu", ("scale", "bias", "residual")), ("silu", ("residual",)),
])  # fmt: skip
#: Half a unit in the last place of a result, and the same once more for sums in another order.
ROUNDING = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-24, "f64": 2**-53}


def weights(m: int, k: int, sparsity: float, dtype: str = "f16", seed: int = 0) -> Array:
    """Random weights about 0, of which ``sparsity`` are zero; integers are 40 times as large."""
    rng = np.random.default_rng(seed)
    w = (rng.standard_normal((m, k)) * (40 if dtype == "i8" else 1)).clip(-127, 127).astype(DTYPES[dtype])
    w[rng.random((m, k)) < sparsity] = 0
    return w


def matrix(m: int, k: int, sparsity: float = 0.6, dtype: str = "f16", format: str = "bitmap") -> SparseMatrix:
    """The same, encoded."""
    return sg.sparse(weights(m, k, sparsity, dtype), format=format)


def pair(m: int, k: int, dtype: str = "f16") -> Gated:
    """Two matrices as a gated pair."""
    return sg.gated(*(sg.sparse(weights(m, k, 0.6, dtype, seed)) for seed in (1, 2)))


def operands(product: Product, x_order: str = "row", y_order: str = "row", seed: int = 1) -> dict[str, Array]:
    """Random arrays of a call by name, in these orders; ``out`` is NaN."""
    rng = np.random.default_rng(seed)
    m, k, n, types = product.rows, product.w.shape[1], product.n, product.types
    dtype, of_rows = types.x.numpy(), types.rows.numpy()

    def made(rows: int, cols: int, order: str) -> Array:
        a = rng.uniform(-1, 1, (rows, cols)).astype(dtype)
        return a if order == "row" else np.ascontiguousarray(a.T).T

    shapes = {"x": made(k, n, x_order), "out": made(m, n, y_order)}
    shapes["out"][...] = np.nan
    vectors = {name: rng.uniform(-1, 1, product.vector).astype(of_rows) for name in ("bias", "scale")}
    everything = {**shapes, **vectors, "residual": made(m, n, y_order)}
    return {name: a for name, a in everything.items() if name in ("x", "out", *product.epilogue.operands)}


def wanted(product: Product, given: dict[str, Array]) -> tuple[Array, Array]:
    """The result in f64 of the rounded operands, and how far a right one may be from it, element by element."""
    dense = product.w.to_dense().astype(float)
    extra = {name: given[name] for name in product.epilogue.operands}
    extra |= {} if product.w.scale is None else {"scale": product.w.scale}
    if product.gated:
        return _of_pair(product, halves(dense, product.rows), given["x"], extra)
    activation = product.epilogue.activation or "none"
    exact = reference.run(dense, given["x"], activation=activation, sums=np.float64, **extra)
    terms = np.abs(dense) @ np.abs(given["x"]).astype(float)
    if "scale" in extra:
        terms = terms * np.abs(extra["scale"].astype(float))[:, None]
    slope = 1.2  # no activation is steeper
    unit = ROUNDING["f64" if product.w.dtype == "f64" else "f32"]
    sums = slope * terms * unit * (dense.shape[1] + 8) + 16 * unit * (1 + np.abs(exact))
    return exact, ROUNDING[product.types.y.name] * np.abs(exact) * 1.01 + sums


def _of_pair(product: Product, pair: Any, x: Array, extra: dict[str, Array]) -> tuple[Array, Array]:
    """``wanted`` of a gated pair: each factor's error, times the other factor."""
    activation, k = product.epilogue.activation or "none", x.shape[0]
    exact = reference.run(pair[0], x, activation=activation, sums=np.float64, v=pair[1], **extra)
    factors, off = [], []
    for i, (w, kind) in enumerate(zip(pair, (activation, "none"), strict=True)):
        own = {name: extra[name][i] for name in ("scale", "bias") if name in extra}
        factors.append(np.abs(reference.run(w, x, activation=kind, sums=np.float64, **own)))
        terms = np.abs(w).astype(float) @ np.abs(x).astype(float)
        terms = terms * np.abs(own["scale"].astype(float))[:, None] if "scale" in own else terms
        off.append(ROUNDING["f32"] * (1.2 * terms * (k + 8) + 16 * (1 + factors[i])))
    sums = off[0] * factors[1] + off[1] * factors[0] + 2 * off[0] * off[1] + 4 * ROUNDING["f32"] * np.abs(exact)
    return exact, ROUNDING[product.w.dtype] * np.abs(exact) * 1.01 + sums + 2**-25  # f16 has no finer numbers


def agrees(got: Array, product: Product, given: dict[str, Array]) -> None:
    """AssertionError for a result that rounding does not explain."""
    exact, slack = wanted(product, given)
    assert got.shape == exact.shape and got.dtype == product.types.y.numpy()
    off = np.abs(got.astype(float) - exact)
    worst = np.unravel_index(int(np.argmax(off - slack)), off.shape)
    assert (off <= slack).all(), f"element {worst}: {got[worst]}, not {exact[worst]}"


def program(
    product: Product, line: str, variant: tuple[Any, ...] = ("row", "row", 1), profile: DeviceProfile | None = None
) -> Program:
    """The kernel of a schedule, for x and y in these orders and loads of so many elements of x."""
    schedule = SpmmSchedule.parse(line)
    return lower(SpmmProblem(product), schedule, profile or load_profile("h200"), 1, Variant(*variant))


def launched(
    product: Product, line: str, variant: tuple[str, str, int] = ("row", "row", 1), profile: DeviceProfile | None = None
) -> tuple[Func, Callable[[], dict[str, Array]], Array]:
    """The same, fresh arguments of a launch of it by parameter, and the elements of y in f64.

    What it writes is NaN before, counters are zero.
    """
    schedule, made = SpmmSchedule.parse(line), program(product, line, variant, profile)
    (func,), (launch,) = made.warp.funcs, made.warp.launches
    assert isinstance(func, Func)
    given, facts = operands(product, *variant[:2]), SpmmProblem(product).facts
    tables = host_arrays(product.w, schedule.rules.read(facts, schedule))

    def arguments() -> dict[str, Array]:
        out: dict[str, Array] = {}
        for role, buffer in zip(launch.args, func.params, strict=True):
            a = tables.get(role, given.get({"in": "x"}.get(role, role)))
            dtype = buffer.dtype.numpy()
            a = np.full(buffer.size, 0 if role == "workspace.counter" else np.nan, dtype) if a is None else a
            by_column = a.ndim == 2 and not a.flags.c_contiguous
            out[buffer.name] = (a.T if by_column else a).reshape(-1).copy()
        return out

    exact, _ = wanted(product, given)
    return func, arguments, (exact if variant[1] == "row" else exact.T).reshape(-1)


def called(
    product: Product, x_order: str = "row", y_order: str = "row", schedule: str = "auto", device: str = "h200"
) -> Any:
    """The kernel on the emulator; AssertionError unless a call of it with arrays in these orders is right."""
    kernel = sg.compile(product, device=device, backend="emulator", schedule=schedule)
    given = operands(product, x_order, y_order)
    assert kernel(**given) is given["out"]
    agrees(given["out"], product, given)
    return kernel


def turned_first(product: Product, line: str, orders: tuple[str, str], whole: bool) -> None:
    """Right for arrays in these orders; a launch more writes x row by row unless its rows are ``whole`` pieces."""
    kernel = called(product, *orders, line)
    whole = whole and orders[0] == "row"
    program = kernel._programs.get(1, Variant(*orders, 8 if whole else 1))
    assert len(program.warp.launches) == (1 if whole else 2)

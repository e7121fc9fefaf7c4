"""The library's product of integers: which there are, what they cost, when they are chosen, and that they are exact."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.arrays import describe
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.dense import DENSE
from sparsegen.plan import IN, OUT
from sparsegen.products.dense import DenseProduct, by_torch
from sparsegen.products.dense_integers import REASONS, SYMBOLS, lacking, price
from sparsegen.products.vectors import VectorNumbers
from tests.nm_kit import formulas_hold
from tests.vectors_kit import exact, integers, kernel, quantized

H200 = load_profile("h200")
MEASURED = Path(__file__).parents[2] / "docs/bench/magicube.json"


def numbers(m: int, k: int, n: int, **how: Any) -> VectorNumbers:
    """A product in numbers; what is kept is of no account."""
    one = VectorNumbers(m, k, n, "s8", "s8", "s32", 8, True, m * k // 8, m * k, 0, ((-(-k // 32), -(-m // 8)),))
    return replace(one, **how)


def auto(shape: tuple[int, int], kind: str = "i8", kept: float = 8.0, height: int = 8) -> Any:
    """A random matrix made with ``format="auto"``."""
    return sg.sparse(quantized(shape, kind, height, kept).to_dense(), format="auto", dtype=kind, height=height)


# ------------------------------------------------------------------------------------------------------------ the cost
def test_it_takes_what_cublas_took() -> None:
    """With cold L2 and x by columns, all sizes that suite magicube has measured."""
    rows = json.loads(MEASURED.read_text())["rows"]
    took = {tuple(r["shape"]): r["beside"]["int8"]["memset"] for r in rows if "int8" in (r["beside"] or {})}
    errors = [abs(price(numbers(*shape), H200).time / seconds - 1) for shape, seconds in took.items()]
    assert len(errors) >= 11 and np.median(errors) <= 0.04 and max(errors) <= 0.11


def test_the_formula_is_the_time() -> None:
    plain, floats = numbers(512, 256, 64), numbers(512, 256, 64, y="f16", columns=False, after=3, operands=70000)
    costs = [price(p, H200) for p in (plain, floats)]
    formulas_hold(costs)
    for c in costs:
        assert {str(x) for x in c.formula.free_symbols} <= set(SYMBOLS)
        assert c.reasons() == {name: REASONS[name] for name in c.terms} and c.time == pytest.approx(
            sum(c.terms.values())
        )
    first, second = costs
    assert first.terms["turn"] == first.terms["after"] == 0 < min(second.terms["turn"], second.terms["after"])
    assert second.bandwidth * second.time == pytest.approx(512 * 256 + 256 * 64 + 2 * 512 * 64 + 70000)


def test_what_makes_it_longer() -> None:
    """Another round of tiles, more columns of W, more steps of an epilogue."""
    least = price(numbers(64 * 132, 1024, 128), H200).time
    assert price(numbers(64 * 132 + 64, 1024, 128), H200).terms["tensor"] == pytest.approx(
        2 * price(numbers(64 * 132, 1024, 128), H200).terms["tensor"]
    )
    for more in ({"k": 2048}, {"y": "f16"}, {"columns": False}):
        assert price(replace(numbers(64 * 132, 1024, 128), **more), H200).time > least
    once, twice = (price(numbers(640, 1024, 128, y="f32", after=after), H200).terms["after"] for after in (0, 1))
    assert twice == pytest.approx(2 * once)


# --------------------------------------------------------------------------------------------- candidates and refusals
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"dtype": "s16"}, "W is i16 and x i8"), ({"dtype": "u8"}, "W is u8"), ({"x": "u8"}, "x u8"),
        ({"x": "s4"}, "x i4"), ({"x": "s16"}, "x i16"), ({"k": 100}, "M, K and n are 64, 100 and 32"),
        ({"m": 63}, "torch._int_mm needs n above 16, M and K that 8 divides"), ({"n": 16}, "and n are 64, 96 and 16"),
        ({"m": 16, "columns": False}, "torch._int_mm needs M above 16, n and K that 8 divides"),
        ({"n": 33, "columns": False}, "and n are 64, 96 and 33"),
    ],
)  # fmt: skip
def test_what_torch_does_not(how: dict[str, Any], says: str) -> None:
    error = lacking(
        numbers(64, 96, 32, **how) if not {"m", "k", "n"} & {*how} else replace(numbers(64, 96, 32), **how), H200
    )
    assert error is not None and says in error.message and error.hint
    assert lacking(numbers(64, 96, 32), H200) is None and lacking(numbers(64, 96, 32, dtype="s4"), H200) is None


def test_a_gpu_without_tensor_cores_for_integers() -> None:
    error = lacking(numbers(64, 96, 32), load_profile("v100"))
    assert (
        error is not None and "m16n8k32, which NVIDIA V100 has not" in error.message and "Ampere" in (error.hint or "")
    )


@pytest.mark.parametrize(("kind", "x_kind", "k", "there"), [
    ("i8", "i8", 96, True), ("i4", "i8", 96, True), ("i16", "i8", 96, False), ("i8", "u8", 96, False),
    ("i8", "i8", 100, False),
])  # fmt: skip
def test_it_is_a_candidate_where_torch_multiplies(kind: str, x_kind: str, k: int, there: bool) -> None:
    what = sg.spmm(auto((40, k), kind), n=24, x_dtype=x_kind)
    listed = [c.schedule for c in sg.schedules(what, device="h200")]
    assert (DENSE in listed) == there and len(listed) > 1
    if there:
        k_ = kernel(what, "dense")
        assert k_.schedule == DENSE and "torch._int_mm on torch tensors" in k_.explain()
    else:
        with pytest.raises(sg.ScheduleError, match=r"schedule='dense' multiplies|torch\._int_mm needs"):
            kernel(what, "dense")
        assert kernel(what).schedule != DENSE


def test_auto_takes_it_where_it_is_faster() -> None:
    """Few zeros, and x and y as a layer has them; else W's vectors.  The page says why."""
    w = auto((2048, 2304), kept=4.0)
    layer = replace(sg.spmm(w, n=512), columns=True)
    chosen = kernel(layer)
    assert w.format == "sr_bcrs" and w.auto and chosen.schedule == DENSE
    assert "dense was chosen as the faster one" in chosen.explain() and "vector_strip" in chosen.explain()
    sparse = kernel(replace(layer, w=auto((2048, 2304), kept=0.05)))
    assert sparse.schedule.family.startswith("vector_") and "times faster" in sparse.explain()
    asked = kernel(replace(layer, w=sg.sparse(w.to_dense(), format="sr_bcrs", height=8)))
    assert asked.schedule != DENSE and "take sg.sparse(w, format='auto', height=8)" in asked.explain()


def test_a_matrix_keeps_that_it_was_left_open(tmp_path: Path) -> None:
    w = auto((40, 64), "i4", height=4)
    w.save(tmp_path / "w")
    for again in (w, pickle.loads(pickle.dumps(w)), sg.load(tmp_path / "w")):
        assert again.auto and again.format == "sr_bcrs" and again.dtype == "i4" and again.height == 4
        assert DENSE in [c.schedule for c in sg.schedules(sg.spmm(again, n=24), device="h200")]


def test_arrays_of_other_libraries_are_refused() -> None:
    what = sg.spmm(auto((40, 64)), n=24)
    arrays = {IN: describe(np.zeros((64, 24), "i1")), OUT: describe(np.zeros((40, 24), "i4"))}
    with pytest.raises(sg.ArrayError, match="the product of torch where W holds integers") as e:
        DenseProduct(what).run(arrays, None)
    assert "torch arrays on a GPU" in (e.value.hint or "") and "sg.schedules" in (e.value.hint or "")


# ---------------------------------------------------------------------------------------------------------- the numbers
def multiplied(what: Any, x: Any, orders: tuple[str, str], **operands: Any) -> Any:
    """The product by torch on the host, with x and y packed in these orders."""
    torch = pytest.importorskip("torch")
    (m, n), kind = (what.w.shape[0], what.n), {"i32": "int32", "f32": "float32", "f16": "float16"}[what.y_dtype]
    y = torch.full((n, m) if orders[1] == "column" else (m, n), -77, dtype=getattr(torch, kind))
    y = y.t() if orders[1] == "column" else y
    x = np.asfortranarray(x) if orders[0] == "column" else x
    given = {IN: torch.from_numpy(x), **{name: torch.from_numpy(a) for name, a in operands.items()}}
    by_torch(what, torch.from_numpy(what.w.to_dense()))(given, y)
    return y.numpy()


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("orders", list(product(("row", "column"), repeat=2)), ids="-".join)
@pytest.mark.parametrize("kind", ["i8", "i4"])
def test_integers_are_exact(kind: str, orders: tuple[str, str], columns: bool) -> None:
    for extreme in (False, True):
        w = quantized((72, 200), kind, extreme=extreme)
        x = integers(np.random.default_rng(1), "i8", (200, 40), extreme)
        what = replace(sg.spmm(w, n=40), columns=columns)
        assert np.array_equal(multiplied(what, x, orders), exact(w, x))


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("y_kind", ["f32", "f16"])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_are_worked_out_in_f32(y_kind: str, activation: Any, columns: bool) -> None:
    """Sums beyond the integers that f16 has, scaled back: rounded once."""
    rng, w = np.random.default_rng(2), quantized((72, 200), kept=6.0)
    x = integers(rng, "i8", (200, 40))
    vectors = {name: rng.uniform(0.5, 1, 72).astype("f4") for name in ("scale", "bias")}
    vectors["scale"] /= 1 << 14
    operands = vectors | {
        "residual": rng.uniform(-1, 1, (72, 40)).astype(y_kind.replace("f32", "f4").replace("f16", "f2"))
    }
    flags: dict[str, Any] = dict.fromkeys(operands, True)
    what = replace(sg.spmm(w, n=40, y_dtype=y_kind, activation=activation, **flags), columns=columns)  # type: ignore[arg-type]
    want = sg.compile(what, backend="reference", device="h200")(x, **operands)
    for orders in product(("row", "column"), repeat=2):
        got = multiplied(what, x, orders, **operands)
        assert got.dtype == want.dtype
        assert np.allclose(
            got.astype("f8"), want.astype("f8"), rtol=2.0 ** (-10 if y_kind == "f16" else -20), atol=2e-6
        )


def test_an_x_at_an_odd_address() -> None:
    w, x = quantized((72, 64)), integers(np.random.default_rng(3), "i8", (40 * 64 + 3,))
    odd = x[3:].reshape(40, 64).T
    assert np.array_equal(multiplied(replace(sg.spmm(w, n=40), columns=True), odd, ("column", "row")), exact(w, odd))

"""Formulas as values: sharing, contraction, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.backends.reference.update import step
from sparsegen.dsl.update import Update
from sparsegen.ir import formula as f
from sparsegen.ir.errors import IRError
from sparsegen.ir.module import Module
from sparsegen.ir.node import Op
from sparsegen.ir.numbers.quotients import SIZES
from sparsegen.ir.op_update import Update as Op_
from sparsegen.ir.op_update import reach
from sparsegen.ir.parse import parse_op
from sparsegen.ir.text import print_op
from sparsegen.ir.verify import verify
from tests.updates import arrays, made, op_of, random_update

UPDATES = st.integers(0, 2**32 - 1).map(random_update)

A, B = ("read", "u", 0, (0,)), ("read", "u", 0, (1,))


def ops(code: f.Code) -> list[str]:
    return [str(node[0]) for node in code]


def test_a_graph_finds_equal_nodes_again() -> None:
    g = f.Graph()
    a, one = g.add(*A), g.const(1)
    assert (g.add(*A), g.const(1.0), g.const(-0.0)) == (a, one, g.const(0.0))
    assert g.nodes[g.negated(one)] == ("const", -1.0) and g.negated(g.negated(a)) == a


def test_live_keeps_what_results_need() -> None:
    code = (A, B, ("mul", 0, 1), ("const", 2.0), ("add", 0, 3))
    assert f.live(code, (4,)) == ((A, ("const", 2.0), ("add", 0, 1)), (2,))
    assert f.live(code, (2, 0)) == ((A, B, ("mul", 0, 1)), (2, 0))


@pytest.mark.parametrize(
    ("last", "want"),
    [
        ([("add", 2, 0)], ["read", "read", "fma"]),
        ([("add", 0, 2)], ["read", "read", "fma"]),
        ([("sub", 2, 0)], ["read", "read", "neg", "fma"]),
        ([("sub", 0, 2)], ["read", "read", "neg", "fma"]),
        ([("add", 2, 0), ("add", 3, 2)], ["read", "read", "mul", "add", "add"]),  # the product is used twice
        ([("div", 2, 0)], ["read", "read", "mul", "div"]),
    ],
)
def test_products_of_one_use_are_contracted(last: list[f.Node], want: list[str]) -> None:
    code = (A, B, ("mul", 0, 1), *last)
    assert ops(f.contract(code, (len(code) - 1,))[0]) == want


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("divisor", [3.0, -49.0, 0.1, 1e-3, 1e15, 1e30])
def test_quotients_by_constants_have_no_division(divisor: float, dtype: str) -> None:
    update = made(lambda u: abs(u[0] / divisor), dtype=dtype)
    kernel = sg.compile(update, (40,), 1, device="h200", backend="emulator", schedule="direct")
    number = np.dtype(f"f{int(dtype[1:]) // 8}").type
    u = (np.arange(40) * abs(divisor)).astype(number)
    u[:4] = np.inf, -np.inf, np.nan, 1.0
    np.testing.assert_array_equal(kernel(u), np.abs(u / number(divisor)))
    assert ("quotient" in kernel.ir("warp")) == (divisor < SIZES[1])


def test_a_product_that_is_a_result_stays() -> None:
    code = (A, B, ("mul", 0, 1), ("add", 2, 0))
    assert ops(f.contract(code, (2, 3))[0]) == ["read", "read", "mul", "add"]


@given(UPDATES)
def test_contraction_changes_rounding_only(update: Update) -> None:
    shape = tuple(n + 1 for n in update.extents)
    op, given_ = op_of(update, shape), arrays(update, shape)
    code, results = f.contract(op.code, op.results)
    assert len(code) <= len(op.code) + ops(code).count("neg") and ops(code).count("mul") <= ops(op.code).count("mul")
    fields = {name: given_[name] if n > 1 else (given_[name],) for name, n in update.fields}
    coefs = {name: given_[name] for name in update.coefs}
    for got, want in zip(
        step(replace(op, code=code, results=results), fields, coefs), step(op, fields, coefs), strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-12 if update.dtype == "f64" else 1e-5)


GOOD = made(lambda u, v: (u[0] * v[1] + 1, u[-1]))


def broken(**changes: Any) -> Callable[[Op_], Op]:
    return lambda op: replace(op, **changes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (broken(code=(("read", "w", 0, (0,)),), results=(0, 0)), "w has 0 levels"),
        (broken(code=(("read", "u", 1, (0,)),), results=(0, 0)), "u has 1 levels"),
        (broken(code=(("read", "u", 0, (0, 0)),), results=(0, 0)), "2 offsets on 1 axes"),
        (broken(code=(("read", "u", 0),), results=(0, 0)), "a read has a parameter, a level and an offset"),
        (broken(code=(("const", float("inf")),), results=(0, 0)), "a constant is one finite number"),
        (broken(code=(A, ("tan", 0)), results=(0, 0)), "unknown, one of read, const, scalar, neg"),
        (broken(code=(A, ("add", 0, 1)), results=(0, 0)), "takes 2 earlier nodes"),
        (broken(code=(A, ("add", 0)), results=(0, 0)), "takes 2 earlier nodes"),
        (broken(code=(A, ("lt", 0, 0), ("add", 0, 1)), results=(0, 0)), "mistakes numbers for conditions"),
        (broken(code=(A, ("where", 0, 0, 0)), results=(0, 0)), "mistakes numbers for conditions"),
        (broken(code=(A, ("lt", 0, 0)), results=(0, 1)), "result 1 of the formula is no number"),
        (broken(results=(0,)), "2 fields need 2 results"),
        (broken(pitch=(9, 9, 9)), "3 pitches for 4 arrays"),
        (broken(pitch=(9, 9, 9, 5)), "rows of 8 cells overlap at pitch 5"),
        (broken(radius=(1, 1)), "must have 1 axes"),
        (broken(coefs=("u",)), "two parameters of one name"),
        (broken(fields=(("u", 0), ("v", 1))), "a field without a time level"),
    ],
)
def test_wrong_updates_are_refused(change: Callable[[Op_], Op], says: str) -> None:
    good = op_of(GOOD, (8,))
    verify(Module("good", (good,)))
    with pytest.raises(IRError, match=says):
        verify(Module("bad", (change(good),)))


def test_reach_counts_both_ways_and_the_cell_itself() -> None:
    code = (("read", "u", 0, (2, 0)), ("read", "u", 0, (1, -3)), ("read", "c", 0, (-5, 0)))
    assert reach(code, ["u"], 2) == ((0, 2), (3, 0))
    assert reach(code, ["u", "c"], 2) == ((5, 2), (3, 0))
    assert reach(code, [], 2) == ((0, 0), (0, 0))


@given(UPDATES)
def test_any_update_reads_back(update: Update) -> None:
    op = op_of(update, tuple(n + 1 for n in update.extents))
    assert parse_op(print_op(op)) == op

"""The decorator on functions that are no linear stencil: what they become, and what still is a stencil."""

from __future__ import annotations

import math
import operator
from typing import Annotated, Any

import numpy as np
import pytest
import sympy

import sparsegen as sg
from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.trace import Coef, Field, stencil
from sparsegen.dsl.update import Update, resolve_fields
from sparsegen.ir.errors import SparsegenError
from tests.updates import NAMED, gray_scott, life, made, wave


def test_the_contracts_example() -> None:
    @sg.stencil(boundary=sg.dirichlet(0.0))
    def wave(u: Field(levels=2), c: Coef) -> Any:  # type: ignore[valid-type]
        return 2 * u[0, 0] - u.prev[0, 0] + c[0, 0] * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0])  # type: ignore[index]

    assert isinstance(wave, Update)
    assert (wave.name, wave.dtype, wave.ndim, wave.radius) == ("wave", "f64", 2, (1, 1))
    assert (wave.fields, wave.coefs) == ((("u", 2),), ("c",))
    assert wave.boundary == dirichlet(0.0) and wave.sides == (((dirichlet(0.0),) * 2,) * 2,)
    u, prev, c, *around = (
        sympy.Symbol(n, real=True)
        for n in ("u[0, 0]", "u.prev[0, 0]", "c[0, 0]", "u[-1, 0]", "u[1, 0]", "u[0, -1]", "u[0, 1]")
    )
    assert sympy.expand(wave.expr - (2 * u - prev + c * (sympy.Add(*around) - 4 * u))) == 0
    assert wave.loc is not None and wave.loc.file == __file__


LINEAR = [
    lambda u: 0.5 * u[0] + (u[1] - u[-1]) / 3,
    lambda u: sum(u[d] for d in (-1, 0, 1)) / 3,
    lambda u: (u[0] + u[1]) ** 1 * 2,
    lambda u: u[0] + 0.0 * u[3],
    lambda u: sg.where(True, u[0], u[1] ** 2),
    lambda u: u[0] + 0,
]


@pytest.mark.parametrize("function", LINEAR)
def test_linear_in_one_field_stays_a_stencil(function: Any) -> None:
    assert isinstance(stencil(function), Stencil)


def test_levels_as_type_checkers_take_them() -> None:
    def twice(u: Annotated[Field, Field(levels=2)], c: Annotated[Coef, 1]) -> sg.Value:
        return u.prev[0] * c[0]

    made = stencil(twice)
    assert isinstance(made, Update) and (made.fields, made.coefs) == ((("u", 2),), ("c",))
    twice.__annotations__["u"] = "Annotated[Field, Field(levels=2)]"
    assert stencil(twice) == made


def test_annotations_name_what_stands_around_the_function() -> None:
    count = 3

    @stencil
    def last(u: Annotated[Field, Field(levels=count)]) -> sg.Value:
        return u.prev.prev[0]

    assert isinstance(last, Update) and last.fields == (("u", 3),)


def test_updates_that_say_the_same_in_another_order_are_equal() -> None:
    def parts_first(u: Any, v: Any) -> Any:
        eaten, spread = u[0] * v[0] ** 2, u[-1] + u[1]
        return u[0] + spread - eaten, v[0] + eaten

    def at_once(u: Any, v: Any) -> Any:
        return u[0] + (u[-1] + u[1]) - u[0] * v[0] ** 2, v[0] + u[0] * v[0] ** 2

    def other(u: Any, v: Any) -> Any:
        return u[0] + (u[1] + u[-1]) - u[0] * v[0] ** 2, v[0] + u[0] * v[0] ** 2

    first, second = stencil(parts_first), stencil(at_once)
    assert first == second and hash(first) == hash(second) and first != stencil(other)
    assert isinstance(first, Update) and isinstance(second, Update) and first.code != second.code


def test_long_formulas_are_compared() -> None:
    def long(u: Any) -> Any:
        return sum((u[i % 9 - 4] * u[i % 7 - 3] * i for i in range(1, 3000)), u[0])

    assert stencil(long) == stencil(long)


def plain_levels(u: Field(levels=2)) -> Any:  # type: ignore[valid-type]
    return u[0] + u[1]


def coefficient(u: Any, c: Coef()) -> Any:  # type: ignore[valid-type]
    return u[0] + c[1]


GENERAL = [
    lambda u: u[0] + 1, lambda u: 1 - u[0], lambda u: u[0] * u[1], lambda u: u[0] ** 2, lambda u: 1 / u[0],
    lambda u: abs(u[0]), lambda u: sg.sqrt(u[0]), lambda u: sg.min(u[0], 1), lambda u: np.prod([u[0], u[1]]),
    lambda u: sg.where(u[0] < u[1], u[0], 2), lambda u: u[0] ** 0 + u[1], lambda u: sg.exp(u[0]), lambda u: 2 ** u[0],
    lambda u: sg.clip(u[0], 0, 1), lambda u: u[0] ** 1.5, lambda u, v: (u[0], v[0]),
    plain_levels, coefficient,
]  # fmt: skip


@pytest.mark.parametrize("function", GENERAL)
def test_anything_else_is_an_update(function: Any) -> None:
    assert isinstance(stencil(function), Update)


def evaluated(update: Update, **values: float) -> float:
    """The (one) result with a number for each read."""
    return float(update.expr.subs({sympy.Symbol(k, real=True): v for k, v in values.items()}))


@pytest.mark.parametrize(
    ("function", "meaning"),
    [
        (lambda u: u[0] ** 5, lambda a, b: a**5),
        (lambda u: u[0] ** -3, lambda a, b: a**-3),
        (lambda u: u[0] ** 6 + u[1] ** 0, lambda a, b: a**6 + 1),
        (lambda u: u[0] ** 2.0 / u[1], lambda a, b: a**2 / b),
        (lambda u: 2 - u[0] * 3 + 1, lambda a, b: 3 - 3 * a),
        (lambda u: (1 - u[0]) / 4 + 3 / u[1], lambda a, b: (1 - a) / 4 + 3 / b),
        (lambda u: u[0] * u[1] / 3, lambda a, b: a * b / 3),
        (lambda u: -(+u[0] - 1) - -u[1], lambda a, b: 1 - a + b),
        (lambda u: sg.max(u[0], 0.5, u[1]) + sg.min(1, u[0]), lambda a, b: max(a, 0.5, b) + min(1, a)),
        (lambda u: sg.abs(u[0] - u[1]) + abs(1 - u[1]), lambda a, b: abs(a - b) + abs(1 - b)),
        (lambda u: sg.sqrt(u[0] + 1), lambda a, b: math.sqrt(a + 1)),
        (lambda u: sg.exp(u[0]) - sg.log(u[1]), lambda a, b: math.exp(a) - math.log(b)),
        (lambda u: sg.sin(u[0]) + 3 * sg.cos(u[1]), lambda a, b: math.sin(a) + 3 * math.cos(b)),
        (lambda u: sg.tanh(u[0] - u[1]), lambda a, b: math.tanh(a - b)),
        (lambda u: sg.pow(u[0], u[1]) + u[1] ** u[0], lambda a, b: a**b + b**a),
        (lambda u: sg.pow(u[0], 3) + sg.pow(3, u[1]), lambda a, b: a**3 + 3**b),
        (lambda u: u[0] ** 0.5 + u[1] ** -0.5 + u[0] ** -1.7, lambda a, b: a**0.5 + b**-0.5 + a**-1.7),
        (lambda u: sg.clip(u[0], 0.5, u[1]), lambda a, b: min(max(a, 0.5), b)),
        (lambda u: sg.clip(0.75, u[0], 2), lambda a, b: min(max(0.75, a), 2)),
        (lambda u: sg.where(u[0] < 1, 5, u[1]), lambda a, b: 5 if a < 1 else b),
        (lambda u: sg.where(u[0] <= u[1], 5, u[1]), lambda a, b: 5 if a <= b else b),
        (lambda u: sg.where(u[0] > 1, 5, u[1]), lambda a, b: 5 if a > 1 else b),
        (lambda u: sg.where(2 >= u[0], 5, u[1]), lambda a, b: 5 if a <= 2 else b),
        (lambda u: sg.where((u[0] == 2) | (u[1] != 3), u[0], -1), lambda a, b: a if a == 2 or b != 3 else -1),
        (lambda u: sg.where(~(u[0] > 1) & (u[1] >= 3), u[0], 7), lambda a, b: a if a <= 1 and b >= 3 else 7),
    ],
)
def test_what_a_formula_means(function: Any, meaning: Any) -> None:
    update = made(function)
    for a in (0.25, 1.0, 2.0, 3.5):
        for b in (0.5, 3.0):
            assert evaluated(update, **{"u[0]": a, "u[1]": b}) == pytest.approx(meaning(a, b), rel=1e-14)


def test_the_functions_give_numbers_for_numbers() -> None:
    assert (sg.sqrt(9.0), sg.abs(-2), sg.min(3, 1, 2), sg.max(3, 1), sg.where(1 < 2, 5, 6)) == (3.0, 2, 1, 3, 5)
    assert sg.where(np.bool_(False), 5, 6) == 6
    assert (sg.exp(2), sg.log(2), sg.sin(2), sg.cos(2)) == (math.exp(2), math.log(2), math.sin(2), math.cos(2))
    assert (sg.tanh(2), sg.pow(2, 0.5), sg.clip(5, 1, 3), sg.clip(0, 1, 3)) == (math.tanh(2), 2**0.5, 3, 1)


def test_what_powers_become() -> None:
    """Products while they are few, a root where that is the power: the function only else."""
    exponents = {2: ["mul"], 64: ["mul"] * 6, 0.5: ["sqrt"], -0.5: ["sqrt", "div"], 65: ["pow"], 1.5: ["pow"]}

    def ops(raised: Any, exponent: float) -> list[Any]:
        return [node[0] for node in made(lambda u: raised(u[0], exponent)).code if node[0] not in ("read", "const")]

    for exponent, want in exponents.items():
        assert ops(operator.pow, exponent) == ops(sg.pow, exponent) == want


def test_common_subexpressions_are_one_node() -> None:
    update = made(lambda u: (u[0] * u[1] + 1) / (u[0] * u[1] + 2) + u[0] * u[1])
    assert sum(node[0] == "mul" for node in update.code) == 1
    assert sum(node[0] == "read" for node in update.code) == 2
    assert len(made(lambda u: u[0] ** 64).code) == 7  # one read, six squarings


def test_what_no_result_needs_is_not_there() -> None:
    def idle(u: Any) -> Any:
        _ = u[7] * u[8]
        return u[0] * u[1]

    assert made(idle).radius == (1,) and len(made(idle).code) == 3


def test_a_division_by_a_power_of_two_is_a_product() -> None:
    ops = [node[0] for node in made(lambda u: (u[0] + 1) / 8 + (u[1] * u[1]) / 3).code]
    assert ops.count("div") == 1


def test_annotations_see_what_the_function_sees() -> None:
    count = 3

    def deep(u: sg.Field(levels=count), other: NotThere) -> Any:  # type: ignore[name-defined, valid-type]  # noqa: F821
        return (sum((u, u.prev, u.prev.prev)[i][0] for i in range(count)), other[0])

    assert made(deep).fields == (("u", 3), ("other", 1))


def test_radius_is_that_of_fields_and_extents_count_coefficients() -> None:
    def f(u: Field(levels=3), c: Coef) -> Any:  # type: ignore[valid-type]
        return u[-1, 0] * u.prev[2, 0] - u.prev.prev[0, 1] + c[0, 3]  # type: ignore[index]

    update = made(f)
    assert (update.radius, update.extents) == ((2, 1), (5, 7))


def test_updates_are_values() -> None:
    assert wave() == wave() and hash(wave()) == hash(wave()) and wave() != gray_scott()
    assert wave(boundary=frozen) != wave(boundary=periodic) and wave(dtype="f32") != wave()
    assert wave(name="other") == wave()
    assert str(wave(boundary=frozen)) == "wave: update of u (2 levels) with c, radius 1x1, f64, frozen"
    each = gray_scott(boundary={"u": dirichlet(1.0), "v": {0: periodic, 1: (neumann, frozen)}})
    assert str(each).endswith("update of u, v, radius 1x1, f64, u dirichlet(1.0); v 0: periodic, 1: neumann|frozen")
    assert each.boundary == {"u": dirichlet(1.0), "v": {0: periodic, 1: (neumann, frozen)}}
    assert resolve_fields(each.boundary, ("u", "v"), 2, None) == each.sides
    assert repr(life()) == "<Update life: update of u, radius 1x1, f64, periodic>"


def test_a_coefficient_holds_on_at_an_edge_without_a_mapping_of_its_own() -> None:
    sides = wave(boundary={0: (dirichlet(2.0), neumann), 1: periodic}).coef_sides
    assert sides == ((frozen, neumann), (periodic, periodic))


def test_expressions_of_several_fields_are_a_tuple() -> None:
    first, second = gray_scott().expr
    u, v = sympy.Symbol("u[0, 0]", real=True), sympy.Symbol("v[0, 0]", real=True)
    assert first.coeff(u * v**2) == -1 and second.coeff(u * v**2) == 1


@pytest.mark.parametrize("name", NAMED)
def test_named_cases_show_themselves(name: str) -> None:
    make, shape = NAMED[name]
    update = make()
    assert update.ndim == len(shape) and update.name == name and update.expr


def test_messages_are_short_for_large_formulas() -> None:
    def tower(u: Any) -> Any:
        value = u[0]
        for _ in range(60):
            value = value * value + value
        return value % 2

    with pytest.raises(SparsegenError) as caught:
        stencil(tower)
    assert len(caught.value.message) < 90

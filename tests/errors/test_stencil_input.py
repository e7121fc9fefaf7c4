"""Every way to describe a stencil wrongly: what is said, that it names the user's line, and what to do instead."""

# ruff: noqa: E731

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

import sparsegen as sg
from sparsegen.boundary import dirichlet, frozen, neumann, periodic, resolve
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.trace import Coef, Field, stencil
from sparsegen.ir.errors import BoundaryError, SparsegenError, StencilError

HEAT = np.array([[0.0, 0.125, 0.0], [0.125, 0.5, 0.125], [0.0, 0.125, 0.0]])


def refusal(kind: type[SparsegenError], attempt: Callable[[], object], *says: str) -> SparsegenError:
    """The error that ``attempt`` raises; its text has all of ``says`` and the line of this file marked ``# here``."""
    with pytest.raises(kind) as caught:
        attempt()
    error, text = caught.value, str(caught.value)
    assert type(error) is kind
    for part in says:
        assert part in text, f"{part!r} is not in:\n{text}"
    assert error.loc is not None and error.loc.file == __file__, text
    assert text.startswith(f"{__file__}:{error.loc.line}: ")
    assert "# here" in linecache.getline(__file__, error.loc.line), text
    assert error.hint and text.endswith(f"remedy: {error.hint}")
    return error


a = sympy.Symbol("a")
array = np.array([1.0, 2.0])

# What is wrong with the arithmetic: (function, what the message says).
NO_FORMULA: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
    (lambda u: 2**u, ("the field u is used in arithmetic without offsets",)),  # here
    (lambda u: 2 ** (u[0] > 0), ("the condition 0 < u[0] is used as a number",)),  # here
    (lambda u: "2" ** u[0], ("the base '2' is not a real number but a str",)),  # here
    (lambda u: u[0] // 2, ("u[0] is divided with //",)),  # here
    (lambda u: u[0] % 2, ("u[0] is used with %",)),  # here
    (lambda u: math.sin(u[0]), ("cannot be traced: TypeError", "a formula is made of reads u[...]")),  # here
    (lambda u: np.sin(u[0]), ("cannot be traced: TypeError", "sg.sin(a)", "float(), takes no read")),  # here
    (lambda u: sympy.sin(u[0]), ("cannot be traced: SympifyError", "sg.sin(a)")),  # here
    (lambda u: float(u[0]), ("cannot be traced: TypeError",)),  # here
    (lambda u: max(u[0], u[1]), ("the condition u[0] < u[1] is used as a truth value", "sg.max")),  # here
    (lambda u: u[1] if u[0] else u[2], ("u[0] is used as a truth value (if, while, and, or)",)),  # here
    (lambda u: u[1] if u[0] > 0 else u[2], ("the condition 0 < u[0] is used as a truth value", "sg.where")),  # here
    (lambda u: u[1] if u[0] == 0 else u[2], ("the condition u[0] == 0 is used as a truth value",)),  # here
    (lambda u: sg.where(0 < u[0] < 1, 1, 0), ("is used as a truth value", "& | ~ for and, or, not")),  # here
    (lambda u: (u[0] > 0) * 1.0, ("the condition 0 < u[0] is used as a number", "sg.where")),  # here
    (lambda u: u[0] + (u[1] > 0), ("the condition 0 < u[1] is used as a number",)),  # here
    (lambda u: u[0] * (u[1] != 2), ("the condition u[1] != 2 is used as a number",)),  # here
    (lambda u: sg.where((u[0] > 0) & True, 1, 0), ("the condition 0 < u[0] is joined with True",)),  # here
    (lambda u: (u[0] > 0) == (u[1] > 0), ("the condition 0 < u[0] is compared with ==",)),  # here
    (lambda u: sg.where(u[0], 1, 0), ("the condition of sg.where is u[0], which is no comparison",)),  # here
    (lambda u: sg.min(u[0]), ("sg.min of 1 values", "give two or more")),  # here
    (lambda u: sg.sqrt(u), ("the field u is used as a number", "as in u[0, 0]")),  # here
    (lambda u: sg.max(u[0] > 0, 1), ("the condition 0 < u[0] is used as a number",)),  # here
    (lambda u: sg.exp(u), ("the field u is used as a number", "as in u[0, 0]")),  # here
    (lambda u: sg.tanh(u[0] > 0), ("the condition 0 < u[0] is used as a number",)),  # here
    (lambda u: sg.exp(u[0], u[1]), ("exp() takes 1 positional argument but 2 were given", "sg.exp(a)")),  # here
    (lambda u: sg.cos(u[0], out=u[1]), ("cos() got an unexpected keyword argument 'out'", "sg.cos(a)")),  # here
    (lambda u: sg.clip(u[0], 1), ("clip() missing 1 required", "sg.clip(a, low, high)")),  # here
    (lambda u: sg.clip(u[0], 1, 0.5), ("sg.clip between 1 and 0.5", "the lower bound first")),  # here
    (lambda u: sg.clip(u[0], "0", 1), ("sg.clip of '0', which is no real number",)),  # here
    (lambda u: u[0] + sg.log(-1.0), ("sg.log of -1.0, which is no finite number", "of a number above 0")),  # here
    (lambda u: u[0] + sg.exp(710), ("sg.exp of 710, which is no finite number", "below 709")),  # here
    (lambda u: u[0] + sg.pow(-8, 1 / 3), ("sg.pow of -8, 0.333", "to a whole power")),  # here
    (lambda u: sg.pow(u, 2), ("the field u is used as a number",)),  # here
    (lambda u: sg.pow(u[0], math.inf), ("the exponent inf is not finite",)),  # here
    (lambda u: u[0] ** (u[1] > 0), ("the condition 0 < u[1] is used as a number",)),  # here
    (lambda u: u[0] | u[1], ("u[0] is used with & | ^ ~",)),  # here
    (lambda u: u[0] and u[1], ("u[0] is used as a truth value",)),  # here
    (lambda u: a * u[0], ("the coefficient a has no value", "subs(symbol, 0.1)")),  # here
    (lambda u: u[0] / a, ("the divisor a has no value",)),  # here
    (lambda u: array * u[0], ("of shape (2,), is an array", "c: sg.Coef")),  # here
    (lambda u: u[0] * math.nan, ("the coefficient nan is not finite",)),  # here
    (lambda u: u[0] * sympy.oo, ("the coefficient oo is not finite",)),  # here
    (lambda u: u[0] * 2j, ("the coefficient 2j is not a real number but a complex",)),  # here
    (lambda u: u[0] * sympy.I, ("the coefficient I is not a real number",)),  # here
    (lambda u: u[0] * "2", ("the coefficient '2' is not a real number but a str",)),  # here
    (lambda u: u[0] + None, ("the term None is not a real number but a NoneType",)),  # here
    (lambda u: u[0] / 0, ("u[0] is divided by zero",)),  # here
    (lambda u: u[0] * missing_name, ("NameError: name 'missing_name' is not defined",)),  # type: ignore[name-defined]  # noqa: F821 # here
]

# What is wrong with a read.
BAD_READ: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
    (
        lambda u: u[0.5, 0],  # here
        ("the offset 0.5 in u[0.5, 0] is not a constant integer but a float", "as in u[-1, 0]"),
    ),
    (lambda u: u[1.0], ("the offset 1.0 in u[1.0] is not a constant integer",)),  # here
    (lambda u: u[a, 0], ("the offset a in u[a, 0] is not a constant integer but a Symbol",)),  # here
    (lambda u: u["left"], ("the offset 'left' in u['left'] is not a constant integer but a str",)),  # here
    (lambda u: u[:, 0], ("the offset : in u[:, 0] is not a constant integer but a slice",)),  # here
    (lambda u: u[1:7:2], ("the offset 1:7:2 in u[1:7:2]",)),  # here
    (lambda u: u[..., 0], ("the offset Ellipsis in",)),  # here
    (lambda u: u[True], ("the offset True in u[True]",)),  # here
    (lambda u: u[u[0]], ("the offset u[0] in u[u[0]] is not a constant integer but a Read",)),  # here
    (lambda u: u[()], ("u[] has 0 offsets", "1, 2 or 3 axes")),  # here
    (lambda u: u[0, 0, 0, 0], ("u[0, 0, 0, 0] has 4 offsets", "1, 2 or 3 axes")),  # here
    (lambda u: u[0][1], ("u[0] is indexed again with [1]",)),  # here
    (lambda u: u[0, -17], ("u[0, -17] reads 17 cells away, over the limit of 16",)),  # here
    (lambda u: u.prev[0, 0], ("u.prev: u has 1 time level", "u: sg.Field(levels=2)")),  # here
    (lambda u: u.T[0, 0], ("u.T: a field has no attributes",)),  # here
    (lambda u: 2 * u, ("the field u is used in arithmetic without offsets", "as in u[0, 0]")),  # here
    (lambda u: u[0] + u, ("the field u is used in arithmetic without offsets",)),  # here
    (lambda u: u(0, 0), ("the field u is called; offsets go in square brackets",)),  # here
    (lambda u: sum(u), ("the field u is iterated over",)),  # here
    (lambda u: u[0] if u else None, ("the field u is used as a truth value",)),  # here
    (lambda u: list(u[0]), ("'Read' object is not iterable",)),  # here
    (lambda u: None, ("stencil returns None", "is a return missing?")),  # here
    (lambda u: u, ("stencil returns the field u itself", "as in u[0, 0]")),  # here
    (lambda u: 1.5, ("stencil returns 1.5, which reads nothing of u",)),  # here
    (lambda u: (u[0], u[1]), ("stencil returns a tuple, but has one field, u",)),  # here
    (lambda u: u[0] - u[0], ("all reads cancel: the stencil is zero everywhere",)),  # here
    (lambda u: 10**400 * u[0], ("the coefficient of u[0] is inf in f64",)),  # here
    (lambda u: u[0] / 10**400, ("the coefficient of u[0] is 0.0 in f64", "scale the equation")),  # here
    (
        lambda u, v: u[0] + v[0],  # here
        ("stencil returns 1 value, but has the fields u, v", "c: sg.Coef"),
    ),
    (lambda u, v: (u[0], v[0], u[1]), ("stencil returns 3 values, but has the fields u, v",)),  # here
    (lambda u, v: (u[0], 0.0), ("stencil returns 0.0, which reads nothing of u, v",)),  # here
    (lambda u, v: (u[0], v), ("stencil returns the field v itself", "as in v[0, 0]")),  # here
    (lambda u: u[0] > 0, ("stencil returns the condition 0 < u[0]", "sg.where(condition, 1.0, 0.0)")),  # here
    (lambda u: u[0] / 3 + 10**400, ("the constant inf is infinite in f64",)),  # here
    (lambda: 1.0, ("at least one of them a field", "takes: none")),  # here
    (lambda *u: u[0], ("takes parameters by position", "takes: *u")),  # here
    (lambda u, *, v: (u[0], v[0]), ("takes parameters by position", "takes: u, v")),  # here
]


@pytest.mark.parametrize(("function", "says"), [*NO_FORMULA, *BAD_READ])
def test_a_function_that_is_no_stencil(function: Callable[..., Any], says: tuple[str, ...]) -> None:
    refusal(StencilError, lambda: stencil(function), *says)


def test_the_line_is_the_one_at_fault_within_a_longer_function() -> None:
    def several(u: Any) -> Any:
        total = 0.5 * u[0, 0]
        for d in (-1, 1):
            total = total + 0.25 * u[d, 0]
        return total + u[0, 1] % u[0, -1]  # here

    refusal(StencilError, lambda: stencil(several), "u[0, 1] is used with %")


def test_mixed_ranks_name_both_lines() -> None:
    def mixed(u: Any) -> Any:
        total = 0.5 * u[0, 0]
        return total + u[1]  # here

    error = refusal(StencilError, lambda: stencil(mixed), "u[1] has 1 offsets, but u[0, 0] at line")
    assert error.loc is not None and f"u[0, 0] at line {error.loc.line - 1} has 2" in str(error)


def test_a_missing_return_names_the_def() -> None:
    def forgot(u: Any) -> Any:  # here
        0.5 * u[0, 0]

    refusal(StencilError, lambda: stencil(dtype="f32")(forgot), "forgot returns None")


def test_levels_and_coefficients() -> None:
    def deep(u: Field(levels=2)) -> Any:  # type: ignore[valid-type]
        return u.prev[0] - u.prev.prev[0]  # here

    def earlier(u: Any, c: Coef) -> Any:
        return u[0] * c.prev[0]  # type: ignore[attr-defined]  # here

    def none(u: Field(levels=0)) -> Any:  # type: ignore[valid-type]  # here
        return u[0]

    def unread(u: Any, c: Coef()) -> Any:  # type: ignore[valid-type]  # here
        return u[0] + 1

    def only(c: Coef) -> Any:  # here
        return c[0]  # type: ignore[index]

    def itself(u: Any, c: Coef) -> Any:
        return u[0] + 2 * c  # type: ignore[operator]  # here

    def made_elsewhere() -> Any:
        count = 2

        def local(u: Field(levels=count)) -> Any:  # type: ignore[valid-type]  # here
            return u[0]

        return local

    refusal(
        StencilError,
        lambda: stencil(made_elsewhere()),
        "the annotation 'Field(levels=count)' of parameter u",
        "'count'",
    )
    refusal(StencilError, lambda: stencil(deep), "u.prev.prev: u has 2 time levels", "u: sg.Field(levels=3)")
    refusal(StencilError, lambda: stencil(earlier), "c.prev: a coefficient does not change")
    refusal(StencilError, lambda: stencil(none), "parameter u has 0 time levels", "1 to 8")
    refusal(StencilError, lambda: stencil(unread), "unread never reads its coefficient c", "leave it away")
    refusal(StencilError, lambda: stencil(only), "at least one of them a field; this one takes: c")
    refusal(StencilError, lambda: stencil(itself), "the coefficient c is used in arithmetic without offsets")


def test_general_updates_have_constants_that_fit_and_a_boundary_for_each_field() -> None:
    def two(u: Any, v: Any) -> Any:  # here
        return u[0] * v[0], v[1]

    large = lambda u: u[0] * u[0] + 1e39  # here
    for dtype in ("f32", "f16", "bf16"):  # those of 16 bits are worked out in f32
        refusal(StencilError, lambda d=dtype: stencil(dtype=d)(large), "the constant 1e+39 is infinite in f32")
    held = {"dtype": "f16", "boundary": dirichlet(1e5)}
    refusal(BoundaryError, lambda: stencil(**held)(two), "dirichlet(100000.0) is infinite in f16")
    for boundary, says in (
        ({"u": periodic}, ("v has no boundary (fields: u, v)",)),
        ({"u": periodic, "v": periodic, "w": frozen}, ("w is no field (fields: u, v)",)),
        ({"u": periodic, "v": "mirror"}, ("boundary is 'mirror', which is no boundary",)),
        ({"u": periodic, 0: periodic}, ("boundary names axis 'u'",)),
        ({"u": periodic, "v": dirichlet(1e39)}, ("dirichlet(1e+39) is infinite in f32",)),
    ):
        refusal(BoundaryError, lambda b=boundary: stencil(boundary=b, dtype="f32")(two), *says)  # type: ignore[misc]


def test_the_decorator_itself() -> None:
    function = lambda u: u[0]  # here
    refusal(StencilError, lambda: stencil("f32"), 'name the options, as in @sg.stencil(dtype="f64"')  # type: ignore[call-overload]  # here
    refusal(
        StencilError, lambda: stencil(dtype="f128")(function), "cannot have the dtype 'f128'", "f64, f32, f16, bf16"
    )
    refusal(StencilError, lambda: stencil(dtype=np.int32)(function), "cannot have the dtype <class 'numpy.int32'>")
    refusal(StencilError, lambda: stencil(name="a b")(function), "the name 'a b' is no C identifier")
    wide = lambda u: 1e5 * u[1]  # here
    refusal(StencilError, lambda: stencil(dtype="f16")(wide), "100000.0 at offset [1] is infinite in f16")


# What is wrong with an array of weights: (array, keywords, what the message says).
BAD_WEIGHTS: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
    (np.ones((3, 4)), {}, ("the weights are 3x4: extent 4 of axis 1 is even", "pad with zeros to 5")),
    (np.ones(0), {}, ("the weights are 0: extent 0 of axis 0 is even",)),
    (np.ones((3, 3), int), {}, ("the weights are integers (int64)", "w.astype(float)")),
    ([1, 2, 1], {}, ("the weights are integers",)),
    (np.ones(3, bool), {}, ("the weights are integers (bool)",)),
    (np.ones(3, complex), {}, ("the weights are complex (complex128)", "real and imaginary")),
    (
        np.ones(3, np.longdouble),
        {},
        ("the weights are of a dtype that is not supported ", "float64, float32, float16, bfloat16"),
    ),
    (["a", "b", "c"], {}, ("the weights are of a dtype that is not supported (<U1)",)),
    ([[1.0], [1.0, 2.0]], {}, ("the weights are no array",)),
    (np.array([1.0, np.nan, 1.0]), {}, ("the weight nan at offset [0] is not finite",)),
    (np.array([[1.0, 1.0, np.inf]]), {}, ("the weight inf at offset [0, 1] is not finite",)),
    (np.zeros((3, 3)), {}, ("all 3x3 weights are zero",)),
    (np.float64(1.0), {}, ("the weights have 0 axes", "1, 2 or 3 axes")),
    (np.ones((1, 1, 1, 1)), {}, ("the weights have 4 axes", "1, 2 or 3 axes")),
    (np.ones((35, 1)), {}, ("radius 17 along axis 0 is over the limit of 16",)),
    (
        np.array([1e39, 1.0, 1.0]),
        {"dtype": "f32"},
        ("the weight 1e+39 at offset [-1] is infinite in f32", "wider dtype"),
    ),
    (np.array([1.0, 1.0, 1e-50]), {"dtype": "bf16"}, ("the weight 1e-50 at offset [1] is zero in bf16", "wider dtype")),
    (HEAT, {"dtype": "int8"}, ("cannot have the dtype 'int8'",)),
    (HEAT, {"name": "2d"}, ("the name '2d' is no C identifier",)),
]


@pytest.mark.parametrize(("weights", "options", "says"), BAD_WEIGHTS)
def test_weights_that_are_no_stencil(weights: Any, options: dict[str, Any], says: tuple[str, ...]) -> None:
    refusal(StencilError, lambda: Stencil.from_weights(weights, **options), *says)  # here


# What is wrong with the boundary of a 2-D stencil.
BAD_BOUNDARY: list[tuple[Any, tuple[str, ...]]] = [
    ("periodic", ("boundary is 'periodic', which is no boundary", "sg.periodic, sg.frozen")),
    (None, ("boundary is None, which is no boundary",)),
    (dirichlet, ("dirichlet without its value", "sg.dirichlet(0.0)")),
    ((frozen, neumann), ("does not say which axis it is for", "{0: (sg.frozen, sg.neumann)")),
    ({0: periodic}, ("boundary does not name axis 1 of a 2-D stencil", "add 1: sg.periodic")),
    ({}, ("boundary does not name axis 0, 1 of a 2-D stencil",)),
    ({0: periodic, 1: periodic, 2: frozen}, ("names axis 2, but a 2-D stencil has the axes 0, 1",)),
    ({0: periodic, -1: periodic}, ("names axis -1", "number the axes from 0")),
    ({0: periodic, True: periodic}, ("names axis True",)),
    ({0: periodic, "x": periodic}, ("names axis 'x'",)),
    ({0: (periodic, frozen), 1: periodic}, ("axis 0 is periodic at one end only: (periodic, frozen)", "or neither")),
    ({0: periodic, 1: (dirichlet(1.0), periodic)}, ("axis 1 is periodic at one end only: (dirichlet(1.0), periodic)",)),
    ({0: (frozen,), 1: periodic}, ("boundary of axis 0 has 1 sides", "(low, high)")),
    ({0: (frozen, 3.0), 1: periodic}, ("high boundary of axis 0 is 3.0, which is no boundary",)),
    ({0: "mirror", 1: periodic}, ("boundary of axis 0 is 'mirror', which is no boundary",)),
]


@pytest.mark.parametrize(("boundary", "says"), BAD_BOUNDARY)
def test_a_boundary_that_is_none(boundary: Any, says: tuple[str, ...]) -> None:
    refusal(BoundaryError, lambda: Stencil.from_weights(HEAT, boundary=boundary), *says)  # here
    refusal(BoundaryError, lambda: stencil(boundary=boundary)(lambda u: u[0, 1]), *says)  # here
    refusal(BoundaryError, lambda: resolve(boundary, 2), *says)  # here


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_dirichlet_needs_a_finite_number(value: float) -> None:
    refusal(BoundaryError, lambda: dirichlet(value), f"boundary value {value} is not finite")  # here


@pytest.mark.parametrize("value", ["warm", None, 1j, True, HEAT, 10**400])
def test_dirichlet_needs_a_number(value: Any) -> None:
    refusal(BoundaryError, lambda: dirichlet(value), "dirichlet needs a", "as in sg.dirichlet(0.0)")  # here


def test_a_dirichlet_value_must_fit_the_dtype() -> None:
    attempt = lambda: Stencil.from_weights(HEAT, boundary=dirichlet(1e39), dtype="f32")  # here
    refusal(BoundaryError, attempt, "dirichlet(1e+39) is infinite in f32", "wider dtype")

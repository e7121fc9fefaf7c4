"""``stencil_op``: gradients by fields and coefficients against differences, in graphs, and what is refused."""

from __future__ import annotations

import gc
import warnings
from typing import Annotated, Any

import numpy as np
import pytest

import sparsegen as sg
import sparsegen.torch as st
from sparsegen.ir.errors import ArrayError, ProductError, SparsegenError

torch: Any = pytest.importorskip("torch")
HOW: Any = {"device": "h200", "backend": "reference", "schedule": "direct"}
SHAPE = (5, 6)
BOUNDARIES = (
    sg.periodic, sg.neumann, sg.frozen, {0: (sg.frozen, sg.neumann), 1: (sg.dirichlet(0.7), sg.neumann)},
)  # fmt: skip
SKEW = np.random.default_rng(0).standard_normal((3, 5)) / 4


def wave(u: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef) -> Any:
    return 2 * u[0, 0] - u.prev[0, 0] + sg.sqrt(c[0, 0]) * (u[0, 1] + u[0, -1] + u[1, 0] + u[-1, 0] - 4 * u[0, 0])


def flux(u: sg.Field, c: sg.Coef, f: sg.Coef) -> Any:
    """The coefficient is read beside the cell too, f is a source."""
    east, west = (c[0, 0] + c[0, 1]) * (u[0, 1] - u[0, 0]), (c[0, 0] + c[0, -1]) * (u[0, 0] - u[0, -1])
    return u[0, 0] + east - west + sg.exp(c[1, 0]) * (u[-1, 0] - 0.3 * u[1, 0]) + 2 * f[0, 0]


def pair(u: sg.Field, c: sg.Coef, v: sg.Field) -> Any:
    return u[0, 0] + c[0, 0] * v[0, 1], v[0, 0] / (1 + c[0, 0]) - u[1, 0]


def op_of(function: Any, steps: int, boundary: Any = sg.periodic, dtype: str = "f64", **how: Any) -> st.StencilOp:
    """The operator of a function's kernel, or of a stencil's."""
    what = function if isinstance(function, sg.Stencil) else sg.stencil(boundary=boundary, dtype=dtype)(function)
    return st.stencil_op(sg.compile(what, SHAPE, steps=steps, **{**HOW, **how}))


def drawn(count: int, seed: int = 0, **how: Any) -> list[Any]:
    draw = torch.Generator().manual_seed(seed)
    how = {"dtype": torch.float64, "requires_grad": True, **how}
    grad = how.pop("requires_grad")
    return [torch.rand(SHAPE, generator=draw, dtype=torch.float64).to(**how).requires_grad_(grad) for _ in range(count)]


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("steps", [1, 3])
def test_gradcheck_of_a_stencil(boundary: Any, steps: int) -> None:
    assert torch.autograd.gradcheck(op_of(sg.Stencil.from_weights(SKEW, boundary), steps), drawn(1))


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_gradcheck_of_levels_and_coefficients(boundary: Any, steps: int) -> None:
    op = op_of(wave, steps, boundary)
    assert torch.autograd.gradcheck(lambda u, prev, c: op((u, prev), c=c), drawn(3))


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
def test_gradcheck_of_coefficients_read_around(boundary: Any) -> None:
    assert torch.autograd.gradcheck(op_of(flux, 3, boundary), drawn(3))


def test_gradcheck_of_two_fields() -> None:
    assert torch.autograd.gradcheck(op_of(pair, 4, sg.neumann), drawn(3))


@pytest.mark.parametrize("steps", [1, 4, 7, 10])
def test_the_states_on_the_way(steps: int) -> None:
    """A difference in one coefficient's cell over many steps, whichever states are kept."""
    op, (u, c, f) = op_of(flux, steps, sg.dirichlet(0.1)), drawn(3, requires_grad=False)
    c *= 0.1
    c.requires_grad_()
    (grad,) = torch.autograd.grad(op(u, c, f).square().sum(), c)
    small = torch.zeros(SHAPE, dtype=torch.float64)
    small[2, 3] = 1e-6
    high, low = (op(u, (c + side * small).detach(), f).square().sum() for side in (1, -1))
    assert float(grad[2, 3]) == pytest.approx(float(high - low) / 2e-6, rel=1e-6)


def driven(u: sg.Field, c: sg.Coef, dt: sg.Scalar, t: sg.Time, power: sg.Scalar) -> Any:
    """Scalars multiply what varies and what does not; the time is the sum of the steps."""
    return u[0, 0] + dt * (c[0, 0] * sg.cos(t) * (u[0, 1] - 2 * u[1, 0]) + sg.exp(power) * sg.sin(t)) + dt * dt * power


def scalar(*values: float) -> Any:
    return torch.tensor(values if len(values) > 1 else values[0], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("boundary", (BOUNDARIES[0], BOUNDARIES[3]), ids=str)
def test_gradcheck_of_scalars(boundary: Any) -> None:
    """One for all steps, and one for each; by the time at the start, too, which ``dt`` moves on."""
    op, (u, c), each = op_of(driven, 5, boundary), drawn(2, requires_grad=False), scalar(0.1, 0.3, 0.2, 0.5, 0.4)
    for numbers in ((scalar(0.3), scalar(0.7), each), (each, scalar(0.0), scalar(0.5)), (each, each, each)):
        called = lambda *a: op(u, c, dt=a[0], t=a[1], power=a[2])  # noqa: E731
        assert torch.autograd.gradcheck(called, numbers, fast_mode=True)


def test_numbers_beside_scalars_that_are_tensors() -> None:
    op, (u, c) = op_of(driven, 4, sg.neumann), drawn(2)
    dt = scalar(0.3)
    plain = {"power": [0.5, 1, 2, 3], "t": np.float32(0.5)}
    assert torch.autograd.gradcheck(lambda u, c, dt: op(u, c, dt=dt, **plain), (u, c, dt), fast_mode=True)
    want = sg.compile(sg.stencil(driven, boundary=sg.neumann), SHAPE, 4, **HOW)(u.detach(), c.detach(), dt=0.3, **plain)
    assert torch.equal(op(u, c, dt=0.3, **plain), want) and torch.equal(op(u, c, dt=dt, **plain), want)
    for given, what in (({"dt": 0.1}, "no number for power"), ({"power": 1, "dt": "fast"}, "dt is 'fast'"),
                        ({"power": 1, "dt": scalar(1, 2)}, r"dt is an array of shape \[2\]")):  # fmt: skip
        with pytest.raises(ArrayError, match=what):
            op(u, c, **given)


def test_the_dot_products_with_scalars_agree() -> None:
    """By fields alone: the adjoint has the scalars of its steps."""
    op, (u, c) = op_of(driven, 7), drawn(2, requires_grad=False)
    dt, weights = torch.linspace(0.1, 0.3, 7, dtype=torch.float64), drawn(1, 3, requires_grad=False)[0]
    u.requires_grad_()
    (back,) = torch.autograd.grad(op(u, c, dt=dt, power=0.2), u, weights)
    change = op(u + 1.0, c, dt=dt, power=0.2) - op(u, c, dt=dt, power=0.2)
    assert float((change.detach() * weights).sum()) == pytest.approx(float(back.sum()), rel=1e-11)


def test_scalars_on_the_emulator() -> None:
    """By one that is in all of the step, and one whose derivative is the same in all cells."""
    u, c = (x.float().detach().repeat(4, 6).requires_grad_() for x in drawn(2))
    what, (dt, power) = sg.stencil(driven, dtype="f32"), (scalar(0.1, 0.2, 0.3), scalar(0.4))
    made = [
        torch.autograd.grad(st.stencil_op(k)(u, c, dt=dt, power=power).sum(), (u, c, dt, power))
        for k in (sg.compile(what, tuple(u.shape), 3, "h200", how) for how in ("emulator", "reference"))
    ]
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(*made, strict=True))


def test_the_dot_products_agree() -> None:
    op = op_of(sg.Stencil.from_weights(SKEW, sg.neumann), 9)
    (x,), (y,) = drawn(1), drawn(1, 1, requires_grad=False)
    forward = op(x)
    (back,) = torch.autograd.grad(forward, x, y)
    assert float((forward.detach() * y).sum()) == pytest.approx(float((x.detach() * back).sum()), rel=1e-12)


def test_a_gradient_by_one_of_them() -> None:
    """Only those are asked for that are needed; what no gradient comes from counts as zero."""
    op = op_of(pair, 3)
    u, c, v = drawn(3)
    of_u, of_c = torch.autograd.grad(op(u, c, v.detach())[0].sum(), (u, c))
    every = torch.autograd.grad(op(u, c, v)[0].sum(), (u, c, v))
    assert torch.equal(of_u, every[0]) and torch.equal(of_c, every[1]) and bool(every[2].any())
    (alone,) = torch.autograd.grad(op(u, c.detach(), v)[0].sum(), u)
    assert torch.allclose(alone, of_u, rtol=1e-13)


def test_the_operator_outlives_what_made_it() -> None:
    (u,) = drawn(1)
    result = op_of(sg.Stencil.from_weights(SKEW), 2)(u).sum()
    gc.collect()
    result.backward()
    assert u.grad is not None and bool(u.grad.any())


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_narrow_types(dtype: str) -> None:
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    given = drawn(3, dtype=kind)
    wide = [x.detach().double().requires_grad_() for x in given]
    found = torch.autograd.grad(op_of(flux, 2, sg.frozen, dtype)(*given).float().sum(), given)
    want = torch.autograd.grad(op_of(flux, 2, sg.frozen)(*wide).sum(), wide)
    for x, y in zip(found, want, strict=True):
        assert x.dtype == kind and torch.allclose(x.double(), y, rtol=1e-4 if dtype == "f32" else 0.1, atol=0.2)


def test_on_the_emulator() -> None:
    op = op_of(wave, 3, sg.frozen, backend="emulator")
    assert torch.autograd.gradcheck(lambda u, prev, c: op((u, prev), c), drawn(3), fast_mode=True)


def test_opcheck() -> None:
    op, given = op_of(flux, 3), drawn(3)
    plain = [x.detach() for x in given]
    torch.library.opcheck(torch.ops.sparsegen.stencil.default, (given, op.plan))
    torch.library.opcheck(torch.ops.sparsegen.stencil_adjoint.default, (plain, plain[:1], op.plan))
    torch.library.opcheck(torch.ops.sparsegen.stencil_grad.default, (plain, plain[:1], op.plan, [2, 1]))


def test_scalars_in_compiled_graphs() -> None:
    """Tensors, and numbers, which may be others in the next call."""
    op, (u, c), dt = op_of(driven, 3), drawn(2), scalar(0.1, 0.2, 0.3)
    loss = lambda power: op(u, c, dt=dt, power=power).square().sum()  # noqa: E731
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for power in (0.3, 0.4, 0.5):
        made, want = (torch.autograd.grad(call(power), (u, c, dt)) for call in (compiled, loss))
        assert all(torch.equal(a, b) for a, b in zip(made, want, strict=True))


def test_in_compiled_graphs() -> None:
    op, given = op_of(wave, 4, sg.neumann), drawn(3)

    def loss(u: Any, prev: Any, c: Any) -> Any:
        new, old = op((u, prev), torch.sigmoid(c))
        return (new * new).sum() + old.sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for found, want in zip(
        torch.autograd.grad(compiled(*given), given), torch.autograd.grad(loss(*given), given), strict=True
    ):
        assert torch.allclose(found, want, rtol=1e-13)


def test_what_is_refused() -> None:
    with pytest.raises(sg.StencilError, match="not linear"):
        op_of(lambda u: u[0, 0] * u[0, 1], 2)
    with pytest.raises(SparsegenError, match="takes a kernel"):
        st.stencil_op(SKEW)  # type: ignore[arg-type]
    op, (u, c, f) = op_of(flux, 2), drawn(3)
    with pytest.raises(ArrayError, match="no array for f") as said:
        op(u, c)
    assert said.value.hint == "pass u, c, f"
    with pytest.raises(ArrayError, match="shape"):
        op(u[:3], c, f)
    with pytest.raises(ArrayError, match="no second derivative"):
        (first,) = torch.autograd.grad(op(u, c, f).sum(), u, create_graph=True)
        first.sum().backward()
    with pytest.raises(ProductError, match="there is no plan"):
        torch.ops.sparsegen.stencil([u], 10**9)
    assert "flux: update of u with c, f" in repr(op)


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    how = {"device": "auto", "backend": "cuda", "schedule": "auto"}
    for function, given in ((wave, drawn(3, device="cuda")), (flux, drawn(3, device="cuda"))):
        for boundary in BOUNDARIES:
            op = op_of(function, 5, boundary, **how)
            call = (lambda u, prev, c, op=op: op((u, prev), c)) if function is wave else op
            assert torch.autograd.gradcheck(call, given)


def warmed(u: Annotated[sg.Field, sg.Field(spacing=(0.5, 0.5))], c: sg.Coef, dt: sg.Scalar) -> Any:
    return sg.solve(sg.Eq(u.dt, c[0, 0] * u.laplace), u.next)


def cooled(u: Annotated[sg.Field, sg.Field(spacing=(0.5, 0.5), dt=0.2)], f: sg.Coef) -> Any:
    return sg.solve(sg.Eq(u.dt, u.laplace + f[0, 0] ** 2), u.next)


@pytest.mark.parametrize("function", [warmed, cooled])
def test_a_large_time_step_is_warned_of_by_the_name_that_the_user_knows(function: Any) -> None:
    """Not by those of the kernels that gradients need."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        op = op_of(function, 3)
        u, c = drawn(2)
        dt = {"dt": scalar(0.2)} if function is warmed else {}
        for _ in range(2):
            op(u, c, **dt).sum().backward()
    (said,) = [str(each.message) for each in caught if each.category is sg.UnstableWarning]
    assert f"the largest stable time step of {function.__name__}:" in said

"""``stencil_op`` with sources and receivers, and of batches: gradients by signals, fields and coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
import sparsegen.torch as st
from sparsegen.ir.errors import ArrayError

torch: Any = pytest.importorskip("torch")
from tests.torch.test_stencil_op import driven, flux, pair, wave  # noqa: E402

SHAPE, STEPS = (9, 33), 5
BOUNDARIES = (sg.periodic, sg.frozen, {0: (sg.neumann, sg.dirichlet(0.7)), 1: (sg.frozen, sg.neumann)})
POINTS = [[1.5, 2.25], [3.0, 30.0]], [[2.5, 4.0], [0.0, 0.0], [7.2, 31.1], [2.0, 3.0]]


def op_of(function: Any, boundary: Any = sg.periodic, field: str = "u", steps: int = STEPS, **how: Any) -> Any:
    """The operator of a function's kernel with sources and receivers of a field, some of which see the same cells."""
    what = sg.stencil(boundary=boundary, dtype=how.pop("dtype", "f64"))(function)
    sites = {"shot": sg.Source(POINTS[0], field=field), "heard": sg.Receiver(POINTS[1], field=field)}
    return st.stencil_op(sg.compile(what.with_sites(**sites), SHAPE, steps, "h200", **{"backend": "reference", **how}))


def drawn(*shape: int, grad: bool = True, seed: int = 0) -> Any:
    draw = torch.Generator().manual_seed(seed + sum(shape))
    return torch.rand(shape, generator=draw, dtype=torch.float64).requires_grad_(grad)


def flat(made: Any) -> tuple[Any, ...]:
    return tuple(a for part in made for a in flat(part)) if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
def test_gradcheck_by_fields_and_signals(boundary: Any) -> None:
    """One call of the adjoint: from the fields and the records, and from the records alone."""
    op, c = op_of(wave, boundary), drawn(*SHAPE, grad=False, seed=1)
    given = drawn(*SHAPE), drawn(*SHAPE, seed=2), drawn(STEPS, 2)
    assert torch.autograd.gradcheck(lambda u, prev, shot: flat(op((u, prev), c, shot=shot)), given, fast_mode=True)
    assert torch.autograd.gradcheck(lambda u, prev, shot: op((u, prev), c, shot=shot)[1], given, fast_mode=True)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_gradcheck_by_coefficients(steps: int, boundary: Any) -> None:
    op = op_of(wave, boundary, steps=steps)
    given = drawn(*SHAPE), drawn(*SHAPE, seed=2), drawn(*SHAPE, seed=1), drawn(steps, 2)
    assert torch.autograd.gradcheck(lambda u, p, c, shot: flat(op((u, p), c, shot=shot)), given, fast_mode=True)


def test_gradcheck_of_what_is_read_beside_a_cell_of_scalars_and_of_the_second_field() -> None:
    u, c, f, shot = drawn(*SHAPE), drawn(*SHAPE, seed=1), drawn(*SHAPE, seed=2), drawn(STEPS, 2)
    op = op_of(flux, sg.dirichlet(0.2))
    assert torch.autograd.gradcheck(lambda u, c, f, shot: flat(op(u, c, f, shot=shot)), (u, c, f, shot), fast_mode=True)
    two = op_of(pair, sg.neumann, field="v")
    assert torch.autograd.gradcheck(lambda *a: flat(two(*a[:3], shot=a[3])), (u, c, f, shot), fast_mode=True)
    scaled, dt, power = op_of(driven, sg.frozen), drawn(STEPS, seed=3), drawn(seed=4)
    call = lambda u, c, shot, dt, power: flat(scaled(u, c, dt=dt, power=power, shot=shot))  # noqa: E731
    assert torch.autograd.gradcheck(call, (u, c, shot, dt, power), fast_mode=True)


@pytest.mark.parametrize("shared", [(), "c", "shot", ("c", "shot")], ids=str)
def test_gradcheck_of_a_batch_of_shots(shared: Any) -> None:
    """Of what the items share the sum over items."""
    op = op_of(wave, sg.frozen, steps=3, batch=2, shared=shared)
    c, shot = (drawn(*(() if name in shared else (2,)), *size) for name, size in (("c", SHAPE), ("shot", (3, 2))))
    u, p = drawn(2, *SHAPE), drawn(2, *SHAPE, seed=2)
    assert torch.autograd.gradcheck(lambda *a: flat(op(a[:2], a[2], shot=a[3])), (u, p, c, shot), fast_mode=True)
    fixed = c.detach()
    assert torch.autograd.gradcheck(lambda u, shot: op((u, p), fixed, shot=shot)[1], (u, shot), fast_mode=True)


@pytest.mark.parametrize("shared", [(), "c"], ids=str)
def test_gradients_by_coefficients_of_a_batch_are_those_of_each_item(shared: Any) -> None:
    """Coefficients that are read around a cell, scalars, and frozen sides, without sites."""
    what = sg.stencil(boundary=sg.frozen, dtype="f64")(flux)
    many, one = (
        st.stencil_op(sg.compile(what, SHAPE, 4, "h200", "reference", **how))
        for how in ({"batch": 3, "shared": shared}, {})
    )
    u, f = drawn(3, *SHAPE), drawn(3, *SHAPE, seed=2)
    c = drawn(*SHAPE, seed=1) if shared else drawn(3, *SHAPE, seed=1)
    weights = drawn(3, *SHAPE, grad=False, seed=5)
    found = torch.autograd.grad(many(u, c, f), (u, c, f), weights)
    each = [
        torch.autograd.grad(one(u[i], of, f[i]), (u, of, f), weights[i])
        for i in range(3) for of in [c if shared else c[i].detach().requires_grad_()]
    ]  # fmt: skip
    assert torch.allclose(found[0], sum(part[0] for part in each)) and torch.allclose(found[2], sum(p[2] for p in each))
    by_c = [part[1] for part in each]
    assert torch.allclose(found[1], sum(by_c) if shared else torch.stack(by_c))


def test_on_the_emulator_in_narrow_types_and_of_a_signal_of_the_host() -> None:
    signal = np.sin(np.arange(STEPS))
    made = []
    for how in ({"backend": "emulator"}, {}):
        op = op_of(wave, sg.neumann, dtype="f32", **how)
        u, p, c = (drawn(*SHAPE, seed=i).detach().float().requires_grad_() for i in range(3))
        shot = torch.from_numpy(np.stack([signal, signal], 1)).float().requires_grad_()
        assert torch.equal(op((u, p), c, shot=signal)[1], op((u, p), c, shot=shot)[1])
        made.append(torch.autograd.grad(op((u, p), c, shot=shot)[1].square().sum(), (u, p, c, shot)))
    assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(*made, strict=True))


def test_opcheck_and_compiled_graphs() -> None:
    op, u, p, c, shot = op_of(wave, steps=3), drawn(*SHAPE), drawn(*SHAPE), drawn(*SHAPE), drawn(3, 2)
    given, rows = [u, p, c, shot], torch.rand(3, 4, dtype=torch.float64)
    plain = [x.detach() for x in given]
    torch.library.opcheck(torch.ops.sparsegen.stencil.default, (given, op.plan))
    torch.library.opcheck(torch.ops.sparsegen.stencil_adjoint.default, (plain, [*plain[:2], rows], op.plan))
    torch.library.opcheck(torch.ops.sparsegen.stencil_grad.default, (plain, [*plain[:2], rows], op.plan, [2]))
    loss = lambda shot, c: op((u, p), c, shot=shot)[1].square().sum()  # noqa: E731
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found, want = (torch.autograd.grad(call(shot, c), (shot, c)) for call in (compiled, loss))
    assert all(torch.allclose(a, b, rtol=1e-13) for a, b in zip(found, want, strict=True))


def test_a_missing_signal() -> None:
    with pytest.raises(ArrayError, match="no signal for shot"):
        op_of(wave)((drawn(*SHAPE), drawn(*SHAPE)), drawn(*SHAPE))


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    how = {"device": "auto", "backend": "cuda", "schedule": "auto"}
    update = sg.stencil(boundary=sg.frozen, dtype="f64")(wave).with_sites(
        shot=sg.Source(POINTS[0]), heard=sg.Receiver(POINTS[1])
    )
    op = st.stencil_op(sg.compile(update, (64, 96), STEPS, batch=2, shared="c", **how))
    given = [drawn(*size).detach().cuda().requires_grad_() for size in ((2, 64, 96), (64, 96), (2, STEPS, 2))]
    call = lambda u, c, shot: flat(op((u, u), c, shot=shot))  # noqa: E731
    assert torch.autograd.gradcheck(call, given, fast_mode=True)

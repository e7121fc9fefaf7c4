"""Masks of calls: arrays of any type and library, on every family of schedules, in adjoints, runs and torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

import sparsegen as sg

SHAPES = {1: (700,), 2: (41, 150), 3: (12, 17, 70)}
SCHEDULES = {
    1: ("direct", "stream levels=4 cols=4", "tiled levels=3 cols=4 warps=1 rows=1"),
    2: ("direct block=32x8 column=2", "stream levels=3 cols=4", "tiled levels=2 rows=4 cols=1", "resident"),
    3: (
        "column levels=1 lines=1",
        "column levels=2 lines=2 warps=8 planes=10",
        "tiled levels=2 cols=1 rows=2 planes=8 warps=4",
    ),
}  # fmt: skip


def plate(axes: int, boundary: Any = sg.neumann, dtype: str = "f64") -> Any:
    """Heat between walls, with cells that hold 1."""

    def heat(u: Any, solid: sg.Mask, hot: sg.Mask) -> sg.Value:
        w = u.walled(solid).walled(hot, sg.dirichlet(1.0))
        return sg.solve(sg.Eq(u.dt, w.laplace), u.next)

    heat.__annotations__["u"] = sg.Field(spacing=(1.0,) * axes, dt=0.125)
    return sg.stencil(dtype=dtype, boundary=boundary)(heat)


def arrays(axes: int, kind: Any = np.float64) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(axes)
    u, drawn = rng.random(SHAPES[axes]).astype(kind), rng.random(SHAPES[axes])
    return u, drawn < 0.3, drawn > 0.9


@pytest.mark.parametrize("boundary", [sg.periodic, sg.neumann, sg.frozen, sg.dirichlet(0.5)], ids=str)
@pytest.mark.parametrize(("axes", "line"), [(axes, line) for axes, lines in SCHEDULES.items() for line in lines])
def test_every_schedule_has_walls(axes: int, line: str, boundary: Any) -> None:
    update, given = plate(axes, boundary), arrays(axes)
    kernel = sg.compile(update, SHAPES[axes], 5, schedule=line, backend="emulator", device="h200")
    plain = sg.compile(update, SHAPES[axes], 5, backend="reference", device="h200")
    assert np.array_equal(kernel(*given), plain(*given))


def test_no_checker_finds_anything() -> None:
    kernel = sg.compile(plate(2), SHAPES[2], 4, schedule="stream levels=2 cols=4", backend="emulator", device="h200")
    report = kernel.check(*arrays(2))
    assert not report.errors and not kernel.check().errors
    assert set(np.unique(kernel.random()["solid"])) == {0.0, 1.0}


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", ["bool", "uint8", "int64", "float16", "float32", "float64"])
def test_masks_of_any_type(dtype: str, kind: str) -> None:
    kernel = sg.compile(plate(2, dtype=dtype), SHAPES[2], 2, backend="reference", device="h200")
    u, solid, hot = arrays(2, kernel.dtype)
    want = kernel(u, solid.astype(kernel.dtype), hot.astype(kernel.dtype))
    assert np.array_equal(kernel(u, solid.astype(kind), hot=hot.astype(kind)), want)
    assert want.dtype == kernel.dtype and not np.array_equal(want, u)


def test_a_mask_of_the_kernels_type_is_not_copied() -> None:
    kernel = sg.compile(plate(2), SHAPES[2], backend="reference", device="h200")
    u, solid, hot = arrays(2)
    given = solid.astype(np.float64)
    values, _ = kernel._calls.values((u, given, hot), {}, {})
    assert values["solid"] is given and values["hot"] is not hot


def test_tensors_and_gradients() -> None:
    torch = pytest.importorskip("torch")
    import sparsegen.torch as st

    kernel = sg.compile(plate(2), SHAPES[2], 3, backend="reference", device="h200")
    u, solid, hot = arrays(2)
    tensors = [torch.from_numpy(a) for a in (u, solid, hot)]
    op = st.stencil_op(kernel)
    compiled = torch.compile(lambda u, solid, hot: op(u, solid, hot) * 2, backend="eager", fullgraph=True)
    assert np.allclose(compiled(*tensors).numpy(), 2 * kernel(u, solid, hot))
    made = kernel(*tensors)
    assert isinstance(made, torch.Tensor) and np.array_equal(made.numpy(), kernel(u, solid, hot))
    field = tensors[0].requires_grad_()
    (grad,) = torch.autograd.grad(op(field, tensors[1], hot=tensors[2]).sum(), field)
    assert np.allclose(grad.numpy(), kernel.adjoint()(np.ones_like(u), solid=solid, hot=hot), atol=1e-14)
    assert grad[~tensors[1]].max() < 1.01 and (grad[tensors[1]] == 1).all()  # what is in a wall stays there


def test_runs_go_on_between_walls(tmp_path: Path) -> None:
    kernel = sg.compile(plate(2), SHAPES[2], 4, backend="reference", device="h200")
    u, solid, hot = arrays(2)
    file = tmp_path / "run.npz"
    list(kernel.run(u, solid, hot, steps=6, checkpoint=file, progress=False))
    numbers = {"solid": solid.astype(np.float64), "hot": hot.astype(np.uint8)}
    *_, last = kernel.run(u, steps=9, checkpoint=file, resume=True, progress=False, **numbers)
    assert np.array_equal(last["u"], kernel(u, solid, hot, steps=9))


def test_a_mask_chooses_in_formulas() -> None:
    @sg.stencil
    def drain(u: sg.Field, sink: Annotated[sg.Mask, "where it runs out"], c: sg.Coef) -> sg.Value:
        return sg.where(sink[0] & ~sink[1] | (c[0] > 2), 0.0, u[0])

    sink = np.array([0, 1, 1, 0, 1, 0], bool)
    kernel = sg.compile(drain, (6,), backend="reference", device="h200")
    assert kernel(np.ones(6), sink, np.arange(6.0) - 2).tolist() == [1, 1, 0, 1, 0, 0]
    assert drain.coefs == ("sink", "c") and "with sink, c" in str(drain)


def test_what_is_no_mask() -> None:
    kernel = sg.compile(plate(2), SHAPES[2], backend="emulator", device="h200")
    u, solid, hot = arrays(2)
    for wrong, what in (
        (solid[:, :-1], "solid has shape"),
        (solid.astype(complex), "solid has dtype complex128"),
        (solid.astype(">f4"), "not in this machine's byte order"),
        ("walls", "an object of type builtins.str"),
    ):
        with pytest.raises(sg.ArrayError, match=what) as caught:
            kernel(u, wrong, hot)
        assert caught.value.hint
    with pytest.raises(sg.ArrayError, match="no array for hot"):
        kernel(u, solid)
    with pytest.raises(sg.StencilError, match="never reads its coefficient solid"):

        @sg.stencil
        def idle(u: sg.Field, solid: sg.Mask) -> sg.Value:
            return u[1]

"""The ranks of a mesh make the numbers of one process, bit for bit: any boundary, update, schedule and mesh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import sparsegen as sg
from sparsegen.bench.stencils import stencil
from tests.distributed.ranks import flat, together
from tests.updates import NAMED, arrays, random_update

MESHES = [(1,), (2,), (3,), (2, 1), (1, 2), (2, 2)]
SHAPES = {1: (61,), 2: (23, 29), 3: (13, 14, 17)}
ENDS = [sg.periodic, sg.dirichlet(0.5), sg.neumann, sg.frozen]


def same(
    k: Any, mesh: tuple[int, ...], given: dict[str, Any], steps: int | None = None, overlap: bool | None = None
) -> None:
    want = [np.asarray(a) for a in flat(k(**given, steps=steps))]
    got = together(k, mesh, given, steps, overlap)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("boundary", ENDS, ids=str)
@pytest.mark.parametrize("name", ["Heat-1D", "Box-2D9P", "Heat-3D"])
def test_stencils(name: str, boundary: Any, mesh: tuple[int, ...]) -> None:
    s = stencil(name, boundary)
    if len(mesh) > s.ndim:
        pytest.skip("fewer axes than the mesh has")
    k = sg.compile(s, SHAPES[s.ndim], 4, backend="reference", schedule="direct fuse=2" if s.ndim < 3 else "direct")
    for overlap in (False, True):
        same(k, mesh, k.random(), overlap=overlap)
        same(k, mesh, k.random(1), steps=5, overlap=overlap)


@pytest.mark.parametrize("mesh", [(2,), (2, 2)], ids=str)
def test_a_boundary_for_each_end(mesh: tuple[int, ...]) -> None:
    ends = {0: (sg.frozen, sg.dirichlet(2.0)), 1: (sg.neumann, sg.frozen)}
    s = sg.Stencil.from_weights(stencil("Box-2D9P").weights, ends)
    k = sg.compile(s, SHAPES[2], 6, backend="reference", schedule="direct fuse=3")
    same(k, mesh, k.random(), overlap=True)


@pytest.mark.parametrize("name", NAMED)
def test_updates(name: str) -> None:
    make, shape = NAMED[name]
    shape = (shape[0] + 9, *shape[1:])
    for boundary in ENDS:
        update = make(boundary=boundary)
        k = sg.compile(update, shape, 5, backend="reference", schedule="auto" if name == "heat" else "stream levels=2")
        for mesh in ((2,), (1, 2)) if len(shape) > 1 else ((3,),):
            if boundary is sg.periodic or mesh[0] > 1:
                same(k, mesh, arrays(update, shape), overlap=mesh == (2,))


@given(seed=st.integers(0, 10_000), mesh=st.sampled_from(MESHES), overlap=st.booleans(), levels=st.integers(1, 3))
def test_random_updates(seed: int, mesh: tuple[int, ...], overlap: bool, levels: int) -> None:
    update = random_update(seed)
    shape = tuple(n + 16 for n in SHAPES[update.ndim])
    schedule = f"{'column' if update.ndim == 3 else 'stream'} levels={levels}"
    try:
        k = sg.compile(update, shape, 4, backend="reference", schedule=schedule)
    except sg.ScheduleError:
        k = sg.compile(update, shape, 4, backend="reference", schedule="direct")
    try:
        same(k, mesh[: update.ndim], arrays(update, shape, seed), overlap=overlap)
    except sg.ArrayError as error:
        assert "periodic on axis" in str(error) or "two halves" in str(error)


@pytest.mark.parametrize(
    ("name", "dtype"), [("Box-2D9P", "f64"), ("Heat-1D", "f64"), ("Heat-2D", "f32"), ("Heat-3D", "f64")]
)
def test_every_family_of_schedules(name: str, dtype: str) -> None:
    plain = stencil(name, sg.neumann)
    s = sg.Stencil(plain.weights * 1.0371, dtype, plain.sides, "s")
    shape = {1: (301,), 2: (45, 83), 3: (13, 21, 40)}[s.ndim]
    tried = dict[Any, Any]()
    for cost in sg.schedules(s, shape, 4, device="h100"):
        tried.setdefault((cost.schedule.family, cost.schedule.mma), cost)
    assert {family for family, _ in tried} >= {"direct", "stencil2row"}
    for cost in tried.values():
        k = sg.compile(s, shape, 2 * cost.steps_per_launch, "h100", "emulator", schedule=cost.schedule)
        same(k, (1, 2) if s.ndim == 2 else (2,), k.random())


def test_levels_on_the_emulator() -> None:
    update = NAMED["wave"][0](boundary=sg.dirichlet(0.25), dtype="f32")
    for schedule in ("stream levels=3", "direct", "resident"):
        k = sg.compile(update, (40, 64), 7, "h100", "emulator", schedule=schedule)
        same(k, (2,), arrays(update, (40, 64)), overlap=True)


def test_scalars_of_every_step() -> None:
    """Passes of three steps after one of two: each has its own."""

    @sg.stencil(boundary=sg.neumann)
    def heated(u: sg.Field, dt: sg.Scalar, t: sg.Time) -> sg.Value:
        return u[0, 0] + dt * (u[0, 1] + u[0, -1] + u[1, 0] + u[-1, 0] - 4 * u[0, 0]) + sg.sin(t)

    u, dts = np.random.default_rng(0).random((40, 64)), np.linspace(0.01, 0.2, 11)
    for backend in ("reference", "emulator"):
        k = sg.compile(heated, u.shape, 11, "h100", backend, schedule="stream levels=3 cols=4")
        for numbers in ({"dt": 0.1}, {"dt": dts, "t": 2.0}):
            same(k, (2,), {"u": u, **numbers}, overlap=True)


def test_coefficients_that_are_read_further_off_than_fields() -> None:
    @sg.stencil(boundary=sg.periodic)
    def carried(u: sg.Field, c: sg.Coef) -> Any:  # type: ignore[valid-type]
        here: Any = u
        far: Any = c
        return 0.5 * here[0] + 0.25 * (here[-1] + here[1]) + 0.1 * (far[-3] - far[3])

    k = sg.compile(carried, (64,), 8, backend="reference", schedule="stream levels=4")
    same(k, (2,), k.random(), overlap=True)


def test_fields_that_disagree_on_what_is_periodic() -> None:
    update = NAMED["gray_scott"][0](boundary={"u": sg.periodic, "v": {0: sg.neumann, 1: sg.periodic}})
    k = sg.compile(update, (24, 40), 2, backend="reference", schedule="direct")
    same(k, (1, 2), arrays(update, (24, 40)))
    with pytest.raises(sg.ArrayError, match="some fields of gray_scott are periodic on axis 0, and some are not"):
        together(k, (2,), arrays(update, (24, 40)))
    with pytest.raises(sg.ArrayError, match="two halves"):
        together(k, (1, 2), arrays(update, (24, 40)), overlap=True)

"""Batches: every family, boundary and kind of call gives each item what a call for it alone gives, bit for bit."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.dsl.update import Update
from sparsegen.ir.errors import ArrayError, DeviceError, ProductError, SparsegenError, StencilError

ITEMS = 3
#: Shape -> schedules of a linear stencil there; odd sizes, where an item begins at no multiple of 16 bytes, among them.
LINEAR = {
    (67,): (
        "direct block=64x1", "tiled tile=1x64 warps=2", "stream levels=2 cols=8", "stencil2row", "toeplitz", "resident",
    ),
    (27, 35): (
        "direct", "direct fuse=2", "tiled fuse=2 tile=8x32", "stream levels=2", "stencil2row", "lowrank",
        "patches fuse=1 levels=2", "resident",
    ),
    (24, 32): ("tiled tile=8x32 stages=2", "stream levels=2 rows=10", "stencil2row stages=2"),
    (6, 18, 36): ("direct", "column levels=1", "stencil2row", "resident"),
}  # fmt: skip
CASES = [(shape, line) for shape, lines in LINEAR.items() for line in lines]


def averages(ndim: int, boundary: Any = sg.periodic, dtype: str = "f64") -> sg.Stencil:
    """A star whose weights are no powers of two and not symmetric."""
    weights = np.zeros((3,) * ndim)
    for axis in range(ndim):
        for side in (0, 2):
            at = [1] * ndim
            at[axis] = side
            weights[tuple(at)] = 0.07 + 0.02 * axis + 0.01 * side
    weights[(1,) * ndim] = 0.4
    return sg.Stencil.from_weights(weights, boundary=boundary, dtype=dtype)


def compiled(what: Any, shape: tuple[int, ...], **options: Any) -> sg.Kernel:
    """On the emulator, for an H100."""
    return sg.compile(what, shape, **{"backend": "emulator", "device": "h100", **options})


def alike(batch: Any, one: Any, item: int) -> bool:
    """Whether an item of a result is bit for bit another result."""
    if isinstance(batch, tuple):
        return all(alike(a, b, item) for a, b in zip(batch, one, strict=True))
    return bool(np.array_equal(batch[item], one))


@sg.stencil(boundary={0: (sg.neumann, sg.dirichlet(0.5)), 1: sg.periodic})
def wave(u: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef, gain: sg.Scalar) -> sg.Value:
    return 2 * u[0, 0] - u.prev[0, 0] + gain * c[0, 0] * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0])


@sg.stencil(boundary=sg.frozen)
def mixed(u: sg.Field, v: sg.Field, k: sg.Coef) -> tuple[sg.Value, sg.Value]:
    return u[0, 0] + 0.1 * (u[0, 1] + u[1, 0] - 2 * u[0, 0]) * k[0, 0], v[0, 0] * 0.5 + 0.25 * u[-1, 0]


@pytest.mark.parametrize(("shape", "line"), CASES, ids=lambda x: str(x).replace(" ", ""))
def test_a_stencils_items_are_those_of_single_calls(shape: tuple[int, ...], line: str) -> None:
    what = averages(len(shape), sg.neumann if "stages=2" in line else sg.dirichlet(1.5))
    steps = 3 if "levels=2" in line or "fuse" in line else 2
    k = compiled(what, shape, steps=steps, batch=ITEMS, schedule=line)
    one = compiled(what, shape, steps=steps, schedule=k.schedule)
    u = np.random.default_rng(1).random((ITEMS, *shape))
    made = k(u)
    assert made.shape == u.shape
    assert all(alike(made, one(item), i) for i, item in enumerate(u))
    assert not k.check(u).errors


@pytest.mark.parametrize("line", ["direct column=2", "stream levels=2 cols=2", "tiled levels=2 rows=2", "direct"])
@pytest.mark.parametrize("shared", ["c", ()], ids=["shared", "own"])
def test_an_updates_items_have_levels_and_coefficients_of_their_own(line: str, shared: str) -> None:
    shape, rng = (22, 35), np.random.default_rng(2)  # coefficients are copied to padded rows, shared ones once
    k = compiled(wave, shape, steps=5, batch=ITEMS, shared=shared, schedule=line)
    one = compiled(wave, shape, steps=5, schedule=k.schedule)
    u = tuple(rng.random((ITEMS, *shape)) for _ in range(2))
    c = rng.random(shape if shared else (ITEMS, *shape))
    gain = rng.random(5)
    made = k(u, c, gain=gain)
    for i in range(ITEMS):
        assert alike(made, one(tuple(level[i] for level in u), c if shared else c[i], gain=gain), i)
    assert not k.check().errors


@pytest.mark.parametrize("line", ["column", "column levels=2 lines=1", "tiled planes=4 rows=1 warps=4", "resident"])
def test_an_updates_items_on_three_axes(line: str) -> None:
    @sg.stencil(dtype="f32", boundary=sg.dirichlet(0.0))
    def squared(u: sg.Field) -> sg.Value:
        return u[0, 0, 0] + 0.1 * (u[1, 0, 0] + u[0, 1, 0] + u[0, 0, -1] - 3 * u[0, 0, 0] * u[0, 0, 0])

    shape = (10, 20, 40)
    k = compiled(squared, shape, steps=2, batch=2, schedule=line)
    one = compiled(squared, shape, steps=2, schedule=k.schedule)
    u = np.random.default_rng(3).random((2, *shape)).astype(np.float32)
    made = k(u)
    assert all(alike(made, one(item), i) for i, item in enumerate(u))


def test_resident_items_exchange_cells_with_blocks_of_their_own() -> None:
    what, shape = averages(2, sg.periodic), (40, 64)
    line = "resident tiles=2x2 cols=2 rows=4 warps=8 every=2"
    k = compiled(what, shape, steps=7, batch=ITEMS, schedule=line)
    one = compiled(what, shape, steps=7, schedule=line)
    u = np.random.default_rng(4).random((ITEMS, *shape))
    made = k(u)
    assert all(alike(made, one(item), i) for i, item in enumerate(u))
    assert not k.check(u).errors


@pytest.mark.parametrize("backend", ["emulator", "reference"])
def test_several_fields_are_stacked_each(backend: str) -> None:
    shape, rng = (12, 20), np.random.default_rng(5)
    u, v, c = (rng.random((ITEMS, *shape)) for _ in range(3))
    made = compiled(mixed, shape, steps=2, batch=ITEMS, backend=backend)(u, v, c)
    one = compiled(mixed, shape, steps=2, backend="reference")
    for i in range(ITEMS):
        for got, want in zip(made, one(u[i], v[i], c[i]), strict=True):
            np.testing.assert_allclose(got[i], want, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_fields_of_16_bits_whose_items_begin_at_odd_cells(dtype: str) -> None:
    what, shape = averages(1, dtype=dtype), (65,)
    k = compiled(what, shape, batch=ITEMS, schedule="stream levels=1 cols=8")
    one = compiled(what, shape, schedule=k.schedule)
    u = np.random.default_rng(6).random((ITEMS, *shape)).astype(k.dtype)
    made = k(u)
    assert all(np.array_equal(made[i].view(np.uint16), one(item).view(np.uint16)) for i, item in enumerate(u))


def test_a_batch_of_one_has_the_axis() -> None:
    k = compiled(averages(2), (16, 32), batch=1)
    u = np.random.default_rng(7).random((1, 16, 32))
    assert k(u).shape == (1, 16, 32)
    assert np.array_equal(k(u)[0], compiled(averages(2), (16, 32), schedule=k.schedule)(u[0]))


def test_passes_go_between_padded_rows() -> None:
    shape = (20, 33)
    k = compiled(averages(2, sg.neumann), shape, steps=4, batch=ITEMS, schedule="tiled tile=8x32")
    assert k._plan(4).padded
    u = np.random.default_rng(8).random((ITEMS, *shape))
    one = compiled(averages(2, sg.neumann), shape, steps=4, schedule=k.schedule)
    made = k(u)
    assert all(alike(made, one(item), i) for i, item in enumerate(u))


def test_rows_may_have_a_pitch_and_out_is_filled() -> None:
    k = compiled(averages(2), (16, 32), batch=2)
    wide = np.random.default_rng(9).random((2, 16, 40))
    out = np.empty((2, 16, 32))
    assert k(wide[:, :, :32], out=out) is out
    assert np.array_equal(out, k(wide[:, :, :32].copy()))


def test_the_adjoint_of_a_batch() -> None:
    @sg.stencil(boundary=sg.frozen)
    def flow(u: sg.Field, c: sg.Coef) -> sg.Value:
        return u[0, 0] + c[0, 1] * (u[0, 1] - 2 * u[0, 0]) + 0.1 * u[-1, 0]

    shape, rng = (12, 20), np.random.default_rng(10)
    for shared in ("c", ()):
        k = compiled(flow, shape, steps=3, batch=ITEMS, shared=shared)
        back, c = k.adjoint(), rng.random(shape if shared else (ITEMS, *shape))
        x, y = rng.random((2, ITEMS, *shape))
        assert back.batch == ITEMS
        assert np.isclose((k(x, c) * y).sum(), (x * back(y, c)).sum(), rtol=1e-12)
    linear = compiled(averages(2), shape, steps=2, batch=ITEMS)
    assert np.isclose((linear(x) * y).sum(), (x * linear.adjoint()(y)).sum(), rtol=1e-12)


def test_runs_and_checkpoints_keep_all_items(tmp_path: Any) -> None:
    k = compiled(averages(2), (16, 32), steps=2, batch=2, backend="reference")
    u = np.random.default_rng(11).random((2, 16, 32))
    file = tmp_path / "run.npz"
    (*_, last) = k.run(u, 4, every=2, checkpoint=file)
    assert np.array_equal(last.fields, k(u, steps=4))
    (*_, more) = k.run(u, 6, every=2, checkpoint=file, resume=True)
    assert np.array_equal(more.fields, k(u, steps=6))
    with pytest.raises(sg.RunError, match="another batch"):
        three = compiled(averages(2), (16, 32), batch=3, backend="reference")
        next(three.run(np.zeros((3, 16, 32)), 6, checkpoint=file, resume=True))


def test_counts_are_those_of_all_items() -> None:
    for line in ("direct", "stream levels=2", "resident"):
        k = compiled(averages(2), (24, 32), steps=2, batch=ITEMS, schedule=line)
        one = compiled(averages(2), (24, 32), steps=2, schedule=k.schedule).counts()
        assert k.counts().total == {name: ITEMS * n for name, n in one.total.items()}


def test_what_a_kernel_says_of_its_batch() -> None:
    k = compiled(averages(2), (16, 32), batch=4)
    assert k.batch == 4
    assert k.shape == (16, 32)
    assert "16x32 batch=4" in repr(k)
    assert "a batch of 4, each of 16x32" in str(k.explain())
    assert "a batch of 4, each of 16x32" in k.source()
    assert k.bench(repeats=1).shape == (4, 16, 32)
    assert compiled(averages(2), (16, 32)).batch is None


def test_an_exported_launcher_takes_arrays_of_all_items() -> None:
    k = compiled(averages(2), (16, 32), steps=2, batch=4)
    files = k._exported("blur")
    assert "4x16x32" in files.header
    assert "dim3(1, 4, 1)" in files.cuda or ", 4, 1)" in files.cuda


def refusals() -> list[tuple[Any, dict[str, Any], type[SparsegenError], str]]:
    """What is refused: a thing, arguments, the error and what its remedy says."""
    u: Update = wave  # type: ignore[assignment]
    return [
        (averages(2), {"batch": 0}, StencilError, "batch"),
        (averages(2), {"batch": 2.5}, StencilError, "batch"),
        (averages(2), {"batch": 70000}, StencilError, "65535"),
        (averages(2), {"batch": 2, "shared": "c"}, StencilError, "leave shared away"),
        (averages(2), {"shared": "c"}, StencilError, "pass batch"),
        (u, {"batch": 2, "shared": None}, StencilError, "name coefficients"),
        (u, {"batch": 2, "shared": (3,)}, StencilError, "name coefficients"),
        (u, {"batch": 2, "shared": "u"}, StencilError, "coefficients and sources: c"),
        (u, {"batch": 2, "shared": ("c", "gain")}, StencilError, "coefficients and sources: c"),
    ]


@pytest.mark.parametrize(("what", "options", "error", "remedy"), refusals())
def test_refused(what: Any, options: dict[str, Any], error: type[SparsegenError], remedy: str) -> None:
    with pytest.raises(error) as caught:
        compiled(what, (16, 32), **options)
    assert remedy in (caught.value.hint or "")


def test_more_cells_than_indices_reach_are_refused() -> None:
    with pytest.raises(StencilError, match="4294967296 cells") as caught:
        compiled(averages(2), (32768, 32768), batch=4)
    assert "batch=1" in (caught.value.hint or "")


def test_products_have_no_batch() -> None:
    product = sg.spmm(sg.sparse(np.eye(16, dtype=np.float16)), n=8)
    with pytest.raises(ProductError, match="batch=2"):
        sg.compile(product, batch=2, device="h100", backend="emulator")


def test_arrays_of_other_shapes_are_refused() -> None:
    k = compiled(averages(2), (16, 32), batch=2)
    with pytest.raises(ArrayError, match="2 axes"):
        k(np.zeros((16, 32)))
    with pytest.raises(ArrayError, match=r"\(3, 16, 32\)"):
        k(np.zeros((3, 16, 32)))


def test_a_batch_is_not_distributed() -> None:
    with pytest.raises(DeviceError, match="batch"):
        sg.distribute(compiled(averages(2), (16, 32), batch=2), (1,))


def test_items_of_a_resident_kernel_have_the_same_scalars() -> None:
    k = sg.compile(wave, (24, 40), steps=4, batch=ITEMS, schedule="resident tiles=2x2 rows=4 cols=1 warps=4 every=2",
                   backend="emulator")  # fmt: skip
    one = sg.compile(wave, (24, 40), steps=4, schedule=k.schedule, backend="emulator")
    rng = np.random.default_rng(9)
    u, c, gain = tuple(rng.random((2, ITEMS, 24, 40))), rng.random((ITEMS, 24, 40)) * 0.2, rng.random(4)
    made = k(u, c, gain=gain)
    for i in range(ITEMS):
        assert alike(made, one(tuple(level[i] for level in u), c[i], gain=gain), i)


def test_resident_needs_room_for_all_items() -> None:
    with pytest.raises(sg.ScheduleError, match="66 for each item"):
        line = "resident tiles=10x10 rows=2 cols=1 warps=8 every=1"
        compiled(averages(2), (128, 128), steps=4, batch=2, schedule=line)

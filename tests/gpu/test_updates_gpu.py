"""General updates on the GPU: every case and boundary, random formulas, kinds of arrays, graphs, large fields."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.schedules import KINDS
from tests.updates import NAMED, arrays, error, gray_scott, life, random_update, wave

DIRECT = ["direct", "direct column=2", "direct block=64x4 column=4", "direct block=32x1"]
LEVELS = [
    "stream levels=2 cols=4", "stream levels=4 cols=4 rows=16 warps=1 stages=2",
    "stream levels=3 cols=8 rows=20 stages=3 unroll=3", "stream levels=5 cols=4 warps=4 unroll=2",
]  # fmt: skip
#: What takes cells of 16 bits on one or two axes, and on three.
NARROW = ["stream levels=3 cols=8 rows=20 stages=3", "column lines=1 planes=4 warps=4"]
#: In an order in which both families have both types where these go round too.
LINES = [*DIRECT[:2], *LEVELS[:2], *DIRECT[2:], *LEVELS[2:]]
#: Steps of a call: as many as the most levels above.
STEPS = 5
TOLERANCE = {"f64": 1e-11, "f32": 1e-4, "f16": 2.0**-8, "bf16": 2.0**-5}


def flat(result: Any) -> list[Any]:
    return [a for part in result for a in flat(part)] if isinstance(result, tuple) else [result]


def inputs(update: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Arrays with which no case grows: coefficients small."""
    return {n: a * a.dtype.type(0.2) if n in update.coefs else a for n, a in arrays(update, shape).items()}


def same(got: Any, want: Any, dtype: str) -> None:
    for a, b in zip(flat(got), flat(want), strict=True):
        assert error(a, b) <= TOLERANCE[dtype]


def kernel(update: Any, shape: tuple[int, ...], *lines: str) -> Any:
    """In the first schedule that fits the update; direct, which comes last, fits any."""
    for line in lines:
        with suppress(sg.ScheduleError):
            return sg.compile(update, shape, STEPS, backend="cuda", schedule=line)
    raise AssertionError(f"none of {lines} fits")


@pytest.mark.parametrize("sides", KINDS)
@pytest.mark.parametrize("name", NAMED)
def test_every_case_and_boundary(name: str, sides: str) -> None:
    make, shape = NAMED[name]
    turn = [*NAMED].index(name) + [*KINDS].index(sides)  # schedules and types go round: nvcc takes a second for each
    dtype = ("f64", "f32")[turn % 2]
    update = make(boundary=KINDS[sides], dtype=dtype)
    given = inputs(update, shape)
    k = kernel(update, shape, LINES[turn % len(LINES)], "direct")
    for steps in (1, 2, STEPS):
        want = sg.compile(update, shape, steps, backend="reference")(**given)
        same(k(**given, steps=steps), want, dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", NAMED)
def test_cells_of_16_bits(name: str, dtype: str) -> None:
    make, shape = NAMED[name]
    sides = [*KINDS.values()][[*NAMED].index(name) % len(KINDS)]
    update = make(boundary=sides, dtype=dtype)
    given = inputs(update, shape)
    want = sg.compile(update, shape, STEPS, backend="reference")(**given)
    for line in NARROW:
        same(kernel(update, shape, line, "direct")(**given), want, dtype)


@pytest.mark.parametrize("seed", range(40))
def test_random_updates(seed: int) -> None:
    update = random_update(seed)
    shape = tuple(n + 17 for n in update.extents)
    given, steps = arrays(update, shape), 1 + seed % STEPS
    want = sg.compile(update, shape, steps, backend="reference")(**given)
    k = kernel(update, shape, LEVELS[seed % len(LEVELS)], LEVELS[0], DIRECT[seed % len(DIRECT)])
    same(k(**given, steps=steps), want, update.dtype)


@pytest.mark.parametrize("sides", KINDS)
@pytest.mark.parametrize(("make", "dtype"), [(wave, "f64"), (gray_scott, "f32")])
def test_levels_on_a_field_that_nothing_divides(make: Any, dtype: str, sides: str) -> None:
    """Three passes after one of the two steps that are left over; many blocks, of which most are inside."""
    update, shape = make(boundary=KINDS[sides], dtype=dtype), (517, 1029)
    given = inputs(update, shape)
    k = sg.compile(update, shape, 14, backend="cuda", schedule="stream levels=4 cols=4")
    same(k(**given), sg.compile(update, shape, 14, backend="reference")(**given), dtype)


@pytest.mark.parametrize("sides", KINDS)
@pytest.mark.parametrize("line", ["column levels=2 lines=2 planes=8 warps=8", "column levels=3 lines=1 warps=16"])
def test_levels_on_three_axes(line: str, sides: str) -> None:
    """Seven steps, so that one is left over."""
    make, _ = NAMED["heat"]
    update, shape = make(boundary=KINDS[sides], dtype="f64"), (29, 37, 141)
    given = inputs(update, shape)
    k = sg.compile(update, shape, 7, backend="cuda", schedule=line)
    same(k(**given), sg.compile(update, shape, 7, backend="reference")(**given), "f64")


@pytest.mark.parametrize("sides", KINDS)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_planes_that_no_piece_divides(dtype: str, sides: str) -> None:
    """Passes between padded rows: those that wrap have ghosts, of others cells across a border go one by one."""
    make, _ = NAMED["heat"]
    update, shape = make(boundary=KINDS[sides], dtype=dtype), (29, 37, 271)
    given = inputs(update, shape)
    k = sg.compile(update, shape, STEPS, backend="cuda", schedule="column lines=2 planes=8 warps=8")
    same(k(**given), sg.compile(update, shape, STEPS, backend="reference")(**given), dtype)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_quotients_by_constants(dtype: str) -> None:
    """Those of NumPy, also where they are no finite numbers."""
    number = np.dtype(f"f{int(dtype[1:]) // 8}").type
    u = np.linspace(-1e3, 1e3, 4096).astype(number)
    u[:5] = np.inf, -np.inf, np.nan, np.finfo(number).max, 0.0
    for divisor in (3.0, -49.0, 0.1):

        def quotient(u: sg.Field) -> sg.Value:
            return abs(u[0] / divisor)  # noqa: B023  # traced before the loop goes on

        update = sg.stencil(dtype=dtype, boundary=sg.periodic)(quotient)
        got = sg.compile(update, u.shape, 1, backend="cuda", schedule="direct")(u)
        with np.errstate(over="ignore"):
            want = np.abs(u / number(divisor))
        agree = (got == want) | (np.isnan(got) & np.isnan(want))
        assert agree[:5].all() and agree.mean() > 0.999
        assert np.allclose(got[5:], want[5:], rtol=2 * np.finfo(number).eps, atol=0)


@pytest.mark.parametrize("line", ["direct", "stream levels=3 cols=4", "tiled levels=2", "resident", "auto"])
def test_scalars(launcher: str, line: str) -> None:
    """Alike in all steps, which graphs repeat, and others in every step; other ones in the next call."""

    @sg.stencil(dtype="f64", boundary=sg.neumann)
    def heat(u: sg.Field, a: sg.Coef, dt: sg.Scalar, power: sg.Scalar) -> sg.Value:
        return u[0, 0] + dt * (a[0, 0] * (u[0, 1] + u[0, -1] + u[1, 0] + u[-1, 0] - 4 * u[0, 0]) + power)

    u, a = (np.random.default_rng(i).random((130, 517)) for i in range(2))
    k = sg.compile(heat, u.shape, 101, backend="cuda", schedule=line)
    want = sg.compile(heat, u.shape, 101, backend="reference")
    for numbers in ({"dt": 0.1, "power": 1.0}, {"dt": 0.2, "power": -1.0},
                    {"dt": np.linspace(0.01, 0.2, 101), "power": np.arange(101.0)}):  # fmt: skip
        assert error(k(u, a, **numbers), want(u, a, **numbers)) <= 1e-10


@pytest.mark.parametrize("steps", [1, 40, 1000])
def test_scalars_of_calls_that_follow_one_another(steps: int) -> None:
    """Of each call its own, though none waits for the one before, on two streams; a captured one keeps its own."""
    torch: Any = pytest.importorskip("torch")

    @sg.stencil(dtype="f64", boundary=sg.neumann)
    def clock(u: sg.Field, dt: sg.Scalar, t: sg.Time) -> sg.Value:
        return 0.25 * (u[0, 1] + u[0, -1] + u[1, 0] + u[-1, 0]) + dt * sg.sin(t)

    k = sg.compile(clock, (200, 300), steps, backend="cuda", schedule="resident")
    want = sg.compile(clock, (200, 300), steps, backend="reference")
    u, side = np.random.default_rng(0).random((200, 300)), torch.cuda.Stream()
    x = torch.from_numpy(u).cuda()
    calls = [{"dt": 0.1, "t": float(i)} for i in range(5)] + [{"dt": np.linspace(0, 0.2, steps)}]
    torch.cuda.synchronize()
    made = [k(x, **numbers) for numbers in calls]
    with torch.cuda.stream(side):
        beside = [k(x, **numbers) for numbers in reversed(calls)]
    graph, out = torch.cuda.CUDAGraph(), torch.zeros_like(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        k(x, out=out, **calls[3])
    later = k(x, **calls[0])
    graph.replay()
    torch.cuda.synchronize()
    results = [want(u, **numbers) for numbers in calls]
    for got, right in zip(
        (*made, *reversed(beside), later, out), (*results, *results, results[0], results[3]), strict=True
    ):
        assert error(got.cpu().numpy(), right) <= 1e-11


def test_long_loops_and_graphs(launcher: str) -> None:
    for make, shape in ((wave, (64, 96)), (gray_scott, (33, 71))):
        update = make(boundary=sg.periodic)
        given = inputs(update, shape)
        k = sg.compile(update, shape, steps=200, backend="cuda")
        for steps in (200, 3, 131):
            want = sg.compile(update, shape, steps, backend="reference")(**given)
            for a, b in zip(flat(k(**given, steps=steps)), flat(want), strict=True):
                assert error(a, b) <= 1e-9


def test_life_is_exact() -> None:
    shape = (200, 333)
    update = life(boundary=sg.periodic)
    given = arrays(update, shape)
    got = sg.compile(update, shape, steps=50, backend="cuda")(**given)
    assert np.array_equal(got, sg.compile(update, shape, steps=50, backend="reference")(**given))


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_device_arrays(library: str) -> None:
    xp = pytest.importorskip(library)
    update, shape = wave(boundary=sg.neumann), (61, 83)
    given = inputs(update, shape)
    want = sg.compile(update, shape, steps=9, backend="reference")(**given)

    def put(a: Any) -> Any:
        return xp.asarray(a) if library == "cupy" else xp.from_numpy(a).cuda()

    def get(a: Any) -> Any:
        return a.get() if library == "cupy" else a.cpu().numpy()

    k = sg.compile(update, shape, steps=9, backend="cuda")
    u, c = tuple(put(a) for a in given["u"]), put(given["c"])
    got = k(u, c)
    assert all(type(a) is type(c) for a in got)
    same(tuple(get(a) for a in got), want, "f64")
    wide = put(np.full((61, 128), np.nan))
    wide[:, :83] = c
    out = (put(np.full((61, 90), np.nan))[:, :83], put(np.empty(shape)))
    assert k(u, wide[:, :83], out=out) is out
    same(tuple(get(a) for a in out), want, "f64")
    same(tuple(get(a) for a in k(u, c, steps=1)), sg.compile(update, shape, backend="reference")(**given), "f64")


def test_a_large_field_and_its_rate() -> None:
    shape = (4096, 4099)
    update = wave(boundary=sg.dirichlet(0.0))
    given = inputs(update, shape)
    k = sg.compile(update, shape, steps=4, backend="cuda")
    same(k(**given), sg.compile(update, shape, steps=4, backend="reference")(**given), "f64")
    assert k.bench(repeats=5).fraction is not None
    assert k.resources().spills == 0

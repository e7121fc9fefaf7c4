"""Random stencils, shapes, boundaries, legal schedules: the emulator finds no fault and the reference's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparsegen.backends.reference import stencil as reference
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.families.toeplitz import PRODUCTS
from sparsegen.geometry import check
from sparsegen.ir.boundary import Side
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import Schedule
from sparsegen.sizes import ITEMSIZE, MMA, VECTOR
from tests.property.agreement import agrees
from tests.schedules import device, emulate, faults, lowered, random_field, stencil

EXTENTS = [(3, 3), (3, 3), (5, 5), (3, 5), (5, 3), (7, 7), (1, 3), (3, 1)]
SWITCH = st.sampled_from(["on", "off"])
#: Half as many examples again as the profile has: a case takes about a tenth of a second.
MANY = settings(max_examples=3 * settings().max_examples // 2)


@st.composite
def weights(draw: st.DrawFn) -> Any:
    """Boxes, stars, lop-sided ones, and ones whose outermost taps are zero."""
    extents = draw(st.sampled_from(EXTENTS))
    w = np.random.default_rng(draw(st.integers(0, 999))).uniform(0.1, 1.0, extents)
    kind = draw(st.sampled_from(["any", "star", "symmetric", "holes", "thin"]))
    cy, cx = extents[0] // 2, extents[1] // 2
    if kind == "star":
        star = np.zeros(extents)
        star[cy, :], star[:, cx] = w[cy, :], w[:, cx]
        w = star
    elif kind == "symmetric":
        w = w + w[::-1] + w[:, ::-1] + w[::-1, ::-1]
    elif kind == "holes":
        w *= np.random.default_rng(draw(st.integers(0, 999))).random(extents) < 0.4
        w[draw(st.integers(0, extents[0] - 1)), draw(st.integers(0, extents[1] - 1))] = -0.5
    elif kind == "thin":  # no weight left on the border of the array: `frozen` still keeps as many cells
        inner = np.zeros(extents)
        inner[min(1, cy) : extents[0] - min(1, cy), min(1, cx) : extents[1] - min(1, cx)] = 1.0
        inner[cy, cx] = -2.0
        w = w * inner
    return w


def side(draw: st.DrawFn) -> Side:
    return draw(st.sampled_from([frozen, neumann, dirichlet(0.0), dirichlet(1.5), dirichlet(-0.75)]))


@st.composite
def boundaries(draw: st.DrawFn) -> BoundarySpec:
    if draw(st.booleans()):
        return draw(st.sampled_from([periodic, frozen, neumann, dirichlet(2.0)]))
    return {axis: periodic if draw(st.integers(0, 2)) == 0 else (side(draw), side(draw)) for axis in range(2)}


def direct(draw: st.DrawFn) -> str:
    block = draw(st.sampled_from(["32x1", "32x8", "16x2", "64x3", "20x5"]))
    return f"direct block={block}"


def tiled(draw: st.DrawFn) -> str:
    tile = draw(st.sampled_from(["4x32 warps=1", "8x32 warps=2", "8x64 warps=4", "12x96 warps=3", "16x128 warps=8"]))
    return f"tiled tile={tile} stages={draw(st.integers(1, 4))}"


def stream(draw: st.DrawFn) -> str:
    cols = draw(st.sampled_from([2, 4, 6, 8, 8, 16]))
    line = f"stream cols={cols} warps={draw(st.integers(1, 3))} stages={draw(st.integers(2, 5))}"
    rows = draw(st.sampled_from(["auto", "7", "24"]))
    return f"{line} levels={draw(st.integers(1, 4))} unroll={draw(st.integers(1, 2))} rows={rows}"


def patches(draw: st.DrawFn) -> str:
    mma = draw(st.sampled_from(["f64.m8n8k4", "f64.m16n8k16"]))
    line = f"patches mma={mma} strips={draw(st.integers(1, 3))} warps={draw(st.integers(1, 3))}"
    rows = draw(st.sampled_from(["auto", "6", "24"]))
    return f"{line} levels={draw(st.integers(1, 4))} stages={draw(st.integers(2, 5))} rows={rows}"


def stencil2row(draw: st.DrawFn) -> str:
    line = f"stencil2row mma={draw(st.sampled_from(sorted(MMA)))} lut={draw(SWITCH)} pad={draw(SWITCH)}"
    if draw(st.integers(0, 4)) == 0:
        return f"{line} transform=explicit dirty=off"
    return f"{line} dirty={draw(SWITCH)} stages={draw(st.integers(1, 4))}"


def explicit_dirty(draw: st.DrawFn) -> str:
    return f"stencil2row mma={draw(st.sampled_from(sorted(MMA)))} lut={draw(SWITCH)} dirty=on transform=explicit"


def resolved(draw: st.DrawFn, line: str, s: Stencil, shape: tuple[int, int], blocks: int | None) -> Schedule:
    """The legal schedule of a line; the tiles of stencil2row depend on the stencil's edge."""
    profile = device("h200", blocks)
    value = Schedule.parse(line)
    if value.family == "stencil2row":
        unit = MMA[value.mma][0] * ((max(s.weights.shape) - 1) * value.fuse + 2)
        rows, warps = draw(st.sampled_from([(4, 2), (8, 2), (8, 8), (6, 3), (16, 4)]))
        across = draw(st.integers(1, 2))
        value = Schedule.parse(f"{line} tile={rows}x{across * unit} warps={warps}")
    try:
        return check(s, shape, value, profile)
    except ScheduleError:
        assume(False)
        raise


@st.composite
def cases(draw: st.DrawFn, family: Callable[[st.DrawFn], str], dtype: str = "f64") -> tuple[Any, ...]:
    s = stencil(draw(weights()), draw(boundaries()), dtype)
    fuse = draw(st.integers(1, 3))
    line = f"{family(draw)} fuse={fuse}"
    least = [(n - 1) * fuse + 1 for n in s.weights.shape]
    size = [draw(st.one_of(st.just(0), st.integers(0, 6), st.integers(0, 110))) for _ in least]
    shape = least[0] + size[0], least[1] + size[1]
    pad = draw(st.sampled_from([(0, 0), (0, 0), (0, 0), (1, 0), (0, 3), (2, 4), (5, 5)]))
    blocks = draw(st.sampled_from([None, 1, 1, 2, 3]))
    value = resolved(draw, line, s, shape, blocks)
    return s, shape, value, (shape[1] + pad[0], shape[1] + pad[1]), blocks, draw(st.integers(0, 99))


@MANY
@given(cases(stream))
def test_stream(case: tuple[Any, ...]) -> None:
    agrees(case)


@MANY
@given(cases(stream, "f32"))
def test_stream_f32(case: tuple[Any, ...]) -> None:
    agrees(case)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("columns", range(1, 9))
def test_columns_between_the_ends_of_a_piece(columns: int, dtype: str) -> None:
    """Rows of whole pieces, of which the main program makes few columns behind a kept rim: none may be left out."""
    s = stencil(np.random.default_rng(columns).uniform(0.1, 1.0, (3, 3)), {0: periodic, 1: frozen}, dtype)
    shape = 5, columns + 4
    value = Schedule.parse(f"stream fuse=2 levels=1 cols={VECTOR // ITEMSIZE[dtype]}")
    program, u = lowered(s, shape, value, profile=device("h200"), pitch=(16, 16)), random_field(shape, dtype, columns)
    assert not faults(program, s, u, emulate(program, u, pitch=(16, 16)))


@MANY
@given(cases(patches))
def test_patches(case: tuple[Any, ...]) -> None:
    agrees(case)


@MANY
@given(cases(direct))
def test_direct(case: tuple[Any, ...]) -> None:
    agrees(case)


@MANY
@given(cases(tiled))
def test_tiled(case: tuple[Any, ...]) -> None:
    agrees(case)


@MANY
@given(cases(stencil2row))
def test_stencil2row(case: tuple[Any, ...]) -> None:
    agrees(case)


@settings(max_examples=10)
@given(cases(explicit_dirty))
def test_dirty_bits_of_the_explicit_transform(case: tuple[Any, ...]) -> None:
    agrees(case)


HALF = st.sampled_from(["f16", "bf16"])


@MANY
@given(st.data(), HALF, st.sampled_from([direct, tiled, stream]))
def test_16_bits(data: st.DataObject, dtype: str, family: Callable[[st.DrawFn], str]) -> None:
    """Sums in f32: a pass of one step is the reference's to the bit, one of several is rounded once."""
    s, shape, value, _, _, seed = case = data.draw(cases(family, dtype))
    out = agrees(case)
    if value.steps == 1:
        assert np.array_equal(out, reference.run(random_field(shape, dtype, seed), s.weights, s.sides, 1))


@given(cases(direct, "f32"))
def test_direct_f32(case: tuple[Any, ...]) -> None:
    agrees(case)


@given(cases(tiled, "f32"))
def test_tiled_f32(case: tuple[Any, ...]) -> None:
    agrees(case)


def cuda_cores(draw: st.DrawFn) -> str:
    switches = " ".join(f"{name}={draw(SWITCH)}" for name in ("lut", "pad", "dirty"))
    return f"stencil2row mma=none {switches} stages={draw(st.integers(1, 3))}"


@given(cases(cuda_cores, "f32"))
def test_stencil2row_f32(case: tuple[Any, ...]) -> None:
    agrees(case)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Any, ...]:
    """Stencils and fields of one row (or of rows that do not touch), deeply fused."""
    w = np.random.default_rng(draw(st.integers(0, 999))).uniform(-0.2, 1.0, (1, draw(st.sampled_from([1, 3, 5]))))
    s = stencil(w, draw(boundaries()))
    fuse, mma = draw(st.integers(1, 20)), draw(st.sampled_from([m for m in sorted(MMA) if m.endswith(("k4", "k8"))]))
    line = f"toeplitz mma={mma} fuse={fuse} products={draw(st.sampled_from(PRODUCTS))}"
    line += f" warps={draw(st.integers(1, 3))} stages={draw(st.integers(2, 4))}"
    shape = draw(st.sampled_from([1, 1, 3])), (w.size - 1) * fuse + 1 + draw(st.integers(0, 2000))
    pad = draw(st.sampled_from([(0, 0), (1, 0), (0, 3), (2, 4)]))
    blocks = draw(st.sampled_from([None, 1, 1, 2, 3]))
    value = resolved(draw, line, s, shape, blocks)
    return s, shape, value, (shape[1] + pad[0], shape[1] + pad[1]), blocks, draw(st.integers(0, 99))


@st.composite
def products(draw: st.DrawFn) -> tuple[Any, ...]:
    """Sums of few products of a column and a row, deeply fused where there is only one."""
    extents = draw(st.sampled_from([e for e in EXTENTS if e[0] > 1]))
    rng, terms = np.random.default_rng(draw(st.integers(0, 999))), draw(st.sampled_from([1, 1, 2, 3]))
    w = sum(np.outer(rng.uniform(-0.2, 1.0, extents[0]), rng.uniform(-0.2, 1.0, extents[1])) for _ in range(terms))
    s, fuse = stencil(w, draw(boundaries())), draw(st.integers(1, 12 if terms == 1 else 2))
    mma, strips = draw(st.sampled_from([m for m in sorted(MMA) if m != "none"])), draw(st.integers(1, 2))
    parts, blocks = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    line = f"lowrank mma={mma} fuse={fuse} tile={strips * MMA[mma][0]}x{8 * parts * blocks} warps={strips * parts}"
    shape = tuple((n - 1) * fuse + 1 + draw(st.integers(0, 60)) for n in extents)
    pad, at_once = draw(st.sampled_from([(0, 0), (1, 0), (0, 3), (2, 4)])), draw(st.sampled_from([None, 1, 2]))
    value = resolved(draw, f"{line} stages={draw(st.integers(1, 3))}", s, (shape[0], shape[1]), at_once)
    return s, shape, value, (shape[1] + pad[0], shape[1] + pad[1]), at_once, draw(st.integers(0, 99))


@given(products())
def test_lowrank(case: tuple[Any, ...]) -> None:
    agrees(case)


@given(rows())
def test_toeplitz(case: tuple[Any, ...]) -> None:
    agrees(case)

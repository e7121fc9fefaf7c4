"""General updates through nvcc, with no GPU: no spills, no stack; exported calls compile by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.backends.cuda.toolchain import find_tool
from tests.nvcc_kit import library, together
from tests.updates import NAMED, made, wave

pytestmark = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
SHAPES: dict[int, tuple[int, ...]] = {1: (100_000,), 2: (1000, 998), 3: (60, 70, 130)}


@pytest.mark.parametrize(("device", "arch"), [("a100", "sm_80"), ("h200", "sm_90a")])
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_no_spills(dtype: str, device: str, arch: str) -> None:
    sources = []
    for name, (make, _) in NAMED.items():
        sides = {"u": sg.dirichlet(1.0), "v": sg.neumann} if name == "gray_scott" else sg.frozen
        update = make(boundary=sides, dtype=dtype)
        k = sg.compile(update, SHAPES[update.ndim], device=device, backend="emulator", schedule="direct column=4")
        sources.append(k.source())
    used = compile_cubin(together(sources), arch).resources
    assert len(used) == len(NAMED)
    assert {name: (r.spill_stores, r.spill_loads, r.stack) for name, r in used.items()} == dict.fromkeys(
        used, (0, 0, 0)
    )


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_cells_of_16_bits_compile(dtype: str) -> None:
    lines = {1: "stream levels=3 cols=8", 2: "stream levels=3 cols=8", 3: "column lines=2 warps=8"}
    for schedules in (lines, dict.fromkeys(lines, "direct column=4")):
        sources = []
        for make, _ in NAMED.values():
            update = make(boundary=sg.neumann, dtype=dtype)
            shape, line = SHAPES[update.ndim], schedules[update.ndim]
            sources.append(sg.compile(update, shape, 3, device="h200", backend="emulator", schedule=line).source())
        used = compile_cubin(together(sources), "sm_90a").resources
        assert all((r.spill_stores, r.spill_loads, r.stack) == (0, 0, 0) for r in used.values()), used


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_several_steps_on_three_axes_compile(dtype: str) -> None:
    """Also of two fields, one of which has levels; no division is left of one by a number."""

    def coupled(u: sg.Field(levels=2), v: sg.Field) -> Any:  # type: ignore[valid-type]
        now: Any = u
        around = sum(now[at] for at in ((0, 0, 1), (0, 0, -1), (0, 1, 0), (0, -1, 0), (1, 0, 0), (-1, 0, 0)))
        return 2 * now[0, 0, 0] - now.prev[0, 0, 0] + v[0, 0, 0] * around / 7, v[0, 0, 0] + now[0, 0, 0] ** 2 / 100

    make, _ = NAMED["heat"]
    updates = [make(boundary=sides, dtype=dtype) for sides in (sg.frozen, sg.neumann)]
    for update in (*updates, made(coupled, dtype=dtype, boundary=sg.periodic)):
        line = "column levels=2 lines=1 warps=16"
        source = sg.compile(update, SHAPES[3], 4, device="h200", backend="emulator", schedule=line).source()
        (used,) = compile_cubin(source, "sm_90a").resources.values()
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0), update.name
    assert f"quotient_{dtype}(" in source


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_functions_compile(dtype: str) -> None:
    """Angles of any size need a stack (of ``sin`` and ``cos`` in f64); nothing is spilled."""

    def every(u: Any, c: sg.Coef) -> Any:
        a, b = u[0, -1], c[0, 0]  # type: ignore[index]
        waves = sg.sin(a) + sg.cos(b) + sg.tanh(a)
        return waves + sg.exp(-a) * sg.log(b) + sg.pow(a, b) + 2**a + sg.clip(a**-1.5, 0, b**0.5)

    lines = ("direct column=2", "stream levels=2 cols=8", "tiled levels=2 cols=1 rows=3 planes=1 warps=4")
    sources = []
    for line in lines:
        update = made(every, dtype=dtype, name=line.split()[0])
        k = sg.compile(update, SHAPES[2], 2, device="h200", backend="emulator", schedule=line)
        sources.append(k.source())
    used = compile_cubin(together(sources), "sm_90a").resources
    assert {(r.spill_stores, r.spill_loads) for r in used.values()} == {(0, 0)}, used


def test_parameters_may_have_any_name() -> None:
    def warp(double: Any, lane: Any, u: sg.Field(levels=2), u_1: sg.Coef) -> Any:  # type: ignore[valid-type]
        new = double[0, 1] * u_1[0, 0] + lane[1, 0]  # type: ignore[index]
        return new, new * new, u[0, -1] - u.prev[0, 0]  # type: ignore[index, attr-defined]

    k = sg.compile(made(warp), (64, 64), steps=3, device="h200", backend="emulator")
    compile_cubin(k.source(), "sm_90a")
    assert k.check().ok


#: Of C++, CUDA, a macro, the launcher, the kernel, and two that come out the same.
NAMES = ("double", "int", "template", "dim3", "cudaSuccess", "room", "stream_t", "update_run", "update", "M_PI",
         "M_PI_", "min", "make_double2", "smem", "u", "u_new", "_u", "tid", "é", "è")  # fmt: skip


def test_parameters_of_exported_calls_may_have_any_name(tmp_path: Path) -> None:
    terms = ", ".join(f"{name}[0, 1] * 0.5" for name in NAMES)
    space: dict[str, Any] = {}
    exec(f"def update({', '.join(NAMES)}):\n    return {terms}", space)
    k = sg.compile(made(space["update"]), (64, 64), device="h200", backend="emulator")
    library(k.export(tmp_path / "update.cu"), "sm_90a")


def test_an_exported_call_is_a_library(tmp_path: Path) -> None:
    k = sg.compile(wave(), (64, 64), steps=7, device="h200", backend="emulator")
    library(k.export(tmp_path / "wave.cu"), "sm_90a")


@pytest.mark.parametrize("line", ["direct", "resident"])
def test_exported_calls_with_scalars(line: str, tmp_path: Path) -> None:
    """By value, and as a table that is copied to the device."""

    def driven(u: sg.Field, a: sg.Coef, t: sg.Time, dt: sg.Scalar) -> sg.Value:
        return u[0, 0] + dt * (a[0, 0] * (u[0, 1] - u[0, 0]) + sg.sin(t))

    k = sg.compile(sg.stencil()(driven), (64, 96), steps=7, device="h200", backend="emulator", schedule=line)
    library(k.export(tmp_path / "driven.cu"), "sm_90a")


@pytest.mark.parametrize("line", ["direct", "tiled", "stream levels=2 cols=2", "resident"])
def test_adjoints_compile(line: str) -> None:
    """With an array for each kind of border, in every family."""
    mixed = {0: (sg.frozen, sg.neumann), 1: (sg.neumann, sg.frozen)}
    skew = sg.Stencil.from_weights(np.random.default_rng(0).standard_normal((3, 3)), mixed)
    k = sg.compile(skew, (200, 302), 4, device="h200", backend="emulator", schedule="direct")
    used = compile_cubin(k.adjoint(line).source(), "sm_90a").resources
    assert used and all((r.spill_stores, r.spill_loads, r.stack) == (0, 0, 0) for r in used.values()), used


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("line", ["direct", "tiled levels=2", "resident"])
def test_sites_compile(line: str, dtype: str) -> None:
    """Forwards and backwards; where windows stay in registers a source's cell takes none of them along."""
    line_of = np.stack([np.full(100, 8.5), np.linspace(1, 300, 100)], 1)
    sites = {"shot": sg.Source([[100.5, 150.25]]), "heard": sg.Receiver(line_of)}
    k = sg.compile(wave(dtype=dtype, boundary=sg.neumann).with_sites(**sites), (200, 302), 4, "h200", "emulator", line)
    for source in (k.source(), k.adjoint(line).source()):
        used = compile_cubin(source, "sm_90a").resources
        assert len(used) > 1
        assert all((r.spill_stores, r.spill_loads, r.stack) == (0, 0, 0) for r in used.values()), used

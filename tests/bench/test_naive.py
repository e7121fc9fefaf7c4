"""The naive kernel, without a GPU: its source compiles, and compiled for the host it equals the reference."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.backends.reference.stencil import run
from sparsegen.bench import naive

#: Enough of CUDA for a kernel whose threads do not talk to each other; one call runs all threads of a launch.
HOST = r"""
#include <cmath>
#include <cstring>
#define __global__
#define __device__
struct Dim { unsigned x; };
struct double2 { double x, y; };
static thread_local Dim blockIdx, blockDim{1}, threadIdx, gridDim;
static inline unsigned long long __double_as_longlong(double x) { unsigned long long b; memcpy(&b, &x, 8); return b; }
static inline void atomicMax(unsigned long long* p, unsigned long long v) { if (v > *p) *p = v; }
static inline void atomicAdd(unsigned long long* p, unsigned long long v) { *p += v; }
using std::isfinite;
"""
RUN = r"""
extern "C" void host_step(const double* u, double* out, const double* w, const Box* box, const Border* border) {
    blockDim.x = 4;
    unsigned blocks = box->n[0] * box->n[1] * ((box->n[2] + 3) / 4);
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < 4; threadIdx.x++) step_f64(u, out, w, *box, *border);
    blockDim.x = 1;
    threadIdx.x = 0;
}
extern "C" void host_compare(const double* a, const double* b, long long n, u64* found) {
    gridDim.x = 1; blockIdx.x = 0; compare_f64(a, b, n, found);
}
extern "C" void host_copy(const double2* p, double2* out, long long n) {
    gridDim.x = 1; blockIdx.x = 0; copy_all(p, out, n);
}
"""
FROZEN, NEUMANN, PERIODIC = sg.frozen, sg.neumann, sg.periodic
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((9,), (3,)),
    ((11,), (9,)),
    ((5,), (5,)),
    ((7, 9), (3, 3)),
    ((11, 8), (5, 3)),
    ((7, 7), (7, 7)),
    ((3, 12), (3, 1)),
    ((5, 4, 6), (3, 3, 3)),
    ((7, 3, 5), (5, 1, 3)),
    ((5, 5, 5), (5, 5, 5)),
]


def boundaries(ndim: int) -> list[Any]:
    """Every kind on all sides, and mixtures: of axes, of the two sides of an axis, corners of several values."""
    value = [(sg.dirichlet(2.0 + axis), sg.dirichlet(-3.0 - axis)) for axis in range(ndim)]
    kinds = [FROZEN, NEUMANN, sg.dirichlet(-1.0)]
    mixed = [
        {axis: (kinds[(axis + turn) % 3], kinds[(axis + turn + 1) % 3]) for axis in range(ndim)} for turn in (0, 1)
    ]
    around = [
        {a: (PERIODIC if a == axis else (NEUMANN, sg.dirichlet(4.0))) for a in range(ndim)} for axis in (0, ndim - 1)
    ]
    return [PERIODIC, FROZEN, NEUMANN, sg.dirichlet(1.5), dict(enumerate(value)), *mixed, *around]


@pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_source_compiles(arch: str) -> None:
    found = compile_cached(naive.source(), arch).resources
    kinds = {f"{what}_{dtype}" for what in ("step", "random", "poison", "compare") for dtype in naive.TYPES}
    assert set(found) == kinds | {"read_all", "copy_all"}
    assert not any(r.spill_stores for r in found.values())


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("naive")
    (folder / "naive.cpp").write_text(HOST + naive.source() + RUN)
    library = folder / "naive.so"
    subprocess.run([compiler, "-O1", "-w", "-shared", "-fPIC", "-o", library, folder / "naive.cpp"], check=True)
    return ctypes.CDLL(str(library))


def pointer(a: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(a.ctypes.data)


@pytest.mark.parametrize("at", range(len(boundaries(1))))
@pytest.mark.parametrize(("shape", "edges"), SHAPES, ids=str)
def test_equals_the_reference(shape: tuple[int, ...], edges: tuple[int, ...], at: int, host: ctypes.CDLL) -> None:
    rng = np.random.default_rng(sum(shape))
    stencil = sg.Stencil.from_weights(rng.standard_normal(edges), boundaries(len(shape))[at])
    u = rng.random(shape)
    got, w = u, np.ascontiguousarray(stencil.weights)
    box = ctypes.create_string_buffer(naive._box(shape, edges))
    border = ctypes.create_string_buffer(naive._border(stencil))
    for _ in range(3):
        out = np.full(shape, np.nan)
        host.host_step(pointer(got), pointer(out), pointer(w), box, border)
        got = out
    want = run(u, stencil.weights, stencil.sides, 3)
    assert np.abs(got - want).max() <= 1e-13 * np.abs(want).max()


def test_compare(host: ctypes.CDLL) -> None:
    a, b = np.array([1.0, -2.0, 3.0]), np.array([1.0, -4.0, 3.5])
    for value, broken in ((3.0, 0), (np.nan, 1), (np.inf, 1)):
        a[2] = value
        found = np.zeros(3, np.uint64)
        host.host_compare(pointer(a), pointer(b), ctypes.c_longlong(3), pointer(found))
        assert found[2] == broken
        if not broken:
            assert found[:2].view(np.float64).tolist() == [2.0, 4.0]


def test_copy(host: ctypes.CDLL) -> None:
    a, b = np.random.default_rng(0).random(10), np.full(12, np.nan)
    host.host_copy(pointer(a), pointer(b), ctypes.c_longlong(5))
    assert np.array_equal(b[:10], a) and np.isnan(b[10:]).all()


def test_what_it_cannot_do_is_refused() -> None:
    stencil = sg.Stencil.from_weights(np.ones(3, np.float16))
    with pytest.raises(sg.StencilError, match="f16"):
        naive.Naive.run(object.__new__(naive.Naive), stencil, (8,), 1, 0, 0, 0)

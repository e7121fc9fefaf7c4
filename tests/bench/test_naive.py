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
static thread_local Dim blockIdx, blockDim{1}, threadIdx, gridDim;
static inline unsigned long long __double_as_longlong(double x) { unsigned long long b; memcpy(&b, &x, 8); return b; }
static inline void atomicMax(unsigned long long* p, unsigned long long v) { if (v > *p) *p = v; }
static inline void atomicAdd(unsigned long long* p, unsigned long long v) { *p += v; }
using std::isfinite;
"""
RUN = r"""
extern "C" void host_step(const double* u, double* out, const double* w, int ny, int nx, int ky, int kx, Border* b) {
    for (int i = 0; i <= ny * nx; i++) { blockIdx.x = i; step_f64(u, out, w, ny, nx, ky, kx, *b); }
}
extern "C" void host_compare(const double* a, const double* b, long long n, u64* found) {
    gridDim.x = 1; blockIdx.x = 0; compare_f64(a, b, n, found);
}
"""
FROZEN, NEUMANN, PERIODIC = sg.frozen, sg.neumann, sg.periodic
BOUNDARIES: list[Any] = [
    PERIODIC,
    FROZEN,
    NEUMANN,
    sg.dirichlet(1.5),
    {0: (sg.dirichlet(2.0), sg.dirichlet(-3.0)), 1: (sg.dirichlet(0.5), sg.dirichlet(7.0))},
    {0: (FROZEN, NEUMANN), 1: (sg.dirichlet(1.0), FROZEN)},
    {0: PERIODIC, 1: (NEUMANN, sg.dirichlet(-1.0))},
    {0: (NEUMANN, sg.dirichlet(4.0)), 1: PERIODIC},
]


@pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_source_compiles(arch: str) -> None:
    found = compile_cached(naive.source(), arch).resources
    kinds = {f"{what}_{dtype}" for what in ("step", "random", "poison", "compare") for dtype in naive.TYPES}
    assert set(found) == kinds | {"read_all"}
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


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize(("shape", "edges"), [((7, 9), (3, 3)), ((11, 8), (5, 3)), ((7, 7), (7, 7)), ((3, 12), (3, 1))])
def test_equals_the_reference(boundary: Any, shape: tuple[int, int], edges: tuple[int, int], host: ctypes.CDLL) -> None:
    rng = np.random.default_rng(sum(shape))
    stencil = sg.Stencil.from_weights(rng.standard_normal(edges), boundary)
    u = rng.random(shape)
    got, w = u, np.ascontiguousarray(stencil.weights)
    border = ctypes.create_string_buffer(naive._border(stencil))
    for _ in range(3):
        out = np.full(shape, np.nan)
        host.host_step(pointer(got), pointer(out), pointer(w), *shape, *edges, border)
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


def test_what_it_cannot_do_is_refused() -> None:
    stencil = sg.Stencil.from_weights(np.ones(3))
    with pytest.raises(sg.StencilError, match="2-D"):
        naive.Naive.run(object.__new__(naive.Naive), stencil, (8,), 1, 0, 0, 0)

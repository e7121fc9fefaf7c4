"""A naive stencil on the GPU, written apart from the IR: what every measured result is compared with.

One thread a point of a 1-D, 2-D or 3-D field, one launch a time step, boundaries decided cell by cell as
:mod:`sparsegen.ir.boundary` words them.  Beside it the harness's own kernels: random numbers, poison, the largest
difference, a read and a copy of memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsegen.backends.cuda.args import PackedArgs, Value
from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.runtime import Dim3, Runtime
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir.boundary import Side
from sparsegen.ir.errors import StencilError

#: dtype -> (C type, bytes).
TYPES = {"f64": ("double", 8), "f32": ("float", 4)}
_KINDS = {"periodic": 0, "frozen": 1, "neumann": 2, "dirichlet": 3}
_COMMON = r"""
typedef unsigned long long u64;
enum Kind { PERIODIC, FROZEN, NEUMANN, DIRICHLET };
struct Box { int n[3], k[3]; };                        // cells and weights of each axis
struct Border { int kind[3][2]; double value[3][2]; };  // [axis][low, high]

// Where index i of an axis of n cells is read from; -1 where the cell outside holds v.
__device__ int inside(int i, int n, int axis, const Border& border, double& v) {
    if (0 <= i && i < n) return i;
    int side = i < 0 ? 0 : 1;
    if (border.kind[axis][side] == PERIODIC) return i < 0 ? i + n : i - n;
    if (border.kind[axis][side] == NEUMANN) return i < 0 ? -1 - i : 2 * n - 1 - i;
    v = border.value[axis][side];
    return -1;
}

// Counter-based random bits (the finaliser of splitmix64).
__device__ u64 bits(u64 x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

extern "C" __global__ void read_all(const double* p, long long n, double* sink) {
    double sum = 0;
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += stride)
        sum += p[i];
    if (sum == 1.2345e300) *sink = sum;  // never: keeps the reads
}

extern "C" __global__ void copy_all(const double2* __restrict__ p, double2* __restrict__ out, long long n) {
    long long stride = (long long)gridDim.x * blockDim.x;
    #pragma unroll 4
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += stride) out[i] = p[i];
}
"""
_TYPED = r"""
extern "C" __global__ void step_NAME(const REAL* u, REAL* out, const REAL* w, Box box, Border border) {
    unsigned blocks = (box.n[2] + blockDim.x - 1) / blockDim.x;  // of a row
    int row = blockIdx.x / blocks;
    int z = row / box.n[1], y = row % box.n[1], x = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    if (x >= box.n[2]) return;
    long long ny = box.n[1], nx = box.n[2], point = (z * ny + y) * nx + x;
    int at[3] = {z, y, x}, r[3];
    bool keep = false;
    for (int axis = 0; axis < 3; axis++) {
        r[axis] = box.k[axis] / 2;
        keep |= (border.kind[axis][0] == FROZEN && at[axis] < r[axis]) ||
                (border.kind[axis][1] == FROZEN && at[axis] >= box.n[axis] - r[axis]);
    }
    if (keep) { out[point] = u[point]; return; }
    REAL sum = 0;
    double v = 0;
    for (int h = 0; h < box.k[0]; h++) {
        int from_z = inside(z + h - r[0], box.n[0], 0, border, v);
        for (int i = 0; i < box.k[1]; i++) {
            int from_y = from_z < 0 ? -1 : inside(y + i - r[1], box.n[1], 1, border, v);
            for (int j = 0; j < box.k[2]; j++) {
                REAL weight = w[(h * box.k[1] + i) * box.k[2] + j];
                if (weight == 0) continue;
                int from_x = from_y < 0 ? -1 : inside(x + j - r[2], box.n[2], 2, border, v);  // the lowest axis decides
                sum += weight * (from_x < 0 ? (REAL)v : u[(from_z * ny + from_y) * nx + from_x]);
            }
        }
    }
    out[point] = sum;
}

extern "C" __global__ void random_NAME(REAL* p, long long n, u64 seed) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) p[i] = (REAL)((double)(bits(bits(seed) + i) >> 40) / (1 << 24));  // 24 bits: exact in float too
}

extern "C" __global__ void poison_NAME(REAL* p, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) p[i] = (REAL)(0.0 / 0.0);
}

// found[0] = max |a - b|, found[1] = max |b| (as bits: positive doubles are ordered like integers), found[2] = how many
// elements of a are not finite.
extern "C" __global__ void compare_NAME(const REAL* a, const REAL* b, long long n, u64* found) {
    double difference = 0, size = 0;
    u64 broken = 0;
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += stride) {
        double x = a[i], y = b[i];
        if (!isfinite(x)) { broken++; continue; }
        difference = fmax(difference, fabs(x - y));
        size = fmax(size, fabs(y));
    }
    atomicMax(found, __double_as_longlong(difference));
    atomicMax(found + 1, __double_as_longlong(size));
    if (broken) atomicAdd(found + 2, broken);
}
"""
_BLOCK = 256
_RESIDENT = 1024  #: blocks of the kernels that stride over their data


def source() -> str:
    """The CUDA C++ of all of it."""
    return _COMMON + "".join(_TYPED.replace("NAME", name).replace("REAL", real) for name, (real, _) in TYPES.items())


def _box(shape: tuple[int, ...], weights: tuple[int, ...]) -> bytes:
    """Cells and weights of three axes: an axis that a field does not have is one cell and one weight long."""
    missing = (1,) * (3 - len(shape))
    return np.array([(*missing, *shape), (*missing, *weights)], np.int32).tobytes()


def _border(stencil: Stencil) -> bytes:
    """The sides of three axes; those of an axis that a field does not have are never read."""
    missing = ((Side("neumann"), Side("neumann")),) * (3 - stencil.ndim)
    sides = (*missing, *stencil.sides)
    kinds = np.array([[_KINDS[side.kind] for side in pair] for pair in sides], np.int32)
    values = np.array([[side.value for side in pair] for pair in sides], np.float64)
    return kinds.tobytes() + values.tobytes()


class Naive:
    """The kernels above on one device.  Everything is asynchronous on the default stream unless it returns a number."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._module = runtime.load(compile_cached(source(), runtime.info().arch).cubin)
        self._functions: dict[str, Any] = {}

    def _launch(self, name: str, blocks: int, args: Sequence[tuple[str, Value]]) -> None:
        if name not in self._functions:
            self._functions[name] = self.runtime.function(self._module, name)
        grid: Dim3 = (blocks, 1, 1)
        self.runtime.launch(self._functions[name], grid, (_BLOCK, 1, 1), 0, PackedArgs(args))

    def random(self, pointer: int, count: int, dtype: str, seed: int) -> None:
        """Fill with numbers in [0, 1) that depend on the seed and the place."""
        self._launch(f"random_{dtype}", -(-count // _BLOCK), [("ptr", pointer), ("i64", count), ("u64", seed)])

    def poison(self, pointer: int, count: int, dtype: str) -> None:
        """Fill with NaN."""
        self._launch(f"poison_{dtype}", -(-count // _BLOCK), [("ptr", pointer), ("i64", count)])

    def read(self, pointer: int, nbytes: int) -> None:
        """Read memory, so that it and nothing else is in L2, and nothing of it is dirty."""
        self._launch("read_all", _RESIDENT, [("ptr", pointer), ("i64", nbytes // 8), ("ptr", pointer)])

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy memory (whole 16-byte pieces), by a kernel."""
        self._launch("copy_all", _RESIDENT, [("ptr", source), ("ptr", target), ("i64", nbytes // 16)])

    def run(self, stencil: Stencil, shape: tuple[int, ...], steps: int, u: int, out: int, spare: int) -> None:
        """``steps`` time steps from ``u`` into ``out``, step by step, with ``spare`` as the other field; u is kept."""
        if stencil.dtype not in TYPES:
            raise StencilError(f"the naive kernel is {' or '.join(TYPES)}; this is {stencil}", hint="use reference")
        weights = np.ascontiguousarray(stencil.weights, {"f64": np.float64, "f32": np.float32}[stencil.dtype])
        blocks = math.prod(shape[:-1]) * -(-shape[-1] // _BLOCK)
        table = self.runtime.alloc(weights.nbytes)
        try:
            self.runtime.to_device(table, weights)
            for left in range(steps, 0, -1):
                target = out if left % 2 else spare
                args: list[tuple[str, Value]] = [("ptr", u), ("ptr", target), ("ptr", table)]
                args += [("bytes@4", _box(shape, weights.shape)), ("bytes", _border(stencil))]
                self._launch(f"step_{stencil.dtype}", blocks, args)
                u = target
            self.runtime.synchronize()
        finally:
            self.runtime.free(table)

    def error(self, a: int, b: int, count: int, dtype: str) -> float:
        """max|a - b| / max|b| over ``count`` elements; infinite if any of a is not finite."""
        found = np.zeros(3, np.uint64)
        result = self.runtime.alloc(found.nbytes)
        try:
            self.runtime.to_device(result, found)
            args: list[tuple[str, Value]] = [("ptr", a), ("ptr", b), ("i64", count), ("ptr", result)]
            self._launch(f"compare_{dtype}", _RESIDENT, args)
            self.runtime.to_host(found, result)
        finally:
            self.runtime.free(result)
        difference, size = (float(x) for x in found[:2].view(np.float64))
        if found[2]:
            return math.inf
        return difference / size if size else difference

"""nvcc for real, on a machine without a GPU: cubin, PTX, resources, disassembly."""

from __future__ import annotations

import pytest

from sparsegen.backends.cuda import sass
from sparsegen.backends.cuda.nvcc import compile_cubin, find_nvcc
from sparsegen.backends.cuda.toolchain import find_tool

SOURCE = """
#include <cuda_fp16.h>
extern "C" __global__ void mirror(const double* a, double* b, int n) {
    __shared__ double s[64];
    int i = threadIdx.x;
    s[i] = a[i];
    __syncthreads();
    if (i < n) b[i] = s[63 - i] * 2;
}
extern "C" __global__ void __launch_bounds__(256, 6) spills(const __half* a, float* b) {
    float x[40], s = 0;
    for (int i = 0; i < 40; i++) x[i] = __half2float(a[i * 256 + threadIdx.x]);
    __syncthreads();
    for (int i = 0; i < 40; i++)
        for (int j = 0; j < 40; j++) s += x[i] * x[(i * 7 + j) % 40];
    b[threadIdx.x] = s;
}
"""

pytestmark = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
def test_cubin_ptx_and_resources(arch: str) -> None:
    result = compile_cubin(SOURCE, arch, want_ptx=True)
    assert result.cubin[:4] == b"\x7fELF"
    assert result.ptx is not None and f".target {arch}" in result.ptx
    assert not result.cached and result.seconds > 0
    mirror, spills = result.resources["mirror"], result.resources["spills"]
    assert mirror.static_shared == 512 and mirror.barriers == 1 and not mirror.spills and mirror.arch == arch
    assert 0 < mirror.registers < 32
    assert spills.spills and spills.stack >= spills.spill_stores > 0 and spills.registers <= 42


def test_no_ptx_unless_asked() -> None:
    assert compile_cubin(SOURCE, "sm_90a").ptx is None


def test_same_source_same_cubin() -> None:
    assert compile_cubin(SOURCE, "sm_90a").cubin == compile_cubin(SOURCE, "sm_90a").cubin


def test_options_reach_nvcc() -> None:
    source = 'extern "C" __global__ void f(double* a) { a[0] = a[1] * a[2] + a[3]; }'
    fused = compile_cubin(source, "sm_90a", want_ptx=True).ptx
    plain = compile_cubin(source, "sm_90a", want_ptx=True, options=("-fmad=false",)).ptx
    assert fused is not None and plain is not None
    assert "fma.rn.f64" in fused and "fma.rn.f64" not in plain


def test_nvcc_describes_itself() -> None:
    nvcc = find_nvcc()
    assert nvcc.version.startswith(nvcc.release) and 80 in nvcc.archs and 90 in nvcc.archs


@pytest.mark.skipif(find_tool("nvdisasm") is None and find_tool("cuobjdump") is None, reason="no disassembler")
def test_sass_is_counted() -> None:
    text = sass.disassemble(compile_cubin(SOURCE, "sm_90a").cubin)
    parts = sass.split_functions(text)
    assert set(parts) == {"mirror", "spills"}
    counts = sass.count_mnemonics(parts["mirror"])
    assert counts["BAR"] == 1 and counts["LDS"] == 1 and counts["STS"] == 1 and counts["DADD"] + counts["DMUL"] == 1
    assert sass.count_mnemonics(parts["mirror"], full=True)["LDS.64"] == 1

"""nvcc takes every op that the printer prints, and the exported file with its launcher, on machines without a GPU."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from sparsegen.backends.cuda.export import export_text
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin, find_nvcc
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Value
from sparsegen.ir.module import Launch, Module
from sparsegen.ir.types import Buffer, f16, f64, s32

needs_nvcc = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")


@pytest.fixture(scope="module")
def programs() -> ModuleType:
    file = Path(__file__).parent.parent / "cuda_print" / "programs.py"
    spec = importlib.util.spec_from_file_location("cuda_print_programs", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_nvcc
def test_every_op_compiles_in_one_unit(programs: ModuleType) -> None:
    module = programs.every_op()
    text = translation_unit(module, title="every op", notes=["one unit"])
    done = compile_cubin(text, "sm_90a", want_ptx=True)
    assert set(done.resources) == {f.symbol for f in module.funcs}
    assert done.ptx is not None
    for instruction in ("mma.sync.aligned.m16n8k16", "cp.async.bulk", "mbarrier.try_wait", "ldmatrix", "prmt.b32",
                        "ld.global.cg", "st.global.cs", "dp4a", "red.global", "atom.global", "bar.sync",
                        "ld.global.v2.f64", "st.shared.v2.f64", "cvt.rn.tf32", "shfl.sync.bfly"):  # fmt: skip
        assert instruction in done.ptx, instruction


@needs_nvcc
def test_nvcc_has_nothing_to_say(programs: ModuleType) -> None:
    text = translation_unit(Module("m", (programs.copies(), programs.products())), title="quiet")
    assert "warning" not in compile_cubin(text, "sm_90a").log


N = 512


def heat1d() -> Module:
    """Two launches a pass with a scratch array, a table in device memory, one by value, and a scalar."""

    def kernel(symbol: str, *params: Buffer | Value) -> tuple[Builder, dict[str, Value], tuple[Buffer | Value, ...]]:
        b = Builder()
        at = w.Func(symbol, (), (), (N // 128, 1, 1), 128, ()).builtins()
        b.reserve(*at, *(p.name for p in params))
        return b, at, params

    u, out = Buffer("u", f64, N, "global"), Buffer("out", f64, N, "global")
    table, by_value, n = Buffer("lut", s32, N, "global"), Buffer("w", f64, 3, "param"), Value("n", s32, 0, N)
    half = Buffer("scale", f16, 4, "global")
    b, at, params = kernel("gather", u, out, table)
    i = b.let("i", at["bx"] * 128 + at["tid"])
    b.st(out, i, b.ld(u, b.ld(table, i, lo=0, hi=N - 1)))
    gather = w.Func("gather", params, (), (N // 128, 1, 1), 128, b.ops())
    b, at, params = kernel("scale", u, out, by_value, n, half)
    i = b.let("i", at["bx"] * 128 + at["tid"])
    with b.if_(i.lt(n)):
        x = b.fma(b.ld(u, i), b.ld(by_value, 1), b.convert(b.ld(half, 2), f64))
        b.st(out, i, x)
    scale = w.Func("scale", params, (), (N // 128, 1, 1), 128, b.ops())
    constants = {"gather.lut": np.arange(N, dtype=np.int32)[::-1].copy(), "w": np.array([0.1, -0.5, np.inf]),
                 "n": np.array(N, dtype=np.int32), "half": np.array([1, 2, 0.1, np.nan], dtype=np.float16)}  # fmt: skip
    launches = (Launch("gather", ("in", "tmp", "gather.lut")), Launch("scale", ("tmp", "out", "w", "n", "half")))
    return Module("heat-1d", (gather, scale), launches, constants)


def test_the_exported_text() -> None:
    text = export_text(heat1d(), notes=["direct"])
    assert text == export_text(heat1d(), notes=["direct"])
    assert 'extern "C" int heat_1d_run(const double* in, double* out, void* workspace, int passes' in text
    assert "gather<<<dim3(4, 1, 1), 128, 0, stream>>>(from, reinterpret_cast<double*>(s_tmp), " in text
    assert "static_cast<int*>(p_c_gather_lut));" in text
    assert "(double)INFINITY" in text and "heat_1d_workspace_bytes" in text
    assert "return 4096ull + (passes > 1 ? 4096ull : 0ull);" in text


def test_what_cannot_be_exported_is_refused() -> None:
    good = heat1d()
    with pytest.raises(IRError, match="no launch with the role 'out'"):
        export_text(Module("m", good.funcs, good.launches[:1], good.constants))
    with pytest.raises(IRError, match="is bound to 'w', which is no constant"):
        export_text(Module("m", good.funcs, good.launches, {k: v for k, v in good.constants.items() if k != "w"}))
    with pytest.raises(IRError, match="constant 'w' is 2 x float64"):
        export_text(Module("m", good.funcs, good.launches, {**good.constants, "w": np.zeros(2)}))
    with pytest.raises(IRError, match="fits no function"):
        export_text(Module("m", good.funcs, (Launch("gather", ("in",)),)))


@needs_nvcc
def test_the_exported_file_stands_alone(tmp_path: Path) -> None:
    """Compiled by a plain nvcc, as a library and as a program; without a GPU the program says so and fails."""
    (tmp_path / "heat1d.cu").write_text(export_text(heat1d()))
    nvcc = str(find_nvcc().tool.path)
    arch = "-gencode=arch=compute_80,code=sm_80"
    for more in (["-c", "-o", "heat1d.o"], ["-DSPARSEGEN_MAIN", "-o", "heat1d"]):
        done = subprocess.run(
            [nvcc, "-std=c++17", arch, "heat1d.cu", *more], cwd=tmp_path, capture_output=True, text=True
        )
        if "cudart" in done.stderr and "-o heat1d" in " ".join(more):
            pytest.skip("this nvcc comes without the static run-time library")
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr
    if shutil.which("nvidia-smi") is None:
        run = subprocess.run([tmp_path / "heat1d", "3"], capture_output=True, text=True)
        assert run.returncode == 1 and "cuda" in run.stderr.lower()

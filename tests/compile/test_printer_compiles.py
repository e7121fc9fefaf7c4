"""nvcc takes every op that the printer prints, on machines without a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.ir.module import Module
from sparsegen.ir.swizzle import k_major
from tests.programs.warpgroups import Fed, Gemm, Ring

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
    for instruction in ("mma.sync.aligned.m16n8k16", "cp.async.bulk.shared", "cp.async.bulk.tensor.2d",
                        "mbarrier.try_wait", "ldmatrix", "prmt.b32", "ld.global.cg", "st.global.cs",
                        "dp4a", "red.global", "atom.global", "bar.sync", "ld.global.v2.f64", "st.shared.v2.f64",
                        "cvt.rna.tf32", "shfl.sync.bfly", "wgmma.mma_async"):  # fmt: skip
        assert instruction in done.ptx, instruction


@needs_nvcc
def test_nvcc_has_nothing_to_say(programs: ModuleType) -> None:
    text = translation_unit(Module("m", (programs.copies(), programs.products())), title="quiet")
    assert "warning" not in compile_cubin(text, "sm_90a").log


@needs_nvcc
@pytest.mark.parametrize(
    ("program", "registers"),
    [(Gemm(256, b=((128, 16, 1024), "k")), 168), (Ring(), 80), (Fed(64), 72), (Fed(256, b=(k_major(128), "k")), 168)],
    ids=["wide", "ring", "fed", "wide_fed"],
)
def test_sums_of_warpgroups_stay_in_registers(program: Gemm | Fed | Ring, registers: int) -> None:
    """128 or 32 of them, and what an address takes; nvcc does not make one product wait for the other."""
    done = compile_cubin(translation_unit(Module("m", (program.func(),)), title="sums"), "sm_90a")
    (used,) = done.resources.values()
    assert used.registers <= registers and used.stack == used.spill_stores == 0
    assert "serialized" not in done.log

"""nvcc takes the kernels of sums over GPUs, of any number of ranks, for every GPU that has them: no spills."""

from __future__ import annotations

import pytest

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.distributed.sums import module
from tests.nvcc_kit import needs_nvcc


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("ranks", "registers"), [(2, 32), (8, 64)])
def test_kernels_of_all_types(ranks: int, registers: int, arch: str) -> None:
    """64 blocks of 512 threads: their registers let each have a multiprocessor, or two of them one."""
    done = compile_cubin(
        translation_unit(module(ranks, ranks - 1, 1000), title="all-reduce", arch=arch), arch, want_ptx=True
    )
    assert {*done.resources} == {"all_reduce_f16", "all_reduce_bf16", "all_reduce_f32"}
    for use in done.resources.values():
        assert not max(use.spill_stores, use.spill_loads, use.stack) and use.registers <= registers
    assert done.ptx is not None and done.ptx.count(".relaxed.sys.global.b128") >= 3 * 2 * (ranks - 1)

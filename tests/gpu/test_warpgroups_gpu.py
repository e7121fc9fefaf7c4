"""Products of warpgroups against the hardware: how it reads descriptors, where it leaves sums, and a ring of tiles."""

from __future__ import annotations

import pytest

from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.ir.errors import ToolchainError
from sparsegen.target import open_gpu
from tests.programs import warpgroups
from tests.programs.run import on_gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", warpgroups.PROGRAMS)
def test_the_hardware_agrees(name: str, seed: int) -> None:
    try:
        find_nvcc()
    except ToolchainError as e:
        pytest.skip(str(e))
    gpu = open_gpu(0)
    if gpu.info().capability != (9, 0):
        pytest.skip(f"the {gpu.info().name} has no wgmma")
    case = warpgroups.PROGRAMS[name].case(seed)
    assert not case.wrong(on_gpu(case, runtime=gpu))
    assert not case.wrong(on_gpu(case, launches=20, runtime=gpu))

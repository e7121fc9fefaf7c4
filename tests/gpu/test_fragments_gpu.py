"""The fragment tables against the hardware: one mma of random matrices, loaded and stored by the tables."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.ir.errors import ToolchainError
from sparsegen.ir.fragments import SHAPES, SPARSE, shapes_of
from sparsegen.target import open_gpu
from tests.programs import fragments
from tests.programs.run import on_emulator, on_gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", (*SHAPES, *SPARSE))
def test_the_hardware_agrees(shape: str, seed: int) -> None:
    try:
        find_nvcc()
    except ToolchainError as e:
        pytest.skip(str(e))
    gpu = open_gpu(0).info()
    if shape in SHAPES and shape not in shapes_of(gpu.capability):
        pytest.skip(f"the {gpu.name} has no {shape}")
    case = fragments.case(shape, seed)
    there, here = on_gpu(case), on_emulator(case)
    assert not case.wrong(there)
    scale = float(np.max(np.abs(case.want["d"])))
    assert float(np.max(np.abs(there["d"].astype("f8") - here["d"]))) <= case.tolerance * scale

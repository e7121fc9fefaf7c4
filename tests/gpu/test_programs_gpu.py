"""The programs of tests/programs on a real GPU: the same results as on the emulator, launch after launch.

For compute-sanitizer: ``compute-sanitizer --tool racecheck python -m tests.programs.run heat2d_stream.odd``, and so on.
"""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.backends.cuda.runtime import Runtime, open_runtime
from sparsegen.ir.errors import ToolchainError
from sparsegen.target import launcher
from tests.programs import ring_reduce
from tests.programs.run import CASES, LARGE, on_emulator, on_gpu

pytestmark = pytest.mark.gpu
NAMES = [n for n in CASES if not n.startswith(("fragments.", "warpgroups.", "tensor_copies.", "dense."))]


@pytest.fixture(params=["pycuda", "driver"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    pytest.importorskip({"pycuda": "pycuda", "driver": "cuda.bindings"}[request.param])
    return gpu(request.param)


def gpu(kind: str | None = None) -> Runtime:
    """The first GPU, if it has what the programs need and there is an nvcc."""
    try:
        find_nvcc()
    except ToolchainError as e:
        pytest.skip(str(e))
    rt = open_runtime(0, kind or launcher())
    if rt.info().capability < (9, 0):
        pytest.skip(f"{rt.info().name} has no bulk copies: they need sm_90")
    return rt


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_right(name: str, seed: int, runtime: Runtime) -> None:
    case = CASES[name](seed)
    assert not case.wrong(on_gpu(case, runtime=runtime))
    assert not case.wrong(on_gpu(case, launches=20, runtime=runtime))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in LARGE])
def test_as_on_the_emulator(name: str) -> None:
    case = CASES[name](2)
    here, there = on_gpu(case, runtime=gpu()), on_emulator(case, seed=2)
    for out, want in case.want.items():
        error = np.max(np.abs(here[out].astype("f8") - there[out])) / max(float(np.max(np.abs(want))), 1e-300)
        assert error <= case.tolerance, out


@pytest.mark.parametrize("name", ["ragged", "large", "large_ragged"])
def test_the_same_bits_every_time(name: str) -> None:
    """Random reals: whichever block comes last, the sum is the same."""
    case = ring_reduce.real_case({**ring_reduce.SIZES, **ring_reduce.LARGE}[name])
    first = on_gpu(case, runtime=gpu())
    assert not case.wrong(first)
    for launches in (1, 1, 5, 50):
        assert np.array_equal(on_gpu(case, launches=launches, runtime=gpu())["y"], first["y"])

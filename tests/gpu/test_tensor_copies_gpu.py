"""Copies of boxes against the hardware: its swizzles, zeros outside, maps that follow their arrays, rows of x."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.graph import GraphLaunch, TimeGraph
from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.ir.errors import DeviceError, ToolchainError
from sparsegen.ir.module import Module
from sparsegen.target import open_gpu
from tests.programs import dense
from tests.programs.run import on_gpu
from tests.programs.tensor_copies import PROGRAMS

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpu(launcher: str) -> Runtime:
    """The GPU by each way to launch."""
    try:
        find_nvcc()
    except ToolchainError as e:
        pytest.skip(str(e))
    found = open_gpu(0)
    if found.info().capability < (9, 0):
        pytest.skip(f"the {found.info().name} copies no boxes")
    return found


CASES = {**{name: boxes.case for name, boxes in PROGRAMS.items()}, **dense.PROGRAMS}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_the_hardware_agrees(name: str, seed: int, gpu: Runtime) -> None:
    case = CASES[name](seed)
    assert not case.wrong(on_gpu(case, runtime=gpu))
    assert not case.wrong(on_gpu(case, launches=20, runtime=gpu))


def loaded(gpu: Runtime) -> tuple[list[Any], Any, Any, list[int], int]:
    """Three cases of one program, its function, its arguments, an array of each case, and one for results."""
    cases = [PROGRAMS["f16_128"].case(seed) for seed in range(3)]
    func = cases[0].func
    source = translation_unit(Module(func.symbol, (func,)), title=func.symbol)
    fn = gpu.function(gpu.load(compile_cached(source, gpu.info().arch).cubin), func.symbol, func.shared_bytes)
    places = [gpu.alloc(case.args["x"].nbytes) for case in cases]
    for place, case in zip(places, cases, strict=True):
        gpu.to_device(place, case.args["x"])
    args = PackedArgs([("ptr", 0), ("ptr", 0)], gpu.map_args(func))
    return cases, fn, args, places, gpu.alloc(cases[0].want["out"].nbytes)


def test_maps_follow_their_arrays(gpu: Runtime) -> None:
    """Calls that alternate between arrays, as launches and in a graph; a place that no map takes is refused."""
    cases, fn, args, places, out = loaded(gpu)
    func = cases[0].func
    start = gpu.prepare(fn, func.grid, (func.threads, 1, 1), func.shared_bytes, args)
    ways: list[Any] = [start]
    if gpu.name == "driver":
        node = GraphLaunch(fn, func.grid, (func.threads, 1, 1), func.shared_bytes, args.copy(), (0, 1))
        ways.append(TimeGraph(gpu, [node]).run)  # type: ignore[arg-type]
    for way in ways:
        for i in (0, 1, 0, 2, 2, 1):
            got = np.empty_like(cases[i].want["out"])
            gpu.zero(out, got.nbytes)
            way((places[i], out), None)
            gpu.to_host(got, out)
            assert np.array_equal(got, cases[i].want["out"])
    with pytest.raises(DeviceError, match="cuTensorMapEncodeTiled failed"):
        start((places[0] + 8, out))
    for pointer in (*places, out):
        gpu.free(pointer)

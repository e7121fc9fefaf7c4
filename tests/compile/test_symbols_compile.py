"""A kernel may have any name: those that C++ or CUDA's headers have already compile under another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.backends.cuda.ptx_ops import RESERVED
from sparsegen.ir.symbols import symbol
from tests.nvcc_kit import library, needs_nvcc, together

#: A keyword, functions of the C library, a variant, of CUDA, of the printer, a macro, a type, what PTX has, ``_``.
TAKEN = ("double", "random", "exp", "main", "div", "y0", "sinf", "time", "rsqrt", "cudaMalloc", "prmt", "NAN", "dim3",
         "WARP_SZ", "_heat", "__all")  # fmt: skip
FREE = ("heat", "A", "f", "l", "abs2", "j1d5pt", "exponent", "pack", "wave64", "main_step", "k_heat")
CROSS = np.array([[0, 0.1, 0], [0.2, 0.4, 0.1], [0, 0.2, 0]])


def stencil(name: str) -> sg.Stencil:
    return sg.Stencil.from_weights(CROSS, boundary=sg.neumann, name=name)


def update(name: str) -> sg.Update:
    def logistic(u: Any) -> Any:
        return u[0, 0] * (1 - u[0, 1])

    made = sg.stencil(name=name, dtype="f64")(logistic)
    assert isinstance(made, sg.Update)
    return made


def test_only_taken_names_change() -> None:
    assert [symbol(name) for name in FREE] == list(FREE)
    made = [symbol(name) for name in TAKEN]
    assert not set(made) & set(TAKEN) and len(set(made)) == len(TAKEN)


def test_what_the_printer_defines_is_taken() -> None:
    assert not {name for name in RESERVED if symbol(name) == name}


@needs_nvcc
def test_what_is_taken_is_refused_by_nvcc() -> None:
    """The list has no name that could be used as it is: each is an error in nvcc's front end, or to ptxas."""
    for name in ("double", "random", "y0", "rsqrt", "WARP_SZ"):
        with pytest.raises(sg.ToolchainError):
            compile_cubin(f'extern "C" __global__ void {name}(double* a) {{ *a = 1; }}\n', "sm_90a")


@needs_nvcc
@pytest.mark.parametrize("make", [stencil, update])
def test_every_name_compiles(make: Any) -> None:
    """In one unit, so no name is another's either."""
    sources = []
    for name in TAKEN:
        k = sg.compile(make(name), (64, 64), device="h200", backend="emulator", schedule="direct")
        assert [launch.kernel for launch in k.counts().launches] == [symbol(name)]
        sources.append(k.source())
    assert set(compile_cubin(together(sources), "sm_90a").resources) == {symbol(name) for name in TAKEN}


@needs_nvcc
@pytest.mark.parametrize("schedule", ["tiled fuse=2 tile=16x32", "stencil2row transform=explicit"])
def test_helper_kernels_follow(schedule: str) -> None:
    k = sg.compile(stencil("random"), (64, 64), 2, device="h200", backend="emulator", schedule=schedule)
    kernels = set(compile_cubin(k.source(), "sm_90a").resources)
    assert "random_kernel" in kernels and all(name.startswith("random_kernel") for name in kernels)


#: What the launcher's own text calls something.
LAUNCHER = ("in", "out", "workspace", "stream", "i", "s_level", "part_w", "in_w", "part_run", "e_", "uintptr")


@needs_nvcc
def test_launchers_call_kernels_of_any_name(tmp_path: Path) -> None:
    parts = []
    for i, name in enumerate(LAUNCHER):
        k = sg.compile(stencil(name), (64, 64), device="h200", backend="emulator", schedule="direct")
        parts.append(k.export(tmp_path / f"{name if i % 2 else 'part'}{i}.cu"))
    file = tmp_path / "all.cu"
    file.write_text(together(part.read_text() for part in parts))
    (tmp_path / "all.h").write_text("".join(part.with_suffix(".h").read_text() for part in parts))
    library(file, "sm_90a")


@needs_nvcc
@pytest.mark.parametrize("make", [stencil, update])
def test_exported_launchers_keep_the_name(make: Any, tmp_path: Path) -> None:
    k = sg.compile(make("random"), (64, 64), device="h200", backend="emulator", schedule="direct")
    file = k.export(tmp_path / "random.cu")
    library(file, "sm_90a")
    assert "int random_run(" in file.read_text()

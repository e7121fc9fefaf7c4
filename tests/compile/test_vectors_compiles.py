"""nvcc takes products of vectors for every GPU that has them: no spills, shared memory as the model counts
it, and registers that let as many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.ir.module import Module
from sparsegen.products.vectors import VectorNumbers
from sparsegen.products.vectors_cost import shape_of
from tests.nvcc_kit import library, needs_nvcc
from tests.schedules import device
from tests.vectors_kit import floats, kernel, quantized

#: Types of W and x, and the schedules that leave them the fewest registers on each GPU.
CASES = {
    "h200": [
        ("i8", "i8", 64, 8, 32, 2, 4), ("i8", "i8", 128, 66, 8, 2, 4), ("i8", "i4", 32, 8, 32, 2, 4),
        ("i4", "i4", 128, 8, 8, 4, 2), ("i16", "i8", 32, 8, 32, 2, 4), ("i16", "i16", 128, 8, 16, 4, 4),
        ("i16", "i4", 64, 8, 16, 2, 4), ("i4", "i8", 64, 264, 8, 4, 4), ("f16", "", 32, 8, 32, 2, 4),
        ("f16", "", 64, 8, 32, 1, 4), ("bf16", "", 128, 8, 16, 4, 4), ("bf16", "", 64, 132, 8, 4, 4),
    ],
    "a100": [
        ("i8", "i8", 32, 8, 32, 4, 4), ("i4", "i4", 64, 108, 8, 2, 4), ("i16", "i8", 64, 8, 16, 4, 4),
        ("f16", "", 64, 8, 32, 1, 4), ("f16", "", 32, 108, 8, 4, 4),
    ],
    "rtx4090": [
        ("i8", "i8", 32, 128, 8, 2, 4), ("i16", "i16", 32, 8, 16, 4, 1), ("bf16", "", 32, 8, 32, 2, 4),
        ("f16", "", 128, 8, 8, 2, 4),
    ],
}  # fmt: skip
LINE = "vector_strip wide={} lists={} warps={} unroll={} parts={}"
#: Every other one with all that an epilogue may do.
EPILOGUE: dict[str, Any] = {"scale": True, "bias": True, "residual": True, "activation": "gelu"}


@needs_nvcc
@pytest.mark.parametrize("name", CASES)
def test_sums_stay_in_registers(name: str) -> None:
    profile, funcs, shapes = device(name), [], []
    for i, (kind, x_kind, *words) in enumerate(CASES[name]):
        how = EPILOGUE if i % 2 else {}
        if x_kind:
            types = {"x_dtype": x_kind, **({"y_dtype": "f16"} if i % 2 else {})}
            product = sg.spmm(quantized((4096, 256), kind, kept=1.0), n=256, **types, **how)
        else:
            product = sg.spmm(floats((4096, 256), kind, kept=1.0), n=256, **how)
        k = kernel(product, LINE.format(*words), profile)
        (func,) = k._plan(0).main.warp.funcs
        funcs.append(dataclasses.replace(func, symbol=f"k{i}"))
        shapes.append(shape_of(VectorNumbers.of(product), k.schedule, profile))
    done = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title="sums"), profile.arch)
    for func, g in zip(funcs, shapes, strict=True):
        use = done.resources[func.symbol]
        print(func.symbol, use.registers, g)
        assert not max(use.spill_stores, use.spill_loads, use.stack) and use.static_shared == 0, func.symbol
        assert func.shared_bytes == g.shared and func.min_blocks == g.resident, func.symbol
        assert use.registers * func.threads * g.resident <= profile.regs_sm, func.symbol


@needs_nvcc
def test_a_file_that_turns_x(tmp_path: object) -> None:
    """Its header has the types of all arrays."""
    product = sg.spmm(quantized((96, 100), "i16"), n=33, y_dtype="f16", scale=True)
    k = kernel(product, device="a100")
    library(k.export(f"{tmp_path}/vectors.cu"), "sm_80")


@needs_nvcc
@pytest.mark.parametrize("name", CASES)
def test_rings_of_floats(name: str) -> None:
    profile, funcs = device(name), []
    for i, (kind, wide) in enumerate((("f16", 32), ("bf16", 64), ("f16", 128))):
        product = sg.spmm(floats((512, 256), kind, kept=1.0), n=256, **(EPILOGUE if i % 2 else {}))
        k = kernel(product, f"vector_gather wide={wide} warps=1x4 stages=4", profile)
        (func,) = k._plan(0).main.warp.funcs
        funcs.append(dataclasses.replace(func, symbol=f"k{i}"))
    done = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title="rings"), profile.arch)
    for func in funcs:
        use = done.resources[func.symbol]
        assert not max(use.spill_stores, use.spill_loads, use.stack), func.symbol

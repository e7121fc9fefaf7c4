"""nvcc takes sampled products for every GPU that has them: no spills, and shared memory as the model counts it."""

from __future__ import annotations

import dataclasses

import pytest

import sparsegen as sg
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.ir.module import Module
from tests.nvcc_kit import library, needs_nvcc
from tests.schedules import device
from tests.sddmm_kit import mask

#: dtype, k, height, and the words' values: the widest of each GPU.
CASES = {
    "h200": [
        ("i8", 512, 8, 256, 16, 8, "on"), ("i8", 1024, 4, 128, 12, 4, "off"), ("i16", 512, 8, 128, 12, 4, "on"),
        ("i4", 1024, 2, 64, 8, 4, "on"), ("i8", 512, 8, 8, 4, 3), ("i16", 512, 4, 5, 4, 2),
    ],
    "a100": [("i8", 512, 8, 128, 16, 6, "on"), ("i16", 512, 8, 64, 8, 3, "on"), ("i4", 512, 8, 5, 2, 3)],
    "rtx4090": [("i4", 512, 8, 128, 8, 6, "on"), ("i8", 64, 8, 256, 8, 8, "on")],
}  # fmt: skip
LINES = {4: "strips rows={} warps={} groups={} prefetch={}", 3: "gather warps={} most={} stages={}"}


@needs_nvcc
@pytest.mark.parametrize("name", CASES)
def test_rows_of_a_stay_in_registers(name: str) -> None:
    profile, funcs, shapes = device(name), [], []
    for i, (dtype, k, height, *words) in enumerate(CASES[name]):
        out = ("bcrs", "sr_bcrs")[i % 2]
        product = sg.sddmm(mask(512, 1024, height, 0.9), k=k, dtype=dtype, height=height, out=out)
        kernel = sg.compile(product, device=profile, backend="emulator", schedule=LINES[len(words)].format(*words))
        funcs += [dataclasses.replace(f, symbol=f"k{i}") for f in kernel._plan(0).main.warp.funcs]
        rules = kernel.schedule.rules
        shapes.append(rules.shape(kernel.problem.facts, kernel.schedule, profile))
    done = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title="sums"), profile.arch)
    for func, g in zip(funcs, shapes, strict=True):
        use = done.resources[func.symbol]
        print(func.symbol, use.registers, g)
        assert not max(use.spill_stores, use.spill_loads, use.stack) and use.static_shared == 0, func.symbol
        assert func.shared_bytes <= g.shared and func.min_blocks == g.resident, func.symbol
        assert use.registers * func.threads * g.resident <= profile.regs_sm, func.symbol


@needs_nvcc
def test_a_file_that_turns_a_and_b(tmp_path: object) -> None:
    """Its header has the types of all arrays."""
    product = sg.sddmm(mask(96, 100, 8, 0.7), k=50, dtype="i16", out="sr_bcrs")
    kernel = sg.compile(product, device="a100", backend="emulator")
    library(kernel.export(f"{tmp_path}/sampled.cu"), "sm_80")

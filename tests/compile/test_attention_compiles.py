"""nvcc takes sparse attention for every GPU that has it: no spills, shared memory as the model counts it, and registers
that let as many blocks share an SM as it says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.ir.module import Module
from sparsegen.products.attention import AttentionNumbers
from sparsegen.schedule import AttentionSchedule
from tests.attention_kit import program
from tests.nvcc_kit import needs_nvcc
from tests.schedules import device

#: Elements of a head, rows of a vector, bits of the exponentials, and the words of a schedule, of each GPU.
LINES = {
    "h200": [
        (64, 8, 8, "fused parts=4 groups=8 warps=24 keys=32"), (64, 8, 8, "fused parts=4 groups=8 warps=16 keys=64"),
        (64, 8, 8, "fused parts=4 groups=8 warps=8 keys=128"), (64, 4, 16, "fused parts=4 groups=8 warps=16 keys=64"),
        (128, 8, 8, "fused parts=8 groups=4 warps=16 keys=32"), (32, 8, 8, "fused parts=4 groups=8 warps=16 keys=64"),
        (64, 8, 8, "unfused most=4 stages=4 wide=32"), (128, 4, 16, "unfused most=16 stages=2 wide=64"),
    ],
    "a100": [
        (64, 8, 8, "fused parts=4 groups=8 warps=16 keys=64"), (128, 8, 8, "fused parts=8 groups=4 warps=8 keys=64"),
        (128, 2, 16, "unfused most=8 stages=3 wide=128"),
    ],
    "rtx4090": [(64, 2, 8, "fused parts=8 groups=4 warps=16 keys=64")],
}  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("name", LINES)
def test_what_a_task_holds_stays_in_registers(name: str) -> None:
    profile, funcs, shapes = device(name), [], []
    kept = np.tile(np.arange(64) % 3 == 0, (4096, 64))
    for i, (d, height, bits, words) in enumerate(LINES[name]):
        seen = sg.sparse(kept.astype(np.int8), format="sr_bcrs", height=height)
        what = sg.attention(seen, heads=4, d=d, softmax_bits=bits, quantized=i > 0)
        schedule, facts = AttentionSchedule.parse(words), AttentionNumbers.of(what)
        made, g = program(what, words, profile), schedule.rules.shape(facts, schedule, profile)
        funcs += [dataclasses.replace(f, symbol=f"k{i}_{n}") for n, f in enumerate(made.warp.funcs)]
        shapes += [*([] if i else [None, None]), *([g, None] if schedule.family == "fused" else [g.scores, None, None])]
    done = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title="attention"), profile.arch)
    for func, g in zip(funcs, shapes, strict=True):
        use = done.resources[func.symbol]
        print(func.symbol, use.registers, g)
        assert not max(use.spill_stores, use.spill_loads, use.stack) and use.static_shared == 0, func.symbol
        if g is not None:
            assert func.shared_bytes <= g.shared and func.min_blocks == g.resident, func.symbol
            assert use.registers * func.threads * g.resident <= profile.regs_sm, func.symbol

"""Counts of sparse attention are those of whole runs."""

from __future__ import annotations

import random

import pytest

import sparsegen as sg
from sparsegen.ir.errors import ScheduleError
from sparsegen.problems.attention import AttentionProblem
from sparsegen.products.weights import host_arrays
from sparsegen.schedule import AttentionSchedule
from tests.attention_kit import mask, program
from tests.counts.kit import wrong


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", ["fused", "unfused"])
def test_counts_are_those_of_a_whole_run(family: str, seed: int) -> None:
    draw = random.Random(seed)
    while True:
        kept = mask(draw.randint(1, 150), draw.randint(1, 200), draw.choice((2, 4, 8)), draw.choice((0.05, 0.5)), seed)
        what = sg.attention(kept, heads=2, d=draw.choice((32, 64, 128)), quantized=True)
        line = f"fused parts={draw.choice((1, 2))} groups=2 warps=2 keys={draw.choice((32, 64, 128))}"
        if family == "unfused":
            line = f"unfused most={draw.choice((1, 4))} stages={draw.choice((2, 3))} wide={draw.choice((32, 64))}"
        schedule, problem = AttentionSchedule.parse(line), AttentionProblem(what)
        try:
            made = program(what, line)
            break
        except ScheduleError:
            continue
    assert wrong(made, host_arrays(what.pattern, schedule.rules.lists(problem.facts, schedule))) == []

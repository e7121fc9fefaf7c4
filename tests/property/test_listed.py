"""Every schedule that is listed runs: random ones of random work of every kind are lowered, called, checked, counted.

The draws are the fuzzer's, with fixed seeds: ``python -m tests.fuzz --only products`` goes on with others.
"""

from __future__ import annotations

import math
import random
from unittest import mock

import pytest

import sparsegen as sg
from tests import nm_kit
from tests.csr_kit import ragged
from tests.fuzz import calls, kernels
from tests.fuzz.__main__ import KINDS
from tests.products_kit import matrix

#: Trials of each kind, a second or two of each.
TRIALS = {"stencils": 6, "updates": 8, "products": 9}


@pytest.mark.parametrize("kind", TRIALS)
def test_what_is_listed_runs(kind: str) -> None:
    with mock.patch.multiple(kernels, EXAMINED=0.5, PRINTED=1 << 30):
        for number in range(TRIALS[kind]):
            KINDS[kind][0](random.Random(f"listed {kind} {number}"))


def test_calls_with_junk_are_refused() -> None:
    """A wrong thing in one place or two of a call of the public API, or of the command line."""
    for number in range(250):
        calls.api(random.Random(f"junk {number}"))


WORK = {
    "bitmap": (lambda: matrix(200, 1000, 0.5), 8),
    "vector": (lambda: matrix(70, 3000, 0.6), 1),
    "wide": (lambda: matrix(600, 512, 0.6), 64),
    "csr": (lambda: sg.sparse(ragged(90, 400, 8.0), format="csr", dtype="f16"), 16),
    "nm": (lambda: nm_kit.matrix(90, 400, 8, 32), 4),
}


@pytest.mark.parametrize("work", WORK)
def test_the_largest_blocks_and_deepest_rings_run(work: str) -> None:
    """Of the listed ones those with the most warps, the most stages, and the most of both."""
    made, n = WORK[work]
    product = sg.spmm(made(), n=n)
    listed = [c.schedule for c in sg.schedules(product, device="h200") if c.schedule.family != "dense"]
    given = {s: s.values.get("warps", 1) for s in listed}
    warps = {s: math.prod(w) if isinstance(w, tuple) else w for s, w in given.items()}
    stages = {s: s.stages or 1 for s in listed}
    for schedule in {max(listed, key=measure) for measure in (
        lambda s: (warps[s], stages[s]), lambda s: (stages[s], warps[s]), lambda s: warps[s] * (1 + stages[s]),
    )}:  # fmt: skip
        kernel = sg.compile(product, device="h200", backend="emulator", schedule=schedule)
        kernel(**kernel.random(0))
        assert kernel.check().ok
        kernel.counts()

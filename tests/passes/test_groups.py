"""Products of warpgroups that only bulk copies feed: right for sizes that fill no tile, and no op too many."""

from __future__ import annotations

import pytest

from sparsegen.ir import warp as w
from sparsegen.ir.node import walk
from sparsegen.ir.verify import verify
from tests.programs.dense import PROGRAMS, case
from tests.programs.mutants import deletions, symptoms, weaker
from tests.programs.run import on_emulator


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_dense_product(name: str, seed: int) -> None:
    """What lies outside of x counts as zeros."""
    c = PROGRAMS[name](seed=seed)
    verify(c.func)
    assert not c.wrong(on_emulator(c, seed=seed))


@pytest.mark.parametrize("order", ["row", "column"])
def test_nothing_can_be_left_out(order: str) -> None:
    """One thread arrives twice, with bytes; no fence between proxies: products read nothing of the generic one."""
    c = case(100, 200, 40, 64, order, blocks=1)
    assert not [op for op in walk(c.func.body) if isinstance(op, w.Fence) and op.scope == "async"]
    (first, *_) = (op for op in walk(c.func.body) if isinstance(op, w.MbarInit))
    assert first.count == 2
    for name, func in (*deletions(c.func), *weaker(c.func)):
        assert symptoms(c, func, seeds=(0, 1)), name

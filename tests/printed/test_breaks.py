"""A printer that prints one op wrongly is found: by a unit whose text then means something else than the emulator does.

A few are tried here; ``python -m tests.printed.score`` tries all of ``breaks.txt``.
"""

from __future__ import annotations

import pytest

from sparsegen.backends.cuda.ptx_ops import all_helpers
from sparsegen.ir import warp as w
from sparsegen.ir.node import OPS
from sparsegen.ir.warp_launch import LaunchNext, LaunchWait
from tests.printed.mutants import BREAKS, Break
from tests.printed.program import needs_compiler
from tests.printed.score import found

pytestmark = needs_compiler
#: What only orders memory that fibers see in order anyway: golden lines have their text.
ORDER_ONLY = {"fence_async", "fence_mbar_init", "mbar_arrive", "launch_next", "launch_wait"}
#: Every third op and instruction: a second each.
TRIED = list({b.where: b for b in reversed(BREAKS)}.values())[::3]


@pytest.mark.parametrize("broken", TRIED, ids=lambda b: b.name)
def test_a_break_is_found(broken: Break) -> None:
    assert found(broken)


def test_every_op_is_broken() -> None:
    broken = {b.where for b in BREAKS}
    assert {op for name, op in OPS.items() if name.startswith("warp.")} <= broken | {w.Func, LaunchNext, LaunchWait}
    assert {h.name for h in all_helpers()} <= broken | ORDER_ONLY

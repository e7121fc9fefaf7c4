"""Suite ``regret`` on a real GPU: a few problems of each part; how well the model does there is not judged."""

from __future__ import annotations

import pytest

from sparsegen.bench import regret_run
from sparsegen.bench.regret import CHOSEN, PARTS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("part", PARTS)
def test_every_point_of_two_problems_is_right(part: str) -> None:
    if part != "stencils":
        pytest.importorskip("torch")
    points = regret_run.run([part], 11, 0.002, problems=2)
    assert all(p.ok and not p.failed for p in points), [p for p in points if not p.ok]
    assert [p.picked for p in points].count(CHOSEN) == 2 and len(points) > (20 if part == "stencils" else 10)
    for p in points:
        assert p.measured_s and p.p10 and p.p90 and 1e-6 < p.p10 <= p.measured_s <= p.p90 and p.repeats >= 6
        assert p.regs or p.schedule == "dense"

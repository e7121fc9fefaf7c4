"""No step of a reshape changes a printed program: random problems and schedules of all families, line for line.

A change that is wanted is a commit of its own: ``python -m tests.freeze.draw --keep`` freezes the texts anew, and
the commit says what the change does to speed.
"""

from __future__ import annotations

from difflib import unified_diff
from itertools import islice

import pytest

from tests.freeze.problems import Case, frozen, text

CASES = frozen()
#: Lines of a difference that are shown.
SHOWN = 60


def name(case: Case) -> str:
    """A case in a line."""
    size = "x".join(map(str, case["shape"]))
    return f"{case['kind']} {size} {case['dtype']} on {case['device']}: {case['schedule']}"


@pytest.mark.parametrize(("case", "printed"), CASES, ids=[f"{i}-{name(case)}" for i, (case, _) in enumerate(CASES)])
def test_the_printed_programs_are_as_they_were(case: Case, printed: str) -> None:
    now = text(case)
    if now != printed:
        lines = unified_diff(printed.splitlines(), now.splitlines(), "frozen", "now", lineterm="", n=2)
        pytest.fail(f"{name(case)}\n{case}\n" + "\n".join(islice(lines, SHOWN)), pytrace=False)


def test_every_kind_of_work_and_every_family_is_frozen() -> None:
    assert len(CASES) >= 300
    assert {case["schedule"].split()[0] for case, _ in CASES} == {
        "direct", "tiled", "stream", "patches", "column", "toeplitz", "lowrank", "stencil2row", "bitmap",
        "csr", "csr_strip", "nm_lanes", "nm_gather", "nm_decode", "nm_outer", "nm_24", "nm_strips",
        "nm_windows", "strips", "gather", "fused", "vector_strip", "vector_gather", "vector_block",
        "hybrid", "blocked_ell", "unfused", "smbd", "bitmap_block", "layers", "march", "slab",
    }  # fmt: skip
    assert {case["kind"] for case, _ in CASES} == {"stencil", "update", "spmm", "sddmm", "attention"}
    assert {case["schedule"].split()[0] for case, _ in CASES if case["kind"] == "update"} == {"direct", "stream"}

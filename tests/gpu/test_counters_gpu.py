"""The emulator's counts against the hardware's, kernel by kernel; see docs/counters.md for what need not be equal."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.gpu import counters

pytestmark = pytest.mark.gpu


@functools.cache
def found() -> dict[str, Any] | str:
    """All kernels under ncu, once; or why there are none."""
    try:
        return counters.measure()
    except counters.CountersError as e:
        return str(e)


def rows(name: str) -> dict[str, dict[str, Any]]:
    """The lines of a case by quantity (of its last launch); skips where ncu may not read counters."""
    result = found()
    if isinstance(result, str):
        if "not on PATH" in result or "ERR_NVGPUCTRPERM" in result or "Failed to initialize the profiler" in result:
            pytest.skip(result)
        pytest.fail(result)
    if name in result["skipped"]:
        pytest.skip(result["skipped"][name])
    return {row["quantity"]: row for k in result["kernels"] if k["name"] == name for row in k["rows"]}


@pytest.mark.parametrize("name", counters.CASES)
def test_what_must_agree_does(name: str) -> None:
    lines = rows(name)
    assert [f"{q}: {r['expected']} and {r['hardware']}" for q, r in lines.items() if r["ok"] is False] == []
    unmeasured = [q for q, r in lines.items() if r["tolerance"] is not None and r["hardware"] is None]
    assert not unmeasured, "ncu gave no value"


@pytest.mark.parametrize("name", [n for n in counters.CASES if n.startswith("s2r-m") or n in ("s2r-lut", "s2r-ring")])
def test_every_mma_is_one_instruction(name: str) -> None:
    line = rows(name)["mma"]
    assert line["hardware"] == line["emulator"] > 0

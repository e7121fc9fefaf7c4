"""Waits of a GPU that nothing ends: a process that watches them ends with a message, and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Events are over at moments of a clock, as those of a stream are; ``PATIENCE`` is half a second.
SCRIPT = """
import sys, time
from sparsegen.distributed import group
from sparsegen.distributed.watch import Watch

group.PATIENCE = 0.5
START = time.monotonic()


class Event:
    def __init__(self, at):
        self.at = at

    def query(self):
        return time.monotonic() - START > self.at


watch = Watch(1, 4)
for words in sys.argv[1:]:
    reached, over = map(float, words.split(","))
    watch.add(Event(reached), Event(over))
time.sleep(4)
print("there")
"""


def _run(*waits: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *waits], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("waits", [["0,inf"], ["0,0.2", "0.3,inf"]], ids=["the first", "a later one"])
def test_a_wait_without_end_ends_the_process(waits: list[str]) -> None:
    done = _run(*waits)
    assert done.returncode == 1 and "there" not in done.stdout
    assert "rank 1 of 4 lost another one" in done.stderr and "nothing came within 0.5 s" in done.stderr


@pytest.mark.parametrize("waits", [["3,3.2"], ["0,0.3", "0.3,0.6", "0.6,0.9"], []], ids=["late", "short", "none"])
def test_a_stream_that_is_busy_is_waited_for(waits: list[str]) -> None:
    """What counts is how long a wait takes, not how late it begins."""
    assert _run(*waits).stdout == "there\n"

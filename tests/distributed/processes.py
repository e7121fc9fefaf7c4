"""Ranks that are processes of their own, and what they print."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@contextmanager
def started(
    folder: Path, ranks: int, what: str = "", script: str = "worker.py"
) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of a test, which are ended with it; ``script``: in this folder, or a path."""
    start = [sys.executable, str(HERE / script), str(folder)]
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "stdin": subprocess.PIPE,
        "text": True,
    }
    found = [subprocess.Popen([*start, str(rank), str(ranks), what], **pipes) for rank in range(ranks)]
    try:
        yield found
    finally:
        for process in found:
            process.kill()
            process.wait()


def said(process: subprocess.Popen[str], seconds: float = 60.0) -> str:
    """What a process prints until it ends."""
    return process.communicate(timeout=seconds)[0]

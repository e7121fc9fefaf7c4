"""What tests of examples share: an example is started as a user starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(folder: Path, name: str, *words: str) -> str:
    """What an example prints when it is started in ``folder``; it must succeed."""
    command = [sys.executable, str(EXAMPLES / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def drawn(folder: Path, said: str) -> bool:
    """Whether the picture is there where matplotlib is, and else the line that says what to install."""
    file = folder / "picture.png"
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "needs matplotlib" in said and not file.exists()
    return f"wrote {file}" in said and file.read_bytes()[1:4] == b"PNG"

"""Puts this folder and ``tests/mutation`` on the search path: tests here import ``emulator_kit`` and ``harness``."""

from __future__ import annotations

import sys
from pathlib import Path

for _folder in (Path(__file__).parent, Path(__file__).parent.parent / "mutation"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

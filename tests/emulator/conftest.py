"""Puts this folder on the search path, so that its tests can import ``emulator_kit``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

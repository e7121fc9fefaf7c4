"""The published score of the printer is that of the breaks there are."""

from __future__ import annotations

import json
from pathlib import Path

from tests.printed.mutants import BREAKS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_score() -> None:
    score = json.loads((DOCS / "printer.json").read_text())
    assert score["breaks"] == len(BREAKS)  # python -m tests.printed.score --out docs/printer.json
    assert score["found"] == score["breaks"] - len(score["survivors"]) >= 0.95 * score["breaks"]
    assert f"{score['found']} of {score['breaks']} breaks are found" in (DOCS / "walkthrough.md").read_text()

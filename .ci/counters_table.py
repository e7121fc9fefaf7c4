"""Fills the tables of docs/counters.md from docs/counters.json.xz; ``--check`` only says whether they are current.

The JSON is what ``python -m tests.gpu.counters --out FILE`` writes on a machine with a GPU and ncu.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sparsegen.bench import packed  # noqa: E402

SOURCE = ROOT / "docs" / "counters.json.xz"
TARGET = ROOT / "docs" / "counters.md"
MARK = re.compile(r"(<!-- counters:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
#: Heading -> the quantity of tests/gpu/counters.py.
COLUMNS = {
    "mma": "mma",
    "load sectors": "global loads: sectors",
    "copy sectors": "copies: sectors",
    "store sectors": "global stores: sectors",
    "shared loads": "shared loads: wavefronts",
    "shared stores": "shared stores: wavefronts",
}


def number(x: float) -> str:
    """With thousands marked; no decimals where there are none."""
    return f"{x:,.0f}" if x == int(x) else f"{x:,.2f}"


def cell(row: dict[str, Any] | None) -> str:
    """One number where emulator and hardware agree, else both; a dash where there is nothing to count."""
    if row is None:
        return "–"
    if row["hardware"] is None or row["hardware"] == row["expected"]:
        return number(row["expected"]) + (" (not measured)" if row["hardware"] is None else "")
    return f"{number(row['expected'])} → {number(row['hardware'])}"


def markdown(head: list[str], body: list[list[str]], texts: int) -> list[str]:
    """A table whose first ``texts`` columns are text."""
    rule = ["---" if i < texts or name == "why" else "---:" for i, name in enumerate(head)]
    return [f"| {' | '.join(line)} |" for line in (head, rule, *body)]


def agreement(found: dict[str, Any]) -> list[str]:
    """A line a kernel: the quantities that a test holds."""
    body = []
    for k in found["kernels"]:
        rows = {row["quantity"]: row for row in k["rows"]}
        size = "×".join(map(str, k["shape"]))
        body.append([k["name"], f"`{k['schedule']}`", size, *(cell(rows.get(q)) for q in COLUMNS.values())])
    commit = f"commit {found['commit'][:10]}" if found["commit"] else f"sources {found['sources']}"
    changed = ", with uncommitted changes" if found["dirty"] else ""
    made = (
        f"*{found['device']}, driver {found['driver']}, nvcc {found['nvcc']}, ncu {found['ncu']}; {commit}{changed}; "
    )
    return [*markdown(["kernel", "schedule", "size", *COLUMNS], body, 3), "", f"{made}{found['date']}.*"]


def differences(found: dict[str, Any]) -> list[str]:
    """Every line of which the two sides are not equal."""
    body = [
        [k["name"], row["quantity"], number(row["expected"]), number(row["hardware"]),
         "–" if row["ratio"] is None else f"{row['ratio']:.4f}", row["remark"] or "–"]
        for k in found["kernels"] for row in k["rows"]
        if row["hardware"] is not None and row["hardware"] != row["expected"]
    ]  # fmt: skip
    if not body:
        return ["None."]
    return markdown(["kernel", "quantity", "emulator", "hardware", "ratio", "why"], body, 2)


def render(document: str) -> str:
    """The document with both tables made anew."""
    views = {"agreement": agreement, "differences": differences}
    found = json.loads(packed.read(SOURCE)) if SOURCE.is_file() else None

    def table(match: re.Match[str]) -> str:
        lines = ["*Not measured yet.*"] if found is None else views[match[2]](found)
        return "\n".join([f"{match[1]}{lines[0]}", *lines[1:], match[3]])

    return MARK.sub(table, document)


def main() -> int:
    old = TARGET.read_text(encoding="utf-8")
    new = render(old)
    if "--check" in sys.argv[1:]:
        print(f"docs/counters.md is {'current' if new == old else 'old: run python .ci/counters_table.py'}")
        return 0 if new == old else 1
    TARGET.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

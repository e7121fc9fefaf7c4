"""Make the tables of README.md and docs/*.md anew from docs/bench/*.json; ``--check`` only says whether they are."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sparsegen.bench.report import render  # noqa: E402


def documents() -> list[Path]:
    """The documents that may hold tables."""
    return [file for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))) if file.is_file()]


def main() -> int:
    """Write what changed; with ``--check`` name it and exit with 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a table is not current")
    check = parser.parse_args().check
    stale = []
    for file in documents():
        old = file.read_text(encoding="utf-8")
        new = render(old, ROOT / "docs" / "bench")
        if new != old:
            stale.append(file)
            if not check:
                file.write_text(new, encoding="utf-8")
    for file in stale:
        print(f"{file.relative_to(ROOT)}: {'not current; run .ci/render_tables.py' if check else 'tables made anew'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

"""Make the tables of README.md and docs/*.md anew from docs/bench/*.json, and the pictures beside these files.

``--check`` only says whether they are current.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sparsegen.bench import compression, gains, scatter, summary  # noqa: E402
from sparsegen.bench.picture import svg  # noqa: E402
from sparsegen.bench.report import load, pictures, render, results, summed_up  # noqa: E402

RESULTS = ROOT / "docs" / "bench"


def documents() -> list[Path]:
    """The documents that may hold tables."""
    return [file for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))) if file.is_file()]


def made() -> dict[Path, str]:
    """What every document and picture should be."""
    texts = {file: render(file.read_text(encoding="utf-8"), RESULTS, file.parent) for file in documents()}
    measured = {RESULTS / f"{name}.svg": load(file) for name, file in results(RESULTS).items()}
    drawn = {file: svg(found) for file, found in measured.items() if "sweep" in found.get("parts", {})}
    drawn |= {file: scatter.svg(found) for file, found in measured.items() if found["suite"] == "regret"}
    drawn |= {RESULTS / name: gains.svg(found, kind) for found in measured.values() if found["suite"] == "unstructured"
              for kind, name in pictures(found).items()}  # fmt: skip
    drawn[RESULTS / summary.PICTURE] = summary.svg(summed_up(RESULTS))
    return texts | drawn | {RESULTS / "compression.svg": compression.svg()}


def main() -> int:
    """Write what changed; with ``--check`` name it and exit with 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if one is not current")
    check = parser.parse_args().check
    stale = []
    for file, new in made().items():
        if not file.is_file() or file.read_text(encoding="utf-8") != new:
            stale.append(file)
            if not check:
                file.write_text(new, encoding="utf-8")
    for file in stale:
        print(f"{file.relative_to(ROOT)}: {'not current; run .ci/render_tables.py' if check else 'made anew'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

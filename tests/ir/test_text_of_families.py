"""``parse(print(p)) == p`` for op, tile and warp level of every family, in a process that has made none of them."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from tests.freeze.problems import Case, frozen, programs

ROOT = Path(__file__).resolve().parents[2]
#: Cases of each kind, family and number of axes.
CASES = 3
AGAIN = """\
import sys
from pathlib import Path
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.ir.verify import verify
for file in sorted(Path(sys.argv[1]).glob("*.sgir")):
    module = parse_module(file.read_text(encoding="utf-8"), file=str(file))
    assert print_module(module) == file.read_text(encoding="utf-8"), file
    verify(module)
    print(file.name)
"""


def few() -> list[Case]:
    """The first cases of each kind, family and number of axes."""
    found: dict[tuple[str, str, int], list[Case]] = defaultdict(list)
    for case, _ in frozen():
        found[case["kind"], case["schedule"].split()[0], len(case["shape"])].append(case)
    return [case for cases in found.values() for case in cases[:CASES]]


def test_every_level_of_every_family(tmp_path: Path) -> None:
    for i, case in enumerate(few()):
        for j, program in enumerate(programs(case)):
            for level in ("op", "tile", "warp"):
                module = getattr(program, level)
                text = print_module(module)
                assert parse_module(text) == module, (case, level)
                (tmp_path / f"{i:03d}-{j}-{level}.sgir").write_text(text, encoding="utf-8")
    written = sorted(file.name for file in tmp_path.iterdir())
    assert len(written) >= 3 * len(few()) > 100
    done = subprocess.run([sys.executable, "-c", AGAIN, str(tmp_path)], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == written

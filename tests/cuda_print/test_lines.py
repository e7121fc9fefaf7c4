"""One golden line of each op, and the instruction of each device function: what a reader of the CUDA sees.

``python -m tests.cuda_print.test_lines`` writes ``lines.txt`` anew.
"""

from __future__ import annotations

import re
from pathlib import Path

from sparsegen.backends.cuda.ptx_ops import all_helpers
from sparsegen.ir.node import OPS
from tests.cuda_print import programs
from tests.cuda_print.test_printer import recorded

FILE = Path(__file__).parent / "lines.txt"


def lines() -> list[str]:
    """The first line that each op prints somewhere in the programs, then the instructions."""
    first: dict[str, str] = {}
    for make in programs.PROGRAMS.values():
        for op, printed in recorded(make()):
            first.setdefault(type(op).__name__, printed[0].strip())
    ops = [f"{name}: {first[name]}" for name in sorted(first)]
    return [
        *ops,
        *(f"{h.name}: {(re.findall(r'asm.*', h.text) or h.text.splitlines()[1:])[0].strip()}" for h in all_helpers()),
    ]


def test_what_is_printed() -> None:
    wanted = FILE.read_text().splitlines()
    assert lines() == wanted
    assert len(wanted) == len(all_helpers()) + sum(name.startswith("warp.") for name in OPS) - 1


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n")

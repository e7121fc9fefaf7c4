"""The mutation score of the CUDA printer: ``python -m tests.printed.score`` breaks it in every way of the tables.

Prints what was not found, and the score; ``--out FILE`` writes it as JSON.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path
from typing import Any

from sparsegen.ir.module import Module
from tests.printed import units
from tests.printed.compare import Array, differences, on_emulator, printed
from tests.printed.mutants import BREAKS, Break
from tests.printed.program import Fault


@cache
def _right(name: str) -> tuple[Module, str, dict[str, Array], dict[str, Array]]:
    """A unit, its text, its arrays, and what the emulator makes of them."""
    module = units.unit(name)
    arrays = units.arrays(module)
    return module, units.text(module), arrays, on_emulator(module, arrays)


def found(broken: Break) -> bool:
    """Whether a unit tells the break from the printer as it is; ValueError for a break that changes no text.

    What does not compile is no break: Refused.
    """
    tried = 0
    for name in units.UNITS:
        module, right, arrays, wanted = _right(name)
        wrong = broken.text(module)
        if wrong == right:
            continue
        tried += 1
        try:
            if differences(printed(module, arrays, wrong), wanted):
                return True
        except Fault:
            return True
    if not tried:
        raise ValueError(f"{broken.name} changes nothing")
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out: Path | None = parser.parse_args().out
    survivors = [b.name for b in BREAKS if not found(b)]
    score: dict[str, Any] = {"breaks": len(BREAKS), "found": len(BREAKS) - len(survivors), "survivors": survivors}
    print("\n".join([*survivors, f"{score['found']} of {score['breaks']} breaks of the printer are found"]))
    if out is not None:
        out.write_text(json.dumps(score, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""``python -m tests.fuzz --seconds 600``: random work of every kind until the time is over; 1 if anything was found.

``--only texts --first 1234`` begins with one trial of one kind, which is drawn from the seed, its kind and its number.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import count

from tests.fuzz import calls, files, kernels, texts
from tests.fuzz.finding import Draw, Finding

#: Kinds of work, and the share of the time that each gets.
KINDS: dict[str, tuple[Callable[[Draw], None], float]] = {
    "stencils": (kernels.stencils, 4), "updates": (kernels.updates, 1), "products": (kernels.products, 2),
    "texts": (texts.programs_as_text, 2), "passes": (texts.passes_on_programs, 1),
    "files": (files.matrices, 1), "api": (calls.api, 1),
}  # fmt: skip


def fuzz(seconds: float, seed: int, only: str | None, first: int) -> int:
    """How many different findings there were."""
    kinds = [only] if only else list(KINDS)
    numbers = {kind: count(first) for kind in kinds}
    spent, done, known = dict.fromkeys(kinds, 0.0), Counter[str](), dict[str, int]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kind = min(kinds, key=lambda k: spent[k] / KINDS[k][1])
        number, start = next(numbers[kind]), time.monotonic()
        try:
            KINDS[kind][0](random.Random(f"{seed} {kind} {number}"))
        except Finding as found:
            known[found.what] = known.get(found.what, 0) + 1
            if known[found.what] == 1:
                print(f"{kind} {number} of seed {seed}: {found}", flush=True)
        spent[kind] += time.monotonic() - start
        done[kind] += 1
    tried = ", ".join(f"{n} {kind}" for kind, n in done.items())
    print(f"seed {seed}: {tried}; {len(known)} findings")
    return len(known)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one each time, which is printed")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # a matrix that is larger encoded is drawn often
    seed = random.SystemRandom().randrange(1 << 32) if args.seed is None else args.seed
    return min(1, fuzz(args.seconds, seed, args.only, args.first))


if __name__ == "__main__":
    sys.exit(main())

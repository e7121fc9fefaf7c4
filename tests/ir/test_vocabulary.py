"""The tile level is a vocabulary: an op serves two families, or it or its file says why only one."""

from __future__ import annotations

import re
import sys
from collections import defaultdict

from sparsegen.ir.node import OPS, Op, walk
from sparsegen.ir.registry import load_all
from tests.freeze.problems import frozen, programs


def users() -> dict[type[Op], set[str]]:
    """The families that use each tile op, from one case of each family and number of axes, and a few of each kind."""
    seen: dict[tuple[str, int], int] = defaultdict(int)
    found: dict[type[Op], set[str]] = defaultdict(set)
    for case, _ in frozen():
        family = f"{case['kind']} {case['schedule'].split()[0]}"
        seen[family, len(case["shape"])] += 1
        if seen[family, len(case["shape"])] <= 2:
            for program in programs(case):
                for op in walk(program.tile.funcs):
                    found[type(op)].add(family)
    return found


def test_an_op_serves_two_families_or_says_why() -> None:
    load_all()
    used = users()
    for name, op in OPS.items():
        if name.startswith("tile.") and name != "tile.func" and len(used[op]) < 2:
            said = f"{op.__doc__} {sys.modules[op.__module__].__doc__}"
            assert re.search(r"\bOnly \w+|No other family uses", said), f"{name} serves {used[op]}: say why no other"

"""Tiles, windows and rows by kinds, against one by one."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np

from sparsegen.cost.counts.requests import SECTOR
from sparsegen.cost.counts.rows import rows_fetched, rows_of, windows
from sparsegen.cost.counts.tiles import kinds, mapped

PERIODIC, FROZEN = ("periodic", 0.0), ("frozen", 0.0)


def test_kinds_are_all_tiles() -> None:
    draw = random.Random("kinds")
    for _ in range(300):
        low, size, unit = draw.randint(-3, 9), draw.randint(1, 9), draw.choice((1, 2, 4, 8))
        cells, plain = (low, low + draw.randint(0, 90)), (draw.randint(-5, 40), draw.randint(0, 120))
        want = Counter[tuple[bool, int]]()
        for first in range(cells[0], cells[1], size):
            inside = first >= plain[0] and first + size <= plain[1]
            want[inside, first % unit if inside else first] += 1
        found = kinds(cells, size, plain, unit)
        assert all(first in range(*cells, size) for first in found.first)
        inside = (found.first >= plain[0]) & (found.first + size <= plain[1])
        places = np.where(inside, found.first % unit, found.first)
        assert {(bool(i), int(at)): n for i, at, n in zip(inside, places, found.times, strict=True)} == want


def test_rows_are_counted_where_they_start_in_a_sector() -> None:
    draw = random.Random("rows")
    for _ in range(100):
        n, step, before, stride = draw.randint(5, 80), draw.randint(1, 30), draw.randint(0, 5), draw.randint(1, 40) * 4
        size, count = step + before + draw.randint(0, 5), -(-n // step) + draw.randint(0, 2)
        pair = draw.choice(((PERIODIC, PERIODIC), (FROZEN, FROZEN)))
        w = windows(count, step, before, size, n, SECTOR)
        rows = [int(mapped(np.array(i * step - before + r), n, pair)) for i in range(count) for r in range(size)]
        assert rows_fetched(w, size, n, pair, stride) == Counter(row * stride % SECTOR for row in rows)
        assert rows_of((before, n), stride) == Counter(row * stride % SECTOR for row in range(before, n))

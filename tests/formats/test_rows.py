"""Places of entries."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.formats.rows import distinct


@pytest.mark.parametrize("keys", [[], [3], [2, 2, 2], [5, 1, 5, -4, 1, 0], [0, 0, 7]], ids=str)
def test_distinct_numbers_come_ascending_and_once(keys: list[int]) -> None:
    found = distinct(np.array(keys, np.int64))
    assert found.dtype == np.int64 and found.tolist() == sorted(set(keys))

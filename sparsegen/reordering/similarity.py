"""How alike two rows are: the weighted Jaccard similarity of how often they touch column blocks (BSA-SpMM, eq. 1)."""

from __future__ import annotations

from typing import Any

import numpy as np


def jaccard(a: Any, b: Any) -> float:
    """``sum(min(a', b')) / sum(max(a', b'))`` of two vectors of counts, each divided by its L2 norm; neither is zero.

    1 for vectors of one direction, 0 for those that share no block.
    """
    a, b = (np.asarray(counts, np.float64) / np.linalg.norm(counts) for counts in (a, b))
    return float(np.minimum(a, b).sum() / np.maximum(a, b).sum())


def of_parts(common: Any, first: Any, second: Any) -> Any:
    """The same of ``common``, the sum of the smaller components, and the sums of the components of each vector.

    The larger components sum up to what both have less what is common.  No more than 1: the sums are rounded each.
    """
    return (common / (first + second - common)).clip(max=1.0)

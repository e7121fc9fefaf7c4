"""What the page of sparse attention's kernel says."""

from __future__ import annotations

from collections.abc import Iterator

from sparsegen.explain.page import Fact
from sparsegen.explain.pattern import PatternPage
from sparsegen.explain.units import nbytes


class AttentionPage(PatternPage):
    """Of attention of which a pattern says which keys are seen."""

    kind = "attention"
    unit, moved = "a call", "q, k, v and the result"

    def facts(self) -> Iterator[Fact]:
        w = self.problem.what.pattern
        yield Fact("pattern", f"{w.height}x1 vectors, {w.sparsity:.1%} of the scores left out; {nbytes(w.nbytes)}")
        yield from super().facts()

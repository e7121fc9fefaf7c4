"""What the page of a sampled product's kernel says."""

from __future__ import annotations

from collections.abc import Iterator

from sparsegen.explain.page import Fact
from sparsegen.explain.pattern import PatternPage
from sparsegen.explain.units import nbytes


class SampledPage(PatternPage):
    """Of a product of which a pattern says what is kept."""

    kind = "product"
    unit, moved = "a product", "DRAM traffic"

    def facts(self) -> Iterator[Fact]:
        p = self.problem.facts
        yield Fact("result", f"{self.problem.format}: {nbytes(p.nbytes)}, {p.vectors} vectors of {p.height} x 1")
        yield from super().facts()

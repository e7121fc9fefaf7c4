"""What ``sparsify`` did: a row a layer, as text, as HTML and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from sparsegen.notebook import block, table

_HEADS: Final = ("layer", "is", "zeros", "bytes", "dense", "µs dense", "µs sparse", "measured", "error", "why")
_RIGHT: Final = range(2, 9)


@dataclass(frozen=True)
class Row:
    """One layer: what it is now (``kind``), and why so.

    ``dense_bytes``: of its weights before, ``bytes``: now.  ``dense_times`` and ``times``: seconds that the cost model
    says, ``measured`` those of a GPU, each by numbers of tokens; empty where unknown.  ``error``: |y' - y| / |y| of its
    outputs for what calibration gave it.
    """

    layer: str
    kind: str
    zeros: float
    dense_bytes: int
    bytes: int
    dense_times: Mapping[int, float]
    times: Mapping[int, float]
    measured: Mapping[int, float]
    error: float | None = None
    why: str = ""

    @property
    def sparse(self) -> bool:
        """Whether the layer was replaced."""
        return self.kind != "dense"

    def cells(self) -> tuple[str, ...]:
        """Its cells as text."""
        return (
            self.layer, self.kind, f"{self.zeros:.1%}" if self.sparse else "", f"{self.bytes:,}",
            f"{self.dense_bytes:,}", _us(self.dense_times), _us(self.times), _us(self.measured),
            "" if self.error is None else f"{self.error:.2g}", self.why,
        )  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Rows in the order of the model, for these numbers of ``tokens``, on the device that the cost model knows."""

    rows: tuple[Row, ...]
    tokens: tuple[int, ...]
    device: str

    @property
    def title(self) -> str:
        """How many layers are sparse, and their weights' bytes."""
        small, large = sum(row.bytes for row in self.rows), sum(row.dense_bytes for row in self.rows)
        return (
            f"{sum(row.sparse for row in self.rows)} of {len(self.rows)} layers are sparse; weights {large:,} -> "
            f"{small:,} bytes; µs for {', '.join(map(str, self.tokens))} tokens on {self.device}"
        )

    def __getitem__(self, layer: str) -> Row:
        """The row of a layer; KeyError if there is none."""
        for row in self.rows:
            if row.layer == layer:
                return row
        raise KeyError(layer)

    def __str__(self) -> str:
        """A table, without the columns that are empty."""
        lines = [_HEADS, *(row.cells() for row in self.rows)]
        kept = [at for at in range(len(_HEADS)) if any(line[at] for line in lines[1:])]
        width = {at: max(len(line[at]) for line in lines) for at in kept}
        shown = (
            "  ".join(line[at].rjust(width[at]) if at in _RIGHT else line[at].ljust(width[at]) for at in kept)
            for line in lines
        )
        return "\n".join([self.title, "", *(line.rstrip() for line in shown)])

    def _repr_html_(self) -> str:
        return block(self.title, table(_HEADS, [row.cells() for row in self.rows], _RIGHT))

    def to_json(self) -> str:
        """All of it, times in seconds."""
        return json.dumps(asdict(self), indent=2)


def _us(times: Mapping[int, float]) -> str:
    """Times of each number of tokens in µs."""
    return " / ".join(f"{1e6 * time:.1f}" for time in times.values())

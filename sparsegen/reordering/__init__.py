"""Orders of a matrix's rows that bring rows with like column blocks together (BSA-SpMM, Euro-Par 2024), and others."""

from __future__ import annotations

from sparsegen.reordering.order import Reordering, reorder

__all__ = ["Reordering", "reorder"]

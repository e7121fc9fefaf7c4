"""What is wrong about each tile op: the program that has it, the op, its fields with other values, and what is said."""

from __future__ import annotations

from typing import Any

from sparsegen.ir.node import Op
from tests.passes import wrong_attention, wrong_stencils, wrong_tiles, wrong_updates, wrong_vectors

PARTS = wrong_stencils, wrong_updates, wrong_tiles, wrong_vectors, wrong_attention
WRONG: list[tuple[str, type[Op], dict[str, Any], str]] = [wrong for part in PARTS for wrong in part.WRONG]

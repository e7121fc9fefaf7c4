"""What a table says of its figures beside them: what ``auto`` takes now, sizes in the fit, other people's kernels.

A row is marked † where ``auto`` takes another schedule for it today than when it was measured, a prediction ‡ where
kernels of that size are among those that the model was fitted to (a test compares the sizes with the data).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from sparsegen.bench.cells import Result, Row
from sparsegen.cost.devices import load_profile
from sparsegen.problems.matrices import Merged
from sparsegen.problems.product import readers
from sparsegen.products.product import BitmapNumbers

#: What is in the file of other people's kernels, beside the results.
PEERS: Final = "peers.json"
#: The GPU of the committed results.
DEVICE: Final = "h200"
#: Sizes of fields, and of products with their share of zeros, of kernels in the fit.
FIELDS: Final = frozenset([
    (10240, 10240), (10007, 9999), (256, 256, 256), (512, 512, 512), (768, 768, 768), (1024, 1024, 1024)
])  # fmt: skip
PRODUCTS: Final = frozenset([
    ((4096, 4096, 16), 0.6), ((8192, 8192, 16), 0.6), ((21504, 7168, 16), 0.6), ((28672, 8192, 1), 0.6),
    ((28672, 8192, 4), 0.6), ((28672, 8192, 8), 0.6), ((28672, 8192, 16), 0.5), ((28672, 8192, 16), 0.6),
    ((28672, 8192, 16), 0.7), ((28672, 8192, 32), 0.6), ((28672, 8192, 64), 0.6), ((28672, 8192, 128), 0.6),
])  # fmt: skip
#: Nodes of graphs and types of products with them: the random one of suite ``csr`` and cora, the two that
#: products/csr_cost.py names.
GRAPHS: Final = frozenset((nodes, dtype) for nodes in (100_000, 2708) for dtype in ("f16", "f32"))


def uniform(m: int, k: int, n: int, sparsity: float) -> BitmapNumbers:
    """A matrix in f16 with zeros in random places, without the matrix: its widest runs of tiles are so many standard
    deviations above the mean."""
    tiles, nnz = -(-m // 16) * -(-k // 64), int(m * k * (1 - sparsity))
    chunks = -(-nnz // 4) + tiles
    spread = math.sqrt(1024 * sparsity * (1 - sparsity)) / 4
    widest = tuple(math.ceil(rows * chunks / tiles + 4.9 * spread * math.sqrt(rows)) for rows in range(1, 17))
    return BitmapNumbers(m, k, n, "f16", 8 * chunks + 144 * tiles, chunks, widest, 0)


@cache
def _stencils() -> dict[str, str]:
    """What is taken for each stencil of part ``targets`` that is left to ``auto``."""
    import sparsegen as sg
    from sparsegen.bench import stencils

    cases = [c for c in stencils.cases(["targets"]) if c.schedule == "auto"]
    kernels = {c.name: sg.compile(c.stencil, c.shape, c.steps, DEVICE, "emulator") for c in cases}
    return {name: str(kernel.schedule) for name, kernel in kernels.items()}


@cache
def _product(shape: tuple[int, int, int], sparsity: float) -> str:
    numbers, device = uniform(*shape, sparsity), load_profile(DEVICE)
    best = Merged(tuple(family.every(numbers, device, {}) for family in readers("bitmap") if not family.library)).best
    return str(best and best.schedule)


def taken(suite: str, row: Row) -> str | None:
    """What ``auto`` takes now for a row of part ``targets``; None for other rows."""
    if row.get("part") != "targets" or row["failed"]:
        return None
    if suite == "stencil":
        return _stencils().get(row["case"])
    return _product(tuple(row["shape"]), row["sparsity"]) if suite == "bitmap" else None


def fitted(suite: str, row: Row) -> bool:
    """Whether kernels of the size of a row are in the fit."""
    shape = tuple(row["shape"])
    if suite == "csr":
        return (shape[1], row["dtype"]) in GRAPHS
    return shape in FIELDS if suite == "stencil" else (shape, round(row.get("sparsity", 0), 2)) in PRODUCTS


def annotated(found: Result, folder: Path) -> Result:
    """A result of suite ``stencil``, ``bitmap`` or ``csr`` whose rows also say ``now``, ``fitted`` and ``peers``."""
    if (suite := found["suite"]) not in ("stencil", "bitmap", "csr"):
        return found
    peers = json.loads((folder / PEERS).read_text()) if suite == "bitmap" and (folder / PEERS).is_file() else {}
    times = {(tuple(row["shape"]), row["sparsity"], row["dtype"]): row for row in peers.get("rows", ())}

    def more(row: Row) -> dict[str, Any]:
        now = taken(suite, row)
        peer = times.get((tuple(row["shape"]), round(row.get("sparsity", 0), 2), row["dtype"]), {})
        said = {"now": None if now == row["schedule"] else now, "fitted": fitted(suite, row)}
        wrong = peer.get("wrong", ())
        others = {
            name: f"{peer[name]:g}{' (wrong)' * (name in wrong)}" for name in peers.get("kernels", ()) if name in peer
        }
        return {**row, **said, "peers": others}

    return {**found, "rows": [more(row) for row in found["rows"]], "peers": peers}


def mark(row: Row, text: str, key: str) -> str:
    """A cell with the mark of what its row says by ``key``."""
    return f"{text} {'†' if key == 'now' else '‡'}" if text and row.get(key) else text


def footnotes(rows: Sequence[Row], cells: Sequence[Sequence[str]], peers: Mapping[str, Any]) -> list[str]:
    """The lines below a table that has marks, or columns of other people's kernels."""
    lines = list[str]()
    text = " ".join(cell for row in cells for cell in row)
    if "†" in text:
        changes = "; ".join(f"{row['case']}: `{row['now']}`" for row in rows if row.get("now"))
        lines.append(f"† Measured with another schedule than `auto` takes now ({changes}); the prediction is of then.")
    if "‡" in text:
        lines.append("‡ Kernels of this size are among those that the model was fitted to.")
    lines += [f"{name}: {told['code']}, {told['device']}, {told['date']}, commit {told['commit'] or 'not recorded'}; "
              f"{told['note']}." for name, told in peers.get("kernels", {}).items() if name in text]  # fmt: skip
    return lines

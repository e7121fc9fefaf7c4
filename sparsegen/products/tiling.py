"""Which tiles are worth being dense: alpha and delta by what the cost model expects of products with each.

``delta`` says from which share of its elements on a tile is multiplied with its zeros, ``alpha`` how alike the rows of
a cluster are.  The paper finds both by running kernels; here kernels are only priced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from sparsegen.cost.devices import DeviceProfile
from sparsegen.explain.units import seconds
from sparsegen.formats.csr import Csr
from sparsegen.formats.hybrid import Hybrid, hybrid
from sparsegen.formats.rows import Rows
from sparsegen.formats.tiles import Tiled
from sparsegen.ir.errors import FormatError
from sparsegen.products.product import Product
from sparsegen.products.ragged import Ragged
from sparsegen.registry import families
from sparsegen.reordering.blocks import Variant, encoded
from sparsegen.reordering.order import ordered
from sparsegen.target import resolve

#: What is tried, the paper's 0.3 first: of shares that cost alike the first one is taken.  A tile of 32 columns with
#: fewer entries than rows of x that it reads (a share of 0.03) costs more than they do; above 1 none is dense.
ALPHAS: Final = (0.3, 0.1, 0.5, 0.7)
DELTAS: Final = (0.3, 0.5, 0.2, 0.1, 0.05, 0.02, 1.0)


@dataclass(frozen=True)
class Expected:
    """Predicted seconds of a product with ``n`` columns on a device, by format: W's ``own`` with so many dense tiles,
    ``csr``, and ``dense`` where a matrix so large is made."""

    n: int
    device: str
    own: str
    tiles: int
    seconds: Mapping[str, float]

    def __str__(self) -> str:
        times = ", ".join(f"{name} {seconds(time)}" for name, time in self.seconds.items())
        own = self.seconds[self.own]
        name, best = min(((name, t) for name, t in self.seconds.items() if name != self.own), key=lambda each: each[1])
        verdict = (
            f"dense tiles pay: {name} takes {best / own:.2f} times as long"
            if self.tiles and own < best
            else f"no dense tile pays: {name} takes {best / own:.2f} times as long as {self.own}"
        )
        return f"expected with {self.n} columns on {self.device}: {times}\n{verdict}"


class Tiling(NamedTuple):
    """What was chosen: the matrix, the clusters of its rows, and what the model expects of it."""

    w: Hybrid
    clusters: int
    expected: Expected


def expected(w: Hybrid, n: int, device: Any) -> Expected:
    """What the model expects on a device of products with ``n`` columns; FormatError where no kernel reads ``w``."""
    return _beside(w, w.rows(), n, resolve(device, "emulator").profile)


def tiling(rows: Csr, options: Mapping[str, Any], variant: Variant = "paper") -> Tiling:
    """The matrix with those alpha and delta, where they are ``"auto"``, with which a product is expected to be soonest.

    ``options``: of the format ``hybrid``.  FormatError where no kernel reads the matrix with them.
    """
    tile, method, n = options["tile"], options["method"], options["columns"]
    profile = resolve(options["device"], "emulator").profile
    alphas = ALPHAS if options["alpha"] == "auto" else (options["alpha"],)
    deltas = DELTAS if options["delta"] == "auto" else (options["delta"],)
    found: list[tuple[float, Hybrid, int]] = []
    with rows.library.active():
        places, seen = Rows.of(rows), set[bytes]()
        blocks = encoded(places, tile)
        for alpha in alphas if method == "bsa" else alphas[:1]:
            permutation, clusters = ordered(places, blocks, method, alpha, variant)
            if permutation.tobytes() in seen:
                continue
            seen.add(permutation.tobytes())
            tiled = Tiled.of(rows, permutation, tile)
            for delta in {tiled.dense(delta): delta for delta in reversed(deltas)}.values():
                w = Hybrid.cut(hybrid(rows.kind, tile, delta, alpha, method, n), tiled)
                found.append((_own(w, n, profile), w, clusters))
                found = [min(found, key=lambda each: each[0])]
    ((_, w, clusters),) = found
    return Tiling(w, clusters, _beside(w, rows, n, profile))


def _beside(w: Hybrid, rows: Csr, n: int, device: DeviceProfile) -> Expected:
    facts, known = Ragged.of(Product(rows, n)), cast("Iterable[Any]", families("spmm").values())
    by_rows = [family for family in known if "csr" in family.formats]
    times = {w.format: _own(w, n, device)}
    for name, library in (("csr", False), ("dense", True)):
        warm = facts.looped(device, library)
        costs = [best.time for f in by_rows if f.library is library and (best := f.every(facts, warm, {}).best)]
        times |= {name: min(costs)} if costs else {}
    return Expected(n, device.name, w.format, w.tiles, times)


def _own(w: Hybrid, n: int, device: DeviceProfile) -> float:
    """The predicted seconds of the soonest kernels of dense tiles and the rest."""
    family: Any = families("spmm")[w.format]
    facts = family.numbers(Product(w, n))
    options = family.every(facts, facts.looped(device), {})
    if options.best is None:
        why = options.rejected[0]
        raise FormatError(f"nothing can be expected of {w.format}: {why.reason}", hint=why.remedy)
    return float(options.best.time)

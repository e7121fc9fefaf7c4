"""How the products of suite ``bitmap`` are measured, beside cuBLAS through ``torch.mm(out=)``.

Each case is measured with x and y packed by rows and by columns (as a linear layer has them); the better order counts,
for cuBLAS too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.bench import bitmaps, floors
from sparsegen.bench.bitmaps import COLD, CUBLAS, ORDERS, STATES, ProductCase, Weights, best
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.lab import Timing
from sparsegen.bench.products import LEAST, ProductRow, Products, packed
from sparsegen.formats import sparse
from sparsegen.products.cost import dense_cost
from sparsegen.products.product import BitmapNumbers

if TYPE_CHECKING:
    from sparsegen.formats import SparseMatrix
    from sparsegen.kernel import SpmmKernel


@dataclass(frozen=True, kw_only=True)
class BitmapRow(ProductRow):
    """One product or encoding.

    ``median_s``: with x and y packed by ``x``, the better order.  ``times`` and ``cublas``: the medians of each order
    after each of STATES.  ``dense_s`` is what the model says of the dense product.  ``target`` is ``share`` times
    ``of``.  ``error``: over both orders, 0 for a right encoding.
    """

    sparsity: float
    target: float | None = None
    aim: float | None = None
    share: float | None = None
    of: str | None = None
    x: str | None = None
    times: Mapping[str, Mapping[str, float]] | None = None
    cublas: Mapping[str, Mapping[str, float]] | None = None
    floor_s: float | None = None
    floor_by: str | None = None
    dense_s: float | None = None
    nbytes: int | None = None


def labels(case: ProductCase, seed: int, floor: floors.Floor | None = None) -> dict[str, Any]:
    """What every row says of its case."""
    w = case.weights
    return {
        "part": case.part, "case": case.name, "shape": case.shape, "sparsity": w.sparsity, "dtype": w.dtype,
        "seed": seed, "target": None if case.of else case.target, "aim": case.aim,
        "share": case.target if case.of else None, "of": case.of or None,
        "floor_s": floor and 1 / floor.rate, "floor_by": floor and str(floor),
    }  # fmt: skip


def orders(n: int) -> tuple[str, ...]:
    """The orders that x and y may have; one column has but one."""
    return ORDERS if n > 1 else ORDERS[1:]


class Bitmaps(Products[ProductCase, BitmapRow]):
    """Suite ``bitmap`` on a GPU."""

    row = BitmapRow

    def weights(self, w: Weights, seed: int) -> Any:
        """A new random matrix: normal numbers where it is not zero.  ArrayError for a pattern that is not here."""
        torch, generator, (m, k) = self.torch, self.random(seed), w.shape
        if w.pattern:
            kept = torch.from_numpy(bitmaps.pattern(w.pattern)).to(self.device)
            kept = kept.repeat(-(-m // kept.shape[0]), -(-k // kept.shape[1]))[:m, :k]
            if w.shuffled:
                places = torch.randperm(m * k, generator=generator, device=self.device)
                kept = kept.reshape(-1)[places].reshape(m, k)
        else:
            kept = torch.rand((m, k), generator=generator, device=self.device) >= w.sparsity
        values = torch.randn((m, k), generator=generator, device=self.device).to(self.dtype(w.dtype))
        return values.masked_fill_(~kept, 0)  # a product with a mask would keep -0.0

    def prepare(self, cases: Sequence[ProductCase]) -> None:
        """The encoded weights of all products, each matrix once; and no times yet."""
        self.encoded = dict[Weights, "SparseMatrix | Exception"]()
        self._times = dict[ProductCase, float]()
        for at, w in enumerate(dict.fromkeys(case.weights for case in cases if case.n)):
            try:
                self.encoded[w] = sparse(self.weights(w, self.seed + at))
            except Exception as error:  # the rows of this matrix say so
                self.encoded[w] = error

    def build(self, case: ProductCase) -> SpmmKernel | None:
        """The kernel of a case, built for both orders; None: an encoding."""
        if not case.n:
            return None
        if isinstance(w := self.encoded[case.weights], Exception):
            raise w
        return self.kernel(w, case.n, orders(case.n))

    def labels(self, case: ProductCase, seed: int) -> dict[str, Any]:
        """What every row says of its case, and the floor of it."""
        plain = case.weights.dtype == "f16" and not case.weights.pattern
        found = floors.best(self.floors, floors.product(case.shape, case.weights.sparsity)) if plain else None
        return labels(case, seed, found)

    def measure(self, case: ProductCase, kernel: SpmmKernel | None, seed: int) -> BitmapRow:
        """Check, then time a product, or an encoding."""
        if kernel is None:
            return self.encode(case, seed)
        torch, w = self.torch, kernel.product.w
        dense, x = w.to_dense(), self.uniform((w.shape[1], case.n), w.dtype, seed)
        exact = self.exact(dense, x)
        errors, same, share = list[float](), True, 2 * len(STATES) * len(orders(case.n))
        ours, cublas = dict[str, dict[str, Timing]](), dict[str, dict[str, float]]()
        for order in orders(case.n):
            u, y = (packed(a, order) for a in (x, torch.empty_like(exact, dtype=x.dtype)))
            call, dense_call = partial(kernel, u, out=y), partial(torch.mm, dense, u, out=y)
            error, steady = self.checked(call, y, exact)
            errors.append(error)
            same &= steady
            ours[order] = {state: self.series(call, state, share) for state in STATES}
            cublas[order] = {state: self.series(dense_call, state, share).median for state in STATES}
        x_order = min(ours, key=lambda order: ours[order][COLD].median)
        timing = ours[x_order][COLD]
        row = self.labels(case, seed) | {"sparsity": w.sparsity}
        if case.of:
            shuffled = replace(case, weights=replace(case.weights, shuffled=True), target=None, of="")
            other = best(cublas, COLD) if case.of == CUBLAS else self._times.get(shuffled)
            row["target"] = other and other * (case.target or 1)
        self._times[case] = timing.median
        met = timing.median <= row["target"] if row["target"] is not None else not case.of
        return BitmapRow(
            **row,
            **self.figures(kernel, x_order, timing),
            x=x_order,
            times={order: {state: t.median for state, t in each.items()} for order, each in ours.items()},
            cublas=cublas,
            dense_s=dense_cost(BitmapNumbers.of(kernel.product), kernel.device).time,
            nbytes=w.nbytes,
            error=max(errors),
            same=same,
            ok=max(errors) <= TOLERANCE[w.dtype] and same and met,
        )

    def encode(self, case: ProductCase, seed: int) -> BitmapRow:
        """Time an encoding; its error is 0 if the result is right bit for bit: decoded, or compared with the GPU's."""
        torch, weights = self.torch, self.weights(case.weights, seed)
        on_gpu = sparse(weights)
        times = list[float]()
        if case.on == "host":
            host = weights.view(torch.int16).cpu().numpy().view(on_gpu.kind.numpy())
            start = time.perf_counter()
            made = sparse(host)
            times.append(time.perf_counter() - start)
            there = on_gpu.to_host().arrays
            right = all(np.array_equal(array, there[name]) for name, array in made.arrays.items())
        else:
            for _ in range(LEAST):
                self.lab.runtime.synchronize()
                start = time.perf_counter()
                on_gpu = sparse(weights)
                self.lab.runtime.synchronize()
                times.append(time.perf_counter() - start)
            right = torch.equal(on_gpu.to_dense().view(torch.int16), weights.view(torch.int16))
        timing = Timing.of(times)
        return BitmapRow(
            **self.labels(case, seed) | {"sparsity": on_gpu.sparsity, "schedule": on_gpu.format},
            **timing.fields,
            nbytes=on_gpu.nbytes,
            error=0.0 if right else math.inf,
            same=right,
            ok=right and timing.median <= (case.target or math.inf),
        )

    @staticmethod
    def line(row: BitmapRow) -> str:
        """A row as a line of progress."""
        what = f"{row.part} {row.case}, {'x'.join(map(str, row.shape))} {row.dtype}"
        if row.median_s is None:
            return f"{what}: {row.failed}"
        against = f", cuBLAS {best(row.cublas, COLD) * 1e6:.1f}" if row.cublas else ""
        told = f"{row.median_s * 1e6:.1f} us{against}, error {row.error:.1e}{'' if row.ok else ', NOT OK'}"
        return f"{what}: {told}; {row.schedule}"

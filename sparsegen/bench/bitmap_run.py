"""How the products of suite ``bitmap`` are measured, beside cuBLAS through ``torch.mm(out=)``.

Each case is measured with x and y packed by rows and by columns (as a linear layer has them); the better order counts,
for cuBLAS too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.bench import bitmaps, floors
from sparsegen.bench.bitmaps import COLD, CUBLAS, ORDERS, STATES, ProductCase, Weights, best
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.lab import Timing
from sparsegen.bench.products import LEAST, ProductRow, Products, packed
from sparsegen.formats import sparse
from sparsegen.formats.matrix import KINDS, NAMES
from sparsegen.ir.op_spmm import NARROW
from sparsegen.products.cost import dense_cost
from sparsegen.products.product import BitmapNumbers

if TYPE_CHECKING:
    from sparsegen.formats import SparseMatrix
    from sparsegen.kernel import SpmmKernel


@dataclass(frozen=True, kw_only=True)
class BitmapRow(ProductRow):
    """One product or encoding.

    ``median_s``: with x and y packed by ``x``, the better order.  ``times`` and ``cublas``: the medians of each order
    after each of STATES.  ``dense_s`` is what the model says of the dense product, where there is one.  ``target`` is
    ``share`` times ``of``.  ``error``: over both orders, 0 for a right encoding.
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


@dataclass(frozen=True)
class Part:
    """What one kernel of a case multiplies: its matrix for cuBLAS and the exact result."""

    kernel: SpmmKernel
    dense: Any
    exact: Any


def labels(case: ProductCase, seed: int, floor: floors.Floor | None = None) -> dict[str, Any]:
    """What every row says of its case."""
    w = case.weights
    return {
        "part": case.part, "case": case.name, "shape": case.shape, "sparsity": w.sparsity, "dtype": w.dtype,
        "seed": seed, "target": None if case.of else case.target, "aim": None if case.of else case.aim,
        "share": case.target if case.of else None, "of": case.of or None,
        "floor_s": floor and 1 / floor.rate, "floor_by": floor and str(floor),
    }  # fmt: skip


def split(matrices: Sequence[Any], kernels: int) -> list[Sequence[Any]]:
    """The matrices of each of so many kernels: one, or all."""
    return [matrices] if kernels == 1 else [[w] for w in matrices]


def in_turn(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """One call of all of them."""

    def call() -> None:
        for each in calls:
            each()

    return calls[0] if len(calls) == 1 else call


def orders(n: int) -> tuple[str, ...]:
    """The orders that x and y may have; one column has but one."""
    return ORDERS if n > 1 else ORDERS[1:]


class Bitmaps(Products[ProductCase, BitmapRow]):
    """Suite ``bitmap`` on a GPU."""

    row = BitmapRow

    def weights(self, w: Weights, seed: int) -> Any:
        """A new random matrix: normal numbers, or integers, where it is not zero.  ArrayError for a pattern that is not
        here."""
        torch, generator, (m, k) = self.torch, self.random(seed), w.shape
        if w.pattern:
            kept = torch.from_numpy(bitmaps.pattern(w.pattern)).to(self.device)
            kept = kept.repeat(-(-m // kept.shape[0]), -(-k // kept.shape[1]))[:m, :k]
            if w.shuffled:
                places = torch.randperm(m * k, generator=generator, device=self.device)
                kept = kept.reshape(-1)[places].reshape(m, k)
        else:
            kept = torch.rand((m, k), generator=generator, device=self.device) >= w.sparsity
        if w.dtype == "i8":
            values = torch.randint(-128, 128, (m, k), generator=generator, device=self.device, dtype=torch.int8)
            return values.masked_fill_(~kept, 0)
        values = torch.randn((m, k), generator=generator, device=self.device)
        if KINDS[w.dtype] not in NARROW:
            values = values.to(self.dtype(w.dtype))  # less memory for what follows
        return values.masked_fill_(~kept, 0).to(self.dtype(w.dtype))  # a product with a mask would keep -0.0

    def encoded_as(self, w: Weights, seed: int) -> SparseMatrix:
        """A random matrix encoded; of 8-bit elements with a scale a row."""
        if KINDS[w.dtype] not in NARROW:
            return sparse(self.weights(w, seed))
        scale = self.torch.rand(w.shape[0], generator=self.random(seed), device=self.device) + 0.5
        return sparse(self.weights(w, seed), scale=scale)

    def prepare(self, cases: Sequence[ProductCase]) -> None:
        """The encoded weights of all products, each matrix once; and no times yet."""
        self.encoded = dict[Weights, "SparseMatrix | Exception"]()
        self._times = dict[ProductCase, float]()
        for at, w in enumerate(dict.fromkeys(w for case in cases if case.n for w in case.each)):
            try:
                self.encoded[w] = self.encoded_as(w, self.seed + at)
            except Exception as error:  # the rows of this matrix say so
                self.encoded[w] = error

    def build(self, case: ProductCase) -> list[SpmmKernel] | None:
        """The kernels of a case, one or one for each matrix, built for both orders; None: an encoding."""
        if not case.n:
            return None
        found = self.matrices(case)
        each = [self.kernel(w, case.n, orders(case.n)) for w in found] if case.apart or case.count == 1 else []
        return each or [self.kernel(found, case.n, orders(case.n))]

    def matrices(self, case: ProductCase) -> list[SparseMatrix]:
        """The encoded matrices of a case; what hindered it if one could not be."""
        found = list["SparseMatrix"]()
        for w in (self.encoded[each] for each in case.each):
            if isinstance(w, Exception):
                raise w
            found.append(w)
        return found

    def labels(self, case: ProductCase, seed: int) -> dict[str, Any]:
        """What every row says of its case, and the floor of it."""
        plain = case.weights.dtype == "f16" and not case.weights.pattern and case.count == 1
        found = floors.best(self.floors, floors.product(case.shape, case.weights.sparsity)) if plain else None
        return labels(case, seed, found)

    def measure(self, case: ProductCase, kernel: list[SpmmKernel] | None, seed: int) -> BitmapRow:
        """Check, then time a product, by one kernel or several, or an encoding."""
        if kernel is None:
            return self.encode(case, seed)
        torch, kernels, first = self.torch, kernel, kernel[0]
        x = self.uniform((case.shape[1], case.n), NAMES[first.product.types.x], seed)
        matrices = self.matrices(case)
        parts = [self.part(k, of, x) for k, of in zip(kernels, split(matrices, len(kernels)), strict=True)]
        errors, same, share = list[float](), True, 2 * len(STATES) * len(orders(case.n))
        ours, cublas = dict[str, dict[str, Timing]](), dict[str, dict[str, float]]()
        for order in orders(case.n):
            u = packed(x, order)
            own, library = list[Callable[[], object]](), list[Callable[[], object]]()
            for p in parts:
                y = packed(torch.empty_like(p.exact, dtype=x.dtype), order)
                own.append(partial(p.kernel, u, out=y))
                library.append(partial(torch.mm, p.dense, u, out=y))
                error, steady = self.checked(own[-1], y, p.exact)
                errors.append(error)
                same &= steady
            ours[order] = {state: self.series(in_turn(own), state, share) for state in STATES}
            cublas[order] = {state: self.series(in_turn(library), state, share).median for state in STATES}
        x_order = min(ours, key=lambda order: ours[order][COLD].median)
        timing = ours[x_order][COLD]
        kept = sum(w.nnz for w in matrices) / (case.shape[0] * case.shape[1])
        row = self.labels(case, seed) | {"sparsity": 1 - kept}
        if case.of:
            unit = best(cublas, COLD) if case.of == CUBLAS else case.other and self._times.get(case.other)
            row |= {name: unit and goal and unit * goal for name, goal in (("target", case.target), ("aim", case.aim))}
        self._times[case] = timing.median
        met = timing.median <= row["target"] if row["target"] is not None else not case.of
        return BitmapRow(
            **row,
            **self.figures(first, x_order, timing),
            x=x_order,
            times={order: {state: t.median for state, t in each.items()} for order, each in ours.items()},
            cublas=cublas,
            dense_s=self.dense_model(kernels),
            nbytes=sum(w.nbytes for w in matrices),
            error=max(errors),
            same=same,
            ok=max(errors) <= TOLERANCE[NAMES[first.product.types.y]] and same and met,
        )

    def part(self, kernel: SpmmKernel, matrices: Sequence[SparseMatrix], x: Any) -> Part:
        """What a kernel multiplies, in x's type, and the exact result: with the scales that matrices may have."""
        dense = [w.to_dense().to(x.dtype) for w in matrices]
        exact = [self.exact(d, x) for d in dense]
        exact = [e if w.scale is None else e * w.scale.double()[:, None] for w, e in zip(matrices, exact, strict=True)]
        return Part(kernel, self.torch.cat(dense), self.torch.cat(exact))

    @staticmethod
    def dense_model(kernels: Sequence[SpmmKernel]) -> float | None:
        """What the model says of the library's product, which multiplies one matrix of 16 bits."""
        kernel = kernels[0]
        if len(kernels) > 1 or kernel.product.stack or kernel.product.w.kind in NARROW:
            return None
        return dense_cost(BitmapNumbers.of(kernel.product), kernel.device).time

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

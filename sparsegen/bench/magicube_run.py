"""How the cases of suite ``magicube`` are measured: ours, checked first, and torch's dense products and attention.

Hot: the median of replays of a graph of many calls, as the hand-written floor is timed.  Cold: of calls
that come after a memset, as in suite ``nm``.  Libraries are measured once for a size, where a case of it comes first;
of products in the better order of x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import sparsegen as sg
from sparsegen.bench import beside, floors
from sparsegen.bench.auto import WITHIN
from sparsegen.bench.beside import L2, Beside
from sparsegen.bench.bitmaps import COLD, WARM, pattern
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.integers import Call, Drawer, Given, OfAttention, OfProduct, OfSampled
from sparsegen.bench.magicube import ATTENTION, DENSE, HEADS, OWN, SDDMM, SPMM, VectorCase, VectorRow
from sparsegen.bench.products import packed

#: What floors call attention's types.
_FLOOR: Final = "Q8K8V8-P8"


class Vectors(Beside[VectorCase, VectorRow]):
    """Suite ``magicube`` on a GPU."""

    row = VectorRow

    def prepare(self, cases: Sequence[VectorCase]) -> None:
        """The problems with their arrays; why there is none is said when it is built."""
        self._beside: dict[tuple[str, tuple[int, ...]], dict[str, dict[str, float]]] = {}
        self._made: dict[VectorCase, Given | Exception] = {}
        draw = Drawer(self.torch, self.device)
        for at, case in enumerate(cases):
            seed = self.seed + 10 * at
            try:
                self._made[case] = _given(draw, case, self._mask(draw, case, seed), seed + 1)
            except Exception as error:  # that row's alone, as in harness.compiled
                self._made[case] = error

    def _mask(self, draw: Drawer, case: VectorCase, seed: int) -> Any:
        """Which vectors a case keeps."""
        shape = (case.shape[0], case.shape[2]) if case.op == SDDMM else case.shape[:2]
        zeros = case.sparsity
        if case.file:
            kept = self.torch.from_numpy(pattern(Path(case.file))).to(self.device)
            kept = sg.pattern.vectors(kept, case.height)
            if not case.anywhere:
                return kept
            zeros = 1 - float(kept.double().mean())
        return draw.mask(shape, zeros, case.height, seed, case.sigma)

    def build(self, case: VectorCase) -> Any:
        """The kernel that the cost model takes."""
        given = self._of(case)
        return self._compiled(given.what)

    def _compiled(self, what: Any, schedule: str = "auto") -> Any:
        kernel = sg.compile(what, backend=self.backend, schedule=schedule)
        if self.backend == "cuda" and not kernel.schedule.rules.library:
            kernel.resources()
        return kernel

    def _of(self, case: VectorCase) -> Given:
        made = self._made[case]
        if isinstance(made, Exception):
            raise made
        return made

    def labels(self, case: VectorCase, seed: int) -> dict[str, Any]:
        """What every row says of its case, and the floor of it."""
        kinds = _FLOOR if case.op == ATTENTION and case.quantized else case.types
        name = floors.vectors(case.op, kinds, case.shape, case.height, case.sparsity, case.sigma)
        return {
            "part": case.part, "case": case.name, "shape": case.shape, "dtype": case.types, "seed": seed,
            "sparsity": case.sparsity, "target": case.least and case.least * 1e-6, "aim": case.aim and case.aim * 1e-6,
            **self.of_floor(name),
        }  # fmt: skip

    def measure(self, case: VectorCase, kernel: Any, seed: int) -> VectorRow:
        """Check, then time a call, and what libraries take for a dense problem of that size; of a pattern also what
        could have been chosen: no more than WITHIN times as fast may it be."""
        given = self._of(case)
        call = given.call(kernel)
        error = given.off(call)
        kept = given.written.clone()
        error, same = max(error, given.off(call)), self.torch.equal(kept, given.written)
        timing, hot = self.series(call, COLD), self.hot(call)
        others = self._others(given, kernel, {COLD: timing.median, WARM: hot}) if case.file else {}
        row = VectorRow(
            **self.labels(case, seed), **self._uses(kernel), **timing.fields, hot_s=hot, error=error, same=same,
            beside={**others, **self._libraries(case)} if others else self._libraries(case),
        )  # fmt: skip
        right = error <= TOLERANCE[row.dtype] and same
        right &= hot <= WITHIN * min((times[WARM] for times in others.values()), default=hot)
        del self._made[case]  # its arrays
        sparsity = given.what.w.sparsity if case.file else case.sparsity
        return replace(row, sparsity=sparsity, ok=right and hot <= (row.target or hot))

    def _others(self, given: Given, kernel: Any, took: Mapping[str, float]) -> dict[str, Mapping[str, float]]:
        """Times by state of L2 of the cheapest schedule of ours by the model, and of the library's product where that
        is a candidate and runs; ``took``: those of the kernel, which is one of them."""
        found = dict[str, Mapping[str, float]]()
        for cost in sg.schedules(given.what, device=kernel.device):
            name = DENSE if (library := cost.schedule.rules.library) else OWN
            if name in found or (library and self.backend != "cuda"):
                continue
            if cost.schedule == kernel.schedule:
                found[name] = took
            else:
                call = given.call(self._compiled(given.what, str(cost.schedule)))
                found[name] = {COLD: self.series(call, COLD).median, WARM: self.hot(call)}
        return found

    def _uses(self, kernel: Any) -> dict[str, Any]:
        """What a row says of a kernel besides its time."""
        said = {"schedule": str(kernel.schedule), "predicted_s": kernel.cost.time, "bound": kernel.cost.binds}
        if self.backend == "cuda" and not kernel.schedule.rules.library:
            uses = kernel.resources()
            said |= {"regs": uses.registers, "spills": uses.spills, "smem": uses.shared}
        return said

    # ------------------------------------------------------------------------------------------------------- libraries
    def _libraries(self, case: VectorCase) -> Mapping[str, Mapping[str, float]]:
        """Times of libraries for a size by state of L2, of the fastest way; what a library has not is missing."""
        key = case.op, case.shape
        if key not in self._beside:
            ways = self._sdpa(case.shape) if case.op == ATTENTION else self._dense(case.shape)
            found = {name: [times for way in each if (times := self._times(way))] for name, each in ways.items()}
            self._beside[key] = {
                name: {state: min(times[state] for times in each) for state in L2}
                for name, each in found.items()
                if each
            }
        return self._beside[key]

    def _times(self, way: Call) -> dict[str, float] | None:
        try:
            way()  # an order or a backend that a library has not is refused here
            return {COLD: self.series(way, COLD).median, WARM: self.hot(way)}
        except RuntimeError:
            return None

    def _dense(self, shape: tuple[int, int, int]) -> dict[str, list[Call]]:
        """torch's products of dense matrices, of int8 with int32 results and of f16."""
        torch, (m, k, n) = self.torch, shape
        draw = Drawer(torch, self.device)
        a, b = draw.numbers("i8", (m, k), 1), draw.numbers("i8", (k, n), 2)
        c, d = (self.uniform(size, "f16", at) for at, size in enumerate(((m, k), (k, n))))
        y, z = (torch.empty((m, n), dtype=dtype, device=self.device) for dtype in (torch.int32, torch.float16))
        return {
            "int8": [partial(torch._int_mm, a, packed(b, order), out=y) for order in ("columns", "rows")],
            "f16": [partial(torch.mm, c, packed(d, order), out=z) for order in ("columns", "rows")],
        }

    def _sdpa(self, shape: tuple[int, int, int]) -> dict[str, list[Call]]:
        """torch's attention in f16, without a mask, by backend."""
        queries, keys, d = shape
        draw, nn = Drawer(self.torch, self.device), self.torch.nn
        q, k, v = (draw.normal((1, HEADS, rows, d), at) for at, rows in enumerate((queries, keys, keys)))
        backends = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}

        def attend(backend: str) -> None:
            with nn.attention.sdpa_kernel(getattr(nn.attention.SDPBackend, backend)):
                nn.functional.scaled_dot_product_attention(q, k, v)

        return {name: [partial(attend, backend)] for name, backend in backends.items()}

    line = staticmethod(beside.line)


def _given(draw: Drawer, case: VectorCase, mask: Any, seed: int) -> Given:
    """The problem of a case with its arrays."""
    _, k, n = case.shape
    if case.op == SPMM:
        return OfProduct(draw, mask, case.kinds, case.height, n, seed, auto=bool(case.file))
    if case.op == SDDMM:
        return OfSampled(draw, mask, case.kinds[0], k, seed)
    return OfAttention(draw, mask, HEADS, n, seed, case.quantized)

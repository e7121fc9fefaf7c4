"""How products are measured: fresh random numbers, poisoned results, fp64 beside them, then the time, cold and hot.

A suite of a weight format times the products of a library in the same way on the same arrays.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sparsegen.arrays import describe
from sparsegen.bench.bitmaps import COLD, READ, WARM
from sparsegen.bench.harness import AnyRow, C, R, Suite
from sparsegen.bench.lab import REST, SECONDS, Lab, Timing
from sparsegen.calls.product import variant
from sparsegen.inspection import resources
from sparsegen.ir.errors import DeviceError

if TYPE_CHECKING:
    from sparsegen.formats import SparseMatrix
    from sparsegen.kernel import SpmmKernel
    from sparsegen.pipelines import Program

#: Fewest and most repeats of a series, and calls that a hot one is the mean of.
LEAST, MOST, HOT = 11, 101, 20
#: Seconds of a burst of calls, and the fewest repeats of their graph: in 20 ms of calls one after the other a 4096^3
#: product came to 20 % more on an H200, cuBLAS's as well as ours.
BURST, FEWEST = 5e-3, 3
#: Rows of a matrix that are multiplied in f64 at once.
_BAND: Final = 4096


@dataclass(frozen=True, kw_only=True)
class ProductRow(AnyRow):
    """One product; ``predicted_s`` and ``bound`` are the cost model's.

    ``median_s``: a call after a memset; ``error``: |y - exact| / |exact|; ``same``: the second run gave the same bits.
    """

    seed: int
    median_s: float | None = None
    predicted_s: float | None = None
    bound: str | None = None
    smem: int | None = None
    same: bool | None = None


class Products(Suite[C, R]):
    """Products of one weight format: torch's arrays on ``device``, kernels of ``backend``."""

    def __init__(
        self, lab: Lab, seed: int = 0, seconds: float = SECONDS, device: str = "cuda", backend: str = "cuda"
    ) -> None:
        super().__init__(lab, seed, seconds)
        try:
            self.torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise DeviceError("products are measured with torch", hint="pip install torch") from error
        self.device, self.backend = device, backend

    def dtype(self, name: str) -> Any:
        """torch's type of that name."""
        names = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "e4m3": "float8_e4m3fn"}
        return getattr(self.torch, names[name])

    def random(self, seed: int) -> Any:
        """A generator of random numbers."""
        return self.torch.Generator(self.device).manual_seed(seed)

    def uniform(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Numbers from -1 to 1."""
        made = 2 * self.torch.rand(shape, generator=self.random(seed), device=self.device) - 1
        return made.to(self.dtype(dtype))

    def exact(self, dense: Any, x: Any) -> Any:
        """Their product in f64."""
        return self.torch.cat([rows.double() @ x.double() for rows in dense.split(_BAND)])

    def kernel(
        self, w: SparseMatrix | Sequence[SparseMatrix], n: int, orders: Sequence[str], schedule: str = "auto"
    ) -> SpmmKernel:
        """The compiled kernel of a matrix, or of several, times ``n`` columns, for x and y packed in each of the
        orders."""
        import sparsegen as sg

        kernel = sg.compile(sg.spmm(w, n), backend=self.backend, schedule=schedule)
        if self.backend == "cuda" and not kernel.schedule.rules.library:
            for order in orders:
                kernel._builds.get(program(kernel, order)).compiled()
        return kernel

    def off(self, call: Callable[[], object], y: Any, exact: Any) -> float:
        """How far the y of a call is from the exact one, |y - exact| / |exact|; it is full of NaN before."""
        y.fill_(float("nan"))
        call()
        error = float((y.double() - exact).norm() / exact.norm())
        return error if math.isfinite(error) else math.inf

    def checked(self, call: Callable[[], object], y: Any, exact: Any) -> tuple[float, bool]:
        """The error of the worse of two calls, and whether they gave the same bits."""
        bits = {2: self.torch.int16, 4: self.torch.int32}[y.element_size()]
        first = self.off(call, y, exact)
        kept = y.clone()
        return max(first, self.off(call, y, exact)), self.torch.equal(kept.view(bits), y.view(bits))

    def series(self, call: Callable[[], object], state: str, share: int = 1) -> Timing:
        """Device time of ``call``, L2 being in ``state`` before it; ``share`` series make up ``seconds``."""
        before = {COLD: self.lab.overwrite, READ: self.lab.flush}.get(state)
        time.sleep(REST)
        calls = HOT if state == WARM else 1
        return Timing.of(self.lab.times(call, self.seconds / share, before, calls, LEAST, MOST))

    def hot(self, call: Callable[[], object]) -> float:
        """Seconds of a call among many of a CUDA graph, in a burst: calls that go on for long are slowed by power."""
        replay = self.captured(call, HOT)
        time.sleep(REST)
        return Timing.of(self.lab.times(replay, BURST, None, 1, FEWEST, MOST)).median / HOT

    def captured(self, call: Callable[[], object], times: int = 1) -> Callable[[], object]:
        """So many calls as a CUDA graph, which no host is too slow for: what replays it."""
        torch = self.torch
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(times):
                call()
        replay: Callable[[], object] = graph.replay
        return replay

    def figures(self, kernel: SpmmKernel, order: str, timing: Timing) -> dict[str, Any]:
        """What a row says of a kernel: its time, the model's, and what nvcc made of it for an order."""
        return self.uses(kernel, order) | timing.fields

    def uses(self, kernel: SpmmKernel, order: str) -> dict[str, Any]:
        """What a row says of a kernel besides its time: the model's, and what nvcc made of it for an order."""
        said = {"schedule": str(kernel.schedule), "predicted_s": kernel.cost.time, "bound": kernel.cost.binds}
        if self.backend == "cuda" and not kernel.schedule.rules.library:
            uses = resources(kernel._builds.get(program(kernel, order)), kernel.device)
            said |= {"regs": uses.registers, "spills": uses.spills, "smem": uses.shared}
        return said


def packed(a: Any, order: str) -> Any:
    """A copy of a matrix in torch, packed by rows or by columns."""
    return a.clone() if order == "rows" else a.t().contiguous().t()


def program(kernel: SpmmKernel, order: str) -> Program:
    """The program of a kernel for x and y packed so, and aligned as torch's arrays are."""
    m, k, n = kernel.shape
    views = []
    for rows in (k, m):
        a = np.empty((rows, n), kernel.dtype)
        views.append(describe(a if order == "rows" else a.reshape(n, rows).T))
    made: Program = kernel._programs.get(1, variant(*views, copied=True))
    return made

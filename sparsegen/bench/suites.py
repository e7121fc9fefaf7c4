"""What is measured: the suites of ``sparsegen bench``.

``spine``: the targets of the first milestone, at two sizes and with four boundaries.
``overhead``: the host's time for one small call.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np

from sparsegen.bench.harness import reason
from sparsegen.bench.lab import Timing
from sparsegen.bench.stencil_run import Case, Row, labels
from sparsegen.bench.stencils import stencil
from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.ir.boundary import Side
from sparsegen.ir.errors import DeviceError, SparsegenError

SQUARE, ODD = (10240, 10240), (10007, 9999)
#: Divisible by every fuse, so that no pass is shorter than the others.
STEPS = 12
BOUNDARIES: tuple[Side, ...] = (periodic, dirichlet(1.5), neumann, frozen)
#: Share of a row's target at a size that nothing divides, and with a border.
ODD_SHARE, BORDER_SHARE = 0.9, 0.9
TILED = "tiled tile=32x64 warps=8 stages=1"
M8, M16 = "stencil2row mma=f64.m8n8k4", "stencil2row mma=f64.m16n8k4"
#: stencil, schedule, GS/s at 10240 x 10240, periodic, f64, on an H200.
TARGETS = (
    ("Heat-2D", TILED, 245.0),
    ("Box-2D9P", TILED, 245.0),
    ("Box-2D9P", f"{M8} fuse=3 stages=2 lut=off", 300.0),
    ("Box-2D9P", f"{M16} fuse=3 stages=2 lut=off", 410.0),
    ("Box-2D49P", f"{M16} fuse=1 stages=2 lut=off", 138.0),
)
OVERHEAD_CALLS, OVERHEAD_LIMIT = 10_000, 15e-6


def spine(quick: bool = False) -> list[Case]:
    """The cases of the suite; ``quick``: the targets at the square size, periodic only."""
    cases = []
    for shape, share in ((SQUARE, 1.0), (ODD, ODD_SHARE)):
        for at, boundary in enumerate(BOUNDARIES):
            if quick and (at or shape != SQUARE):
                continue
            for name, schedule, target in TARGETS:
                least = target * share * (BORDER_SHARE if at else 1.0)
                cases.append(Case(name, stencil(name, boundary), shape, STEPS, schedule, round(least, 1)))
    return cases


def _library() -> Any:
    for name in ("torch", "cupy"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise DeviceError("suite overhead needs torch or CuPy", hint="pip install torch")


def overhead() -> Row:
    """Host time of ``k(u, out=o)`` for one step of a 64 x 64 field in torch (CuPy without it), median of 10⁴ calls.

    ``median_s``, ``p10`` and ``p90`` are the host's seconds; DeviceError without either library.
    """
    import sparsegen as sg
    from sparsegen.backends.reference.stencil import run as reference

    library = _library()
    torch = library.__name__ == "torch"
    name = f"Heat-2D, {'torch' if torch else 'CuPy'}"
    case = Case(name, stencil("Heat-2D"), (64, 64), 1, "auto", limit_s=OVERHEAD_LIMIT)
    field = np.random.default_rng().random(case.shape)
    try:
        kernel = sg.compile(case.stencil, case.shape, 1, backend="cuda")
        u = library.asarray(field, device="cuda") if torch else library.asarray(field)
        o = library.full_like(u, float("nan"))
        wait = library.cuda.synchronize if torch else library.cuda.Device().synchronize
        for _ in range(100):
            kernel(u, out=o)
        wait()
        times = []
        for at in range(OVERHEAD_CALLS):
            start = time.perf_counter_ns()
            kernel(u, out=o)
            times.append((time.perf_counter_ns() - start) * 1e-9)
            if at % 500 == 499:  # else the queue of launches fills up, and a call waits for the GPU
                wait()
    except SparsegenError as problem:
        return Row(**labels(case, case.schedule), failed=reason(problem))
    want = reference(field, kernel.stencil.weights, kernel.stencil.sides, 1)
    error = float(np.abs((o.cpu().numpy() if torch else o.get()) - want).max() / np.abs(want).max())
    t = Timing.of(times)
    ok = error <= 1e-12 and t.median <= OVERHEAD_LIMIT
    return Row(**labels(case, str(kernel.schedule)), **t.fields, error=error, ok=ok)

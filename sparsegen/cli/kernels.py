"""Commands that make a kernel of a file's stencil: ``gen``, ``run``, ``check`` and ``bench``."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, cast

from sparsegen.cli.common import FOUND, OK, SUITES, Args
from sparsegen.cli.files import default_shape, kernel, one, save, stencils, write
from sparsegen.ir.errors import ArrayError, DeviceError

if TYPE_CHECKING:
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.dsl.update import Update
    from sparsegen.kernel import Kernel
    from sparsegen.updates.kernel import UpdateKernel


def gen(args: Args) -> int:
    """Print or save what is generated."""
    k = kernel(args, one(args.file), backend="emulator", edge=10240)
    if args.export:
        print(k.export(args.export))
        return OK
    text = {"cuda": k.source, "ptx": k.ptx, "sass": k.sass}.get(args.level, lambda: k.ir(args.level))()
    write(text, args.out)
    return OK


def _field(args: Args, stencil: Stencil | Update) -> Any:
    """The input of ``run``: the .npy file, or random numbers of the shape; a dictionary for an update."""
    import numpy as np

    from sparsegen.dsl.update import Update
    from sparsegen.ir.types import DTYPES

    shape = args.shape or default_shape(512, stencil.ndim)
    if isinstance(stencil, Update):
        if args.input is not None:
            raise ArrayError("--in is one field, but an update may take several", hint="leave it away, or use Python")
        rng, dtype = np.random.default_rng(args.seed), DTYPES[stencil.dtype].numpy()
        levels = {p.name: tuple(rng.random(shape).astype(dtype) for _ in range(p.levels)) for p in stencil.parameters}
        return {name: found if len(found) > 1 else next(iter(found)) for name, found in levels.items()}
    if args.input is None:
        return np.random.default_rng(args.seed).random(shape).astype(DTYPES[stencil.dtype].numpy())
    try:
        found = np.load(args.input, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArrayError(f"cannot read {args.input}: it holds no array", hint="write it with numpy.save") from error
    if not isinstance(found, np.ndarray):
        raise ArrayError(f"{args.input} holds several arrays", hint="write one with numpy.save")
    return found


def _stacked(result: Any) -> Any:
    """The array of a result; several (fields, levels) one after the other on a new first axis."""
    import numpy as np

    if not isinstance(result, tuple):
        return result
    parts = [_stacked(part) if isinstance(part, tuple) else part[np.newaxis] for part in result]
    return np.concatenate(parts)


def run(args: Args) -> int:
    """Run a stencil on a field."""
    import time

    import numpy as np

    from sparsegen.products.product import Product

    stencil = one(args.file)
    if isinstance(stencil, Product):
        raise ArrayError("run is for stencils: a product needs its operands", hint="call its kernel from Python")
    u = _field(args, stencil)
    if args.input is not None:
        args.shape = args.shape or u.shape
    k = cast("Kernel | UpdateKernel", kernel(args, stencil, backend=args.backend, edge=512))
    start = time.perf_counter()
    out = k(**u) if isinstance(u, dict) else k(u)
    print(f"{k!r}\n{time.perf_counter() - start:.3g} s, host arrays in and out")
    inputs = u.items() if isinstance(u, dict) else [("in", u)]
    for name, a in (*inputs, ("out", out)):
        numbers = np.asarray(_stacked(a), np.float64)
        print(f"{name:<4} min {numbers.min():.6g}, mean {numbers.mean():.6g}, max {numbers.max():.6g}")
    if args.out:
        file = io.BytesIO()
        np.save(file, _stacked(out))
        save(args.out, file.getvalue(), "--out")
        print(f"written to {args.out}")
    return OK


def check(args: Args) -> int:
    """Run the emulator's checkers on each stencil of a file."""
    found = OK
    for stencil in stencils(args.file).values():
        k = kernel(args, stencil, backend="emulator", edge=256)
        report = k.check()
        print(f"{k!r}\n{report}")
        found = found if report.ok else FOUND
    return found


def bench(args: Args) -> int:
    """Time a stencil, or a suite."""
    if (args.suite is None) == (args.file is None):
        raise DeviceError("say what to measure", hint=f"a file, or --suite with one of {', '.join(SUITES)}")
    if args.file is not None:
        if args.out:
            raise ArrayError("--out is for the result of a suite", hint="drop it, or give --suite")
        k = kernel(args, one(args.file), backend=args.backend, edge=10240)
        print(f"{k!r}\n{k.bench(repeats=args.repeats)}")
        return OK
    from sparsegen.bench.command import measure

    return OK if measure(args) else FOUND

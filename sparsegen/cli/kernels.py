"""Commands that make a kernel of a file's stencil: ``gen``, ``run``, ``check`` and ``bench``."""

from __future__ import annotations

from typing import Any

from sparsegen.cli.common import FOUND, OK, SUITES, Args
from sparsegen.cli.files import kernel, load_array, one, save_array, stencils, summary, write
from sparsegen.cli.programs import SUFFIX, run_program
from sparsegen.ir.errors import ArrayError, DeviceError


def gen(args: Args) -> int:
    """Print or save what is generated."""
    k = kernel(args, one(args.file), backend="emulator", edge=10240)
    if args.export:
        print(k.export(args.export))
        return OK
    text = {"cuda": k.source, "ptx": k.ptx, "sass": k.sass}.get(args.level, lambda: k.ir(args.level))()
    write(text, args.out)
    return OK


def _stacked(result: Any) -> Any:
    """The array of a result; several (fields, levels) one after the other on a new first axis."""
    import numpy as np

    if not isinstance(result, tuple):
        return result
    parts = [_stacked(part) if isinstance(part, tuple) else part[np.newaxis] for part in result]
    return np.concatenate(parts)


def run(args: Args) -> int:
    """Run a stencil on a field, or a program in text form."""
    import time

    if args.file.endswith(SUFFIX):
        return run_program(args)
    if args.array:
        raise ArrayError("--array is for the roles of a program, FILE.sgir", hint="give a stencil's field with --in")
    stencil = one(args.file)
    given = None if args.input is None else load_array(args.input)
    if given is not None:
        if len(getattr(stencil, "parameters", ())) > 1:
            raise ArrayError("--in is one field, but an update may take several", hint="leave it away, or use Python")
        args.shape = args.shape or given.shape[args.batch is not None :]
    k = kernel(args, stencil, backend=args.backend, edge=512)
    u = k.random(args.seed)
    if given is not None:
        u = dict.fromkeys(u, given)
    start = time.perf_counter()
    out, records = k._calls.parted(k(**u))
    print(f"{k!r}\n{time.perf_counter() - start:.3g} s, host arrays in and out")
    for name, a in (*u.items(), ("out", out), *records.items()):
        print(f"{name:<4} {summary(_stacked(a))}")
    if args.out:
        save_array(args.out, _stacked(out))
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
        from sparsegen.target import resolve

        edge = 10240 if resolve(args.device, args.backend).backend == "cuda" else 512  # the emulator is slow
        k = kernel(args, one(args.file), backend=args.backend, edge=edge)
        print(f"{k!r}\n{k.bench(repeats=args.repeats)}")
        return OK
    from sparsegen.bench.command import measure

    return OK if measure(args) else FOUND

"""What ``sparsegen bench --suite`` does: measure, save after every row, print the tables."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from sparsegen.bench import (
    ablation,
    bitmap_run,
    bitmaps,
    csr_run,
    graphs,
    harness,
    regret_run,
    report,
    stencils,
    suites,
)
from sparsegen.bench.harness import SECONDS, Row
from sparsegen.bench.tables import PARTS
from sparsegen.ir.errors import DeviceError, SparsegenError
from sparsegen.target import gpu_info

#: Suites of stencils by hand-picked schedules.
SUITES = ("spine", "overhead")


def say(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def measure(args: Namespace) -> bool:
    """Measure the suite that the options name; whether every row is right and reaches its target.

    DeviceError without a GPU, or for options that are not this suite's; ArrayError where ``--out`` cannot be written.
    """
    known = PARTS.get(args.suite)
    if not known and (args.part or args.floor):
        raise DeviceError(f"suite {args.suite} has no parts and no floors", hint="drop --part and --floor")
    if known and (strange := sorted({*(args.part or ())} - {*known})):
        raise DeviceError(f"suite {args.suite} has no part {strange[0]}", hint=f"there are: {', '.join(known)}")
    if args.suite in ("bitmap", "regret", "csr") and args.cold:
        raise DeviceError(f"suite {args.suite} says itself what is measured cold", hint="drop --cold")
    if args.graph and args.suite != "csr":
        raise DeviceError(f"suite {args.suite} has no graphs", hint="drop --graph")
    if args.problems and args.suite != "regret":
        raise DeviceError(f"suite {args.suite} has no random problems", hint="drop --problems")
    if isinstance(gpu := gpu_info(), SparsegenError):
        raise DeviceError(f"a suite is measured on a GPU: {gpu.message}", hint=gpu.hint)
    out = Path(args.out) if args.out else None
    old = report.load(out) if out and out.exists() and known else None
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "little")
    head = report.header(args.seconds, args.cold, seed, args.commit)
    parts = list(dict.fromkeys(args.part or (known[:1] if args.quick else known))) if known else []

    def keep(rows: Sequence[report.AnyRow]) -> None:
        found = report.result(args.suite, rows, head)
        if out:
            report.save(report.merged(old, found) if old else found, out)

    if args.suite in ("stencil", "ablation"):
        cases = (stencils if args.suite == "stencil" else ablation).cases(parts)
        rows: Sequence[report.AnyRow] = harness.run(cases, args.seconds, args.cold, seed, say, args.floor or (), keep)
    elif args.suite == "bitmap":
        head["tolerance"] = {**head["tolerance"], **bitmap_run.TOLERANCE}
        bench = bitmap_run.Products(harness.Lab(), seed, args.seconds)
        rows = bitmap_run.run(bitmaps.cases(parts), bench, say, args.floor or (), keep)
    elif args.suite == "csr":
        head["tolerance"] = csr_run.TOLERANCE
        products, file = bitmap_run.Products(harness.Lab(), seed, args.seconds), args.graph and Path(args.graph)
        rows = csr_run.run(args.part or graphs.PARTS, file, args.quick, products, say, keep)
    elif args.suite == "regret":
        head["tolerance"] = {**head["tolerance"], **bitmap_run.TOLERANCE}
        rows = regret_run.run(parts, seed, args.seconds, say, keep, args.problems)
    else:
        rows = run_suite(args.suite, args.quick, args.seconds, args.cold, seed, say)
    if report.origin(args.commit).sources != head["sources"]:
        head["dirty"] = True
        say("the sources changed while they were measured")
    keep(rows)
    print(report.text(report.result(args.suite, rows, head)))
    return all(row.ok for row in rows)


def run_suite(
    name: str,
    quick: bool = False,
    seconds: float = SECONDS,
    cold: bool = False,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """The rows of a suite, measured on this machine's GPU; DeviceError where there is none."""
    if name == "overhead":
        return [suites.overhead()]
    if name == "spine":
        return harness.run(suites.spine(quick), seconds, cold, seed, say)
    raise DeviceError(f"no suite {name!r}", hint=f"there are: {', '.join(SUITES)}")

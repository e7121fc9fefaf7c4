"""What ``sparsegen bench --suite`` does: measure, save after every row, print the tables."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sparsegen.bench import (  # fmt: skip
    ablation,
    auto,
    batches,
    bitmap_run,
    bitmaps,
    csr_run,
    floors,
    graphs,
    magicube,
    magicube_run,
    models,
    models_run,
    nm,
    regret_run,
    report,
    stencil_run,
    stencils,
    suites,
    unstructured,
    unstructured_run,
    update_run,
    updates,
)
from sparsegen.bench.harness import AnyRow
from sparsegen.bench.lab import Lab
from sparsegen.bench.tables import PARTS
from sparsegen.ir.errors import DeviceError, SparsegenError
from sparsegen.target import gpu_info

Keep = Callable[[Sequence[AnyRow]], None]
_STENCILS: Final = ("spine", "stencil", "ablation")
#: Options that only some suites have, and what is said to the others.
_OWN: Final = {
    "part": ((*PARTS,), "has no parts"),
    "floor": (("stencil", "ablation", "updates", "bitmap", "nm", "magicube", "unstructured"), "has no floors"),
    "cold": (_STENCILS, "says itself what is measured cold"),
    "graph": (("csr",), "has no graphs"),
    "data": (("magicube", "unstructured"), "takes no folder of patterns"),
    "problems": (("regret",), "has no random problems"),
}


def say(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def measure(args: Namespace) -> bool:
    """Measure the suite that the options name; whether every row is right and reaches its target.

    DeviceError without a GPU, or for options that are not this suite's; ArrayError where ``--out`` cannot be written.
    """
    for option, (having, why) in _OWN.items():
        if getattr(args, option) and args.suite not in having:
            raise DeviceError(f"suite {args.suite} {why}", hint=f"drop --{option}")
    known = PARTS.get(args.suite, ())
    if strange := sorted({*(args.part or ())} - {*known}):
        raise DeviceError(f"suite {args.suite} has no part {strange[0]}", hint=f"there are: {', '.join(known)}")
    if isinstance(gpu := gpu_info(), SparsegenError):
        raise DeviceError(f"a suite is measured on a GPU: {gpu.message}", hint=gpu.hint)
    out = Path(args.out) if args.out else None
    old = report.load(out) if out and out.exists() and known else None
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "little")
    head = report.header(args.seconds, args.cold, seed, args.commit)

    def keep(rows: Sequence[AnyRow]) -> None:
        found = report.result(args.suite, rows, head)
        if out:
            report.save(report.merged(old, found) if old else found, out)

    found = rows(args, list(dict.fromkeys(args.part or (known[:1] if args.quick else known))), seed, keep)
    if report.origin(args.commit).sources != head["sources"]:
        head["dirty"] = True
        say("the sources changed while they were measured")
    keep(found)
    print(report.text(report.result(args.suite, found, head)))
    return all(row.ok for row in found)


def rows(args: Namespace, parts: Sequence[str], seed: int, keep: Keep) -> Sequence[AnyRow]:
    """The rows of a suite, measured on this machine's GPU; ``keep`` gets those that there are after each one."""
    if args.suite == "overhead":
        return [suites.overhead()]
    if args.suite == "batches":
        return batches.Batches(Lab(), seed, args.seconds).run(batches.cases(args.quick), say, (), keep)
    if args.suite == "regret":
        return regret_run.run(parts, seed, args.seconds, say, keep, args.problems)
    if args.suite == "bitmap":
        bench = bitmap_run.Bitmaps(Lab(), seed, args.seconds)
        return bench.run(bitmaps.cases(parts), say, args.floor or floors.own(args.suite, parts), keep)
    if args.suite == "updates":
        systems = update_run.Updates(Lab(), seed, args.seconds)
        return systems.run(updates.cases(parts), say, args.floor or floors.own(args.suite, parts), keep)
    if args.suite == "auto":
        return auto.Auto(Lab(), seed, args.seconds).run(auto.cases(args.quick), say, (), keep)
    if args.suite == "nm":
        patterns = nm.Patterns(Lab(), seed, args.seconds)
        return patterns.run(nm.cases(parts), say, args.floor or floors.own(args.suite, parts), keep)
    if args.suite == "magicube":
        vectors = magicube_run.Vectors(Lab(), seed, args.seconds)
        cases = magicube.cases(parts, args.data and Path(args.data))
        return vectors.run(cases, say, args.floor or floors.own(args.suite, parts), keep)
    if args.suite == "unstructured":
        products = unstructured_run.Unstructured(Lab(), seed, args.seconds)
        asked = unstructured.cases(parts, args.data and Path(args.data), seed)
        return products.run(asked, say, args.floor or floors.own(args.suite, parts), keep)
    if args.suite == "models":
        return models_run.Models(seed).run(models.cases(parts, args.quick), say, keep)
    if args.suite == "csr":
        found = graphs.parts(args.part or graphs.PARTS, args.graph and Path(args.graph))
        each = [case for part, name, _ in found for case in graphs.cases(part, name, args.quick)]
        return csr_run.Graphs(Lab(), seed, args.seconds, found).run(each, say, (), keep)
    of = {"stencil": stencils.cases, "ablation": ablation.cases, "spine": lambda _: suites.spine(args.quick)}
    kit = stencil_run.Stencils(Lab(seed=seed), args.seconds, args.cold)
    return kit.run(of[args.suite](parts), say, args.floor or floors.own(args.suite, parts), keep)

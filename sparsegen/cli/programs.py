"""Commands on programs in text form: ``opt`` runs passes on one, ``run`` executes one of the warp level."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsegen.cli.common import FOUND, OK, Args
from sparsegen.cli.files import execute, load_array, save_array, summary, write
from sparsegen.ir.errors import ArrayError, DeviceError, IRError

if TYPE_CHECKING:
    from sparsegen.ir.module import Module

SUFFIX = ".sgir"


def program(file: str) -> Module:
    """The module that a file holds, or standard input for ``-``; IRError if it cannot be read."""
    from sparsegen.ir.parse import parse_module

    if file == "-":
        return parse_module(sys.stdin.read(), file="<stdin>")
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise IRError(f"cannot read {file}: {error}", hint="name an .sgir file, or - for standard input") from error
    return parse_module(text, file=file)


def opt(args: Args) -> int:
    """Run passes on a program."""
    from sparsegen.ir import passes
    from sparsegen.ir.text import print_module

    for file in args.load or ():
        execute(file)
    if args.list:
        print("\n".join(passes.pass_names()))
        return OK

    class Timed(passes.Manager):
        def _apply(self, p: passes.Pass, module: Module) -> Module:
            start = time.perf_counter()
            out = super()._apply(p, module)
            print(f"{1e3 * (time.perf_counter() - start):8.2f} ms  {passes.print_pipeline([p])}", file=sys.stderr)
            return out

    manager = (Timed if args.timing else passes.Manager)(passes.parse_pipeline(args.passes), verify_each=True)
    write(print_module(manager.run(program(args.file))), args.out)
    return OK


def run_program(args: Args) -> int:
    """Run a warp program on arrays of its roles."""
    from sparsegen import standalone, target
    from sparsegen.ir.verify import verify

    if args.shape or args.input or args.schedule != "auto":
        raise ArrayError(f"--shape, --in and --schedule are for stencils, not for {args.file}",
                         hint="a program has its sizes; give its arrays with --array ROLE=FILE.npy")  # fmt: skip
    module = program(args.file)
    verify(module)
    given = {role: load_array(file) for role, file in map(_named, args.array or ())}
    data = standalone.arrays(module, given, args.seed)
    known = standalone.roles(module)
    out, file = _result(args.out, known) if args.out else ("", "")
    where = target.resolve(args.device, args.backend)
    if where.backend == "reference":
        raise DeviceError("a program has no reference", hint="--backend emulator, or cuda")
    for name, role in known.items():
        how = (
            f"from {args.file}"
            if name in module.constants
            else "zeros"
            if role.written
            else f"random, seed {args.seed}"
        )
        print(f"{name:<16} {role.dtype}[{role.size}], {'given' if name in given else how}")
    found = OK
    if where.gpu is not None and where.backend == "cuda":
        standalone.on_gpu(module, data, target.open_gpu(where.gpu), args.file)
        print(f"launched on {where.profile.name}: {', '.join(f.symbol for f, _ in standalone.launches(module))}")
    else:
        for symbol, report in standalone.on_emulator(module, data, args.seed):
            print(f"\n{symbol} on the emulator: {report}")
            print("\n".join(f"  {name:<28} {n:>16,}" for name, n in sorted(report.counts.items())))
            found = found if report.ok else FOUND
    print()
    for name, role in known.items():
        if role.written:
            print(f"{name:<16} {summary(data[name])}")
    if out:
        shapes = [a.shape for a in given.values() if a.size == data[out].size]
        save_array(file, data[out].reshape(shapes[0] if shapes else -1))
        print(f"{out} written to {file}")
    return found


def _named(text: str) -> tuple[str, str]:
    """``ROLE=FILE`` in two."""
    role, equals, file = text.partition("=")
    if not equals:
        raise ArrayError(f"{text!r} names no role", hint="write --array in=FILE.npy")
    return role, file


def _result(text: str, known: Any) -> tuple[str, str]:
    """The role that is saved, and the file: ``ROLE=FILE``, or the file of the role ``out``."""
    role, file = _named(text) if "=" in text else ("out", text)
    if role not in known:
        raise ArrayError(f"no launch has an array {role!r}", hint=f"write --out ROLE=FILE.npy; of {', '.join(known)}")
    return role, file

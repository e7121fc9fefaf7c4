"""The command line: what the Python interface does, for files.  Nothing heavy is imported before a command runs."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsegen._version import __version__
from sparsegen.ir.errors import ArrayError, DeviceError, IRError, SparsegenError, StencilError

if TYPE_CHECKING:
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.dsl.update import Update
    from sparsegen.kernel import Kernel
    from sparsegen.updates.kernel import UpdateKernel

#: Exit codes: fine; the checkers found an error, or a measurement missed; the input is wrong.
OK, FOUND, WRONG = 0, 1, 2
LEVELS = ("op", "tile", "warp", "cuda", "ptx", "sass")
SUITES = ("spine", "overhead", "ablation", "stencil", "bitmap", "regret")
PARTS = (
    "targets", "boundaries", "odd", "f32", "single", "sweep", "widths", "bf16", "dlmc", "encode", "stencils",
    "products",
)  # fmt: skip
Args = argparse.Namespace


# ------------------------------------------------------------------------------------------------------ reading words
def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write it as 1024x1024")
    return tuple(map(int, text.split("x")))


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _default_shape(edge: int, ndim: int) -> tuple[int, ...]:
    """A row, a square or a cube of about ``edge`` x ``edge`` cells."""
    return (round(edge ** (2 / ndim)),) * ndim


def stencils(where: str) -> dict[str, Stencil | Update]:
    """The stencils and updates that a Python file defines, by name, in its order; ``FILE.py:NAME`` is one of them.

    The file is run, but not as ``__main__``.  StencilError if it cannot be, or defines none of that name.
    """
    import importlib.machinery
    import importlib.util

    from sparsegen.dsl.stencil import Stencil
    from sparsegen.dsl.update import Update

    file, _, name = where.partition(":") if not re.match(r"[A-Za-z]:[\\/]", where) else (where, "", "")
    path = Path(file).resolve()
    if not path.is_file():
        raise StencilError(f"there is no file {file}", hint="name a Python file, FILE.py or FILE.py:NAME")
    loader = importlib.machinery.SourceFileLoader(f"file_{path.stem}", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    try:
        loader.exec_module(module)
    except SparsegenError:
        raise
    except (Exception, SystemExit) as error:
        raise StencilError(
            f"{file} cannot be run: {type(error).__name__}: {error}", hint=f"try python {file}; --debug shows where"
        ) from error
    found = {n: v for n, v in vars(module).items() if isinstance(v, (Stencil, Update))}
    if name:
        if name not in found:
            raise StencilError(f"{file} defines no stencil {name!r}", hint=f"it defines: {', '.join(found) or 'none'}")
        return {name: found[name]}
    if not found:
        raise StencilError(f"{file} defines no stencil", hint="make one at its top level, as with @sg.stencil")
    return found


def _one(where: str) -> Stencil | Update:
    found = stencils(where)
    if len(found) > 1:
        raise StencilError(
            f"{where} defines {len(found)} stencils", hint=f"say which: {where}:NAME of {', '.join(found)}"
        )
    return next(iter(found.values()))


def _kernel(
    args: Args, stencil: Stencil | Update, *, backend: str, edge: int, device: str | None = None
) -> Kernel | UpdateKernel:
    """The kernel that the options describe; ``edge`` is that of a square with as many cells where no shape is given."""
    import sparsegen as sg

    shape = args.shape or _default_shape(edge, stencil.ndim)
    return sg.compile(stencil, shape, args.steps, device or args.device, backend, args.schedule)


# ----------------------------------------------------------------------------------------------------------- commands
def _explain(args: Args) -> int:
    from sparsegen.bench.report import columns

    summary = [["stencil", "device", "predicted GS/s", "bound by", "schedule"]]
    devices = args.device or ["auto"]
    for stencil in stencils(args.file).values():
        for device in devices:
            k = _kernel(args, stencil, backend="auto", edge=10240, device=device)
            if len(summary) > 1:
                print(f"\n{'-' * 100}\n")
            print(k.explain())
            summary.append([stencil.name, k.device.name, f"{k.cost.rate:.0f}", k.cost.binds, str(k.schedule)])
    if len(summary) > 2:
        print(f"\n{'-' * 100}\n\n{columns(summary)}")
    return OK


def _gen(args: Args) -> int:
    k = _kernel(args, _one(args.file), backend="emulator", edge=10240)
    if args.export:
        print(k.export(args.export))
        return OK
    text = {"cuda": k.source, "ptx": k.ptx, "sass": k.sass}.get(args.level, lambda: k.ir(args.level))()
    _write(text, args.out)
    return OK


def _write(text: str, out: str | None) -> None:
    text = text.rstrip("\n") + "\n"
    if out is not None:
        _save(out, text.encode())
    else:
        sys.stdout.write(text)


def _save(out: str, data: bytes) -> None:
    try:
        Path(out).write_bytes(data)
    except OSError as error:
        raise ArrayError(f"cannot write {out}: {error.strerror}", hint="name another file for --out") from error


def _field(args: Args, stencil: Stencil | Update) -> Any:
    """The input of ``run``: the .npy file, or random numbers of the shape; a dictionary for an update."""
    import numpy as np

    from sparsegen.dsl.update import Update
    from sparsegen.ir.types import DTYPES

    shape = args.shape or _default_shape(512, stencil.ndim)
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


def _run(args: Args) -> int:
    import time

    import numpy as np

    stencil = _one(args.file)
    u = _field(args, stencil)
    if args.input is not None:
        args.shape = args.shape or u.shape
    k = _kernel(args, stencil, backend=args.backend, edge=512)
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
        _save(args.out, file.getvalue())
        print(f"written to {args.out}")
    return OK


def _check(args: Args) -> int:
    found = OK
    for stencil in stencils(args.file).values():
        k = _kernel(args, stencil, backend="emulator", edge=256)
        report = k.check()
        print(f"{k!r}\n{report}")
        found = found if report.ok else FOUND
    return found


def _bench(args: Args) -> int:
    if (args.suite is None) == (args.file is None):
        raise DeviceError("say what to measure", hint=f"a file, or --suite with one of {', '.join(SUITES)}")
    if args.file is not None:
        if args.out:
            raise ArrayError("--out is for the result of a suite", hint="drop it, or give --suite")
        k = _kernel(args, _one(args.file), backend=args.backend, edge=10240)
        print(f"{k!r}\n{k.bench(repeats=args.repeats)}")
        return OK
    from sparsegen.bench.command import measure

    return OK if measure(args) else FOUND


def _devices(args: Args) -> int:
    from sparsegen.backends.cuda.nvcc import find_nvcc
    from sparsegen.bench.report import columns
    from sparsegen.cost.devices import load_profile, names
    from sparsegen.target import gpu_info, launcher, profile_of

    rows = [["profile", "device", "arch", "SMs", "MHz", "DRAM GB/s", "shared KiB/block", "f64 mma TFLOP/s", ""]]
    for name in names():
        p = load_profile(name)
        rate = max((2 * _volume(s) / c for s, c in p.cpi_table if s.startswith("f64.m")), default=0.0)
        rows.append(
            [name, p.name, p.arch, str(p.sms), f"{p.clock_mhz:.0f}", f"{p.hbm_copy_gbs:.0f}", f"{p.smem_block // 1024}",
             f"{rate * p.tensor_cores * p.clock / 1e12:.3g}" if rate else "–", "costs only" if p.explain_only else ""]
        )  # fmt: skip
    print(columns(rows))
    gpu = gpu_info()
    if isinstance(gpu, SparsegenError):
        print(f"\nGPU here: none ({gpu.message})")
    else:
        profile, note = profile_of(gpu)
        memory = f"{gpu.memory_bytes / 2**30:.0f} GiB"
        print(f"\nGPU here: {gpu.name} ({gpu.arch}), {gpu.sm_count} SMs, {memory}; launches through {launcher()}")
        print(f"profile: {note or profile.name}")
    try:
        nvcc = find_nvcc()
        print(f"nvcc: {nvcc.version} ({nvcc.path}, found by {nvcc.tool.found_in})")
    except SparsegenError as error:
        print(f"nvcc: none ({error.message})")
    return OK


def _volume(shape: str) -> int:
    """Multiply-adds of an mma such as ``f64.m16n8k4``."""
    m, n, k = map(int, re.findall(r"(?<=[mnk])\d+", shape.rpartition(".")[2]))
    return m * n * k


def _opt(args: Args) -> int:
    import pkgutil
    from importlib import import_module

    from sparsegen.ir import passes
    from sparsegen.ir.parse import parse_module
    from sparsegen.ir.text import print_module

    for found in pkgutil.iter_modules(passes.__path__, f"{passes.__name__}."):
        import_module(found.name)
    if args.list:
        print("\n".join(sorted(passes.PASSES)))
        return OK
    if args.file == "-":
        name, text = "<stdin>", sys.stdin.read()
    else:
        name = args.file
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise IRError(f"cannot read {name}: {error}", hint="name an .sgir file, or - for standard input") from error
    manager = passes.Manager(passes.parse_pipeline(args.passes), verify_each=True)
    _write(print_module(manager.run(parse_module(text, file=name))), args.out)
    if args.timing:
        print(manager.report(), file=sys.stderr)
    return OK


def _cache(args: Args) -> int:
    from sparsegen.backends.cuda.cache import default_cache
    from sparsegen.tuning import store

    cache = default_cache()
    if args.what == "clear":
        print(f"{cache.clear()} entries removed from {cache.folder}, and {store.clear()} tuned schedules")
        return OK
    info = cache.info()
    print(f"{info.folder}\n{info.entries} entries, {info.nbytes / 2**20:.1f} MiB of {info.limit / 2**20:.0f} MiB")
    found = [*map(str, store.records())]
    print("\n".join([f"{len(found)} tuned schedules", *found]))
    return OK


# -------------------------------------------------------------------------------------------------------- the options
def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="sparsegen", description="A compiler of stencils for GPUs and tensor cores.")
    top.add_argument("--version", action="version", version=f"sparsegen {__version__}")
    top.add_argument("--debug", action="store_true", help="errors with a Python traceback")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, act: Callable[[Args], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(act=act)
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        return sub

    def kernel(sub: argparse.ArgumentParser, edge: int, optional: bool = False, many: bool = False) -> None:
        what = "Python file that defines stencils or updates (@sg.stencil), or FILE.py:NAME"
        sub.add_argument("file", metavar="FILE.py[:NAME]", nargs="?" if optional else None, help=what)
        if many:
            sub.add_argument("--device", action="append", help="h200, a100, …, auto, or a .toml file; may be repeated")
        else:
            sub.add_argument("--device", default="auto", help="h200, a100, …, auto (default), or a .toml file")
        cells = f"such as 1024x1024 (default: {edge}x{edge}, or a row or cube of as many)"
        sub.add_argument("--shape", type=_shape, help=f"cells of each axis, {cells}")
        sub.add_argument("--steps", type=_count, default=12, help="time steps (default: 12)")
        sub.add_argument("--schedule", default="auto", help="a schedule's line (default: auto, the cheapest)")

    def backend(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--backend", default="auto", choices=("auto", "cuda", "emulator", "reference"))

    kernel(add("explain", _explain, "why a schedule: its cost, what binds it, what was rejected"), 10240, many=True)

    sub = add("gen", _gen, "print or save what is generated, at any level")
    kernel(sub, 10240)
    sub.add_argument("--level", choices=LEVELS, default="cuda", help="default: cuda; ptx and sass need nvcc")
    sub.add_argument("--out", help="file to save it in")
    sub.add_argument("--export", metavar="FILE.cu", help="save a self-contained CUDA file with a C launcher instead")

    sub = add("run", _run, "run a stencil on a field")
    kernel(sub, 512)
    backend(sub)
    sub.add_argument("--in", dest="input", metavar="U.npy", help="the field of a stencil (default: random numbers)")
    sub.add_argument("--out", metavar="OUT.npy", help="file for the result (several fields: stacked)")
    sub.add_argument("--seed", type=int, default=0, help="of the random field")

    sub = add("check", _check, "run the emulator's checkers; exit status 1 if they find an error")
    kernel(sub, 256)

    sub = add("bench", _bench, "time a stencil, or a suite with its report")
    kernel(sub, 10240, optional=True)
    backend(sub)
    sub.add_argument("--repeats", type=_count, default=10, help="of a file's stencil (default: 10)")
    sub.add_argument("--suite", choices=SUITES, help="measure a suite, on a GPU")
    sub.add_argument("--part", action="append", choices=PARTS, help="of suite stencil or bitmap; may be repeated")
    sub.add_argument("--floor", action="append", metavar="'FILE.cu WORDS'", help="run this beside these suites")
    sub.add_argument("--out", metavar="FILE.json", help="file for a suite's result; other parts in it are kept")
    sub.add_argument("--quick", action="store_true", help="a suite's main rows only")
    sub.add_argument("--problems", type=_count, help="of each part of suite regret (default: 28 and 12)")
    sub.add_argument("--seconds", type=float, default=0.1, help="of timed calls a row (default: 0.1)")
    sub.add_argument("--cold", action="store_true", help="read 256 MB before each timed call")
    sub.add_argument("--seed", type=int, help="of the random fields (default: a new one)")
    sub.add_argument(
        "--commit", help="the commit that this copy of the sources is of, where its .git is missing or older"
    )

    from sparsegen.calibrate.command import act, add_options

    add_options(add("calibrate", act, "measure this machine's GPU, and keep its profile"))
    add("devices", _devices, "the device profiles, and the GPU and compiler that are here")

    sub = add("opt", _opt, "run passes on a program in text form")
    sub.add_argument("file", nargs="?", default="-", help=".sgir file (default: -, standard input)")
    sub.add_argument("-p", "--passes", default="", help='such as "direct{rows=8,cols=32},to-warp"')
    sub.add_argument("--out", help="file to save the program in")
    sub.add_argument("--list", action="store_true", help="name the passes")
    sub.add_argument("--timing", action="store_true", help="milliseconds of each pass, on standard error")

    sub = add("cache", _cache, "the cache of compiled kernels and tuned schedules")
    sub.add_argument("what", choices=("info", "clear"))
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    args = parser().parse_args(argv)
    try:
        status: int = args.act(args)
        sys.stdout.flush()
        return status
    except SparsegenError as error:
        if args.debug:
            raise
        if error.loc is not None and _is_ours(error.loc.file):
            error.loc = None  # the line of the command itself says nothing
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return WRONG
    except BrokenPipeError:  # as in: sparsegen gen … | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _is_ours(file: str) -> bool:
    return file.startswith("<frozen") or Path(file).resolve() in {
        Path(sys.argv[0]).resolve(),
        Path(__file__).resolve().with_name("__main__.py"),
    }

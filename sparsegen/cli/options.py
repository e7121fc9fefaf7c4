"""The options of every command.  A new command is registered in :func:`parser`, and its work is done in a module."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from sparsegen._version import __version__
from sparsegen.calibrate.command import act as calibrate
from sparsegen.calibrate.command import add_options as add_calibration
from sparsegen.cli.common import LEVELS, SUITES, Args
from sparsegen.cli.completion import SHELLS, completion
from sparsegen.cli.explain import explain
from sparsegen.cli.kernels import bench, check, gen, run
from sparsegen.cli.programs import opt
from sparsegen.cli.tools import cache, devices


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write it as 1024x1024")
    return tuple(map(int, text.split("x")))


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """All commands and their options: to add one, ``add`` it below with the function that does its work."""
    top = argparse.ArgumentParser(
        prog="sparsegen", description="A compiler of stencils and sparse products for GPUs and tensor cores."
    )
    top.add_argument("--version", action="version", version=f"sparsegen {__version__}")
    top.add_argument("--debug", action="store_true", help="errors with a Python traceback")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, act: Callable[[Args], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(act=act)
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        return sub

    def kernel(sub: argparse.ArgumentParser, size: str, optional: bool = False, many: bool = False) -> None:
        what = "Python file that defines stencils (@sg.stencil) or products (sg.spmm), or FILE.py:NAME"
        sub.add_argument("file", metavar="FILE.py[:NAME]", nargs="?" if optional else None, help=what)
        if many:
            sub.add_argument("--device", action="append", help="h200, a100, …, auto, or a .toml file; may be repeated")
        else:
            sub.add_argument("--device", default="auto", help="h200, a100, …, auto (default), or a .toml file")
        cells = f"such as 1024x1024 (default: {size}, or a row or cube of as many)"
        sub.add_argument("--shape", type=_shape, help=f"cells of each axis, {cells}")
        sub.add_argument("--steps", type=_count, default=12, help="time steps (default: 12)")
        sub.add_argument("--schedule", default="auto", help="a schedule's line (default: auto, the cheapest)")
        sub.add_argument("--batch", type=_count, metavar="N", help="grids that a call works on, each as by itself")
        shared = "a coefficient or source that all items of a batch share; repeatable"
        sub.add_argument("--shared", action="append", default=[], metavar="NAME", help=shared)

    def backend(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--backend", default="auto", choices=("auto", "cuda", "emulator", "reference"))

    sub = add(
        "explain", explain, "why a schedule: its cost, what binds it, what was rejected; of several devices a table"
    )
    kernel(sub, "10240x10240", many=True)
    sub.add_argument("--json", action="store_true", help="one JSON document with the pages of all devices instead")
    sub.add_argument("--picture", metavar="FILE.svg", help="file for the rooflines, side by side")

    sub = add("gen", gen, "print or save what is generated, at any level")
    kernel(sub, "10240x10240")
    sub.add_argument("--level", choices=LEVELS, default="cuda", help="default: cuda; ptx and sass need nvcc")
    sub.add_argument("--out", help="file to save it in")
    sub.add_argument("--export", metavar="FILE.cu", help="save all passes as a CUDA file with a C launcher, and FILE.h")

    sub = add("run", run, "run a stencil on a field, or a warp program in text form (FILE.sgir) on arrays of its roles")
    kernel(sub, "512x512")
    backend(sub)
    sub.add_argument("--in", dest="input", metavar="U.npy", help="the field of a stencil (default: random numbers)")
    sub.add_argument("--array", action="append", metavar="ROLE=A.npy", help="an array of a program; repeatable")
    sub.add_argument("--out", metavar="OUT.npy", help="file for the result (several fields: stacked; ROLE=OUT.npy)")
    sub.add_argument("--seed", type=int, default=0, help="of random arrays and of the emulator's order of warps")

    sub = add("check", check, "run the emulator's checkers; exit status 1 if they find an error")
    kernel(sub, "256x256")

    sub = add("bench", bench, "time a stencil, or a suite with its report")
    kernel(sub, "10240x10240 on a GPU, else 512x512", optional=True)
    backend(sub)
    sub.add_argument("--repeats", type=_count, default=10, help="of a file's stencil (default: 10)")
    sub.add_argument("--suite", choices=SUITES, help="measure a suite, on a GPU")
    sub.add_argument("--part", action="append", metavar="NAME", help="of suites with parts; repeatable")
    sub.add_argument("--floor", action="append", metavar="'FILE.cu WORDS'", help="run it, not benchmarks/floors")
    sub.add_argument("--out", metavar="FILE.json", help="file for a suite's result; other parts in it are kept")
    sub.add_argument("--quick", action="store_true", help="a suite's main rows only")
    sub.add_argument("--graph", metavar="FILE.mtx", help="a graph for suite csr, besides the one that it makes")
    sub.add_argument("--data", metavar="FOLDER", help="patterns, *.smtx, for suites magicube and unstructured")
    sub.add_argument("--problems", type=_count, help="of each part of suite regret (default: 10 to 40)")
    sub.add_argument("--seconds", type=float, default=0.1, help="of timed calls a row (default: 0.1)")
    sub.add_argument("--cold", action="store_true", help="read 256 MB before each timed call")
    sub.add_argument("--seed", type=int, help="of the random fields and problems (default: a new one)")
    sub.add_argument(
        "--commit", help="the commit that this copy of the sources is of, where its .git is missing or older"
    )

    add_calibration(add("calibrate", calibrate, "measure this machine's GPU, and keep its profile"))

    add("devices", devices, "the device profiles, and the GPU and compiler that are here")

    sub = add("opt", opt, "run passes on a program in text form")
    sub.add_argument("file", nargs="?", default="-", help=".sgir file (default: -, standard input)")
    sub.add_argument("-p", "--passes", default="", help='such as "direct{rows=8,cols=32},to-warp"')
    sub.add_argument("--load", action="append", metavar="PASS.py", help="run a file that registers passes; repeatable")
    sub.add_argument("--out", help="file to save the program in")
    sub.add_argument("--list", action="store_true", help="name the passes")
    sub.add_argument("--timing", action="store_true", help="milliseconds of each pass, on standard error")

    sub = add("cache", cache, "the cache of compiled kernels and tuned schedules")
    sub.add_argument("what", choices=("info", "clear"))

    sub = add("completion", completion, "print what a shell reads to complete commands, options and values on TAB")
    sub.add_argument("shell", choices=SHELLS)
    sub.epilog = 'bash and zsh: eval "$(sparsegen completion bash)"; fish: sparsegen completion fish | source'
    return top

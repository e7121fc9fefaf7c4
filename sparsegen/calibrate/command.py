"""What ``sparsegen calibrate`` does: measure this machine's GPU and keep its profile."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from sparsegen._version import __version__
from sparsegen.ir.errors import DeviceError

from . import SECONDS


def _seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 10:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds from 0.01 to 10")
    return value


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of the command."""
    sub.add_argument(
        "--out", metavar="FILE.toml", help="file for the profile (default: where sparsegen finds it again)"
    )
    sub.add_argument("--device", type=int, default=0, metavar="N", help="number of the GPU (default: 0)")
    sub.add_argument("--seconds", type=_seconds, default=SECONDS, help=f"of work a figure (default: {SECONDS})")


def act(args: argparse.Namespace) -> int:
    """Measure, then write: an old profile stays as it is unless everything went well."""
    from sparsegen.backends.cuda.nvcc import find_nvcc
    from sparsegen.bench.report import driver_version
    from sparsegen.target import launcher, open_gpu

    from . import profile, store
    from .run import calibrate

    runtime = open_gpu(args.device)
    gpu, nvcc = runtime.info(), find_nvcc()
    path = Path(args.out) if args.out else store.path_of(gpu.name)
    store.writable(path)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    setting = {"date": date, "driver": driver_version(), "nvcc": nvcc.version, "sparsegen": __version__,
               "launcher": launcher()}  # fmt: skip
    try:
        found = calibrate(runtime, partial(print, file=sys.stderr, flush=True), seconds=args.seconds)
        written = profile.text(gpu, found, setting)
        profile.checked(written)
    except DeviceError as error:
        kept = f"the old profile {path} is kept" if path.exists() else "no profile is written"
        raise DeviceError(f"{error.message}; {kept}", hint=error.hint) from error
    store.save(written, path)
    print(written, end="")
    use = f"use it as device={str(path)!r}" if args.out else "used from now on for this GPU"
    print(f"# written to {path} after {found.seconds:.0f} s; {use}")
    return 0

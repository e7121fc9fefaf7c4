"""Commands that need no stencil: ``devices``, ``opt`` and ``cache``."""

from __future__ import annotations

import sys
from pathlib import Path

from sparsegen.cli.common import OK, Args
from sparsegen.cli.files import write
from sparsegen.ir.errors import IRError, SparsegenError


def devices(args: Args) -> int:
    """List profiles, and what is here."""
    from sparsegen.backends.cuda.nvcc import find_nvcc
    from sparsegen.bench.report import columns
    from sparsegen.cost.devices import load_profile, names
    from sparsegen.explain.roofline import fastest_mma, mma_rate
    from sparsegen.target import gpu_info, launcher, profile_of

    rows = [["profile", "device", "arch", "SMs", "MHz", "DRAM GB/s", "shared KiB/block", "f64 mma TFLOP/s", ""]]
    for name in names():
        p = load_profile(name)
        shape = fastest_mma(p, "f64")
        rows.append(
            [name, p.name, p.arch, str(p.sms), f"{p.clock_mhz:.0f}", f"{p.hbm_copy_gbs:.0f}", f"{p.smem_block // 1024}",
             f"{mma_rate(p, shape) / 1e12:.3g}" if shape else "–", "costs only" if p.explain_only else ""]
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


def opt(args: Args) -> int:
    """Run passes on a program."""
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
    write(print_module(manager.run(parse_module(text, file=name))), args.out)
    if args.timing:
        print(manager.report(), file=sys.stderr)
    return OK


def cache(args: Args) -> int:
    """Show or clear the cache, and what ``sg.tune`` remembers."""
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

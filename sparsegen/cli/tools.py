"""Commands that need no file: ``devices`` and ``cache``."""

from __future__ import annotations

from sparsegen.cli.common import OK, Args
from sparsegen.ir.errors import SparsegenError


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

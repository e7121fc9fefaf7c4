"""The micro-kernels: legal, clean on the emulator, and what nvcc makes of their loops is what they claim to measure."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from sparsegen.backends import emulator
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import CompileResult, compile_cubin
from sparsegen.backends.cuda.sass import count_mnemonics, disassemble, split_functions
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.calibrate import compute, memory
from sparsegen.calibrate.lab import UNIT, units
from sparsegen.calibrate.plan import plan
from sparsegen.calibrate.probe import Probe
from sparsegen.ir.fragments import SHAPES, shapes_of, signed
from sparsegen.ir.module import Module
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.ir.types import Buffer
from sparsegen.ir.verify import verify
from tests.calibrate.bench_gpu import FREE, GPU

MMAS = tuple(dict.fromkeys(map(signed, SHAPES)))  # those that are measured
#: Small enough for the emulator: two blocks, buffers of a few tiles.
PROBES: dict[str, Probe] = {
    p.name: p
    for p in (
        *(compute.mma(shape, 2) for shape in MMAS),
        *(compute.rate(name, 2) for name in compute.RATES),
        compute.barrier(2), compute.empty(), memory.shared(2), memory.l2(2, 8),
        *(memory.stream(what, 1 << 15) for what in ("read", "write", "copy")),
        memory.chase("shared", 256, 1, "", in_shared=True), memory.chase("l1", 64, 32, ""),
        memory.chase("l2", 128, 32, "cg"), memory.chase("dram", 64, 1024, "cg"),
    )
}  # fmt: skip
ARCHS = {"sm_80": (8, 0), "sm_89": (8, 9), "sm_90a": (9, 0)}


def launch(probe: Probe, **values: int) -> tuple[dict[str, Any], emulator.Report]:
    """One launch on the emulator with every checker: the arguments after it, and the report."""
    args: dict[str, Any] = {}
    for p in probe.func.params:
        if isinstance(p, Buffer):
            args[p.name] = probe.fill[p.name].copy() if p.name in probe.fill else np.zeros(p.size, p.dtype.numpy())
        else:
            args[p.name] = values.get(p.name, 0)
    return args, emulator.run(probe.func, args)


@pytest.mark.parametrize("name", PROBES)
def test_legal_and_clean(name: str) -> None:
    probe = PROBES[name]
    module = Module(name, (probe.func,))
    verify(module)
    assert parse_module(print_module(module)) == module
    for keep in (0, 1):
        args, report = launch(probe, rounds=2, warm=3, keep=keep)
        assert report.ok and not report.notes, str(report)
        if probe.timed:
            assert (args["cycles"] > 0).all()
            assert args["sink"].any() == (keep == 1 and name != "lat_barrier")


@pytest.mark.parametrize("name", [name for name, p in PROBES.items() if p.timed])
def test_the_work_is_what_the_emulator_counts(name: str) -> None:
    """What two rounds more cost, against what ``work`` says."""
    probe = PROBES[name]
    few, many = (launch(probe, rounds=n)[1].counts for n in (1, 3))
    blocks = probe.func.grid[0]
    grew = {k: (many[k] - few.get(k, 0)) // (2 * blocks) for k in many}
    if name.startswith("time_"):
        got: float = next(v for k, v in grew.items() if k.startswith("mma."))
    elif name.startswith("rate_"):
        key = {"f64_fma": "fma.f64", "f32_fma": "fma.f32", "alu": "and.u32", "popc": "popc", "shuffle": "shfl",
               "prmt": "prmt"}[name[5:]]  # fmt: skip
        got = 32 * grew[key]
    elif name == "lat_barrier":
        got = grew["barrier"] / compute.BARRIER_WARPS
    else:
        wavefronts, sectors = (grew.get(k, 0) for k in ("wavefronts.shared", "sectors.global.read"))
        got = {"shared_read": 128 * wavefronts, "l2_read": 32 * sectors}.get(name, wavefronts or sectors)
    assert got == probe.work


@pytest.mark.parametrize("what", ["read", "write", "copy"])
def test_streams_move_each_byte_once(what: str) -> None:
    probe = PROBES[f"stream_{what}"]
    source = np.random.default_rng(0).integers(0, 1 << 32, 1 << 13, np.uint32)
    probe = Probe(probe.func, probe.work, {"big_in": source})
    args, report = launch(probe)
    sectors = sum(v for k, v in report.counts.items() if k.startswith("sectors.global"))
    assert 32 * sectors == probe.work == (1 << 15) * (2 if what == "copy" else 1)
    if what == "copy":
        assert np.array_equal(args["big_out"], source)
    if what == "read":  # what a thread reads decides whether it stores, so nothing may be left unread
        source[:], thread = 0, 5
        source[4 * thread] = thread ^ memory.NEVER
        kept, _ = launch(probe)
        assert not args["big_out"].any() and [*np.flatnonzero(kept["big_out"])] == [4 * thread]


def test_a_ring_visits_every_place_once() -> None:
    words = memory.ring(64, 8)
    seen, at = [], 0
    for _ in range(64):
        seen.append(at)
        at = int(words[at])
    assert at == 0 and sorted(seen) == list(range(0, 512, 8))


def test_every_kernel_is_compiled_once() -> None:
    probes = [f.probe for f in plan(GPU, FREE)]
    groups = units(probes)
    names = [p.name for group in groups for p in group]
    assert len(names) == len(set(names)) and set(names) == {p.name for p in probes}
    assert all(len(group) <= UNIT for group in groups)
    assert set(names) == set(PROBES)


@cache
def compiled(arch: str) -> CompileResult:
    absent = {"time_" + s.replace(".", "_") for s in SHAPES if s not in shapes_of(ARCHS[arch])}
    funcs = tuple(p.func for name, p in PROBES.items() if name not in absent)
    return compile_cubin(translation_unit(Module("calibrate", funcs), title="calibrate"), arch)


@pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("arch", ARCHS)
def test_nvcc_spills_nothing(arch: str) -> None:
    done = compiled(arch)
    assert "warning" not in done.log
    for name, used in done.resources.items():
        assert not used.spills and used.static_shared == 0, name
        assert used.stack == 0 or "_s4_" in name, name  # a function stands in for the mma that Hopper lacks


needs_sass = pytest.mark.skipif(
    find_tool("nvcc") is None or not (find_tool("nvdisasm") or find_tool("cuobjdump")),
    reason="no nvcc, no disassembler",
)
#: Kernel -> (instruction, how many stand in a round); the tensor cores have three names.
LOOPS: dict[str, tuple[str, int]] = {
    **{"time_" + s.replace(".", "_"): ({"f64": "DMMA", "s8": "IMMA", "s4": "IMMA"}.get(s.split(".")[0], "HMMA"), 16)
       for s in MMAS},
    "rate_f64_fma": ("DFMA", 256), "rate_f32_fma": ("FFMA", 256), "rate_alu": ("LOP3", 256), "rate_prmt": ("PRMT", 256),
    "rate_popc": ("POPC", 256), "rate_shuffle": ("SHFL", 256), "lat_barrier": ("BAR", 8), "shared_read": ("LDS", 4),
    "l2_read": ("LDG", 4), "chase_shared": ("LDS", 4), "chase_l1": ("LDG", 4), "chase_l2": ("LDG", 4),
    "chase_dram": ("LDG", 4),
}  # fmt: skip


def loop(sass: str) -> str:
    """The last loop between the two reads of the clock: from the label that is jumped back to, to the jump."""
    lines = sass.splitlines()
    first, last = (i for i, line in enumerate(lines) if "CS2R" in line and "CLOCK" in line)
    labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"^(\.L_x_\d+):", line))}
    back = [(labels[m[1]], i) for i, line in enumerate(lines[first:last], first)
            if (m := re.search(r"BRA.*(\.L_x_\d+)", line)) and first <= labels.get(m[1], -1) < i]  # fmt: skip
    assert len(back) == 1, "one loop, not unrolled by nvcc"
    return "\n".join(lines[back[0][0] : back[0][1] + 1])


@needs_sass
@pytest.mark.parametrize("arch", ARCHS)
def test_the_loop_holds_what_is_measured_and_little_else(arch: str) -> None:
    functions = split_functions(disassemble(compiled(arch).cubin))
    for name, (instruction, times) in LOOPS.items():
        if name not in functions or (arch == "sm_90a" and "_s4_" in name):  # emulated there, by calls of a function
            continue
        body = count_mnemonics(loop(functions[name]))
        assert body[instruction] == times, (arch, name, body)
        rest = body.total() - times - body["NOP"] - (256 if name == "rate_popc" else 0)
        assert rest <= {"shared_read": 14, "l2_read": 24, "time_f64_m16n8k16": 12}.get(name, 8), (arch, name, body)

"""Hardware counters beside the emulator's counts: ten kernels under Nsight Compute, and a table of both.

``python -m tests.gpu.counters --out docs/counters.json.xz`` on a machine with a GPU and ``ncu``; ``--emulator`` is
the emulator's side alone, with no GPU.  The parent compiles all kernels, starts one ``ncu`` over one child, which
launches each of them once, and runs the emulator meanwhile.

Two counts stand on the emulator's side.  ``emulator`` is the program as it is.  ``expected`` is the same program after
:func:`narrowed`: nvcc loads one element where a load of two has only one that anybody reads.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import numpy as np

import sparsegen as sg
from sparsegen.backends import emulator
from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.bench import packed, report
from sparsegen.ir import warp as w
from sparsegen.ir.expr import binary, values
from sparsegen.ir.module import Module
from sparsegen.ir.node import operands, rewrite, walk
from sparsegen.pipelines import Program
from sparsegen.registry import families
from sparsegen.run.emulator import run_pass
from sparsegen.schedule import Schedule
from sparsegen.target import gpu_info

ROOT = Path(__file__).resolve().parents[2]
Numbers: TypeAlias = dict[str, float]
OPCODE = "opcode."  #: in front of a machine instruction's name: how often warps executed it
OPCODES = "sass__inst_executed_per_opcode"
SECONDS = 240  #: of patience with ncu


@dataclass(frozen=True)
class Case:
    """One kernel: a schedule for the 3x3 box of random weights, periodic, on a field of doubles."""

    name: str
    line: str
    shape: tuple[int, int] = (512, 512)

    def kernel(self, gpu: bool) -> sg.Kernel:
        """Compiled for one pass: on the GPU of this machine, or for the H200 where there is none."""
        box = np.random.default_rng(5).random((3, 3)) / 5 - 0.02
        fuse = Schedule.parse(self.line).steps
        where: dict[str, Any] = {"backend": "cuda"} if gpu else {"backend": "emulator", "device": "h200"}
        return sg.compile(sg.Stencil.from_weights(box), self.shape, steps=fuse, schedule=self.line, **where)


ODD = (500, 333)
CASES = {
    case.name: case
    for case in (
        Case("direct", "direct"),
        Case("tiled", "tiled stages=1"),
        Case("tiled-ring", "tiled stages=3"),
        Case("tiled-fused", "tiled fuse=3 stages=1"),
        Case("s2r-lut", "stencil2row mma=f64.m8n8k4 stages=1 lut=on"),
        Case("s2r-ring", "stencil2row mma=f64.m8n8k4 stages=2 lut=off"),
        Case("s2r-unpadded", "stencil2row mma=f64.m8n8k4 pad=off"),
        Case("s2r-m16n8k4", "stencil2row mma=f64.m16n8k4"),
        Case("s2r-m16n8k16", "stencil2row mma=f64.m16n8k16"),
        Case("s2r-fma", "stencil2row mma=none"),
        *((Case("stream", "stream"),) if "stream" in families("stencil") else ()),
        Case("tiled-ring-odd", "tiled stages=3", ODD),
        Case("s2r-odd", "stencil2row mma=f64.m8n8k4 stages=2 lut=off", ODD),
    )
}


# ------------------------------------------------------------------------------------------------ what is compared
def _first(*names: str) -> tuple[tuple[str, ...], ...]:
    """Several names of one metric, best first."""
    return tuple((name,) for name in names)


def _sass(name: str, *parts: str) -> tuple[tuple[str, ...], ...]:
    """A metric that ncu counts by patching the machine code (exact), one for each SM or for each sub-core, summed."""
    return tuple(tuple(f"{unit}__sass_{name}{part}.sum" for part in parts or ("",)) for unit in ("smsp", "sm"))


@dataclass(frozen=True)
class Quantity:
    """One line of the comparison.

    ``hardware``: alternatives, best first, each a sum of metrics.  ``tolerance``: the relative difference that a test
    allows; None where the two need not count the same thing, which ``remark`` explains.
    """

    name: str
    emulated: str
    hardware: tuple[tuple[str, ...], ...]
    tolerance: float | None = None
    remark: str = ""


_COPY = "l1tex_t_{}_pipe_lsu_mem_global_op_ldgsts_cache_"
_PIPE = "also counts wavefronts that wait for the data stage, which other traffic holds"
_MERGED = "nvcc merges, repeats or drops loads of constant tables and moves them out of loops"
_PIECES = "of 16-byte copies this ncu counts 1.5 times the sectors, and some of them as loads too; cause not known"
_SCATTER = "stores through the table: up to 2.3 % more wavefronts than the bank rule gives; cause not known"
_DUMMY = "nvcc puts three predicated-off LDS before a group of LDGSTS; they touch no memory"
QUANTITIES = (
    Quantity("mma", "mma", ((OPCODE + "DMMA",), *_first("sm__inst_executed_pipe_tensor_op_dmma.sum",
             "sm__inst_executed_pipe_fp64_op_dmma.sum")), 0.0),
    Quantity("mma, issued on the tensor pipe", "mma", _first("sm__inst_executed_pipe_tensor_op_dmma.sum",
             "sm__inst_executed_pipe_fp64_op_dmma.sum", "sm__inst_executed_pipe_tensor.sum"),
             remark="a shape may be several steps of the pipe"),
    Quantity("fma", "fma.f64", ((OPCODE + "DFMA",),), remark="a product and a sum may become one fma"),
    Quantity("mul", "mul.f64", ((OPCODE + "DMUL",),), remark="a product and a sum may become one fma"),
    Quantity("fma, lanes / 32", "fma.f64", _sass("thread_inst_executed_op_dfma_pred_on"),
             remark="lanes that are off in a warp are not counted"),
    Quantity("barriers", "barrier", ((OPCODE + "BAR",), *_first("smsp__inst_executed_op_bar.sum")),
             remark="warps that execute bar.sync"),
    Quantity("global loads: requests", "global.ld.requests",
             _first("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"), remark=_MERGED),
    Quantity("global loads: sectors", "global.ld.sectors", _first("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
             0.02, _MERGED),
    Quantity("copies: requests", "global.cp.requests",
             (*_sass(_COPY.format("requests"), "access", "bypass"), ("smsp__inst_executed_op_ldgsts.sum",)),
             remark="one request an instruction that has an active lane"),
    Quantity("copies: sectors", "global.cp.sectors",
             (*_sass(_COPY.format("sectors"), "access", "bypass"),
              ("l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
               "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum")), 0.02, _PIECES),
    Quantity("global stores: requests", "global.st.requests",
             _first("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum")),
    Quantity("global stores: sectors", "global.st.sectors",
             _first("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"), 0.0),
    Quantity("shared loads: wavefronts", "shared.ld.wavefronts",
             (*_sass("l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld"),
              *_first("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum")), 0.005,
             "out of the raw tile, where a warp's elements cross a row: up to 0.4 % more; cause not known"),
    Quantity("shared stores: wavefronts", "shared.st.wavefronts",
             (*_sass("l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st"),
              *_first("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum")), 0.025, _SCATTER),
    Quantity("copies: shared wavefronts", "shared.cp.wavefronts",
             _sass("l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts"),
             remark="what arrives from memory is written by the line, not by the instruction"),
    Quantity("shared loads: conflicts", "shared.ld.conflicts",
             _first("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"), remark=_PIPE),
    Quantity("shared stores: conflicts", "shared.st.conflicts",
             _first("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"), remark=_PIPE),
    Quantity("shared loads: wavefronts on the pipe", "shared.ld.wavefronts",
             _first("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"), remark=_PIPE),
    Quantity("shared stores: wavefronts on the pipe", "shared.st.wavefronts",
             _first("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"), remark=_PIPE),
    Quantity("shared memory: wavefronts on the pipe", "shared.all.wavefronts",
             _first("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"), remark=_PIPE),
    Quantity("shared loads: instructions", "shared.ld.requests",
             (*_sass("inst_executed_op_shared_ld"), (OPCODE + "LDS",)), remark=_DUMMY),
    Quantity("shared stores: instructions", "shared.st.requests",
             (*_sass("inst_executed_op_shared_st"), (OPCODE + "STS",))),
    Quantity("global loads: instructions", "global.ld.requests",
             (*_sass("inst_executed_op_global_ld"), (OPCODE + "LDG",)), remark=_MERGED),
    Quantity("copies: instructions", "global.cp.requests",
             (("smsp__inst_executed_op_ldgsts.sum",), (OPCODE + "LDGSTS",)),
             remark="instructions whose lanes are all off count here"),
)  # fmt: skip
BY_NAME = {q.name: q for q in QUANTITIES}
#: (case, quantity) -> why no test holds the two against each other.
EXPLAINED: dict[tuple[str, str], str] = {
    ("s2r-fma", "shared loads: wavefronts"): "nvcc unrolls the sum: neighbouring products share elements of A and B, "
    "which it loads once, two at a time",
    ("s2r-fma", "global loads: sectors"): _MERGED,
    # this ncu counts 16-byte copies among the loads too, by another rule: neither figure is held for them
    ("tiled-ring", "global loads: sectors"): _PIECES,
    ("tiled-ring", "copies: sectors"): _PIECES,
    ("s2r-ring", "global loads: sectors"): _PIECES,
    ("s2r-ring", "copies: sectors"): _PIECES,
    ("stream", "global loads: sectors"): _PIECES,
    ("stream", "copies: sectors"): _PIECES,
    ("stream", "shared loads: wavefronts"): "nvcc loads a piece of a finished row only where the lane stores it",
}


# ------------------------------------------------------------------------------------------------ the emulator's side
def narrowed(module: Module) -> tuple[Module, int]:
    """The module with every load of two elements of which one is never read made a load of the other; and how many."""
    many = 0

    def narrow(func: w.Func) -> w.Func:
        nonlocal many
        used = {v.name for op in walk(func.body) for e in operands(op) for v in values(e)}

        def rule(op: Any) -> Any:
            nonlocal many
            if not isinstance(op, w.Ld) or len(op.out) != 2 or op.buf.space not in ("shared", "global"):
                return op
            read = [i for i, v in enumerate(op.out) if v.name in used]
            if len(read) != 1:
                return op
            many += 1
            return dataclasses.replace(op, out=(op.out[read[0]],), index=binary("+", op.index, read[0]))

        return dataclasses.replace(func, body=rewrite(func.body, rule))

    funcs = tuple(narrow(f) if isinstance(f, w.Func) else f for f in module.funcs)
    return dataclasses.replace(module, funcs=funcs), many


def program(k: sg.Kernel) -> Program:
    """The program of the one pass that a case launches."""
    return k._plan(k.schedule.steps).main


_WAYS = {w.Ld: "ld", w.St: "st", w.CpAsync: "cp"}


def emulated(p: Program, shape: tuple[int, ...]) -> list[tuple[str, Numbers]]:
    """What the emulator counts in each launch of a pass: symbol and numbers."""
    made: list[Numbers] = []
    original = emulator._report

    def with_patterns(state: Any) -> Any:
        found = original(state)
        out: Numbers = dict.fromkeys((q.emulated for q in QUANTITIES), 0)
        out.update(found.counts)
        out["mma"] = sum(n for name, n in found.counts.items() if name.startswith("mma."))
        for key, pattern in state.patterns.items():
            way = _WAYS.get(type(state.prog.ops[key][1]))
            at = f"{'shared' if pattern.is_shared else 'global'}.{way}"
            for name, n in (
                ("requests", pattern.requests),
                ("wavefronts" if pattern.is_shared else "sectors", pattern.cost),
                ("conflicts", pattern.cost - pattern.ideal),
            ):
                out[f"{at}.{name}"] = out.get(f"{at}.{name}", 0) + n
        out["shared.all.wavefronts"] = sum(out.get(f"shared.{way}.wavefronts", 0) for way in _WAYS.values())
        made.append(out)
        return found

    with mock.patch.object(emulator, "_report", with_patterns):
        _, reports = run_pass(p, {"in": np.zeros(shape)}, checks=False)
    return [(symbol, numbers) for (symbol, _), numbers in zip(reports, made, strict=True)]


# ------------------------------------------------------------------------------------------------ the hardware's side
class CountersError(RuntimeError):
    """ncu is missing, may not read the counters, or saw other launches than expected."""


def find_ncu() -> str:
    """The path of ncu; CountersError without it."""
    found = shutil.which("ncu") or next(
        (str(p) for p in sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)), None
    )
    if found is None:
        raise CountersError("ncu (Nsight Compute) is not on PATH")
    return found


def available(ncu: str) -> set[str]:
    """The metrics of this GPU, without suffixes; empty if ncu does not say."""
    commands = [[ncu, "--query-metrics"], [ncu, "--query-metrics-collection", "source", "--query-metrics"]]
    with ThreadPoolExecutor(2) as pool:
        texts = pool.map(lambda c: subprocess.run(c, text=True, capture_output=True, timeout=60).stdout, commands)
        return {m[1] for text in texts for m in re.finditer(r"^\s*(\w+__\w+)", text, re.MULTILINE)}


def choose(known: set[str]) -> tuple[list[str], list[str]]:
    """What to ask ncu for: of each quantity the first alternative that it knows (any, if ``known`` is empty).

    And the names of ours that it does not know.
    """

    def base(metric: str) -> str:
        return OPCODES if metric.startswith(OPCODE) else metric.partition(".")[0]

    wanted = sorted({base(m) for q in QUANTITIES for metrics in q.hardware for m in metrics})
    missing = [m for m in wanted if known and m not in known]
    ask: set[str] = set()
    for q in QUANTITIES:
        ask.update(next((ms for ms in q.hardware if not {base(m) for m in ms} & set(missing)), ()))
    return sorted({OPCODES if m.startswith(OPCODE) else m for m in ask}), missing


def parse(text: str) -> list[tuple[str, Numbers]]:
    """The launches of ncu's raw CSV: kernel and metrics, with the instances of OPCODES as ``opcode.NAME``."""
    csv.field_size_limit(1 << 26)
    lines = list(csv.reader(io.StringIO(text)))
    start = next((i for i, row in enumerate(lines) if "ID" in row and "Kernel Name" in row), None)
    if start is None:
        raise CountersError(f"no table in ncu's output: {text[-2000:]}")
    head = lines[start]
    out: list[tuple[str, Numbers]] = []
    for row in lines[start + 1 :]:
        cells = dict(zip(head, row, strict=False))
        if not cells.get("ID", "").strip().isdigit():
            continue  # the row of units
        numbers: Numbers = {}
        for name, cell in cells.items():
            total = re.match(r"\s*([\d,.]+(?:[eE][+-]?\d+)?)", cell)
            if total is None or "__" not in name:
                continue
            numbers[name] = float(total[1].replace(",", ""))
            if name == OPCODES and "(" in cell:
                for opcode, n in re.findall(r"([A-Z][\w.]*)\s*:\s*([\d,]+)", cell.partition("(")[2]):
                    at = OPCODE + opcode.partition(".")[0]
                    numbers[at] = numbers.get(at, 0) + float(n.replace(",", ""))
        out.append((re.split(r"[(<\s]", cells["Kernel Name"])[0], numbers))
    return out


def profile(
    ncu: str, cases: Sequence[str], symbols: Iterable[str], metrics: Iterable[str]
) -> list[tuple[str, Numbers]]:
    """All launches of a child process, in order."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        command = [
            ncu, "--csv", "--page", "raw", "--print-units", "base", "--print-metric-instances", "details",
            "--clock-control", "none", "--target-processes", "all", "--kernel-name-base", "function",
            "--kernel-name", f"regex:^({'|'.join(sorted(set(symbols)))})$", "--metrics", ",".join(metrics),
            "--log-file", str(log), sys.executable, "-m", "tests.gpu.counters", "--child", *cases,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=SECONDS)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    if done.returncode:
        raise CountersError(f"ncu ended with {done.returncode}:\n{(text + done.stdout + done.stderr)[-3000:]}")
    return parse(text)


def launch(names: Iterable[str]) -> None:
    """The child: each case once."""
    for name in names:
        case = CASES[name]
        case.kernel(gpu=True)(np.random.default_rng(1).random(case.shape))


# ------------------------------------------------------------------------------------------------ side by side
def _measured(q: Quantity, numbers: Numbers) -> tuple[float | None, tuple[str, ...]]:
    """A quantity of a launch, and the metrics it is the sum of; None without a value.  An opcode not executed is 0."""
    opcodes = any(name.startswith(OPCODE) for name in numbers)
    for metrics in q.hardware:
        if all(opcodes if m.startswith(OPCODE) else m in numbers for m in metrics):
            total = sum(numbers.get(m, 0.0) for m in metrics)
            return (total / 32 if q.name == "fma, lanes / 32" else total), metrics
    return None, ()


def _without_copies(found: dict[str, float | None]) -> str:
    """Take copies out of the loads, if this hardware's counter of load requests has them in (judged by itself)."""
    requests, loads = found["global loads: requests"], found["global loads: instructions"]
    copies, sectors = found["copies: instructions"], found["copies: sectors"]
    made = found["copies: requests"]
    if not copies or requests is None or loads is None or abs(requests - loads - copies) >= abs(requests - loads):
        return ""
    found["global loads: requests"] = requests - (copies if made is None else made)
    if sectors is not None and (all_sectors := found["global loads: sectors"]) is not None:
        found["global loads: sectors"] = all_sectors - sectors
    return "the counter has copies in it: they are subtracted"


def compare(case: str, raw: Numbers, exact: Numbers, many: int, numbers: Numbers) -> list[dict[str, Any]]:
    """The lines of one launch; with no ``numbers`` the emulator's side alone."""
    found, metrics = dict[str, float | None](), dict[str, tuple[str, ...]]()
    for q in QUANTITIES:
        found[q.name], metrics[q.name] = _measured(q, numbers)
    copies = _without_copies(found)
    rows: list[dict[str, Any]] = []
    for q in QUANTITIES:
        expected, hardware = exact[q.emulated], found[q.name]
        if not expected and not hardware:
            continue
        why = EXPLAINED.get((case, q.name))
        tolerance = None if why else q.tolerance
        remarks = [why or q.remark] if hardware is not None and hardware != expected else []
        if raw[q.emulated] != expected:
            remarks.insert(0, f"{many} loads narrowed by nvcc: {raw[q.emulated]:,.0f} as written")
        if copies and q.name in ("global loads: requests", "global loads: sectors"):
            remarks.append(copies)
        off = None if hardware is None else abs(hardware - expected) / max(expected, 1)
        rows.append({
            "quantity": q.name, "emulator": int(raw[q.emulated]), "expected": int(expected), "hardware": hardware,
            "ratio": None if hardware is None or not expected else hardware / expected, "tolerance": tolerance,
            "ok": None if tolerance is None or off is None else off <= tolerance,
            "metrics": list(metrics[q.name]), "remark": "; ".join(filter(None, remarks)),
        })  # fmt: skip
    return rows


def measure(names: Iterable[str] = CASES, *, gpu: bool = True, commit: str | None = None) -> dict[str, Any]:
    """Everything: what ``--out`` writes.  CountersError if ncu cannot."""
    ncu = find_ncu() if gpu else ""
    skipped: dict[str, str] = {}
    kernels: dict[str, sg.Kernel] = {}
    for name in names:
        try:
            kernels[name] = CASES[name].kernel(gpu)
        except sg.ScheduleError as error:  # this GPU has no such instruction
            skipped[name] = error.message
    programs = {name: program(k) for name, k in kernels.items()}
    symbols = [run.symbol for p in programs.values() for run in p.warp.launches]
    missing: list[str] = []
    with ThreadPoolExecutor(8) as pool:
        profiled = None
        if gpu:
            known = pool.submit(available, ncu)
            list(pool.map(lambda k: k.ptx(), kernels.values()))  # compiled here: the child finds them in the cache
            ask, missing = choose(known.result())
            profiled = pool.submit(profile, ncu, list(kernels), symbols, ask)
        counted = [row for name, p in programs.items() for row in _counted(name, p, CASES[name].shape)]
        launches = [(symbol, Numbers()) for symbol in symbols] if profiled is None else profiled.result()
    if [symbol for symbol, _ in launches] != symbols:
        raise CountersError(f"ncu saw {[symbol for symbol, _ in launches]}, but {symbols} were launched")
    out: list[dict[str, Any]] = []
    for (name, symbol, raw, exact, many), (_, numbers) in zip(counted, launches, strict=True):
        about = {"name": name, "kernel": symbol, "schedule": str(kernels[name].schedule), "shape": CASES[name].shape}
        out.append({**about, "rows": compare(name, raw, exact, many, numbers), "raw": numbers})
    return {"suite": "counters", **_origin(ncu, commit), "missing": missing, "skipped": skipped, "kernels": out}


def _counted(name: str, p: Program, shape: tuple[int, int]) -> list[tuple[str, str, Numbers, Numbers, int]]:
    """For each launch of a case: its name, the symbol, the counts as written and as narrowed, and how many loads."""
    module, many = narrowed(p.warp)
    raw = emulated(p, shape)
    exact = emulated(dataclasses.replace(p, warp=module), shape) if many else raw
    return [(name, symbol, a, b, many) for (symbol, a), (_, b) in zip(raw, exact, strict=True)]


def _origin(ncu: str, commit: str | None) -> dict[str, Any]:
    """Where the numbers are from: the keys of a result of ``sparsegen bench``, and the version of ncu."""
    where, here = report.origin(commit), gpu_info() if ncu else None
    said = subprocess.run([ncu, "--version"], text=True, capture_output=True, timeout=60).stdout if ncu else ""
    return {
        "device": "" if here is None or isinstance(here, sg.SparsegenError) else here.name,
        "driver": report.driver_version() if ncu else "", "ncu": "".join(re.findall(r"Version (\S+)", said)[:1]),
        "nvcc": find_nvcc().version if ncu else "", "sparsegen": sg.__version__, "commit": where.commit,
        "dirty": where.dirty, "sources": where.sources,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }  # fmt: skip


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:,.0f}" if x == int(x) else f"{x:,.2f}"


def table(found: Mapping[str, Any]) -> str:
    """All lines, as text."""
    lines: list[str] = []
    for kernel in found["kernels"]:
        size = "x".join(map(str, kernel["shape"]))
        lines += ["", f"{kernel['name']} ({kernel['kernel']}, {size}): {kernel['schedule']}"]
        for row in kernel["rows"]:
            mark = {None: " ", True: "=", False: "!"}[row["ok"]]
            ratio = "" if row["ratio"] is None else f"{row['ratio']:.4f}"
            lines.append(
                f"  {mark} {row['quantity']:<38}{_number(row['expected']):>12}{_number(row['hardware']):>14}{ratio:>9}"
                f"  {row['remark']}".rstrip()
            )
    lines += ["", f"{found['device'] or 'no GPU'}, ncu {found['ncu'] or 'not run'}; a line: emulator, hardware, ratio"]
    lines += [f"this ncu has no {name}" for name in found["missing"]]
    lines += [f"left out: {name}: {why}" for name, why in found["skipped"].items()]
    wrong = [(k["name"], r["quantity"]) for k in found["kernels"] for r in k["rows"] if r["ok"] is False]
    lines += [f"DIFFERS: {name}: {quantity}" for name, quantity in wrong] or ["no line that is held differs"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.counters", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result as JSON")
    parser.add_argument("--emulator", action="store_true", help="the emulator's side alone, for an H200")
    parser.add_argument("--commit", help="the commit that this copy of the sources is of, where there is no .git")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.names or list(CASES)
    if unknown := set(names) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}")
    if given.child:
        launch(names)
        return 0
    found = measure(names, gpu=not given.emulator, commit=given.commit)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        packed.write(given.out, json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 1 if any(row["ok"] is False for kernel in found["kernels"] for row in kernel["rows"]) else 0


if __name__ == "__main__":
    raise SystemExit(main())

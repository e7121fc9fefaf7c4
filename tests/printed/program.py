"""Printed CUDA compiled by the machine's C++ compiler and run: each thread a fiber, instructions by ``cpu/ptx.h``."""

from __future__ import annotations

import atexit
import hashlib
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from sparsegen.backends.cuda.frame import functions, param_type, translation_unit
from sparsegen.backends.cuda.tensor_map import numbers
from sparsegen.ir import warp as w
from sparsegen.ir.expr import Value
from sparsegen.ir.module import Module
from sparsegen.ir.tensor_copy import tensor_maps
from sparsegen.ir.types import Buffer
from sparsegen.plan import SCRATCH, Plan, constant, launches
from sparsegen.run.emulator import passes, poisoned
from sparsegen.run.host import flat
from tests.printed.assembly import without_assembly

CPU: Final = Path(__file__).parent / "cpu"
#: No contraction that the text does not ask for.
FLAGS: Final = ("-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing")
#: Arrays in registers begin with a pattern that is no data, where the compiler can (GCC from 12 on).
POISONED: Final = "-ftrivial-auto-var-init=pattern"
Array = npt.NDArray[Any]


class Fault(Exception):
    """A program that ended with a message: a deadlock, an access beyond an array, lanes that do not meet."""


class Refused(Exception):
    """A program that the C++ compiler does not take."""


def compiler() -> str | None:
    """The machine's C++ compiler; None without one."""
    named = os.environ.get("CXX")
    return named or shutil.which("g++") or shutil.which("clang++")


needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++ or clang++) on this machine")


@cache
def flags(found: str) -> tuple[str, ...]:
    """The options that a compiler takes."""
    tried = [found, POISONED, "-x", "c++", "-fsyntax-only", os.devnull]
    knows = subprocess.run(tried, capture_output=True, check=False).returncode == 0
    return (*FLAGS, POISONED) if knows else FLAGS


@cache
def folder() -> Path:
    """Where programs of this process are built, with the precompiled header."""
    made = Path(tempfile.mkdtemp(prefix="printed-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    for header in CPU.iterdir():
        shutil.copy(header, made)
    compiled("-x", "c++-header", "start.h", "-o", "start.h.gch", within=made)
    return made


def compiled(*args: str, within: Path) -> None:
    """Runs the C++ compiler in a folder; Refused where it does not succeed."""
    found = compiler()
    assert found is not None
    done = subprocess.run([found, *flags(found), *args], cwd=within, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr[:4000])


def _function(func: w.Func) -> str:
    """The entry of a table: how the function is called with the arguments of a launch."""
    taken = []
    for i, p in enumerate(func.params):
        kind = param_type(p, p.dtype.c) if isinstance(p, Buffer) and p.space == "param" else p.dtype.c
        star = "*" if isinstance(p, Value) or p.space == "param" else ""
        taken.append(f"{star}static_cast<{kind}*>(cpu::arguments[{i}])")
    names = [p.name for p in func.params]
    for buf, m in tensor_maps(func):
        given = ", ".join(map(str, numbers(buf.dtype, m)))
        taken.append(f"cpu::tensor_map<TensorMap>(cpu::arguments[{names.index(buf.name)}], {given})")
    grid = ", ".join(map(str, func.grid))
    together = math.prod(func.grid) if func.together else func.cluster
    sizes = f"{{{grid}}}, {func.threads}, {func.shared_bytes}, {together}"
    return f"{{[] {{ {func.symbol}({', '.join(taken)}); }}, {sizes}}},"


def translated(source: str) -> str:
    """The text as it is, but for assembly, shared memory and launches."""
    text = (
        without_assembly(source)
        .replace('extern "C" __global__', "__global__")
        .replace("static __device__", "__device__")
    )
    text = re.sub(
        r"extern __shared__ .* unsigned char smem\[\];", "unsigned char* const smem = cpu::shared[cpu::rank()];", text
    )
    clusters = {name: size for size, name in re.findall(r"__cluster_dims__\((\d).*\n(\w+)\(", text)}

    def start(launch: re.Match[str]) -> str:
        name, how, args = launch.groups()
        return f"cpu::start(::{name}, {clusters.get(name, 1)}, {how}, [&] {{ ::{name}({args}); }});"

    text = re.sub(r"::(\w+)<<<(.*), stream>>>\((.*)\);", start, text)
    return f'#include "start.h"\n{text}\n'


def as_cpp(source: str, functions: Iterable[str]) -> str:
    """A program of printed CUDA, and what runs its functions, entries of a table, behind."""
    table = "\n".join(functions)
    return (
        f"{translated(source)}static const cpu::Function FUNCTIONS[] = {{\n{table}\n}};\n"
        "int main(int, char** args) { return cpu::run(args[1], atoi(args[2]), FUNCTIONS); }\n"
    )


def built(text: str) -> Path:
    """The program of a C++ source, compiled once; Refused if it does not compile."""
    path = folder() / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not path.exists():
        path.with_suffix(".cpp").write_text(text)
        compiled("-I.", f"{path.name}.cpp", "-o", f"{path.name}.new", within=folder())
        path.with_suffix(".new").rename(path)
    return path


def ran(
    path: Path, arrays: Mapping[str, Array], starts: Mapping[str, int], lines: Iterable[Sequence[int]], seconds: int
) -> dict[str, Array]:
    """The flat arrays, by name, after the launches of ``lines``: a function and the numbers of its arrays each."""
    given, plan = {name: np.ascontiguousarray(a).reshape(-1) for name, a in arrays.items()}, list(lines)
    with tempfile.NamedTemporaryFile(dir=folder()) as file:
        file.write(_words(len(given), len(plan)))
        for name, a in given.items():
            file.write(_words(a.nbytes, starts[name]) + a.tobytes())
        file.write(b"".join(_words(function, len(numbers), *numbers) for function, *numbers in plan))
        file.flush()
        done = subprocess.run([path, file.name, str(seconds)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Fault(done.stderr.strip() or f"ended with {done.returncode}")
        file.seek(0)
        return {name: np.frombuffer(file.read(a.nbytes), a.dtype) for name, a in given.items()}


@dataclass
class Program:
    """A printed module, compiled."""

    module: Module
    path: Path

    @classmethod
    def of(cls, module: Module, source: str | None = None) -> Program:
        """``source``: other text than what is printed of the module; Refused if it does not compile."""
        text = source or translation_unit(module, title=module.name)
        return cls(module, built(as_cpp(text, map(_function, functions(module)))))

    def run(self, arrays: Mapping[str, Array], offsets: Mapping[str, int] | None = None, seconds: int = 20) -> None:
        """All launches on flat arrays by role, in place; workspaces that are not given are made, poisoned.

        ``offsets``: bytes from a multiple of 256 to where an array begins (default 16, as little as arrays of users
        are aligned); ``seconds``: of one processor.  Fault for what no GPU allows.
        """
        symbols = [f.symbol for f in functions(self.module)]
        held: dict[str, Array] = dict(arrays)
        plan: list[list[int]] = []
        for bound in launches(self.module):
            line = [symbols.index(bound.func.symbol)]
            for param, role in bound.roles:
                if role not in held:
                    held[role] = _made(self.module, role, param)
                line.append(list(held).index(role))
            plan.append(line)
        start = {role: (offsets or {}).get(role, 16 if role in arrays else 0) for role in held}
        for role, got in ran(self.path, held, start, plan, seconds).items():
            if role in arrays:
                arrays[role].reshape(-1)[...] = got


def _words(*numbers: int) -> bytes:
    return np.array(numbers, np.uint64).tobytes()


def _made(module: Module, role: str, param: Buffer | Value) -> Array:
    """A table, or a workspace in which nothing can be taken for data."""
    if not role.startswith(SCRATCH):
        return constant(module, role, param)
    assert isinstance(param, Buffer)
    return poisoned(param.size, param.dtype.numpy(), role)


def run_plan(plan: Plan, given: Mapping[str, Array], new: Mapping[str, Array]) -> None:
    """All passes of a plan on packed arrays by name, as :func:`sparsegen.run.emulator.run_plan` does them."""
    where = {name: flat(a).copy() for name, a in given.items()}
    where |= {name: poisoned(a.size, a.dtype) for name, a in new.items()}
    where |= {name: poisoned(space.size, space.dtype, name) for name, space in plan.workspaces.items()}
    for made, arrays in passes(plan, where):
        Program.of(made.warp).run(arrays)
    for name, a in new.items():
        a[...] = where[name].reshape(a.shape)

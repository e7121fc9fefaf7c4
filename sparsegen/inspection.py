"""Looking at a kernel: CUDA source, PTX, SASS, resources; each is made when first asked for and kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Literal

from sparsegen.arguments import one_of
from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.export import Files
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import CompileResult
from sparsegen.backends.cuda.sass import disassemble
from sparsegen.callsite import located, user_loc
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import Occupancy, occupancy
from sparsegen.files import path_of, write
from sparsegen.ir.errors import ArrayError, IRError
from sparsegen.ir.text import print_module
from sparsegen.memo import Memo
from sparsegen.notebook import Code
from sparsegen.pipelines import Program
from sparsegen.plan import launches
from sparsegen.target import Target

Level = Literal["op", "tile", "warp"]


class Build:
    """One program on its way to the GPU: source, cubin, PTX, SASS."""

    def __init__(self, program: Program, arch: str, title: str, notes: Sequence[str]) -> None:
        self.program, self._arch, self._title, self._notes = program, arch, title, tuple(notes)
        self._lock = RLock()
        self._source: str | None = None
        self._compiled: CompileResult | None = None
        self._sass: str | None = None

    def source(self) -> str:
        """The CUDA C++ translation unit."""
        with self._lock:
            if self._source is None:
                module, notes = self.program.warp, self._notes
                self._source = translation_unit(module, title=self._title, notes=notes, arch=self._arch)
            return self._source

    def compiled(self) -> CompileResult:
        """What nvcc makes of the source, through the cubin cache; ToolchainError without nvcc or if it refuses."""
        with self._lock:
            if self._compiled is None:
                self._compiled = compile_cached(self.source(), self._arch)
            return self._compiled

    def sass(self) -> str:
        """The machine code as text; needs nvdisasm or cuobjdump."""
        with self._lock:
            if self._sass is None:
                self._sass = disassemble(self.compiled().cubin)
            return self._sass


@dataclass(frozen=True)
class Use:
    """What one kernel uses: registers a thread, bytes of spills (a thread) and of shared memory (a block)."""

    kernel: str
    threads: int
    blocks: int
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    occupancy: Occupancy

    @property
    def spills(self) -> int:
        """Bytes of registers that went to local memory, stores and loads, a thread."""
        return self.spill_stores + self.spill_loads

    def __str__(self) -> str:
        o = self.occupancy
        return (
            f"{self.kernel}: {self.registers} registers, {self.spills} bytes of spills, "
            f"{self.shared} bytes of shared memory, {self.threads} threads; "
            f"{o.blocks} blocks = {o.warps} of {o.max_warps} warps a multiprocessor "
            f"({o.fraction:.0%}, limited by {o.limited_by})"
        )


@dataclass(frozen=True)
class Resources:
    """The use of every kernel of a pass, in launch order; as a mapping by name, and printable."""

    arch: str
    kernels: tuple[Use, ...]

    def __getitem__(self, name: str) -> Use:
        return {use.kernel: use for use in self.kernels}[name]

    def __iter__(self) -> Iterator[Use]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    @property
    def registers(self) -> int:
        """The most registers a thread of any kernel has."""
        return max(use.registers for use in self.kernels)

    @property
    def spills(self) -> int:
        """Bytes of spills of all kernels together, a thread of each."""
        return sum(use.spills for use in self.kernels)

    @property
    def shared(self) -> int:
        """The most shared memory a block of any kernel has, in bytes."""
        return max(use.shared for use in self.kernels)

    def __str__(self) -> str:
        return "\n".join([f"for {self.arch}", *map(str, self.kernels)])


def resources(build: Build, device: DeviceProfile) -> Resources:
    """Registers, spills, shared memory and occupancy of each kernel of a pass, as ptxas reports them."""
    found = build.compiled().resources
    uses: dict[str, Use] = {}
    for bound in launches(build.program.warp):
        func = bound.func
        r = found[func.symbol]
        shared = r.static_shared + func.shared_bytes
        uses[func.symbol] = Use(
            func.symbol,
            func.threads,
            func.grid[0] * func.grid[1] * func.grid[2],
            r.registers,
            r.spill_stores,
            r.spill_loads,
            r.stack,
            shared,
            occupancy(r.registers, shared, func.threads, device),
        )
    return Resources(device.arch, tuple(uses.values()))


class Inspected(ABC):
    """The levels of a kernel's main program, its CUDA source and what nvcc makes of it."""

    _target: Target
    _builds: Memo[Build]
    #: Seconds of a call of the compiled steps on the GPU, as ``sg.tune`` or ``bench`` measured them last.
    measured: float | None = None

    @property
    def device(self) -> DeviceProfile:
        """The profile that schedule and code are for."""
        return self._target.profile

    @property
    def backend(self) -> str:
        """Where a call runs: ``cuda``, ``emulator`` or ``reference``."""
        return self._target.backend

    @abstractmethod
    def _main(self) -> Program:
        """The program that stands for the kernel."""

    @abstractmethod
    def _exported(self, name: str) -> Files:
        """The files of a call of the compiled steps on packed arrays."""

    def ir(self, level: Level = "warp") -> Code:
        """The main program (of most steps a pass) at one level, as text: ``"op"``, ``"tile"`` or ``"warp"``."""
        with located(user_loc()):
            one_of(level, ("op", "tile", "warp"), "level", IRError)
            return Code(print_module(getattr(self._main(), level)), "sgir")

    def source(self) -> Code:
        """The CUDA C++ of the main program."""
        with located(user_loc()):
            return Code(self._builds.get(self._main()).source(), "cuda")

    def ptx(self) -> Code:
        """The PTX that nvcc makes of it; ToolchainError without nvcc."""
        with located(user_loc()):
            return Code(self._builds.get(self._main()).compiled().ptx or "", "ptx")

    def sass(self) -> Code:
        """The machine code as text; ToolchainError without nvcc or a disassembler."""
        with located(user_loc()):
            return Code(self._builds.get(self._main()).sass(), "sass")

    def resources(self) -> Resources:
        """Registers, spills, shared memory and occupancy of each kernel; ToolchainError without nvcc."""
        with located(user_loc()):
            return resources(self._builds.get(self._main()), self.device)

    def export(self, path: str | Path) -> Path:
        """Write a CUDA file that does what a call does and needs nothing of sparsegen, and a C header beside it.

        ``k.export("heat.cu")`` writes heat.cu and heat.h with ``int heat_run(arrays..., workspace, stream)`` and
        ``size_t heat_workspace_bytes()``: all passes of a call of the compiled ``steps``, on packed arrays in device
        memory, inputs before results, W's arrays (see ``weights``) last; then ``const double* scalars`` on the host, a
        row for each time step, if the formula takes any.  The header says of each array what it is.

        The path of the CUDA file; ArrayError if one cannot be written.
        """
        with located(user_loc()):
            target = path_of(path, ArrayError)
            if target.suffix == ".h":
                raise ArrayError(f"{target} would be the header", hint="name the CUDA file: heat.cu, say")
            files = self._exported(target.stem)
            write(target, [files.cuda.encode()], ArrayError)
            write(target.parent / f"{target.stem}.h", [files.header.encode()], ArrayError)
        return target

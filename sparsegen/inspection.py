"""Looking at a kernel: CUDA source, PTX, SASS, resources; each is made when first asked for and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.export import export, export_step
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import CompileResult
from sparsegen.backends.cuda.resources import Occupancy, occupancy, sm_limits
from sparsegen.backends.cuda.sass import disassemble
from sparsegen.plan import launches
from sparsegen.program import Program


class Build:
    """One program on its way to the GPU: source, cubin, PTX, SASS.

    ``loops``: it is exported with a time loop between two fields, not as one step.
    """

    def __init__(self, program: Program, arch: str, title: str, notes: Sequence[str], loops: bool) -> None:
        self.program, self._arch, self._title, self._notes = program, arch, title, tuple(notes)
        self._loops = loops
        self._lock = Lock()
        self._source: str | None = None
        self._compiled: CompileResult | None = None
        self._sass: str | None = None

    def source(self) -> str:
        """The CUDA C++ translation unit."""
        with self._lock:
            return self._text()

    def _text(self) -> str:
        if self._source is None:
            self._source = translation_unit(self.program.warp, title=self._title, notes=self._notes, arch=self._arch)
        return self._source

    def compiled(self) -> CompileResult:
        """What nvcc makes of the source, through the cubin cache; ToolchainError without nvcc or if it refuses."""
        with self._lock:
            if self._compiled is None:
                self._compiled = compile_cached(self._text(), self._arch)
            return self._compiled

    def sass(self) -> str:
        """The machine code as text; needs nvdisasm or cuobjdump."""
        cubin = self.compiled().cubin
        with self._lock:
            if self._sass is None:
                self._sass = disassemble(cubin)
            return self._sass

    def export(self, path: str) -> None:
        """Write a self-contained CUDA file with a launcher."""
        write = export if self._loops else export_step
        write(self.program.warp, path, title=self._title, notes=self._notes, arch=self._arch)


class BuildCache:
    """The builds of a kernel's programs; ``says``: what the head of a source says of its program."""

    def __init__(
        self, arch: str, title: str, notes: Sequence[str], says: Callable[[Program], list[str]], loops: bool
    ) -> None:
        self._arch, self._title, self._notes, self._says, self._loops = arch, title, tuple(notes), says, loops
        self._lock = Lock()
        self._known: dict[int, Build] = {}

    def get(self, program: Program) -> Build:
        """The build of a program, made once."""
        with self._lock:
            if id(program) not in self._known:
                notes = [*self._notes, *self._says(program)]
                self._known[id(program)] = Build(program, self._arch, self._title, notes, self._loops)
            return self._known[id(program)]


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
        for use in self.kernels:
            if use.kernel == name:
                return use
        raise KeyError(name)

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


def resources(build: Build, arch: str) -> Resources:
    """Registers, spills, shared memory and occupancy of each kernel of a pass, as ptxas reports them."""
    found = build.compiled().resources
    limits = sm_limits(arch)
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
            occupancy(r.registers, shared, func.threads, limits),
        )
    return Resources(arch, tuple(uses.values()))

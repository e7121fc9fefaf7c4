"""Looking at a compiled kernel: its levels, its CUDA source, and what nvcc makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sparsegen.callsite import located, user_loc
from sparsegen.cost.devices import DeviceProfile
from sparsegen.inspection import BuildCache, Resources, resources
from sparsegen.ir.errors import ArrayError, IRError
from sparsegen.ir.text import print_module
from sparsegen.program import Program
from sparsegen.target import Target

Level = Literal["op", "tile", "warp"]


class Looking:
    """The levels of a kernel's main program, its CUDA source and what nvcc makes of it."""

    _target: Target
    _builds: BuildCache
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

    def _main(self, packed: bool = False) -> Program:
        """The program that stands for the kernel; ``packed``: the one between arrays packed by rows."""
        raise NotImplementedError

    def ir(self, level: Level = "warp") -> str:
        """The main program (of most steps a pass) at one level, as text: ``"op"``, ``"tile"`` or ``"warp"``."""
        if level not in ("op", "tile", "warp"):
            raise IRError(f"no level {level!r}", loc=user_loc(), hint="one of 'op', 'tile', 'warp'")
        with located(user_loc()):
            return print_module(getattr(self._main(), level))

    def source(self) -> str:
        """The CUDA C++ of the main program."""
        with located(user_loc()):
            return self._builds.get(self._main()).source()

    def ptx(self) -> str:
        """The PTX that nvcc makes of it; ToolchainError without nvcc."""
        with located(user_loc()):
            return self._builds.get(self._main()).compiled().ptx or ""

    def sass(self) -> str:
        """The machine code as text; ToolchainError without nvcc or a disassembler."""
        with located(user_loc()):
            return self._builds.get(self._main()).sass()

    def resources(self) -> Resources:
        """Registers, spills, shared memory and occupancy of each kernel; ToolchainError without nvcc."""
        with located(user_loc()):
            return resources(self._builds.get(self._main()), self.device.arch)

    def export(self, path: str | Path) -> Path:
        """Write a self-contained CUDA file with a C launcher; the path, or ArrayError if it cannot be written.

        Of a stencil ``NAME_run(in, out, workspace, passes, stream)``, for packed arrays, which the levels between
        passes alternate with; one pass does ``schedule.steps`` time steps.  Of updates and products
        ``NAME_step(arrays..., stream)``: one launch on packed arrays, the arrays of the kernel in its order, W's as its
        format has them; the caller exchanges the levels, and the counter of a product's workspace must be zero before
        the first call.  The arrays of a product must be aligned to 16 bytes.
        """
        target = Path(path)
        with located(user_loc()):
            build = self._builds.get(self._main(packed=True))
            try:
                build.export(str(target))
            except OSError as error:
                raise ArrayError(
                    f"cannot write {target}: {error.strerror or error}", hint="name a file in a folder that exists"
                ) from error
        return target

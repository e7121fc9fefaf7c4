"""Looking at a compiled kernel: what stencils' and general updates' kernels have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sparsegen.callsite import user_loc
from sparsegen.compiler import located
from sparsegen.inspection import Build, Resources, resources
from sparsegen.ir.errors import IRError

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.pipelines import Program
    from sparsegen.target import Target

Level = Literal["op", "tile", "warp"]


class Looking:
    """The levels of a kernel's main program, its CUDA source and what nvcc makes of it."""

    _target: Target

    @property
    def device(self) -> DeviceProfile:
        """The profile that schedule and code are for."""
        return self._target.profile

    @property
    def backend(self) -> str:
        """Where a call runs: ``cuda``, ``emulator`` or ``reference``."""
        return self._target.backend

    def _main(self) -> Program:
        raise NotImplementedError

    def _build(self) -> Build:
        raise NotImplementedError

    def ir(self, level: Level = "warp") -> str:
        """The main program (of most steps a pass) at one level, as text: ``"op"``, ``"tile"`` or ``"warp"``."""
        from sparsegen.ir.text import print_module

        if level not in ("op", "tile", "warp"):
            raise IRError(f"no level {level!r}", loc=user_loc(), hint="one of 'op', 'tile', 'warp'")
        return print_module(getattr(self._main(), level))

    def source(self) -> str:
        """The CUDA C++ of the main program."""
        with located(user_loc()):
            return self._build().source()

    def ptx(self) -> str:
        """The PTX that nvcc makes of it; ToolchainError without nvcc."""
        with located(user_loc()):
            return self._build().compiled().ptx or ""

    def sass(self) -> str:
        """The machine code as text; ToolchainError without nvcc or a disassembler."""
        with located(user_loc()):
            return self._build().sass()

    def resources(self) -> Resources:
        """Registers, spills, shared memory and occupancy of each kernel; ToolchainError without nvcc."""
        with located(user_loc()):
            return resources(self._build(), self.device.arch)

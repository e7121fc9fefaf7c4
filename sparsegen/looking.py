"""Looking at a compiled kernel: what stencils' and general updates' kernels have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from sparsegen.callsite import user_loc
from sparsegen.compiler import located
from sparsegen.inspection import Build, Resources, resources
from sparsegen.ir.errors import ArrayError, DeviceError, IRError

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.pipelines import Program
    from sparsegen.target import Target

Level = Literal["op", "tile", "warp"]
P = TypeVar("P")
_PLANS_KEPT = 64


class Plans(Generic[P]):
    """The plans of a kernel, made when first needed; safe for threads."""

    def __init__(self) -> None:
        self._known: dict[Hashable, P] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], P]) -> P:
        """The plan of ``key``; all are forgotten when there are too many."""
        found = self._known.get(key)
        if found is None:
            found = make()
            with self._lock:
                if len(self._known) >= _PLANS_KEPT:
                    self._known.clear()
                self._known[key] = found
        return found


class Looking:
    """The levels of a kernel's main program, its CUDA source and what nvcc makes of it."""

    _target: Target
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

    def _write(self, path: str | Path, write: Callable[[str], None]) -> Path:
        """The path after ``write`` made the file; ArrayError if it cannot be written."""
        target = Path(path)
        try:
            write(str(target))
        except OSError as error:
            raise ArrayError(
                f"cannot write {target}: {error.strerror or error}",
                loc=user_loc(),
                hint="name a file in a folder that exists",
            ) from error
        return target

    def _no_stream(self, stream: object) -> None:
        """DeviceError for a stream where the host does the work."""
        if stream is not None:
            raise DeviceError(
                f"stream={stream!r}, but this kernel runs on the {self.backend}",
                hint="leave stream away, or compile with backend='cuda'",
            )

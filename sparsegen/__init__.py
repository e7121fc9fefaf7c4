"""sparsegen: a compiler that reshapes stencils, and soon sparse products, for GPUs and their tensor cores.

The three parts of the compiler are side by side in the repository: ``sparsegen`` (front end), ``ir`` (middle) and
``backends`` (back end).  Installed, they are ``sparsegen``, ``sparsegen.ir`` and ``sparsegen.backends``; in a bare
checkout the two siblings are found by extending this package's search path.

Names are loaded when first used, so importing the package costs next to nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsegen._version import __version__

_root = Path(__file__).resolve().parent.parent
if (_root / "ir" / "errors.py").is_file() and not (Path(__file__).parent / "ir").exists():
    __path__.append(str(_root))
del _root, Path

if TYPE_CHECKING:
    from sparsegen.boundary import dirichlet, frozen, neumann, periodic
    from sparsegen.compiler import compile, schedules
    from sparsegen.dsl.functions import abs, max, min, sqrt, where
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.dsl.trace import Coef, Field, stencil
    from sparsegen.dsl.update import Update
    from sparsegen.formats import load, sparse
    from sparsegen.ir.errors import (
        ArrayError,
        BoundaryError,
        DeviceError,
        FormatError,
        IRError,
        KernelFault,
        ProductError,
        ScheduleError,
        SparsegenError,
        StencilError,
        ToolchainError,
    )
    from sparsegen.kernel import Kernel, SpmmKernel, UpdateKernel
    from sparsegen.products.product import spmm
    from sparsegen.schedule import Schedule, SpmmSchedule, StencilSchedule, UpdateSchedule
    from sparsegen.tuning.tune import tune

__all__ = [
    # describing
    "stencil",
    "Stencil",
    "Update",
    "Field",
    "Coef",
    "abs",
    "max",
    "min",
    "sqrt",
    "where",
    "periodic",
    "frozen",
    "neumann",
    "dirichlet",
    "sparse",
    "load",
    "spmm",
    # choosing
    "Schedule",
    "StencilSchedule",
    "UpdateSchedule",
    "SpmmSchedule",
    "schedules",
    # compiling and running
    "compile",
    "tune",
    "Kernel",
    "UpdateKernel",
    "SpmmKernel",
    # errors
    "SparsegenError",
    "StencilError",
    "BoundaryError",
    "ScheduleError",
    "ArrayError",
    "FormatError",
    "ProductError",
    "ToolchainError",
    "DeviceError",
    "IRError",
    "KernelFault",
    "__version__",
]

#: name -> the module that holds it.
_HOMES = {
    "stencil": "dsl.trace",
    "Field": "dsl.trace",
    "Coef": "dsl.trace",
    "Stencil": "dsl.stencil",
    "Update": "dsl.update",
    **dict.fromkeys(["abs", "max", "min", "sqrt", "where"], "dsl.functions"),
    "periodic": "boundary",
    "frozen": "boundary",
    "neumann": "boundary",
    "dirichlet": "boundary",
    "Schedule": "schedule",
    "StencilSchedule": "schedule",
    "schedules": "compiler",
    "compile": "compiler",
    "tune": "tuning.tune",
    "Kernel": "kernel",
    "UpdateSchedule": "schedule",
    "UpdateKernel": "kernel",
    "sparse": "formats",
    "load": "formats",
    "spmm": "products.product",
    "SpmmSchedule": "schedule",
    "SpmmKernel": "kernel",
    **dict.fromkeys([name for name in __all__ if name.endswith("Error") or name == "KernelFault"], "ir.errors"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparsegen' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"sparsegen.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

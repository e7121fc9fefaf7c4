"""sparsegen: a compiler that reshapes stencils and sparse products for GPUs and their tensor cores.

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
    from sparsegen import pattern
    from sparsegen.boundary import dirichlet, frozen, neumann, periodic
    from sparsegen.compiler import compile, schedules
    from sparsegen.distributed.kernel import DistributedKernel, distribute
    from sparsegen.dsl.functions import abs, clip, cos, exp, log, max, min, pow, sin, sqrt, tanh, where
    from sparsegen.dsl.operands import Value
    from sparsegen.dsl.pml import pml
    from sparsegen.dsl.sites import Receiver, Source
    from sparsegen.dsl.solve import Eq, solve
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.dsl.trace import Coef, Field, Mask, Scalar, Time, stencil
    from sparsegen.dsl.update import Update
    from sparsegen.formats import load, sparse
    from sparsegen.frame import Frame
    from sparsegen.ir.errors import (
        ArrayError,
        BoundaryError,
        DeviceError,
        FormatError,
        IRError,
        KernelFault,
        ProductError,
        RunError,
        ScheduleError,
        SparsegenError,
        StencilError,
        ToolchainError,
    )
    from sparsegen.kernel import AttentionKernel, Kernel, SpmmKernel, UpdateKernel
    from sparsegen.loading import load_mtx, load_smtx
    from sparsegen.products.attention import attention
    from sparsegen.products.product import spmm
    from sparsegen.products.sddmm import sddmm
    from sparsegen.products.stack import gated
    from sparsegen.pruning import prune
    from sparsegen.quantization import Quantized, pack4, quantize, unpack4
    from sparsegen.regions import pml_layers, sponge
    from sparsegen.reordering import Reordering, reorder
    from sparsegen.schedule import (
        AttentionSchedule,
        Schedule,
        SddmmSchedule,
        SpmmSchedule,
        StencilSchedule,
        UpdateSchedule,
    )
    from sparsegen.show import animate, plot
    from sparsegen.stability import Stability, growth
    from sparsegen.tuning.tune import tune
    from sparsegen.unstable import UnstableWarning

# describing
__all__ = ["stencil", "Stencil", "Update", "Field", "Coef", "Mask", "Scalar", "Time", "Value", "Eq", "solve"]
__all__ += ["sponge", "pml", "pml_layers", "Source", "Receiver"]
__all__ += ["abs", "clip", "cos", "exp", "log", "max", "min", "pow", "sin", "sqrt", "tanh", "where"]
__all__ += ["periodic", "frozen", "neumann", "dirichlet", "sparse", "load", "spmm", "gated", "sddmm", "prune"]
__all__ += ["attention", "load_smtx", "load_mtx", "reorder", "Reordering"]
__all__ += ["quantize", "Quantized", "pack4", "unpack4", "pattern"]
# choosing
__all__ += ["Schedule", "StencilSchedule", "UpdateSchedule", "SpmmSchedule", "SddmmSchedule"]
__all__ += ["AttentionSchedule", "schedules"]
# compiling and running
__all__ += ["compile", "tune", "Kernel", "UpdateKernel", "SpmmKernel", "AttentionKernel"]
__all__ += ["Frame", "plot", "animate"]
# judging a scheme
__all__ += ["growth", "Stability", "UnstableWarning"]
__all__ += ["distribute", "DistributedKernel"]
# errors
__all__ += ["SparsegenError", "StencilError", "BoundaryError", "ScheduleError", "ArrayError", "FormatError"]
__all__ += ["ProductError", "RunError", "ToolchainError", "DeviceError", "IRError", "KernelFault", "__version__"]

#: module -> the names that it holds.
_HOMES = {
    "dsl.trace": ("stencil", "Field", "Coef", "Mask", "Scalar", "Time"),
    "dsl.operands": ("Value",),
    "dsl.pml": ("pml",),
    "regions": ("sponge", "pml_layers"),
    "dsl.solve": ("Eq", "solve"),
    "dsl.sites": ("Source", "Receiver"),
    "dsl.stencil": ("Stencil",),
    "dsl.update": ("Update",),
    "dsl.functions": ("abs", "clip", "cos", "exp", "log", "max", "min", "pow", "sin", "sqrt", "tanh", "where"),
    "boundary": ("periodic", "frozen", "neumann", "dirichlet"),
    "formats": ("sparse", "load"),
    "loading": ("load_smtx", "load_mtx"),
    "products.attention": ("attention",),
    "products.product": ("spmm",),
    "products.sddmm": ("sddmm",),
    "products.stack": ("gated",),
    "pruning": ("prune",),
    "quantization": ("quantize", "Quantized", "pack4", "unpack4"),
    "reordering": ("reorder", "Reordering"),
    "schedule": tuple(name for name in __all__ if name.endswith("Schedule")),
    "compiler": ("compile", "schedules"),
    "stability": ("growth", "Stability"),
    "unstable": ("UnstableWarning",),
    "distributed.kernel": ("distribute", "DistributedKernel"),
    "tuning.tune": ("tune",),
    "frame": ("Frame",),
    "show": ("plot", "animate"),
    "kernel": ("Kernel", "UpdateKernel", "SpmmKernel", "AttentionKernel"),
    "ir.errors": tuple(name for name in __all__ if name.endswith("Error") or name == "KernelFault"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "pattern":  # a module, which importing sets
        return import_module("sparsegen.pattern")
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"sparsegen.{home}"), name)
            return value
    raise AttributeError(f"module 'sparsegen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

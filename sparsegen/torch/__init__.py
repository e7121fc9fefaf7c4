"""Sparse weights in torch: ``SparseLinear`` in the place of ``torch.nn.Linear``, and ``magnitude_mask`` for pruning.

And time steps with gradients: ``stencil_op``.

``prune``: which weights stay.  ``planned``: what the modules have in common.  ``linear``: the module.  ``op``: the
operator ``sparsegen::spmm_linear`` that it calls, with its fake and its derivative.  ``handle``: what stands for a
layer in the operator's arguments, ``plan``: what is behind it.  ``attention``: ``SparseAttention``, attention to the
keys that a pattern keeps, with its operator.  ``quantized``: ``QuantizedLinear``, a layer of 8-bit integers in vectors
of rows, with its operator.  ``fused``: ``FusedLinear``, layers of one input in one launch.  ``whole``: ``sparsify``,
whole models by the rules of ``config``, with what ``calibration`` saw and ``predict`` says in a ``report``.
``parallel``: layers over several GPUs, ``split``: whose part is whose.  ``folder``: models, and dense checkpoints, in
folders.  ``stencil``: ``stencil_op`` and its operators; ``trajectory``: what their gradients need of a kernel.

This package needs torch, and loads it when a name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsegen.torch.attention import SparseAttention
    from sparsegen.torch.config import Rule, SparseConfig
    from sparsegen.torch.folder import load, load_dense, save
    from sparsegen.torch.fused import FusedLinear
    from sparsegen.torch.linear import SparseLinear
    from sparsegen.torch.parallel import SparseColwise, SparseRowwise
    from sparsegen.torch.prune import magnitude_mask
    from sparsegen.torch.quantized import QuantizedLinear
    from sparsegen.torch.report import Report
    from sparsegen.torch.stencil import StencilOp, stencil_op
    from sparsegen.torch.whole import sparsify

__all__ = ["FusedLinear", "QuantizedLinear", "SparseAttention", "SparseLinear", "magnitude_mask"]
__all__ += ["Report", "Rule", "SparseConfig", "load", "load_dense", "save", "sparsify", "StencilOp", "stencil_op"]
__all__ += ["SparseColwise", "SparseRowwise"]

#: name -> the module that holds it.
_HOMES = {
    "FusedLinear": "fused", "QuantizedLinear": "quantized", "SparseAttention": "attention", "SparseLinear": "linear",
    "magnitude_mask": "prune", "Report": "report", "Rule": "config", "SparseConfig": "config", "sparsify": "whole",
    "load": "folder", "load_dense": "folder", "save": "folder", "StencilOp": "stencil", "stencil_op": "stencil",
    "SparseColwise": "parallel", "SparseRowwise": "parallel",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparsegen.torch' has no attribute {name!r}")
    try:
        module = import_module(f"sparsegen.torch.{_HOMES[name]}")
    except ModuleNotFoundError as e:
        if e.name != "torch":
            raise
        from sparsegen.ir.errors import SparsegenError

        raise SparsegenError(
            f"{name} needs torch, which is not installed", hint="pip install 'sparsegen[torch]'"
        ) from e
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""``to-warp``: the tile level to the warp level, by the rules of :mod:`sparsegen.ir.lower`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import tile as t
from ..lower.func import lower_func
from ..module import Module
from .manager import register


@register("to-warp")
@dataclass(frozen=True)
class ToWarp:
    """Lowers every tile kernel; lanes, addresses and waits are explicit afterwards."""

    def run(self, module: Module) -> Module:
        return replace(module, funcs=tuple(lower_func(f) if isinstance(f, t.Func) else f for f in module.funcs))

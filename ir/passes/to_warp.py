"""``to-warp``: the tile level to the warp level, by the rules of :mod:`sparsegen.ir.lower`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules

from .. import lower
from .. import tile as t
from .. import warp as w
from ..lower.context import Context
from ..module import Module
from ..node import walk
from .manager import register

#: The files of the package: their import registers the rules.
RULE_FILES = tuple(import_module(f"{lower.__name__}.{found.name}") for found in iter_modules(lower.__path__))


@register("to-warp")
@dataclass(frozen=True)
class ToWarp:
    """Lowers every tile kernel; lanes, addresses and waits are explicit afterwards."""

    def run(self, module: Module) -> Module:
        return replace(module, funcs=tuple(_lowered(f) if isinstance(f, t.Func) else f for f in module.funcs))


def _lowered(func: t.Func) -> w.Func:
    """The warp program of a tile program; no decision is left after it."""
    cx = Context(func)
    cx.all(func.body)
    scratch = tuple(
        (op.dst.name, op.dirty, op.dirty)
        for op in walk(func.body)
        if isinstance(op, t.Copy) and op.dirty is not None and op.dst.space == "shared"
    )
    return w.Func(
        func.symbol, tuple(func.params), tuple(cx.shared), (func.blocks, 1, 1), func.threads, cx.b.ops(),
        func.min_blocks, scratch, least_shared=func.least_shared, cluster=func.cluster, together=func.together,
        loc=func.loc,
    )  # fmt: skip

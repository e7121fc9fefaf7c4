"""A tile kernel as a warp kernel: lowers the body and collects what the launch needs."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from .. import tile as t
from .. import warp as w
from ..node import walk
from .context import RULES, Context

#: The files of this package: their import registers the rules.
RULE_FILES = tuple(
    import_module(f"{__package__}.{found.name}")
    for found in iter_modules(import_module(str(__package__)).__path__)
    if found.name != "func"
)


def lower_func(func: t.Func) -> w.Func:
    """The warp program of a tile program; no decision is left after it."""
    cx = Context(func)
    for op in func.body:
        cx.lower(op)
    scratch = tuple(
        (op.dst.name, op.dirty, op.dirty)
        for op in walk(func.body)
        if isinstance(op, t.Copy) and op.dirty is not None and op.dst.space == "shared"
    )
    return w.Func(
        func.symbol, tuple(func.params), tuple(cx.shared), (func.blocks, 1, 1), func.threads, cx.b.ops(),
        func.min_blocks, scratch, loc=func.loc,
    )  # fmt: skip


__all__ = ["RULES", "RULE_FILES", "lower_func"]

"""Drops warp-level ops that only make values which nobody reads."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .. import warp as w
from ..expr import values
from ..module import Module
from ..node import Op, buffers, fields, operands, results
from ..warp_quotient import Quotient
from .manager import register

#: Ops without effects besides their results.
PURE = (w.Let, w.ConstFloat, w.Unary, w.Binary, w.Fma, w.Compare, w.SelectValue, w.Convert, w.Bitcast, w.Pack, w.Prmt,
        w.Funnel, w.Dp4a, Quotient)  # fmt: skip


def pure(op: Op) -> bool:
    """Whether the op may go if its results are unused; a load with a cache hint other than ``nc`` is kept."""
    return isinstance(op, PURE) or (isinstance(op, w.Ld) and op.cache in ("", "nc"))


@register("dce")
@dataclass(frozen=True)
class Dce:
    """Also drops empty branches, loops with nothing to do, and register arrays that nothing touches."""

    def run(self, module: Module) -> Module:
        return dataclasses.replace(module, funcs=tuple(_region((f,), set())[0] for f in module.funcs))


def _region(ops: tuple[Op, ...], used: set[str]) -> tuple[Op, ...]:
    """The ops that are needed; ``used`` are the names that later ops read, and grows."""
    out: list[Op] = []
    for op in reversed(ops):
        made = results(op)
        if made and pure(op) and not any(f"%{v.name}" in used for v in made):
            continue
        if isinstance(op, w.Alloc) and f"@{op.buf.name}" not in used:
            continue
        inner: dict[str, Any] = {n: _region(getattr(op, n), used) for n, kind, _ in fields(op) if kind == "region"}
        if isinstance(op, (w.If, w.For)) and not any(inner.values()):
            continue
        used.update(f"%{v.name}" for e in operands(op) for v in values(e))
        used.update(str(b) for writes in (False, True) for b in buffers(op, writes=writes))
        out.append(dataclasses.replace(op, **inner) if inner else op)
    return tuple(reversed(out))

"""The architecture that functions need."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparsegen.ir import node
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.fragments import named
from sparsegen.ir.node import Op
from sparsegen.ir.tensor_copy import TensorCopy
from sparsegen.ir.warp_group import AnyWgmma, SetRegisters
from sparsegen.ir.warp_pairs import WidenE4m3


def needed_arch(funcs: Iterable[w.Func]) -> str:
    """The first architecture that has every instruction of these functions."""
    funcs = tuple(funcs)
    ops = [op for f in funcs for op in node.walk(f.body)]
    if any(isinstance(op, AnyWgmma | SetRegisters) for op in ops):
        return "sm_90a"
    if any(f.cluster > 1 for f in funcs) or any(map(_hopper, ops)):
        return "sm_90"
    return "sm_89" if any(isinstance(op, WidenE4m3) for op in ops) else "sm_80"


def _hopper(op: Op) -> bool:
    """Whether an op is an instruction that came with Hopper; mbarriers of Ampere count no bytes, only tested."""
    if isinstance(op, w.Mma):
        return named(op.shape).cc >= 90
    bulk = isinstance(op, w.MbarArrive) and op.expect is not None
    return bulk or isinstance(op, (w.BulkCopy, TensorCopy)) or (isinstance(op, w.Fence) and op.scope != "gpu")


def check_products(funcs: Iterable[w.Func], arch: str) -> None:
    """IRError for an mma that GPUs of ``arch`` (such as ``sm_90a``) do not have."""
    capability = divmod(int(re.sub(r"\D", "", arch)), 10)
    for op in (op for f in funcs for op in node.walk(f.body) if isinstance(op, w.Mma)):
        s = named(op.shape)
        if not s.on(capability):
            early = capability < divmod(s.cc, 10)
            hint = f"compile it for sm_{s.cc}" if early else "unpack them into s8 or u8, whose products all GPUs have"
            raise IRError(f"{arch} has no mma {op.shape}", loc=op.loc, hint=hint)

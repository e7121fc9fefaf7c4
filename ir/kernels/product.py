"""What the kernels of sparse products share: their parameters and launch, and what becomes of the sums."""

from __future__ import annotations

from typing import Any

from .. import op_spmm as o
from .. import tile as t
from ..module import Module
from ..node import Op
from ..types import Buffer, DType, f32, u32
from .common import replace_kernel


def parameters(
    op: o.Spmm, arrays: dict[str, tuple[DType, int]], slots: int, counter: int, sums: DType = f32
) -> dict[str, Buffer]:
    """The kernel's parameters by their roles: x and y, W's ``arrays``, the epilogue's, and the workspace's.

    ``slots`` of ``sums`` and as many elements of ``counter`` as given (zero before and after); what has no elements is
    none.
    """
    made = {
        "in": ("x", op.x_stored[0], op.batch * op.k * op.x_stored[1]),
        "out": ("y", op.y_stored, op.batch * op.m * op.n),
        **{name: (name, dtype, size) for name, (dtype, size) in arrays.items()},
        "scale": ("scale", op.of_rows, op.batch * op.matrices * op.m * op.scale),
        "bias": ("bias", op.of_rows, op.batch * op.matrices * op.m * op.bias),
        "residual": ("residual", op.y_stored, op.batch * op.m * op.n * op.residual),
        "sums": ("begun", op.sums, op.batch * op.m * op.n * op.onto),
        "workspace.slots": ("slots", sums, slots), "workspace.counter": ("counter", u32, counter),
    }  # fmt: skip
    return {role: Buffer(name, dtype, size, "global") for role, (name, dtype, size) in made.items() if size}


def epilogue(op: o.Spmm, params: dict[str, Buffer]) -> dict[str, Any]:
    """The fields of a store that say what becomes of the sums."""
    return {
        "out": params["out"], **{name: params.get(name) for name in ("scale", "bias", "residual")},
        "m": op.m, "n": op.n, "order": op.y_order, "activation": op.activation,
    }  # fmt: skip


def launched(
    module: Module, op: o.Spmm, params: dict[str, Buffer], body: Op, blocks: int, warps: int, min_blocks: int = 1,
    overlap: bool = False, least_shared: int = 0, cluster: int = 1,
) -> Module:  # fmt: skip
    """The module with the product replaced by a kernel; ``overlap``: the next launch may begin once all blocks run."""
    func = t.Func(
        symbol=op.symbol, params=tuple(params.values()), blocks=blocks, threads=32 * warps,
        body=(*((t.Overlap(launch="next"),) if overlap else ()), body),
        min_blocks=min_blocks, least_shared=least_shared, cluster=cluster,
    )  # fmt: skip
    return replace_kernel(module, op, func, params)

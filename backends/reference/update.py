"""The meaning of the op ``update``: read shifted fields across the boundary, work the formula out, keep frozen cells.

Source: ARCHITECTURE, "Meaning".  Everything is computed in the fields' own type, operation by operation as the formula
has it (no product is fused into a sum), once a time step for all fields at the old times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparsegen.ir import formula as f
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.op import Sides, SideSpec
from sparsegen.ir.op_update import Update

Field = npt.NDArray[Any]
Levels = tuple[Field, ...]

_MEANING: Final[dict[str, Callable[..., Any]]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "div": np.divide, "min": np.fmin, "max": np.fmax, "lt": np.less, "le": np.less_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "where": np.where,
    "fma": lambda a, b, c: a * b + c,
}  # fmt: skip


def run(op: Update, fields: Mapping[str, Sequence[Field]], coefs: Mapping[str, Field], steps: int) -> dict[str, Levels]:
    """The levels of each field after ``steps`` (at least 1) time steps, newest first; the inputs are untouched."""
    if steps < 1:
        raise ArrayError(f"{steps} time steps", hint="run at least 1 step")
    levels = {name: tuple(fields[name]) for name, _ in op.fields}
    for _ in range(steps):
        new = step(op, levels, coefs)
        levels = {name: (value, *levels[name][:-1]) for name, value in zip(levels, new, strict=True)}
    return levels


def step(op: Update, fields: Mapping[str, Sequence[Field]], coefs: Mapping[str, Field]) -> Levels:
    """The new level of each field, in new arrays."""
    number = op.dtype.numpy().type
    sides = {name: s for (name, _), s in zip(op.fields, op.sides, strict=True)}
    values: list[Any] = []
    with np.errstate(all="ignore"):
        for node in op.code:
            if node[0] == "const":
                values.append(number(node[1]))
            elif node[0] == "read":
                name, level, offset = f.read(node)
                known = name in sides
                source = fields[name][level] if known else coefs[name]
                values.append(shifted(source, offset, sides[name] if known else op.coef_sides))
            else:
                values.append(_MEANING[str(node[0])](*(values[a] for a in f.operands(node))))
    new: list[Field] = []
    for (name, _), place in zip(op.fields, op.results, strict=True):
        result: Field = np.array(np.broadcast_to(values[place], op.shape), op.dtype.numpy())
        for axis, pair in enumerate(sides[name]):
            n, r = op.shape[axis], op.radius[axis]
            for (kind, _), kept in zip(pair, (slice(0, r), slice(n - r, n)), strict=True):
                if kind == "frozen":
                    cells = (slice(None),) * axis + (kept,)
                    result[cells] = fields[name][0][cells]
        new.append(result)
    return tuple(new)


def shifted(u: Field, offset: Sequence[int], sides: Sides) -> Field:
    """``u[i + offset]`` for every cell i, cells outside by ``sides`` (``frozen``: the edge cell)."""
    for axis in reversed(range(u.ndim)):  # the last axis first, so that the lowest axis decides the corners
        n = u.shape[axis]
        at = np.arange(n) + offset[axis]
        low, high = sides[axis]
        index = np.where(at < 0, _inside(low, at, n), np.where(at >= n, _inside(high, at, n), at))
        u = np.take(u, index, axis)
        for (kind, value), outside in ((low, at < 0), (high, at >= n)):
            if kind == "dirichlet":
                u[(slice(None),) * axis + (outside,)] = value
    return u


def _inside(side: SideSpec, at: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """The cells that stand for cells outside of an axis of ``n``, at this side."""
    if side[0] == "periodic":
        return at % n
    if side[0] == "neumann":
        return np.where(at < 0, -1 - at, 2 * n - 1 - at)
    return np.clip(at, 0, n - 1)

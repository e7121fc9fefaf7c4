"""The meaning of the op ``update``: read shifted fields across the boundary, work the formula out, keep frozen cells.

Source: ARCHITECTURE, "Meaning".  Everything is computed in the fields' own type, of 16 bits in f32 and rounded once a
step: operation by operation as the formula has it (no product is fused into a sum), for all fields at the old times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from sparsegen.ir import formula as f
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.op_update import Update
from sparsegen.ir.types import cell_type

from .boundary import Field, keep_frozen, pad, rounded

Levels = tuple[Field, ...]
#: Is given the number of a time step, and the fields by name.
AtSites = Callable[[int, Mapping[str, Field]], None]

#: Each operation of a formula in NumPy.
MEANING: Final[dict[str, Callable[..., Any]]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "pow": np.power, "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "div": np.divide, "min": np.fmin, "max": np.fmax, "lt": np.less, "le": np.less_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "where": np.where,
    "fma": lambda a, b, c: a * b + c,
}  # fmt: skip


def run(
    op: Update, fields: Mapping[str, Sequence[Field]], coefs: Mapping[str, Field], steps: int,
    scalars: Field | None = None, sites: AtSites | None = None,
) -> dict[str, Levels]:  # fmt: skip
    """The levels of each field after ``steps`` (at least 1) time steps, newest first; the inputs are untouched.

    ``scalars`` [steps, count]: those of each step, in the order of :func:`sparsegen.ir.formula.scalars`.  ``sites`` is
    given the number of each step and the newest level of each field, which it may change in place: when the step has
    made it, or ``backwards`` before that reads it.
    """
    if steps < 1:
        raise ArrayError(f"{steps} time steps", hint="run at least 1 step")
    levels = {name: tuple(fields[name]) for name, _ in op.fields}
    names = f.scalars(op.code)
    for number in range(steps):
        if sites is not None and op.backwards:
            levels = {name: (old[0].copy(), *old[1:]) for name, old in levels.items()}
            sites(number, {name: old[0] for name, old in levels.items()})
        now = {} if scalars is None else dict(zip(names, scalars[number], strict=True))
        new = step(op, levels, coefs, now)
        if sites is not None and not op.backwards:
            sites(number, dict(zip(levels, new, strict=True)))
        levels = {name: (value, *levels[name][:-1]) for name, value in zip(levels, new, strict=True)}
    return levels


def step(
    op: Update, fields: Mapping[str, Sequence[Field]], coefs: Mapping[str, Field],
    scalars: Mapping[str, float] = MappingProxyType({}),
) -> Levels:  # fmt: skip
    """The new level of each field, in new arrays."""
    number = cell_type(op.dtype).numpy().type
    sides = {name: s for (name, _), s in zip(op.fields, op.sides, strict=True)}
    offsets = [f.read(node)[2] for node in op.code if node[0] == "read"]
    reach = np.abs(np.array(offsets, int).reshape(-1, len(op.shape))).max(0, initial=0).tolist()
    padded = {(name, i): pad(u, reach, sides[name]) for name in sides for i, u in enumerate(fields[name])}
    padded |= {(name, 0): pad(u, reach, op.coef_sides) for name, u in coefs.items()}
    values: list[Any] = []
    with np.errstate(all="ignore"):
        for node in op.code:
            if node[0] == "const":
                values.append(number(node[1]))
            elif node[0] == "scalar":
                values.append(number(scalars[str(node[1])]))
            elif node[0] == "read":
                name, level, offset = f.read(node)
                starts = [r + d for r, d in zip(reach, offset, strict=True)]
                window = tuple(slice(i, i + n) for i, n in zip(starts, op.shape, strict=True))
                values.append(padded[name, level][window].astype(number, copy=False))
            else:
                values.append(MEANING[str(node[0])](*(values[a] for a in f.operands(node))))
    new: list[Field] = []
    for (name, _), place in zip(op.fields, op.results, strict=True):
        result = rounded(np.broadcast_to(values[place], op.shape), op.dtype.numpy())
        keep_frozen(result, fields[name][0], op.radius, sides[name])
        new.append(result)
    return tuple(new)

"""The op level of general updates: several fields, time levels and coefficients, any formula."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from . import formula as f
from .boundary_map import PERIODIC
from .checks import Context, check
from .grid import Grid
from .node import Op, attr, define
from .numbers.memory import lead
from .op import AXES, Sides, Stencil, check_sides
from .types import Buffer, DType, Space, cell_type

#: A group of sites: its name, the field, how many there are.
Sites = tuple[str, str, int]


@define("op.update")
class Update(Op):
    """One time step of all fields at once: every field is read at the old times and gets one new level.

    ``fields``: (name, time levels) of each, newest level first; ``results``: for each the place in ``code`` of its new
    value; ``coefs``: fields that do not change.  ``radius``: the reach into fields on each axis, in cells (``frozen``
    keeps that many); ``sides``: the boundary of each field; ``coef_sides``: where coefficients are read outside
    (``frozen``: the edge cell).  ``levels`` time steps follow one another; of each field the newest levels are written,
    those that have not been read (:func:`sparsegen.ir.numbers.rows.newest`).  ``pitch``: elements from row to row of
    each parameter, in the order of :func:`parameters`, then of every level of each field where it would be written;
    ``ghosts``: how many cells again beside each row of these (:class:`sparsegen.ir.grid.Grid`), none where left out;
    ``spare``: whether what lies behind the cells of a row of these is nobody's, so that whole pieces may be stored.
    ``binds``: what roles of its launches are called instead.  The formula's scalars are given for each time step.

    ``sources`` and ``receivers``: (name, field, sites) of groups of sites at which every time step adds numbers to a
    field when it is made, or records what it is then; tables of the module say where (:mod:`sparsegen.ir.op_sites`).
    ``backwards``: of an adjoint they do so to the fields that a step reads, and the rows of a pass are those of its
    steps from the last one to the first.
    """

    symbol: str = attr()
    shape: tuple[int, ...] = attr()
    dtype: DType = attr()
    fields: tuple[tuple[str, int], ...] = attr()
    coefs: tuple[str, ...] = attr()
    code: f.Code = attr()
    results: tuple[int, ...] = attr()
    radius: tuple[int, ...] = attr()
    sides: tuple[Sides, ...] = attr()
    coef_sides: Sides = attr()
    pitch: tuple[int, ...] = attr()
    levels: int = attr(default=1)
    binds: tuple[tuple[str, str], ...] = attr(default=())
    sources: tuple[Sites, ...] = attr(default=())
    receivers: tuple[Sites, ...] = attr(default=())
    backwards: bool = attr(default=False)
    ghosts: tuple[int, ...] = attr(default=())
    spare: tuple[bool, ...] = attr(default=())

    @property
    def grids(self) -> dict[str, Grid]:
        """The array of each role as a field, which no side is said of."""
        ghosts = self.ghosts or (0,) * len(self.pitch)
        return {
            role: Grid(self.shape, pitch, ghosts=beside, lead=lead(beside, self.dtype.nbytes))
            for role, pitch, beside in zip(self.roles, self.pitch, ghosts, strict=True)
        }

    @property
    def roles(self) -> tuple[str, ...]:
        """What a pass calls the arrays of ``pitch``."""
        read = (f"in.{name}.{level}" for name, level in parameters(self.fields, self.coefs))
        return (*read, *(written(name, level) for name, level in parameters(self.fields, ())))


#: What a pass calls the scalars that a call gives for its time steps, by value; and what a launch of all steps of a
#: call calls them, which are a table in global memory with a row for each.
SCALARS: Final = "scalars"
ALL_SCALARS: Final = "steps.scalars"


def scalars(op: Update, steps: int, taken: Iterable[Buffer], space: Space = "param") -> tuple[Buffer, ...]:
    """A parameter for the scalars of so many time steps, called as none of ``taken``; nothing where the formula has
    none.  It lies in the constant bank, or elsewhere."""
    if not (names := f.scalars(op.code)):
        return ()
    name = SCALARS
    while name in {buffer.name for buffer in taken}:
        name += "_"
    return (Buffer(name, cell_type(op.dtype), steps * len(names), space),)


def of_stencil(op: Stencil) -> Update:
    """A linear stencil as the update that it is: one field, its weights constants of the formula, summed tap by tap."""
    graph, total = f.Graph(), -1
    for offset, weight in op.taps:
        product = graph.add("mul", graph.const(weight), graph.add("read", "u", 0, offset))
        total = product if total < 0 else graph.add("add", total, product)
    return Update(
        op.symbol, op.shape, op.dtype, (("u", 1),), (), tuple(graph.nodes), (total,), op.radius, (op.sides,), op.sides,
        op.pitch, binds=(("in.u.0", "in"), (written("u", 0), "out")), loc=op.loc,
    )  # fmt: skip


def on_axes(op: Update, count: int) -> Update:
    """The same update on so many axes: axes of one cell, which wrap, stand before those of the field."""
    more = count - len(op.shape)
    if not more:
        return op
    code = tuple(
        (*node[:3], (*(0,) * more, *f.read(node)[2])) if node[0] == "read" else node for node in op.code
    )  # fmt: skip
    return replace(
        op, shape=(*(1,) * more, *op.shape), code=code, radius=(*(0,) * more, *op.radius),
        coef_sides=(*(PERIODIC,) * more, *op.coef_sides), sides=tuple((*(PERIODIC,) * more, *s) for s in op.sides),
    )  # fmt: skip


def written(name: str, level: int) -> str:
    """What a pass calls the array that a field's level goes to."""
    return f"out.{name}.{level}" if level else f"out.{name}"


def first(fields: Iterable[tuple[str, int]]) -> tuple[int, ...]:
    """Where the newest level of each field stands among the levels of all."""
    return tuple(i for i, (_, level) in enumerate(parameters(fields, ())) if not level)


def parameters(fields: Iterable[tuple[str, int]], coefs: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """What an update reads, as (name, level): each field's levels, newest first, then the coefficients."""
    return (*((name, level) for name, levels in fields for level in range(levels)), *((name, 0) for name in coefs))


def reach(code: f.Code, names: Iterable[str], ndim: int) -> tuple[tuple[int, int], ...]:
    """How many cells before and after the cell itself a formula reads from these parameters, on each axis."""
    wanted = set(names)
    offsets = [offset for name, _, offset in f.reads(code) if name in wanted]
    return tuple((max([0, *(-o[a] for o in offsets)]), max([0, *(o[a] for o in offsets)])) for a in range(ndim))


@check(Update)
def _update(op: Update, ctx: Context) -> None:
    ndim, count = len(op.shape), len(op.fields)
    ctx.need(1 <= ndim <= len(AXES) and min(op.shape) >= 1, f"fields of {list(op.shape)} cells")
    ctx.need(count >= 1, "an update without a field")
    levels = {**dict(op.fields), **dict.fromkeys(op.coefs, 1)}
    ctx.need(len(levels) == count + len(op.coefs), "two parameters of one name")
    ctx.need(all(n >= 1 for n in levels.values()), "a field without a time level")
    ctx.need(len(op.results) == len(op.sides) == count, f"{count} fields need {count} results and boundaries")
    axes = {len(op.radius), len(op.coef_sides), *(len(s) for s in op.sides)}
    ctx.need(axes == {ndim}, f"radius and sides must have {ndim} axes")
    ctx.need(min(op.radius) >= 0, f"radius {list(op.radius)} is negative")
    for sides in (*op.sides, op.coef_sides):
        check_sides(ctx, sides)
    ctx.need(op.levels >= 1, f"{op.levels} levels")
    want = len(parameters(op.fields, op.coefs)) + len(parameters(op.fields, ()))
    ctx.need(len(op.pitch) == want, f"{len(op.pitch)} pitches for {want} arrays")
    ctx.need(min(op.pitch) >= op.shape[-1], f"rows of {op.shape[-1]} cells overlap at pitch {min(op.pitch)}")
    ctx.need(len(op.ghosts) in (0, want), f"ghosts of {len(op.ghosts)} of {want} arrays")
    ctx.need(len(op.spare) in (0, want), f"what is spare of {len(op.spare)} of {want} arrays")
    wrong = f.problem(op.code, op.results, levels, ndim)
    ctx.need(wrong is None, str(wrong))
    groups = (*op.sources, *op.receivers)
    ctx.need(len({name for name, _, _ in groups}) == len(groups), "two groups of sites of one name")
    for name, field, count in groups:
        ctx.need(field in dict(op.fields), f"sites {name} of {field}, which is no field")
        ctx.need(count >= 1, f"{count} sites {name}")

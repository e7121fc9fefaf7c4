"""The op level: what is computed.  Passes turn each op here into a kernel of the tile level."""

from __future__ import annotations

from .boundary import KINDS
from .checks import Context, check
from .node import Op, attr, define
from .types import DType, u8

#: One side of an axis: its kind (``periodic``, ``dirichlet``, ``neumann``, ``frozen``) and dirichlet's value.
SideSpec = tuple[str, float]
Sides = tuple[tuple[SideSpec, SideSpec], ...]
#: A tap of a stencil: its offset on each axis, and its weight.
Tap = tuple[tuple[int, ...], float]
#: A half-open range of cells on each axis.
Box = tuple[tuple[int, int], ...]
#: Names of the axes, slowest first; a field of fewer axes has the last of them.
AXES = ("z", "y", "x")


def tile_counts(box: Box, size: tuple[int, ...]) -> tuple[int, ...]:
    """How many tiles of ``size`` cover a box, on each axis."""
    return tuple(-(-(high - low) // n) for (low, high), n in zip(box, size, strict=True))


@define("op.stencil")
class Stencil(Op):
    """``out[i] = sum of weight * u[i + offset]`` over the taps, for the cells of ``box``, ``u`` extended by ``sides``.

    ``radius`` is the reach on each axis, in cells (outer zero weights count: ``frozen`` keeps that many cells);
    ``pitch`` is the distance between rows of ``u`` and of ``out``, in elements; ``steps`` is how many time steps one
    application stands for (1 until time fusion); ``levels`` applications follow one another (``sides`` hold before the
    first only).  Fields of 16-bit floats are summed in f32 over all of them, and rounded where they are stored; so are
    those of bytes, to nearest even and to 0..255 (:func:`sparsegen.ir.types.cell_type`).
    """

    symbol: str = attr()
    shape: tuple[int, ...] = attr()
    dtype: DType = attr()
    taps: tuple[Tap, ...] = attr()
    radius: tuple[int, ...] = attr()
    sides: Sides = attr()
    box: Box = attr()
    pitch: tuple[int, int] = attr()
    steps: int = attr(default=1)
    levels: int = attr(default=1)

    @property
    def roles(self) -> tuple[str, ...]:
        """What a pass calls the arrays of ``pitch``."""
        return "in", "out"


@define("op.rim")
class Rim(Op):
    """``steps`` exact time steps of a stencil for the cells of ``boxes`` only: those that time fusion gets wrong.

    A cell whose boundary is ``frozen`` keeps its value; the boundary holds at each of the steps.
    """

    symbol: str = attr()
    shape: tuple[int, ...] = attr()
    dtype: DType = attr()
    taps: tuple[Tap, ...] = attr()
    radius: tuple[int, ...] = attr()
    sides: Sides = attr()
    boxes: tuple[Box, ...] = attr()
    pitch: tuple[int, int] = attr()
    steps: int = attr()


def check_sides(ctx: Context, sides: Sides, what: str = "a side") -> None:
    """Each side is a boundary that there is; an axis wraps at both ends or at none."""
    for low, high in sides:
        for kind, _ in (low, high):
            ctx.one_of(kind, KINDS, what)
        ctx.need((low[0] == "periodic") == (high[0] == "periodic"), f"an axis is {low[0]} here and {high[0]} there",
                 "periodic is for both sides of an axis")  # fmt: skip


def _axes(ctx: Context, op: Stencil | Rim, boxes: tuple[Box, ...]) -> None:
    """What taps, radius, sides and boxes say fits the axes of the field."""
    axes = len(op.shape)
    ctx.need(1 <= axes <= len(AXES), f"a field of {axes} axes", f"give one to {len(AXES)}")
    ctx.need(min(op.shape) >= 1, f"a field of {op.shape} cells")
    hint = f"shape {list(op.shape)} has {axes} axes: give a number for each"
    ctx.need(len(op.radius) == axes, f"radius {list(op.radius)} is of {len(op.radius)} axes", hint)
    ctx.need(len(op.sides) == axes, f"sides are those of {len(op.sides)} axes", hint)
    ctx.need(min(op.radius) >= 0, f"radius {list(op.radius)} is negative")
    check_sides(ctx, op.sides)
    for offset, _ in op.taps:
        ctx.need(len(offset) == axes, f"tap {list(offset)} is of {len(offset)} axes", hint)
        ctx.need(all(abs(d) <= r for d, r in zip(offset, op.radius, strict=True)),
                 f"tap {list(offset)} is outside the radius {list(op.radius)}", "raise the radius")  # fmt: skip
    ctx.need(len({offset for offset, _ in op.taps}) == len(op.taps), "two taps have one offset", "add their weights")
    for box in boxes:
        ctx.need(len(box) == axes, f"box {box} is of {len(box)} axes", hint)
        ctx.need(all(0 <= low <= high <= n for (low, high), n in zip(box, op.shape, strict=True)),
                 f"box {box} is not within the field of {list(op.shape)} cells")  # fmt: skip
    ctx.need(min(op.pitch) >= op.shape[-1], f"rows of {op.shape[-1]} cells overlap at pitch {min(op.pitch)}")
    ctx.need(op.dtype.kind == "float" or op.dtype is u8, f"a field of {op.dtype}", "take a floating type, or u8")
    ctx.need(op.steps >= 1, f"{op.steps} time steps")


@check(Stencil)
def _stencil(op: Stencil, ctx: Context) -> None:
    _axes(ctx, op, (op.box,))
    ctx.need(op.levels >= 1, f"{op.levels} levels")


@check(Rim)
def _rim(op: Rim, ctx: Context) -> None:
    _axes(ctx, op, op.boxes)

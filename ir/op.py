"""The op level: what is computed.  Passes turn each op here into a kernel of the tile level."""

from __future__ import annotations

from .node import Op, attr, define
from .types import DType

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
    first only).  Fields of 16-bit floats are summed in f32 over all of them, and rounded where they are stored.
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

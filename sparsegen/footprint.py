"""What schedules, their geometry and their cost have to know of a stencil."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.schedule import FAMILIES, ITEMSIZE, MAX_FUSE, RANGES

if TYPE_CHECKING:
    from sparsegen.dsl.stencil import Stencil

#: Kinds of boundary, the cheapest first.
KINDS = ("periodic", "neumann", "dirichlet", "frozen")
#: Largest rank of weights that schedules make use of.
MAX_RANK = 4


@dataclass(frozen=True)
class Footprint:
    """One time step of a stencil, without its weights.

    ``k``: edge of the cube that holds them, over ``axes`` axes (1: a field of one row); ``points``: how many are not
    zero (None: not known); ``boundary``: the kind that stands for all sides; ``mirrored``: they are their own mirror
    image along every axis; ``star``: they lie on the axes through the centre; ``ranks``: of the weights of 1, 2, ...
    fused steps (two axes), up to the first above MAX_RANK; ``planes``: points of each plane of such weights that has
    any (three axes); ``fusable``: most steps whose fused weights neither overflow nor lose precision, and ``lost``:
    what one more would lose of their size (infinite: it overflows).
    """

    k: int
    points: int | None = None
    dtype: str = "f64"
    axes: int = 2
    boundary: str = "periodic"
    mirrored: bool = False
    star: bool = False
    ranks: tuple[int, ...] = ()
    planes: tuple[tuple[int, ...], ...] = ()
    fusable: int = 1 << 16
    lost: float = 0.0

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, stencil: Stencil) -> Footprint:
        """The footprint of a stencil; a 2-D one of one row has one axis."""
        w = stencil.weights
        axes = 1 if stencil.ndim == 2 and len(w) == 1 else stencil.ndim
        mirrored = all(stencil.is_symmetric(axis) for axis in range(stencil.ndim))
        kind = costliest(side.kind for pair in stencil.sides for side in pair)
        points = int(np.count_nonzero(w))
        ranks = _ranks(w) if axes == 2 else ()
        planes = _planes(w) if axes == 3 else ()
        fusable, lost = _fusable(w, stencil.dtype, axes)
        star = stencil.kind == "star"
        return cls(max(w.shape), points, stencil.dtype, axes, kind, mirrored, star, ranks, planes, fusable, lost)

    @property
    def radius(self) -> int:
        """Cells that one step reaches."""
        return self.k // 2

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEMSIZE[self.dtype]

    @property
    def flat(self) -> bool:
        """Whether fields have one row."""
        return self.axes == 1

    @cached_property
    def full(self) -> bool | None:
        """Whether no weight is zero; None: not known."""
        return None if self.points is None else self.points == self.k**self.axes

    @property
    def most_points(self) -> int:
        """Non-zero weights, or as many as there can be."""
        return self.k**self.axes if self.points is None else self.points


def costliest(kinds: Iterable[str]) -> str:
    """The kind that stands for sides of several kinds: the one that costs most."""
    return max(kinds, key=KINDS.index)


def _ranks(weights: Any) -> tuple[int, ...]:
    """Ranks of the weights of as many fused steps as a ``lowrank`` pass may do."""
    from sparsegen.ir.fuse import convolve
    from sparsegen.ir.separable import ROUNDING, separate

    ranks: list[int] = []
    for steps in range(1, RANGES["lowrank"]["fuse"][1] + 1):
        with np.errstate(over="ignore"):
            fused = convolve(weights, steps)
        if not np.isfinite(fused).all():
            break
        terms = separate(fused, MAX_RANK)
        if terms.residual > ROUNDING:
            break
        ranks.append(terms.rank)
    return tuple(ranks)


def _planes(weights: Any) -> tuple[tuple[int, ...], ...]:
    """Points of the planes of fused weights, for as many steps as an application does."""
    from sparsegen.ir.fuse import convolve

    with np.errstate(over="ignore", invalid="ignore"):
        every = [np.count_nonzero(convolve(weights, steps), axis=(1, 2)) for steps in range(1, MAX_FUSE + 1)]
    return tuple(tuple(int(n) for n in points if n) for points in every)


def _fusable(weights: Any, dtype: str, axes: int) -> tuple[int, float]:
    """How many steps may be fused, of those that any family for so many axes fuses, and the loss of one more."""
    from sparsegen.families import named
    from sparsegen.ir.fuse import most_fused
    from sparsegen.ir.types import DTYPES

    ranges = (RANGES.get(name, {}) for name in FAMILIES if axes in named(name).AXES)
    return most_fused(weights, DTYPES[dtype], max(own.get("fuse", (1, MAX_FUSE))[1] for own in ranges))

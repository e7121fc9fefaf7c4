"""What schedules, their geometry and their cost have to know of a stencil."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir.types import DTYPES
from sparsegen.registry import families
from sparsegen.sizes import ITEMSIZE, MAX_FUSE

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
    what one more would lose of their size (infinite: it overflows); ``taps``: where the weights that are not zero lie,
    as flat indices into that cube (empty: not known); ``reflected``: some side is neumann.
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
    taps: tuple[int, ...] = ()
    reflected: bool = False

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, stencil: Stencil) -> Footprint:
        """The footprint of a stencil; a 2-D one of one row has one axis."""
        from sparsegen.ir.fuse import most_fused  # costs are worked out without the levels that this imports

        w = stencil.weights
        axes = 1 if stencil.ndim == 2 and len(w) == 1 else stencil.ndim
        mirrored = all(stencil.is_symmetric(axis) for axis in range(stencil.ndim))
        kind = costliest(side.kind for pair in stencil.sides for side in pair)
        points = int(np.count_nonzero(w))
        ranks = _ranks(w) if axes == 2 else ()
        planes = _planes(w) if axes == 3 else ()
        fusable, lost = most_fused(w, DTYPES[stencil.dtype], _most_fused(axes))
        star, k = stencil.kind == "star", max(w.shape)
        cube = np.pad(w, [((k - n) // 2,) * 2 if n > 1 or axes > 1 else (0, 0) for n in w.shape])
        taps = tuple(int(i) for i in np.flatnonzero(cube))
        return cls(k, points, stencil.dtype, axes, kind, mirrored, star, ranks, planes, fusable, lost, taps,
                   any(side.kind == "neumann" for pair in stencil.sides for side in pair))  # fmt: skip

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

    def support(self, fuse: int) -> Any:
        """Which weights of ``fuse`` fused steps are not zero: bool, a cube over ``axes`` axes.  All if not known."""
        return _support(self.k, self.axes, self.taps, fuse)

    def fused_points(self, fuse: int) -> int:
        """Non-zero weights of ``fuse`` fused steps, or as many as there can be."""
        if fuse == 1 and not self.taps:
            return self.most_points
        return int(np.count_nonzero(self.support(fuse)))

    def row_spans(self, fuse: int) -> tuple[int, ...]:
        """Columns from the first to the last non-zero fused weight of each row; 0 where it has none."""
        return _row_spans(self.k, self.axes, self.taps, fuse)

    @property
    def most_points(self) -> int:
        """Non-zero weights, or as many as there can be."""
        return self.k**self.axes if self.points is None else self.points


@lru_cache(maxsize=1024)
def _support(k: int, axes: int, taps: tuple[int, ...], fuse: int) -> Any:
    base = np.zeros((k,) * axes, bool)
    base.reshape(-1)[list(taps) or slice(None)] = True
    if fuse == 1:
        return base
    before = _support(k, axes, taps, fuse - 1)
    out = np.zeros((before.shape[0] + k - 1,) * axes, bool)
    for at in np.argwhere(base):
        out[tuple(slice(i, i + before.shape[0]) for i in at)] |= before
    return out


@lru_cache(maxsize=1024)
def _row_spans(k: int, axes: int, taps: tuple[int, ...], fuse: int) -> tuple[int, ...]:
    rows = _support(k, axes, taps, fuse).reshape(-1, (k - 1) * fuse + 1)
    places = (np.flatnonzero(row) for row in rows)
    return tuple(int(at[-1] - at[0]) + 1 if len(at) else 0 for at in places)


def costliest(kinds: Iterable[str]) -> str:
    """The kind that stands for sides of several kinds: the one that costs most."""
    return max(kinds, key=KINDS.index)


def _ranks(weights: Any) -> tuple[int, ...]:
    """Ranks of the weights of as many fused steps as a ``lowrank`` pass may do."""
    from sparsegen.ir.fuse import convolve
    from sparsegen.ir.separable import ROUNDING, separate

    ranks: list[int] = []
    for steps in range(1, _most_fused(2, "lowrank") + 1):
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


def _most_fused(axes: int, name: str = "") -> int:
    """The most time steps that a family (any, if none is named) for so many axes makes one application."""
    found: list[Any] = [f for f in families("stencil").values() if not name or f.name == name]
    return max(int(f.by_name["fuse"].high) for f in found if axes in f.axes and f.has("fuse"))

"""A linear stencil with constant weights, as an immutable value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparsegen.boundary import BoundarySpec, check_sides, collapse, periodic, resolve
from sparsegen.callsite import user_loc
from sparsegen.ir.boundary import Sides, describe
from sparsegen.ir.errors import BoundaryError, Loc, SparsegenError, StencilError

Weights = npt.NDArray[np.float64]

MAX_RADIUS: Final = 16
"""The farthest read along an axis that a stencil may have (cells)."""

DTYPES: Final = ("f64", "f32", "f16", "bf16", "u8")
_NUMPY_NAMES: Final = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_FIELD_NAMES: Final = {**_NUMPY_NAMES, "uint8": "u8"}


@dataclass(frozen=True)
class Stepped:
    """The time step ``dt`` of a scheme's derivatives; ``free`` makes the scheme with a scalar ``dt`` in its place."""

    dt: float
    free: Callable[[], Any]


@dataclass(frozen=True, eq=False, repr=False)
class Stencil:
    """``out[i] = sum over d of weights[radius + d] * u[i + d]`` (correlation), at every point and time step.

    ``weights`` is a read-only float64 array of 1 to 3 axes with odd extents, the centre in the middle; every number in
    it is exactly a number of ``dtype``, the element type of the field (of ``u8``, which are images, of f32: cells are
    worked out in that and rounded to nearest even, and to 0..255, at every step).  ``sides`` is the boundary at the
    (low, high) end of each axis.  ``loc`` is the user's line, ``expr`` the sympy expression that was traced, before its
    coefficients were rounded to ``dtype`` (None for :meth:`from_weights`); ``stepped`` its time step, where it has one.

    The kernel is called ``name``; ``name_kernel`` where C++ or CUDA has that name already, as of ``random``.

    Two stencils are equal when they compute the same thing: weights, dtype and sides; all else does not count.
    """

    weights: Weights
    dtype: str
    sides: Sides
    name: str = "stencil"
    loc: Loc | None = None
    expr: Any = None
    stepped: Stepped | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name, self.loc)
        object.__setattr__(self, "dtype", dtype_name(self.dtype, self.loc))
        checked = _checked(_array(self.weights, self.loc).astype(np.float64), self.dtype, self.loc)
        check_sides(self.sides, checked.ndim, self.loc)
        for value in {side.value for pair in self.sides for side in pair}:
            check_fits(value, f"dirichlet({value!r})", self.dtype, BoundaryError, self.loc)
        checked.flags.writeable = False
        object.__setattr__(self, "weights", checked)

    @classmethod
    def from_weights(
        cls, w: npt.ArrayLike, boundary: BoundarySpec = periodic, name: str = "stencil", dtype: object = None
    ) -> Stencil:
        """The stencil whose weights are ``w``, any odd-sized array of floats; the middle is the centre.

        ``dtype`` is that of ``w`` unless given; giving a narrower one rounds the weights, to nearest.
        """
        loc = user_loc()
        array = _array(w, loc)
        if not 1 <= array.ndim <= 3:
            raise StencilError(f"the weights have {array.ndim} axes", loc=loc, hint="a stencil has 1, 2 or 3 axes")
        return cls(
            array.astype(np.float64),
            dtype_name(array.dtype if dtype is None else dtype, loc),
            resolve(boundary, array.ndim, loc),
            name,
            loc,
        )

    @property
    def ndim(self) -> int:
        """Number of axes: 1, 2 or 3."""
        return self.weights.ndim

    @property
    def extents(self) -> tuple[int, ...]:
        """Cells on each axis that a step reads, the centre among them."""
        return self.weights.shape

    @property
    def radius(self) -> tuple[int, ...]:
        """Half the extent of each axis (cells): how far ``frozen`` reaches in, outer zero weights included."""
        return tuple(extent // 2 for extent in self.weights.shape)

    @property
    def reach(self) -> tuple[tuple[int, int], ...]:
        """How far each axis is really read (low, high), in cells: zero weights at the edge do not count."""
        nonzero = np.nonzero(self.weights)
        return tuple(
            (max(0, radius - int(index.min())), max(0, int(index.max()) - radius))
            for index, radius in zip(nonzero, self.radius, strict=True)
        )

    @property
    def points(self) -> int:
        """Number of non-zero weights."""
        return int(np.count_nonzero(self.weights))

    @property
    def kind(self) -> str:
        """``"star"`` when every non-zero weight lies on an axis through the centre, else ``"box"``."""
        off_centre = sum(
            (index != radius).astype(int) for index, radius in zip(np.nonzero(self.weights), self.radius, strict=True)
        )
        return "star" if np.all(np.asarray(off_centre) <= 1) else "box"

    @property
    def boundary(self) -> BoundarySpec:
        """The boundary in its shortest form, as a user would write it."""
        return collapse(self.sides)

    @cached_property
    def gridded(self) -> Stencil:
        """The same stencil for a field of at least two axes: a 1-D field is taken as one row."""
        if self.ndim > 1:
            return self
        return replace(self, weights=self.weights[np.newaxis], sides=((periodic, periodic), *self.sides))

    def as_update(self) -> Any:
        """The same time step as a general :class:`sparsegen.Update` of one field ``u``, for all schedules of those; of
        16 bits it is rounded at every step.  StencilError where a frozen side keeps more cells than weights reach."""
        return import_module("sparsegen.dsl.update").of_stencil(self)  # which needs this module

    def with_sites(self, **groups: Any) -> Any:
        """The same time step as an :class:`sparsegen.Update` with sources and receivers (see there)."""
        return self.as_update().with_sites(**groups)

    def is_symmetric(self, axis: int) -> bool:
        """Whether the weights are exactly their own mirror image along ``axis``."""
        return bool(np.array_equal(self.weights, np.flip(self.weights, axis)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stencil):
            return NotImplemented
        return (self.dtype, self.sides) == (other.dtype, other.sides) and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((self.weights.shape, self.weights.tobytes(), self.dtype, self.sides))

    def __str__(self) -> str:
        extents = "x".join(map(str, self.weights.shape))
        return f"{self.name}: {self.points}-point {self.kind}, {extents}, {self.dtype}, {describe(self.sides)}"

    def __repr__(self) -> str:
        return f"<Stencil {self}>"


def _array(w: Any, loc: Loc | None) -> npt.NDArray[Any]:
    """The weights as an array of floats; StencilError for what is none, and for what an array would drop."""
    try:
        array: npt.NDArray[Any] = np.asarray(w)
        masked = isinstance(w, np.ma.MaskedArray) or (isinstance(w, (list, tuple)) and np.ma.is_masked(np.ma.array(w)))
    except Exception as error:
        raise StencilError(
            f"the weights are no array: {error}",
            loc=loc,
            hint="pass a NumPy array; of a tensor w.detach().cpu().double().numpy()",
        ) from error
    what = hint = ""
    if masked:
        what, hint = "a masked array", "pass w.filled(0): what its masked elements are is not said"
    elif array.dtype.kind in "iub":
        what, hint = "integers", "pass w.astype(float), or with np.float32 for an f32 stencil"
    elif array.dtype.kind == "c":
        what, hint = "complex", "split the problem into real and imaginary parts"
    elif array.dtype.name not in _NUMPY_NAMES:
        what, hint = "of a dtype that is not supported", f"convert to one of {', '.join(_NUMPY_NAMES)}"
    if what:
        raise StencilError(f"the weights are {what} ({array.dtype})", loc=loc, hint=hint)
    return array


def dtype_name(dtype: object, loc: Loc | None = None) -> str:
    """``"f64"``, ``"f32"``, ``"f16"``, ``"bf16"`` or ``"u8"``, from that name or from a NumPy dtype or its name."""
    if isinstance(dtype, str):
        name = _FIELD_NAMES.get(dtype, dtype)
    else:
        try:
            name = _FIELD_NAMES.get(np.dtype(dtype).name, "")  # type: ignore[call-overload]
        except TypeError:
            name = ""
    if name not in DTYPES:
        raise StencilError(f"a stencil cannot have the dtype {dtype!r}", loc=loc, hint=f"one of {', '.join(DTYPES)}")
    return name


def check_name(name: str, loc: Loc | None) -> None:
    """StencilError for a name that no kernel can be called after."""
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
        raise StencilError(
            f"the name {name!r} is no C identifier",
            loc=loc,
            hint="use ASCII letters, digits and _; the generated kernel is called after it",
        )


def check_fits(value: float, what: str, dtype: str, kind: type[SparsegenError], loc: Loc | None) -> None:
    """An error of that kind for a number that is infinite in ``dtype``, or none of a byte."""
    if dtype == "u8" and not (0 <= value <= 255 and value == int(value)):
        raise kind(f"{what} is no number of u8", loc=loc, hint="take a whole number from 0 to 255")
    if not np.isfinite(round_to(np.array([value]), dtype)).all():
        raise kind(f"{what} is infinite in {dtype}", loc=loc, hint="choose a wider dtype or a smaller value")


def round_to(values: Weights, dtype: str) -> Weights:
    """``values`` rounded to nearest, ties to even, in ``dtype`` (of u8 in f32, in which its cells are worked out), and
    held in float64; too large becomes infinite."""
    if dtype == "f64":
        return values
    with np.errstate(over="ignore", under="ignore"):
        if dtype != "bf16":
            return values.astype(np.float16 if dtype == "f16" else np.float32).astype(np.float64)
        # bf16: 8 significant bits, least normal 2**-126 (frexp's exponent -125), greatest 255 * 2**120
        _, exponent = np.frexp(values)
        unit = np.ldexp(1.0, np.maximum(exponent, -125) - 8)
        rounded: Weights = np.rint(values / unit) * unit
        rounded[np.abs(rounded) > 255.0 * 2.0**120] = np.inf
        return np.copysign(rounded, values)


def _checked(weights: Weights, dtype: str, loc: Loc | None) -> Weights:
    """A copy of ``weights`` rounded to ``dtype``, or the error that says why it cannot be a stencil's."""
    if not 1 <= weights.ndim <= 3:
        raise StencilError(f"the weights have {weights.ndim} axes", loc=loc, hint="a stencil has 1, 2 or 3 axes")
    shape = "x".join(map(str, weights.shape))
    for axis, extent in enumerate(weights.shape):
        if extent % 2 == 0:
            raise StencilError(
                f"the weights are {shape}: extent {extent} of axis {axis} is even, so there is no centre",
                loc=loc,
                hint=f"pad with zeros to {extent + 1}, on the side away from the centre",
            )
        if extent // 2 > MAX_RADIUS:
            raise StencilError(
                f"radius {extent // 2} along axis {axis} is over the limit of {MAX_RADIUS}",
                loc=loc,
                hint="a stencil this wide is better applied by FFT, or as several narrower ones",
            )
    _at(weights, ~np.isfinite(weights), "is not finite", loc, "weights must be finite numbers")
    if not weights.any():
        raise StencilError(f"all {shape} weights are zero", loc=loc, hint="give at least one weight other than 0")
    rounded = round_to(weights, dtype) + 0.0  # -0.0 becomes 0.0; always a copy
    _at(weights, ~np.isfinite(rounded), f"is infinite in {dtype}", loc, "choose a wider dtype or scale the weights")
    _at(weights, (rounded == 0.0) & (weights != 0.0), f"is zero in {dtype}", loc, "choose a wider dtype or put 0")
    return np.ascontiguousarray(rounded)


def _at(weights: Weights, wrong: npt.NDArray[np.bool_], what: str, loc: Loc | None, hint: str) -> None:
    if wrong.any():
        index = tuple(int(one) for one in np.argwhere(wrong)[0])
        offset = tuple(one - extent // 2 for one, extent in zip(index, weights.shape, strict=True))
        where = ", ".join(map(str, offset))
        raise StencilError(f"the weight {float(weights[index])!r} at offset [{where}] {what}", loc=loc, hint=hint)

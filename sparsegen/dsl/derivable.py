"""The names of derivatives: what fields, coefficients and formulas have in common while a function is traced."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparsegen.dsl.refuse import fault

if TYPE_CHECKING:
    from sparsegen.dsl.derivatives import Derivative, TimeDerivative
    from sparsegen.dsl.operands import Accessor, Condition, Parameter, Read, Trace
    from sparsegen.dsl.trace import Mask
    from sparsegen.dsl.walls import Walled
    from sparsegen.ir.boundary import Side


class Derivable:
    """Derivatives in space: central differences of order 2, or called another: ``u.dx(order=4, at=+0.5)``.

    ``at`` (cells along the axis) is where the derivative is taken, half way between cells on staggered grids.  x is the
    last axis, y the one before, z the one before that.  The derivative of a formula is the difference of its values at
    the cells around, so ``(c[0, 0] * u.dx(at=0.5)).dx(at=-0.5)`` is a flux's; beyond the domain the formula is worked
    out from what its reads find there.
    """

    def _centre(self) -> Read:
        """The value whose derivative is meant, at the cell itself."""
        raise NotImplementedError

    def _derived(self, along: str) -> Derivative:
        made: Derivative = import_module("sparsegen.dsl.derivatives").Derivative(self._centre(), along)
        return made  # of a module that needs this one

    def walled(self, region: Mask | Condition, side: Side | Read | float | None = None) -> Walled:
        """The field as seen between walls: ``w = u.walled(solid)`` has reads, ``w[0, 1]``, and derivatives.

        ``region``: a mask, or a condition of the cell (``solid[0, 0] & (t > 1)``).  ``side``: what a read that runs
        into the region finds.  By default it is ``sg.neumann``, through which nothing flows: the cells before the wall,
        mirrored about its face.  ``sg.dirichlet(v)``, or a value of the formula at the cell in the region, such as
        ``T[0, 0]``, is found in its stead; with ``sg.frozen`` what that cell holds.

        A read looks straight to its offset and stops at the first cell of a region.  A cell in a region sees itself
        wherever it looks, so a scheme of derivatives leaves it as it is.  ``u.walled(solid).walled(hot,
        sg.dirichlet(1.0))`` has both; in a cell of both the first counts.  Formulas have walls too, as in
        ``(u[0, 0] ** 3).walled(solid).laplace``; a formula of reads of ``w`` has none.
        """
        made: Walled = import_module("sparsegen.dsl.walls").walled(self, region, side)
        return made

    @property
    def laplace(self) -> Derivative:
        """The sum of the second derivatives along all axes."""
        return self._derived("laplace")

    @property
    def dx(self) -> Derivative:
        """The first derivative along x."""
        return self._derived("x")

    @property
    def dy(self) -> Derivative:
        """The first derivative along y."""
        return self._derived("y")

    @property
    def dz(self) -> Derivative:
        """The first derivative along z."""
        return self._derived("z")

    @property
    def dxx(self) -> Derivative:
        """The second derivative along x."""
        return self._derived("xx")

    @property
    def dyy(self) -> Derivative:
        """The second derivative along y."""
        return self._derived("yy")

    @property
    def dzz(self) -> Derivative:
        """The second derivative along z."""
        return self._derived("zz")

    @property
    def dxy(self) -> Derivative:
        """The derivative along x and y."""
        return self._derived("xy")

    @property
    def dxz(self) -> Derivative:
        """The derivative along x and z."""
        return self._derived("xz")

    @property
    def dyz(self) -> Derivative:
        """The derivative along y and z."""
        return self._derived("yz")


class Timed(Derivable):
    """The time level after a field's, for ``sg.solve``, and derivatives in time made with it.

    They divide by the field's ``dt``, or else by the scalar of that name; called by another step, a number or a value:
    ``u.dt2(step)``.
    """

    _trace: Trace
    _parameter: Parameter
    _level: int

    def _at_level(self, level: int) -> Accessor:
        """The field at a time level: 0 is the newest that is known, 1 the one before, -1 the one to be worked out."""
        raise NotImplementedError

    def _centre(self) -> Read:
        name, first = self._parameter.name, self._trace.first
        spacings = (p.spacing for p in self._trace.parameters if isinstance(p.spacing, tuple))
        if (axes := next(spacings, None) or (first and first[0][2])) is None:
            why = "no spacing" if given(self._trace, "spacing", name) is None else "one spacing for all its axes"
            raise fault(
                f"{name} has {why}, so nothing tells how many axes it has",
                f"give the distance between cells on each axis, as in {name}: sg.Field(spacing=(0.1, 0.1))",
            )
        return self._trace.read(name, self._level, (0,) * len(axes))

    def _later(self, steps: int) -> Accessor:
        """The field so many time levels later, earlier if negative."""
        level, parameter = self._level - steps, self._parameter
        if parameter.coef:
            raise fault(f"the coefficient {self} does not change in time", "fields have next, dt, dtc and dt2")
        if level < -1:
            raise fault(f"{self}.next: no time level is later than {self}", "solve for one step after another")
        if level >= parameter.levels:
            raise fault(
                f"{self} has no earlier time level", f"ask for more: {parameter.name}: sg.Field(levels={level + 1})"
            )
        return self._at_level(level)

    def _step(self, name: str) -> Any:
        """The time step that a derivative in time is made with: an exact number, or the scalar that calls give."""
        found = given(self._trace, "dt", self._parameter.name)
        if found is None:
            names = zip(self._trace.parameters, self._trace.accessors(), strict=True)
            found = next((stand_in for p, stand_in in names if (p.name, p.number) == ("dt", "scalar")), None)
        if found is None:
            raise fault(
                f"{self}.{name}: {self._parameter.name} has no time step",
                f"give it one, as in {self._parameter.name}: sg.Field(dt=0.1), or here: {self}.{name}(0.1)",
            )
        return found

    def _timed(self, name: str) -> TimeDerivative:
        def at(steps: int) -> Read:
            return self._later(steps)._centre()

        made: TimeDerivative = import_module("sparsegen.dsl.derivatives").time_derivative(
            name, at, lambda: self._step(name)
        )
        return made

    @property
    def next(self) -> Accessor:
        """The time level that is being worked out: the unknown of an equation."""
        return self._later(1)

    @property
    def dt(self) -> TimeDerivative:
        """The first derivative in time, forward: ``(u.next - u) / dt``."""
        return self._timed("dt")

    @property
    def dtc(self) -> TimeDerivative:
        """The first derivative in time, centred: ``(u.next - u.prev) / (2 dt)``."""
        return self._timed("dtc")

    @property
    def dt2(self) -> TimeDerivative:
        """The second derivative in time: ``(u.next - 2 u + u.prev) / dt^2``."""
        return self._timed("dt2")


def given(trace: Trace, what: str, name: str) -> Any:
    """The ``spacing`` or ``dt`` of a parameter, or else of the first field that has one; None if there is none."""
    several = sorted((p for p in trace.parameters if p.name == name or p.field), key=lambda p: p.name != name)
    return next((value for p in several if (value := getattr(p, what)) is not None), None)

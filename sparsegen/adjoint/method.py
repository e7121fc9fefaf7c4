"""``Kernel.adjoint``, a method of every kernel."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparsegen.callsite import located, user_loc
from sparsegen.problem import Problem
from sparsegen.target import Target

if TYPE_CHECKING:
    from sparsegen.kernel import Kernel
    from sparsegen.schedule import Schedule


class WithAdjoint:
    """What has steps to transpose."""

    problem: Problem
    _target: Target
    _choice: Any

    def adjoint(self, schedule: str | Schedule = "auto") -> Kernel:
        """The kernel of the transposed time steps: ``<k(x), y> = <x, k.adjoint()(y)>``, for any number of them.

        Of stencils, and of updates that are linear in their fields, with coefficients and several levels.  An affine
        step (``dirichlet(v)``, a source) counts as its linear part, which reads zeros outside.  It is called as ``k``
        is, with the same default of ``steps``, on arrays like those that ``k`` gives back; an update's with the same
        coefficients, but for those that only add to a field, and the same scalars, in the order of the steps of ``k``.
        ``<x, y>`` sums over all fields and levels.

        Of an update with sources and receivers the adjoint has them the other way around: it takes a signal for each
        group of receivers of ``k``, which is added there, and gives back a record for each group of sources, of each
        item also where items share a signal.  Rows are those of the steps of ``k``, in their order.  ``<x, y>`` sums
        over signals, and over records, too.

        What it costs: for periodic and dirichlet sides, and neumann ones along which the weights are symmetric, the
        adjoint of a stencil is a stencil, as fast as ``k``.  Frozen sides, and other neumann ones, make it a general
        update that reads one array more for each kind of table (which cells are free; how near the mirrors of an axis
        are), made once a kernel.  Adjoints of updates write every level of every field at each pass, where ``k``
        writes the newest.  ``explain`` names all of these; f16 and bf16 are rounded at each step of an update.

        StencilError for an update that is not linear, for an adjoint, and for a shape that is too small (coefficients
        may be read farther away than in ``k``); BoundaryError where fields have different kinds of sides at one end;
        ProductError for a product; ScheduleError for a schedule that cannot do it.
        """
        loc = user_loc()
        of: Any = import_module("sparsegen.adjoint.kernel")  # which needs the module of kernels
        with located(loc):
            made: Kernel = of.adjoint_kernel(self.problem, self._choice.request, self._target, schedule, loc)
        return made

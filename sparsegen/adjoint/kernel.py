"""``Kernel.adjoint``: the kernel of the transposed steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparsegen.adjoint.transpose import transpose
from sparsegen.choose import Request, choose
from sparsegen.compiler import problem_of
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import Update
from sparsegen.ir.errors import Loc, ProductError, StencilError
from sparsegen.kernel import Kernel
from sparsegen.problem import Problem
from sparsegen.problems.adjoint import AdjointProblem
from sparsegen.target import Target


def adjoint_kernel(problem: Problem, request: Request, target: Target, schedule: Any, loc: Loc | None) -> Kernel:
    """What ``Kernel.adjoint`` gives back, of a kernel's parts: the same is asked of its schedule."""
    made = adjoint_problem(problem)
    choice = choose(made, target.profile, schedule, request)
    return Kernel(made.under(choice.schedule), request.steps, target, choice, loc)


def adjoint_problem(problem: Problem) -> Problem:
    """The transposed steps of a problem: those of a stencil where that is all, or of an update.

    ProductError for a problem that has no steps, StencilError for steps that are not linear and for an adjoint.
    """
    forward = problem.described
    if not isinstance(forward, (Stencil, Update)):
        raise ProductError(
            f"{problem.name} has no adjoint() of its own", hint="compile the product with the transposed matrix"
        )
    if isinstance(problem, AdjointProblem):
        raise StencilError(
            f"{problem.name} is an adjoint already", hint=f"call the kernel of {problem.forward.name} that it is of"
        )
    if forward.dtype == "u8":
        raise StencilError(
            f"{problem.name} rounds its cells to bytes, so it is not linear and has no adjoint()",
            hint="describe it with dtype='f32', and convert the images",
        )
    made = transpose(forward)
    found = problem_of(made.what, problem.shape)  # which checks the shape: coefficients may be read farther away
    if not isinstance(made.what, Stencil):
        tables = [table.name for table in made.tables]  # the same for all items
        read = [name for name in problem.batch.shared if name in made.what.coefs] if problem.batch else []
        batch = replace(problem.batch, shared=(*read, *tables)) if problem.batch else None
        return AdjointProblem(made.what, problem.shape, made, forward, batch=batch)
    return found.of_batch(problem.batch) if problem.batch else found

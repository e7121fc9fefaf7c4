"""What a step changes with a coefficient or a scalar: an update whose fields become the derivatives by it."""

from __future__ import annotations

from dataclasses import replace

from sparsegen.adjoint.algebra import Algebra, named
from sparsegen.dsl.update import Update
from sparsegen.ir import formula
from sparsegen.ir.formula import Offset, live


def derivatives(what: Update, coef: str) -> dict[Offset, Update]:
    """For each offset at which a coefficient is read, the step that gives each field the derivative of its new value
    by what is read there: of the same fields and boundaries, of those coefficients that it needs, without sites.  A
    scalar is as a coefficient that is read in the cell itself.

    Of any formula.  At a kink, as of ``sg.abs`` at 0, it is that of one side.
    """
    title = f"{what.name}_by_{coef}"
    if coef in formula.scalars(what.code):
        return {(0,) * what.ndim: _by(what, ("scalar", coef), title)}
    offsets = dict.fromkeys(offset for name, _, offset in formula.reads(what.code) if name == coef)
    return {offset: _by(what, ("read", coef, 0, offset), title) for offset in offsets}


def _by(what: Update, node: formula.Node, name: str) -> Update:
    graph, known = Algebra(), dict[int, int]()
    places = [graph.moved(what.code, place, lambda _, offset: offset, known) for place in what.results]
    found = graph.derivatives(node)
    changes = [found[place] for place in places]
    code, results = live(graph.code, tuple(graph.const(0.0) if change is None else change for change in changes))
    needed = {name for name, _ in what.fields} | named(code)
    parameters = tuple(p for p in what.parameters if p.name in needed)
    return replace(what, parameters=parameters, code=code, results=results, name=name, stepped=None, sites=())

"""The rules of launches that overlap: what a function with a ``launch_wait`` may touch before that.

Arrays of a call and workspaces may be those that the launch before writes or reads, be it ours or the user's.  What is
packed of a matrix has been there since before the first launch, and so have constants.  Where the launch before is one
of the program that does not begin early itself, all before that one has ended: then only what it writes is not there
yet, and only what it uses may not be written.
"""

from __future__ import annotations

from .errors import IRError
from .module import Module
from .node import Op, buffers, regions, walk
from .text import head
from .warp import Func
from .warp_launch import LaunchWait

#: The roles of arrays that calls bring, and how those of workspaces begin.
GIVEN, SCRATCH = frozenset({"in", "a", "b", "out", "bias", "scale", "residual"}), ("ws.", "workspace.")


def check_launches(module: Module) -> None:
    """IRError for an op before a ``launch_wait`` that touches what the launch before may still use."""
    funcs = {f.symbol: f for f in module.funcs if isinstance(f, Func)}
    for before, run in zip((None, *module.launches), module.launches, strict=False):
        func = funcs.get(run.symbol)
        if func is None or not waits(func):
            continue
        given = {role for role in run.args if role in GIVEN or role.startswith((*SCRATCH, "in."))}
        first = funcs.get(before.symbol) if before else None
        if before and first and not waits(first):
            written = _written(first)
            made = {role for p, role in zip(first.params, before.args, strict=True) if p.name in written}
            late = given & made, given & set(before.args)
        else:
            late = given, given
        unread, unwritten = ({p.name for p, role in zip(func.params, run.args, strict=True) if role in roles}
                             for roles in late)  # fmt: skip
        _region(func.body, unread, unwritten, waited=False)


def _written(func: Func) -> set[str]:
    """The buffers that a function writes."""
    return {b.name for op in walk(func.body) for b in buffers(op, writes=True)}


def waits(func: Func) -> bool:
    """Whether the function waits for the launch before, and so may begin before that has ended."""
    return any(isinstance(op, LaunchWait) for op in walk(func.body))


def _region(ops: tuple[Op, ...], unread: set[str], unwritten: set[str], waited: bool) -> None:
    """``waited``: whether the threads that run these ops have waited; if not they neither read nor write these."""
    for op in ops:
        read, written = ({b.name for b in buffers(op, writes=writes)} for writes in (False, True))
        used = read & unread | written & unwritten
        if used and not waited:
            raise IRError(f"{head(op)} touches @{min(used)}, which the launch before may still use", loc=op.loc,
                          hint="put a warp.launch_wait before it")  # fmt: skip
        for inner in regions(op):
            _region(inner, unread, unwritten, waited)
        waited = waited or isinstance(op, LaunchWait)

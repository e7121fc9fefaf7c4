"""The rules of launches that overlap: what a function with a ``launch_wait`` may touch before that.

Arrays of a call and workspaces may be those that the launch before writes or reads, be it ours or the user's.  What is
packed of a matrix has been there since before the first launch, and so have constants.
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
    funcs = {f.symbol: f for f in module.funcs if isinstance(f, Func) and waits(f)}
    for run in module.launches:
        if func := funcs.get(run.symbol):
            roles = zip(func.params, run.args, strict=True)
            _region(
                func.body, {p.name for p, role in roles if role in GIVEN or role.startswith((*SCRATCH, "in."))}, False
            )


def waits(func: Func) -> bool:
    """Whether the function waits for the launch before, and so may begin before that has ended."""
    return any(isinstance(op, LaunchWait) for op in walk(func.body))


def _region(ops: tuple[Op, ...], given: set[str], waited: bool) -> None:
    """``waited``: whether the threads that run these ops have waited before."""
    for op in ops:
        used = {b.name for writes in (False, True) for b in buffers(op, writes=writes)} & given
        if used and not waited:
            raise IRError(f"{head(op)} touches @{min(used)}, which the launch before may still use", loc=op.loc,
                          hint="put a warp.launch_wait before it")  # fmt: skip
        for inner in regions(op):
            _region(inner, given, waited)
        waited = waited or isinstance(op, LaunchWait)

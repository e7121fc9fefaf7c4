"""Mutation score of a kernel: delete each op that orders something, and see whether the emulator notices.

A mutant is *killed* if the emulator reports an error, a higher bank-conflict degree, or a wrong result.  A survivor
is an op whose deletion changes nothing: it is redundant, and must not be emitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsegen.backends.emulator import Report, run
from sparsegen.backends.emulator.report import describe
from sparsegen.ir import warp as w
from sparsegen.ir.errors import Loc
from sparsegen.ir.node import Op, rewrite, walk
from sparsegen.ir.warp_cluster import ClusterArrive, ClusterBarrier
from sparsegen.ir.warp_group import WgmmaCommit, WgmmaFence, WgmmaWait

#: The ops that order, wait or fence; their deletion must be noticed.
ORDER: tuple[type[Op], ...] = (
    w.Barrier, w.SyncWarp, w.CpWait, w.CpCommit, w.Fence, w.MbarInit, w.MbarArrive, w.CpArrive, w.MbarTryWait,
    ClusterBarrier, ClusterArrive,
    WgmmaFence, WgmmaCommit, WgmmaWait,
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A program less one op."""

    func: w.Func
    op: str
    number: int
    loc: Loc | None = None

    def __str__(self) -> str:
        return f"without op {self.number}: {self.op}" + (f" ({self.loc})" if self.loc else "")


def _is_spin(op: Op, kinds: tuple[type[Op], ...]) -> bool:
    """A loop that does nothing but wait for an mbarrier: it is deleted as a whole."""
    return isinstance(op, w.Loop) and w.MbarTryWait in kinds and any(isinstance(x, w.MbarTryWait) for x in op.body)


def mutants(func: w.Func, kinds: tuple[type[Op], ...] = ORDER) -> Iterator[Mutant]:
    """Every program with one op of these kinds deleted (a wait for an mbarrier with the loop around it)."""

    def is_target(op: Op) -> bool:
        return _is_spin(op, kinds) or (isinstance(op, kinds) and not isinstance(op, w.MbarTryWait))

    for k in range(sum(map(is_target, walk(func.body)))):
        found: list[Op] = []

        def rule(op: Op, k: int = k, found: list[Op] = found) -> Op | None:
            if not is_target(op):
                return op
            found.append(op)
            return None if len(found) == k + 1 else op

        body = rewrite(func.body, rule)
        gone = found[k]
        text = "wait for an mbarrier" if isinstance(gone, w.Loop) else describe(gone)
        yield Mutant(replace(func, body=body), text, k, gone.loc)


def weaker(func: w.Func) -> Iterator[tuple[str, w.Func]]:
    """Every wait, one group too short."""
    for op in walk(func.body):
        if isinstance(op, w.CpWait):
            less = replace(op, pending=op.pending + 1)

            def rule(x: Op, whole: Op = op, less: Op = less) -> Op:
                return less if x is whole else x

            yield f"wait {less.pending}", replace(func, body=rewrite(func.body, rule))


def turns(func: w.Func, report: Report) -> float:
    """How often a warp of the launch waits for what it has fetched ahead, on average: the turns of its ring."""
    waits = report.counts.get("cp_wait", 0) or report.counts.get("mbar_arrive", 0)
    return waits / (math.prod(func.grid) * -(-func.threads // 32))


def differs(got: Mapping[str, Any], want: Mapping[str, Any], rtol: float) -> bool:
    """Whether an output is not the expected one (or not finite where that is)."""
    for name, value in want.items():
        a, b = np.asarray(got[name]), np.asarray(value)
        if b.dtype.kind != "f":
            if (a != b).any():
                return True
            continue
        scale = float(np.abs(b).max()) if b.size else 0.0
        if not np.isfinite(a).all() or float(np.abs(a - b).max()) > rtol * max(scale, 1e-300):
            return True
    return False


def score(
    func: w.Func,
    make_args: Callable[[], dict[str, Any]],
    expected: Mapping[str, Any],
    *,
    kinds: tuple[type[Op], ...] = ORDER,
    rtol: float = 1e-12,
    seeds: tuple[int, ...] = (0, 1),
    **options: Any,
) -> tuple[int, list[Mutant]]:
    """(killed mutants, survivors).  ``make_args`` gives fresh arguments, ``expected`` the outputs, ``options`` go to
    ``run``.

    The program itself must have no errors and give the expected result.
    """
    whole: Report | None = None
    for seed in seeds:
        args = make_args()
        whole = run(func, args, seed=seed, **options).raise_if_errors()
        assert not differs(args, expected, rtol), "the program gives a wrong result before anything is deleted"
    assert whole is not None
    killed, survivors = 0, []
    for m in mutants(func, kinds):
        if any(_dies(m, make_args(), expected, rtol, whole.degree, seed, options) for seed in seeds):
            killed += 1
        else:
            survivors.append(m)
    return killed, survivors


def _dies(m: Mutant, args: dict[str, Any], want: Mapping[str, Any], rtol: float, degree: int, seed: int,
          options: Mapping[str, Any]) -> bool:  # fmt: skip
    r = run(m.func, args, seed=seed, first=True, **options)
    return not r.ok or r.degree > degree or differs(args, want, rtol)

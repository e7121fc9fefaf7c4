"""What a measurement holds for: the facts that decide which schedule is the fastest, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparsegen._version import __version__
from sparsegen.choose import Request
from sparsegen.problem import Problem, digest

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import DeviceInfo

#: Facts as JSON has them: lists, no tuples.
Facts = Mapping[str, Any]


def facts(problem: Problem, request: Request, gpu: DeviceInfo) -> Facts:
    """What is computed, at which size, on which GPU, by which version of sparsegen; no names that change nothing."""
    found = {
        "sparsegen": __version__,
        "device": {
            "name": gpu.name,
            "capability": gpu.capability,
            "sms": gpu.sm_count,
            "l2_bytes": gpu.l2_bytes,
            "smem_block": gpu.shared_per_block,
        },
        **problem.identity(),
        "steps": request.steps,
        "exact": request.exact,
    }
    facts: Facts = json.loads(json.dumps(found))
    return facts


def key(problem: Facts) -> str:
    """A name for facts, such as those of a problem, whose record is called so."""
    return digest(json.dumps(problem, sort_keys=True).encode())


def title(problem: Facts) -> str:
    """A problem in a line, for a list of them."""
    what, device = problem["what"], problem["device"]["name"]
    if "n" in problem:
        return f"{what} {problem['m']}x{problem['k']} {problem['dtype']}, n={problem['n']} on {device}"
    size = "x".join(map(str, problem["shape"]))
    return f"{what} {problem['of']} on {size}, steps={problem['steps']} on {device}"

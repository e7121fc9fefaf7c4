"""What a measurement holds for: the facts that decide which schedule is the fastest, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from sparsegen._version import __version__
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import Update
from sparsegen.ir.boundary import describe
from sparsegen.products.product import Problem, Product

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import DeviceInfo

#: Facts as JSON has them: lists, no tuples.
Facts = Mapping[str, Any]


def facts(
    what: Stencil | Update | Product, shape: tuple[int, ...], steps: int, nonfinite: str, gpu: DeviceInfo
) -> Facts:
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
        **(_product(what) if isinstance(what, Product) else {**_grid(what), "shape": shape, "steps": steps}),
    }
    if isinstance(what, Stencil):
        found["nonfinite"] = nonfinite
    facts: Facts = json.loads(json.dumps(found))
    return facts


def key(problem: Facts) -> str:
    """The name that a problem's record has."""
    return _digest(json.dumps(problem, sort_keys=True).encode())


def title(problem: Facts) -> str:
    """A problem in a line, for a list of them."""
    what, device = problem["what"], problem["device"]["name"]
    if what == "product":
        return f"product {problem['m']}x{problem['k']} {problem['dtype']}, n={problem['n']} on {device}"
    size = "x".join(map(str, problem["shape"]))
    return f"{what} {problem['of']} on {size}, steps={problem['steps']} on {device}"


def _grid(what: Stencil | Update) -> dict[str, Any]:
    if isinstance(what, Stencil):
        return {
            "what": "stencil",
            "of": f"{what.points}-point {what.kind} {what.dtype}",
            "dtype": what.dtype,
            "extents": what.weights.shape,
            "weights": _digest(what.weights.tobytes()),
            "sides": describe(what.sides),
        }
    formula = (what.parameters, what.code, what.results)
    return {
        "what": "update",
        "of": f"of {', '.join(name for name, _ in what.fields)} {what.dtype}",
        "dtype": what.dtype,
        "formula": _digest(repr(formula).encode()),
        "sides": [describe(sides) for sides in what.sides],
    }


def _product(what: Product) -> dict[str, Any]:
    p = Problem.of(what)
    numbers = {f.name: getattr(p, f.name) for f in fields(p)}
    return {"what": "product", "format": what.w.format, **numbers, "epilogue": asdict(what.epilogue)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

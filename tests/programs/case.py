"""What a program of this folder is to a test: a function, its arguments, and what must come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsegen.ir import warp as w
from sparsegen.ir.types import Buffer

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One launch: every parameter's value before it, and what some of them must hold after it.

    ``tolerance`` bounds max|a-b| / max|b|; 0 asks for equal bits.  ``poison`` names the outputs and scratch arrays
    whose old contents nobody may read.  After a launch ``want`` holds again if the same arguments are launched anew.
    """

    func: w.Func
    args: dict[str, Array]
    want: dict[str, Array]
    tolerance: float = 0.0
    poison: tuple[str, ...] = field(default=())

    def fresh(self) -> dict[str, Array]:
        """Copies of the arguments, flat, in the order of the parameters."""
        return {p.name: np.ascontiguousarray(self.args[p.name]).reshape(-1).copy() for p in self.func.params}

    def sizes(self) -> None:
        """Asserts that every argument has the type and size that its parameter declares."""
        for p in self.func.params:
            assert isinstance(p, Buffer)
            a = self.args[p.name]
            assert (a.size, a.dtype) == (p.size, p.dtype.numpy()), (p, a.shape, a.dtype)

    def wrong(self, got: dict[str, Array]) -> str:
        """What is wrong with the arrays after a launch; empty if nothing is."""
        out = []
        for name, want in self.want.items():
            a, b = got[name].reshape(-1).astype("f8"), want.reshape(-1).astype("f8")
            error = float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-300))
            if not error <= self.tolerance:  # also for NaN
                out.append(f"@{name} is off by {error:.3g} (tolerance {self.tolerance:g})")
        return "; ".join(out)

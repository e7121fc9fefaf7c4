"""What the tests of csr products share: ragged matrices, kernels from op to warp level, runs on the emulator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsegen.backends.emulator import Report, run
from sparsegen.backends.reference import spmm as reference
from sparsegen.ir import warp as w
from sparsegen.ir.kernels.csr import Csr, padded
from sparsegen.ir.module import Module
from sparsegen.ir.op_spmm import Spmm
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.manager import Manager
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.types import DTYPES
from sparsegen.products.ragged import segments

Array = npt.NDArray[Any]
NUMPY: dict[str, Any] = {
    "f16": np.dtype("f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
}
#: Half a unit in the last place of a result.
ROUNDING = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-24, "f64": 2**-53}


def ragged(m: int, k: int, mean: float, seed: int = 0, full: int = 0) -> Any:
    """A matrix in CSR whose rows' lengths follow a power law, empty ones among them; ``full`` rows have no zeros."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(k, (mean / 2 * rng.pareto(1.5, m)).astype(int))
    lengths[:full] = k
    columns = [np.sort(rng.choice(k, n, replace=False)) for n in rng.permutation(lengths)]
    ptr = np.concatenate([[0], np.cumsum([len(c) for c in columns])])
    idx = np.concatenate(columns) if ptr[-1] else np.zeros(0, dtype=int)
    return scipy.sparse.csr_matrix((rng.uniform(-1, 1, ptr[-1]), idx, ptr), shape=(m, k))


@dataclass(frozen=True)
class Case:
    """A product with a matrix in CSR, and how it is done: the kernel's ``options`` (a lane has ``blocks`` x ``vec``
    columns, accesses take ``vec``), rows cut at ``longest`` entries."""

    matrix: Any
    n: int
    dtype: str
    options: dict[str, int]
    longest: int = 1 << 20
    x_order: str = "row"
    y_order: str = "row"
    operands: tuple[str, ...] = ()
    activation: str = "none"
    modules: list[Module] = field(default_factory=list)

    @property
    def kernel(self) -> Csr:
        """The pass from op to tile level."""
        made = self._made
        return replace(made, segments=len(self.records), cuts=self._cut(made)[1])

    @property
    def records(self) -> Array:
        return self._cut(self._made)[0]

    @property
    def _made(self) -> Csr:
        given = dict(self.options)
        return Csr(columns=given.pop("blocks", 1) * given.pop("vec", 1), **given)

    def _cut(self, kernel: Csr) -> tuple[Array, int]:
        return segments(self.matrix.indptr, self.longest, 32 // kernel.team, 32 * kernel.warps // kernel.team)

    def lowered(self) -> tuple[Module, Module, Module]:
        """The op, the tile and the warp level, each verified."""
        if not self.modules:
            (m, k), extra = self.matrix.shape, {name: name in self.operands for name in ("bias", "scale", "residual")}
            op = Spmm(
                symbol="product", m=m, k=k, n=self.n, dtype=DTYPES[self.dtype], chunks=0, x_order=self.x_order,
                y_order=self.y_order, vec=self.options.get("vec", 1), activation=self.activation, format="csr",
                entries=self.matrix.nnz, **extra,
            )  # fmt: skip
            start = Module("product", (op,))
            tile = Manager((self.kernel,), verify_each=True).run(start)
            self.modules.extend((start, tile, Manager((ToWarp(), Simplify(), Dce()), verify_each=True).run(tile)))
        op_level, tile, warp = self.modules
        return op_level, tile, warp

    @property
    def func(self) -> w.Func:
        (func,) = self.lowered()[2].funcs
        assert isinstance(func, w.Func)
        return func

    def given(self, seed: int = 1) -> dict[str, Array]:
        """Random arrays of a call by name, and W's values in its type."""
        rng = np.random.default_rng(seed)
        (m, k), dtype = self.matrix.shape, NUMPY[self.dtype]
        shapes = {"in": (k, self.n), "scale": (m,), "bias": (m,), "residual": (m, self.n)}
        out = {name: rng.uniform(-1, 1, shape).astype(dtype) for name, shape in shapes.items()}
        return {"values": self.matrix.data.astype(dtype)} | {n: out[n] for n in ("in", *self.operands)}

    def arguments(self, given: dict[str, Array]) -> dict[str, Array]:
        """The launch's arrays by the names of its parameters; what it writes is NaN, the counter zero."""
        orders = {"in": self.x_order, "residual": self.y_order}
        tables = {"idx": self.matrix.indices.astype(np.int32), "values": given["values"], "segments": self.records}
        made: dict[str, Array] = {}
        (launch,) = self.lowered()[2].launches
        for role, buffer in zip(launch.args, self.func.params, strict=True):
            a = tables.get(role, given.get(role))
            if a is None:
                fill = 0 if role == "workspace.counter" else np.nan
                a = np.full(buffer.size, fill, buffer.dtype.numpy())
            elif role in ("idx", "values"):
                a = np.concatenate([a, np.zeros(padded(len(a)) - len(a), a.dtype)])
            made[buffer.name] = (a.T if orders.get(role) == "column" else a).reshape(-1).copy()
            assert made[buffer.name].size == buffer.size
        return made

    def run(self, given: dict[str, Array], seed: int = 0) -> tuple[Array, Report]:
        """The result [m, n] of one launch, and what the emulator says of it: no error, no note."""
        args = self.arguments(given)
        report = run(self.func, args, seed=seed, uninit=("slots",) if "slots" in args else ()).raise_if_errors()
        assert not report.notes
        assert "counter" not in args or not args["counter"].any()
        m = self.matrix.shape[0]
        y = args["y"]
        return (y.reshape(m, self.n) if self.y_order == "row" else y.reshape(self.n, m).T), report

    def wanted(self, given: dict[str, Array]) -> tuple[Array, Array]:
        """The result in f64 of the rounded operands, and how far a right one may be from it, element by element."""
        m, k = self.matrix.shape
        dense = scipy.sparse.csr_matrix(
            (given["values"].astype(float), self.matrix.indices, self.matrix.indptr), shape=(m, k)
        ).toarray()
        extra = {name: given[name] for name in self.operands}
        exact = reference.run(dense, given["in"], activation=self.activation, sums=np.float64, **extra)
        terms = np.abs(dense) @ np.abs(given["in"]).astype(float)
        if "scale" in extra:
            terms = terms * np.abs(extra["scale"].astype(float))[:, None]
        unit = ROUNDING["f64" if self.dtype == "f64" else "f32"]
        sums = 1.2 * terms * unit * (k + 8) + 16 * unit * (1 + np.abs(exact))  # no activation is steeper than 1.2
        return exact, ROUNDING[self.dtype] * np.abs(exact) * 1.01 + sums

    def check(self, seed: int = 0) -> Report:
        """AssertionError unless a launch gives the product, whatever the order in which its warps run."""
        given = self.given()
        exact, slack = self.wanted(given)
        got, report = self.run(given, seed)
        off = np.abs(got.astype(float) - exact)
        assert (off <= slack).all(), f"off by {off.max()} at {np.unravel_index(int(np.argmax(off - slack)), off.shape)}"
        return report

"""A sparse matrix times a dense one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Final, NamedTuple, cast

from sparsegen.choose import Options, Request
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.spmm import ProductFamily
from sparsegen.formats.csr import OfRows
from sparsegen.formats.format import held
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.others import others, read_as
from sparsegen.ir.errors import FormatError, ScheduleError
from sparsegen.ir.module import Module
from sparsegen.ir.op_spmm import PANELS, VECTORS, Spmm
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import ELEMENTS
from sparsegen.problems.matrices import Merged, OfMatrices
from sparsegen.products.blocked_ell import BlockedEllNumbers
from sparsegen.products.hybrid import HybridNumbers
from sparsegen.products.nm import NmNumbers
from sparsegen.products.product import BitmapNumbers, Product
from sparsegen.products.ragged import Ragged
from sparsegen.products.smbd import NestedNumbers
from sparsegen.products.vectors import VectorNumbers
from sparsegen.registry import families
from sparsegen.schedule import Schedule


class Variant(NamedTuple):
    """What of the arrays of a call the code depends on: the orders of x and y (``row`` or ``column``), how many
    adjacent elements of x a load may take, whether an x of 4 bits has an element a byte, and how many columns of x and
    of y lie together, matrices of a batch one behind the other (0: all)."""

    x: str
    y: str
    vec: int
    bytes: bool = False
    x_panel: int = 0
    y_panel: int = 0


#: What is known of a product, by the format of its matrix.
NUMBERS: Final[dict[str, Callable[[Product], Any]]] = {
    "bitmap": BitmapNumbers.of, "csr": Ragged.of, "nm": NmNumbers.of, "hybrid": HybridNumbers.of,
    "blocked_ell": BlockedEllNumbers.of, "tca_bme": NestedNumbers.of,
    **dict.fromkeys(VECTORS, VectorNumbers.of),
}  # fmt: skip
#: Formats whose costs hold for an x that comes by rows.
BY_ROWS: Final = ("csr", "hybrid")
#: Formats of graphs and the like, whose products are called in a loop: costs are with warm L2.
LOOPED: Final = ("csr", "hybrid", "blocked_ell")
#: The variant of arrays that are packed by rows, of whatever width.
PACKED = Variant("row", "row", 1)


@dataclass(frozen=True)
class SpmmProblem(OfMatrices):
    """``y = activation(scale * (W @ x) + bias) + residual``; ``shape`` is M, K and n (M of one of several experts).

    ``read``: the format that W is read in, one of its ``others``; empty: the one that it is in.
    """

    op: ClassVar[str] = "spmm"
    what: Product
    read: str = ""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.what.m, self.what.w.shape[1], self.what.n

    @property
    def dtype(self) -> str:
        """The element type of x, which is W's for floats."""
        return held(self.what.types.x).name

    @property
    def format(self) -> str:
        return self.read or self.what.w.format

    @property
    def matrix(self) -> SparseMatrix:
        """W as kernels are given it; in another format than its own one it is encoded when this is first asked for."""
        return read_as(self.what.w, self.read)

    @property
    def others(self) -> tuple[str, ...]:
        """The other formats that W may be read in: of x by columns only those whose costs count what that takes, of a
        batch those whose kernels read its matrices one behind the other; of gated pairs and experts none."""
        if self.what.needs:
            return ()
        if self.what.batch:
            return tuple(name for name in others(self.what.w) if name in PANELS)
        return tuple(name for name in others(self.what.w) if not (self.what.columns and name in BY_ROWS))

    @property
    def readers(self) -> dict[ProductFamily, SpmmProblem]:
        """The families that are tried for W, a library's among them, with the problem as each has it: W in the first
        format that it reads, of its own one and its others."""
        return {f: form for f, form in self._readers().items() if not f.asked}

    def _readers(self) -> dict[ProductFamily, SpmmProblem]:
        """Those, and families that are only tried where a schedule names them."""
        found: dict[ProductFamily, SpmmProblem] = {}
        for read in ("", *self.others):
            form = replace(self, read=read)
            for family in readers(form.format):
                if self.what.needs <= family.also:
                    found.setdefault(family, form)
        return found

    def under(self, schedule: Any) -> SpmmProblem:
        return self._readers().get(schedule.rules, self)

    @property
    def facts(self) -> Any:
        """The numbers that schedules and costs depend on; FormatError for a matrix that no schedule reads."""
        if self.format not in NUMBERS:
            w = self.what.w
            again = 'encode it again: sg.sparse(W.to_dense(), format="bitmap")'
            if isinstance(w, OfRows):  # the dense matrix may be too large to make
                again = f'encode it again: sg.sparse(W.to_scipy(), format="csr", dtype="{w.dtype}")'
            raise FormatError(
                f"no schedule reads a {self.format} matrix",
                hint=f"{again}; there are schedules for {', '.join(NUMBERS)}",
            )
        return NUMBERS[self.format](replace(self.what, w=self.matrix))

    def describe(self, variant: Hashable = None) -> Module:
        p, e = self.facts, self.what.epilogue
        x, y, vec, each, *panels = variant if isinstance(variant, Variant) else PACKED
        x_panel, y_panel = panels
        stored = p.stored | ({"x_type": held(p.x_kind)} if each else {})
        op = Spmm(
            symbol=symbol(self.name), m=self.what.rows, k=p.k, n=p.n, dtype=ELEMENTS[p.dtype], x_order=x, y_order=y,
            vec=vec, bias=e.bias, scale=self.what.scaled, residual=e.residual, activation=e.activation or "none",
            format=self.format, x_panel=x_panel, y_panel=y_panel, gated=self.what.gated,
            experts=self.what.experts, **stored,
        )  # fmt: skip
        return Module(self.name, (op,))

    def nbytes(self, schedule: Any) -> int:
        """W's format (of a library's product the dense matrix), x and y."""
        (m, k), n, types = self.what.w.shape, self.what.n, self.what.types
        matrix = m * k * types.x.nbytes if schedule.rules.library else self.facts.nbytes
        return matrix + k * -(-n * types.x.bits // 8) + self.what.rows * n * types.y.nbytes

    def identity(self) -> dict[str, Any]:
        """Its numbers and its epilogue."""
        p = self.facts
        numbers = {f.name: getattr(p, f.name) for f in fields(p)}
        if not self.what.experts:  # those of one matrix are known without
            numbers.pop("experts", None)
        found = self.others
        formats = " or ".join((self.format, *found))
        said = {"what": "product", "format": formats, **numbers, "epilogue": asdict(self.what.epilogue)}
        said |= {"batch": self.what.batch} if self.what.batch else {}
        said |= dict.fromkeys(sorted(self.what.needs), True)
        again = {read: replace(self, read=read).facts for read in found if read not in ("bitmap", self.format)}
        return said | ({"others": {read: asdict(facts) for read, facts in again.items()}} if again else {})

    @property
    def sought(self) -> str:
        return self.format

    def options(self, wanted: Schedule | None, device: DeviceProfile, request: Request) -> Options:
        """The schedules of all families that read W's format, or one of its others (or of the family of
        ``wanted``).

        The dense product of a library is chosen where it is named, and by itself where W was made with
        ``format="auto"`` and the model has it as the faster one.
        """
        _ = self.facts  # FormatError where there are none
        tried = self.readers if wanted is None else self._readers()
        found = {f: form for f, form in tried.items() if wanted is None or f.name == wanted.family}
        if wanted is not None and not found and self.format in wanted.rules.formats:
            able = sorted({f.name for f in readers(self.format) if self.what.needs <= f.also})
            raise ScheduleError(
                f"{wanted} multiplies by one matrix, W is {self.what.stack}",
                hint=f"take {' or '.join(able)}, or leave the schedule to the cost model",
            )
        if wanted is not None and not found:
            reads = ", ".join(wanted.rules.formats)
            raise ScheduleError(
                f"{wanted} is a schedule for {reads}, W is in {self.format}",
                hint=f"leave the schedule to the cost model, or encode W again: sg.sparse(w, format={reads!r})",
            )
        if wanted is None and not (self.what.w.auto or request.every):
            found = {f: form for f, form in found.items() if not f.library}
        return Merged(tuple(f.options(form, wanted, form.memory(f, device)) for f, form in found.items()))

    def memory(self, family: Any, device: DeviceProfile) -> DeviceProfile:
        """The device as costs of a family's schedules have it: warm for what is no layer of weights among others."""
        looped = self.what.w.format in LOOPED
        return cast("DeviceProfile", self.facts.looped(device, family.library)) if looped else device


def readers(format: str) -> list[ProductFamily]:
    """The families that read a format of W, a library's among them."""
    every = [cast("ProductFamily", f) for f in families("spmm").values()]
    return [f for f in every if not f.formats or format in f.formats]

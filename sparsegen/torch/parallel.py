"""Products over several GPUs: a layer's weights cut by rows or by columns, a part a rank, in torch's own words.

``SparseColwise`` and ``SparseRowwise`` are torch's ``ColwiseParallel`` and ``RowwiseParallel``, for sparse layers too:

===============  ============================  ================================  =======================
style            a rank's part of W            x of a rank -> y of a rank        what is sent
===============  ============================  ================================  =======================
SparseColwise    rows: Shard(0)                Replicate() -> Shard(-1)          nothing
SparseRowwise    columns: Shard(1)             Shard(-1) -> Partial() -> sum     one all-reduce of y
===============  ============================  ================================  =======================

The part of a rank is a SparseLinear like any other, with hooks: it has kernels and a state_dict of its own, and the
``in_features`` and ``out_features`` of the part.  The gradient of an x that all ranks have is summed over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from sparsegen.callsite import located, user_loc
from sparsegen.formats import sparse
from sparsegen.ir.errors import DeviceError, ProductError
from sparsegen.torch.linear import SparseLinear, Split

tp: Any = import_module("torch.distributed.tensor.parallel")
#: Layers that torch splits.
DENSE = (torch.nn.Linear, torch.nn.Embedding)


class _Sparse:
    """What both styles have in common: how they cut a layer, and what becomes of x and y around it."""

    axis: ClassVar[int]
    #: Placements of x and y of the layer itself.
    taken: ClassVar[Any]
    made: ClassVar[Any]
    #: Placement of the gradient of a rank's x.
    graded: ClassVar[Any]
    input_layouts: Any
    output_layouts: Any
    use_local_output: bool

    def split(self, mesh: Any) -> Split:
        """The part of this rank; ProductError for a mesh of several axes."""
        if mesh.ndim != 1:
            raise ProductError(
                f"a layer is split over a mesh of one axis, this one has {mesh.ndim}",
                hint='pass one axis of it, as in mesh["tp"]',
            )
        return Split(self.axis, mesh.size(), mesh.get_local_rank())

    def check(
        self, kind: Any, features: tuple[int, int] = (0, 0), units: tuple[int, int] = (1, 1), ranks: int = 1
    ) -> None:
        """ProductError for a layer of another kind, and for features [out, in] that do not divide: ``units`` of them
        belong together."""
        if not issubclass(kind, (SparseLinear, *DENSE)):
            raise ProductError(
                f"a {kind.__name__} cannot be split",
                hint="split SparseLinear, Linear and Embedding layers, or leave it out of the plan",
            )
        whole, unit = features[self.axis], units[self.axis]
        if whole % (ranks * unit):
            groups = f" in groups of {unit}" if unit > 1 else ""
            raise ProductError(
                f"{('out', 'in')[self.axis]}_features={whole}{groups} cannot be split over {ranks} ranks",
                hint=f"take a number of ranks that divides {whole // unit}, or leave this layer out of the plan",
            )

    def all(self, said: bool, mesh: Any) -> bool:
        """Whether all ranks say so."""
        return all(everyone(mesh, said))

    def cut(self, layer: SparseLinear, mesh: Any) -> None:
        """Leave a layer this rank's part of its weights.

        ProductError as of ``check``, and for one that is split; DeviceError where ranks have other weights.
        """
        split, features = self.split(mesh), (layer.out_features, layer.in_features)
        if layer.split is not None:
            raise ProductError("the layer is split already", hint="split it once, over one mesh")
        self.check(type(layer), features, _units(layer), split.ranks)
        _agree(mesh, layer)
        whole = features[self.axis]
        own = split.own(whole)
        w = layer.to_dense()
        w = w[own] if self.axis == 0 else w[:, own]
        layer.out_features, layer.in_features = w.shape
        bias = layer.bias
        if bias is not None and self.axis == 0:
            layer.bias = torch.nn.Parameter(bias.detach()[own].clone(), bias.requires_grad)
        elif self.axis == 1 and split.rank:
            layer.bias = None  # the first rank adds it, once
        layer._install(sparse(w.contiguous(), layer.format, **layer.options))

    def hook(self, layer: SparseLinear, mesh: Any) -> None:
        """Let the part take and give what the style says."""
        layer.split = self.split(mesh)
        layer.register_forward_pre_hook(partial(self._before, mesh))
        layer.register_forward_hook(partial(self._after, mesh))

    def finish(self, layer: Any, mesh: Any) -> None:
        """Hook a layer that is cut, and have torch split one that is dense."""
        if isinstance(layer, SparseLinear):
            self.hook(layer, mesh)
        else:
            self._apply(layer, mesh)

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        """What ``parallelize_module`` calls."""
        with located(user_loc()):
            if isinstance(module, DENSE):
                return super()._apply(module, device_mesh)  # type: ignore[misc]
            if not isinstance(module, SparseLinear):
                self.check(type(module))
            self.cut(module, device_mesh)
            self.hook(module, device_mesh)
            return module

    def _before(self, mesh: Any, layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A rank's own x."""
        x, *more = args
        if self.input_layouts == self.taken and not isinstance(x, DTensor):
            if self.axis == 0 and x.requires_grad and torch.is_grad_enabled():
                x = _SumOfGradients.apply(x, mesh.get_group())
            return x, *more
        x = self._prepare_input_fn(self.input_layouts, self.taken, layer, (x,), mesh)
        return x.to_local(grad_placements=self.graded), *more

    def _after(self, mesh: Any, layer: Any, args: tuple[Any, ...], y: Any) -> Any:
        """What the style gives of a rank's own y."""
        if self.use_local_output:
            if self.output_layouts == self.made:
                return y
            if self.output_layouts == (Replicate(),) and self.axis == 1:
                if y.requires_grad:
                    return _Sum.apply(y, mesh.get_group())
                dist.all_reduce(y, group=mesh.get_group())
                return y
        y = DTensor.from_local(y, mesh, self.made, run_check=False)
        return self._prepare_output_fn(self.output_layouts, self.use_local_output, layer, y, mesh)

    _prepare_input_fn: Any
    _prepare_output_fn: Any


class SparseColwise(_Sparse, tp.ColwiseParallel):
    """``ColwiseParallel`` for sparse layers too: each rank has rows of W, and makes some features of y of the whole x.

    ``input_layouts`` (default Replicate()), ``output_layouts`` (Shard(-1)) and ``use_local_output`` as torch has them.
    A layer that is not sparse is split by torch.
    """

    axis, taken, made, graded = 0, (Replicate(),), (Shard(-1),), (Partial(),)


class SparseRowwise(_Sparse, tp.RowwiseParallel):
    """``RowwiseParallel`` for sparse layers too: each rank has columns of W, for its features of x; y is the sum.

    ``input_layouts`` (default Shard(-1)), ``output_layouts`` (Replicate(): an all-reduce) and ``use_local_output`` as
    torch has them.  The first rank alone has the bias, and adds it.  A layer that is not sparse is split by torch.
    """

    axis, taken, made, graded = 1, (Shard(-1),), (Partial(),), (Shard(-1),)


class _Sum(torch.autograd.Function):
    """The sum of all ranks' tensors; its gradient is each rank's."""

    @staticmethod
    def forward(ctx: Any, y: Any, group: Any) -> Any:
        y = y.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return *grads, None


class _SumOfGradients(torch.autograd.Function):
    """A tensor that all ranks have; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def _units(layer: SparseLinear) -> tuple[int, int]:
    """Rows and columns that belong together in a layer's format."""
    if layer.format != "nm":
        return 1, 1
    rows, _ = layer.options["vector"]
    return rows, layer.options["m"]


def _agree(mesh: Any, layer: SparseLinear) -> None:
    """DeviceError unless all ranks have the same weights, as far as the sums of their bytes tell."""
    arrays = [*filter(lambda a: a is not None, layer._weights())]
    sums = [int(a.detach().reshape(-1).view(torch.uint8).sum(dtype=torch.int64)) for a in arrays]
    mine = (layer.out_features, layer.in_features, str(layer.dtype), layer.nnz, *sums)
    if {*everyone(mesh, mine)} != {mine}:
        raise DeviceError(
            "ranks have different weights of one layer",
            hint="load the same checkpoint on all of them, with the same seed and the same calibration",
        )


def styles(plan: Any, names: list[str]) -> dict[str, Any]:
    """The style of each layer that a plan names, by whole names or globs; ProductError for a name that no layer has,
    and for what is no style."""
    if not isinstance(plan, Mapping):
        raise ProductError(
            f"plan={plan!r} says of no layer how it is split",
            hint='pass names and styles: plan={"*.up": SparseColwise(), "*.down": SparseRowwise()}',
        )
    found = dict[str, Any]()
    for glob, style in plan.items():
        if not isinstance(style, _Sparse):
            raise ProductError(
                f"{style!r} of {glob!r} is no style of a sparse layer", hint="pass SparseColwise() or SparseRowwise()"
            )
        if not (named := [name for name in names if fnmatchcase(name, glob)]):
            raise ProductError(
                f"no layer has a name like {glob}",
                hint="names are whole, as model.named_modules() has them; here: " + ", ".join(names[:8]),
            )
        found |= {name: style for name in named if name not in found}
    return found


def everyone(mesh: Any, value: Any) -> list[Any]:
    """The value of each rank of a mesh of one axis."""
    found: list[Any] = [None] * mesh.size()
    dist.all_gather_object(found, value, group=mesh.get_group())
    return found

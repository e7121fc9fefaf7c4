"""Products over several GPUs: a layer's weights cut by rows or by columns, a part a rank, in torch's own words.

``SparseColwise`` and ``SparseRowwise`` are torch's ``ColwiseParallel`` and ``RowwiseParallel``, for sparse layers too:

===============  ============================  ================================  =======================
style            a rank's part of W            x of a rank -> y of a rank        what is sent
===============  ============================  ================================  =======================
SparseColwise    rows: Shard(0)                Replicate() -> Shard(-1)          nothing
SparseRowwise    columns: Shard(1)             Shard(-1) -> Partial() -> sum     one all-reduce of y
===============  ============================  ================================  =======================

The part of a rank is a layer like any other, with hooks: it has kernels and a state_dict of its own, and the
``in_features`` and ``out_features`` of the part.  The gradient of an x that all ranks have is summed over them.
Small sums (of 16-bit floats or f32, up to 1 MB that a GPU gets) are made by a launch of our own where the GPUs of a
mesh, up to 8, reach each other's memory (:mod:`sparsegen.distributed.sums`): all ranks get equal numbers, added in the
order of ranks in f32 and rounded once.  Who waits there for a rank that is gone ends with a launch failure, when the
timeout of the process group is over.  CUDA graphs with such sums are to be replayed one after another, as all ranks do.
Other sums, and those that ``torch.compile`` puts in its graphs, are NCCL's.
A QuantizedLinear has the scales of its rows, and by columns each rank quantises its own part of x; of a FusedLinear
each layer is split.
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
from sparsegen.distributed.sums import near_sums
from sparsegen.ir.errors import DeviceError, ProductError
from sparsegen.torch.fused import FusedLinear
from sparsegen.torch.linear import SparseLinear
from sparsegen.torch.quantized import QuantizedLinear
from sparsegen.torch.split import Split

tp: Any = import_module("torch.distributed.tensor.parallel")
#: Layers that are split here, and those that torch splits.
SPARSE = (SparseLinear, QuantizedLinear, FusedLinear)
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
        if not issubclass(kind, (*SPARSE, *DENSE)):
            able = ", ".join(known.__name__ for known in (*SPARSE, *DENSE))
            raise ProductError(f"a {kind.__name__} cannot be split", hint=f"split {able}, or leave it out of the plan")
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

    def able(self, layer: Any, mesh: Any) -> None:
        """ProductError for a sparse layer that cannot be split so, as of ``check``, and for one that is split."""
        if _whole(layer).split is not None:
            raise ProductError("the layer is split already", hint="split it once, over one mesh")
        for out in _outputs(layer):
            self.check(type(layer), (out, _whole(layer).in_features), _units(_whole(layer)), self.split(mesh).ranks)

    def cut(self, layer: Any, mesh: Any) -> None:
        """Leave a sparse layer this rank's part of its weights; ProductError as of ``able``, DeviceError where ranks
        have other weights."""
        self.able(layer, mesh)
        _agree(mesh, layer)
        split, whole = self.split(mesh), _whole(layer)
        whole._cut(split, split.own((whole.in_features,) if self.axis else _outputs(layer)))

    def hook(self, layer: Any, mesh: Any) -> None:
        """Let the part take and give what the style says."""
        _whole(layer).split = self.split(mesh)
        # by columns the outputs of fused layers are summed at once, before they are parted
        at = _whole(layer) if self.axis and self.output_layouts == (Replicate(),) else layer
        at.register_forward_pre_hook(partial(self._before, mesh))
        summed = self.axis == 1 and self.output_layouts == (Replicate(),) and self.use_local_output
        if summed:
            near_sums(mesh.get_group(), _device(mesh))  # which all ranks make together
        at.register_forward_hook(partial(self._after, mesh))

    def finish(self, layer: Any, mesh: Any) -> None:
        """Hook a layer that is cut, and have torch split one that is dense."""
        if isinstance(layer, SPARSE):
            self.hook(layer, mesh)
        else:
            self._apply(layer, mesh)

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        """What ``parallelize_module`` calls."""
        with located(user_loc()):
            if isinstance(module, DENSE):
                return super()._apply(module, device_mesh)  # type: ignore[misc]
            if not isinstance(module, SPARSE):
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
        """What the style gives of a rank's own y, or of each of several."""
        if isinstance(y, tuple):
            return tuple(self._after(mesh, layer, args, part) for part in y)
        if self.use_local_output:
            if self.output_layouts == self.made:
                return y
            if self.output_layouts == (Replicate(),) and self.axis == 1:
                if y.requires_grad:
                    return _Sum.apply(y, mesh.get_group())
                return _summed(y, mesh.get_group())
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
        return _summed(y, group, kept=True)

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


def _summed(y: Any, group: Any, *, kept: bool = False) -> Any:
    """The sum of all ranks' y, which is not written where it is ``kept``; graphs of ``torch.compile`` have NCCL's."""
    if not torch.compiler.is_compiling():
        near = near_sums(group, y.device)
        if near is not None and near.take(y.shape, y.dtype):
            return near(y)
    y = y.clone() if kept else y
    dist.all_reduce(y, group=group)
    return y


def _device(mesh: Any) -> Any:
    """That of this rank."""
    cuda = mesh.device_type == "cuda"
    return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device(mesh.device_type)


def _whole(layer: Any) -> Any:
    """The layer that has the weights: fused ones are in one of all their outputs."""
    return layer.whole if isinstance(layer, FusedLinear) else layer


def _outputs(layer: Any) -> tuple[int, ...]:
    """The outputs of a layer, or of each of those that are fused."""
    return layer.features if isinstance(layer, FusedLinear) else (layer.out_features,)


def _units(layer: Any) -> tuple[int, int]:
    """Rows and columns that belong together in a layer's format."""
    if isinstance(layer, QuantizedLinear) or layer.format != "nm":
        return 1, 1
    rows, _ = layer.options["vector"]
    return rows, layer.options["m"]


def _agree(mesh: Any, layer: Any) -> None:
    """DeviceError unless all ranks have the same weights, as far as the sums of their bytes tell."""
    arrays = [a for name, a in _whole(layer).named_buffers() if name != "dense"]
    sums = [int(a.detach().reshape(-1).view(torch.uint8).sum(dtype=torch.int64)) for a in arrays]
    mine = (repr(layer), _whole(layer).nnz, *sums)
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

"""``QuantizedLinear``: a linear layer of 8-bit integers in vectors of rows, which tensor cores multiply exactly.

``sparsegen::spmm_quantized(x, plan, values, own, pointers, scale, bias, dtype, in_features, out_features)`` is its
operator, with plan and tensors as that of ``SparseLinear`` (:mod:`sparsegen.torch.op`).  ``torch.compile`` puts it in
its graphs whole, and CUDA graphs record its launches.  It has no gradient, and refuses a scale and a bias that require
one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch

from sparsegen.callsite import located, user_loc
from sparsegen.compiler import compile
from sparsegen.formats import sparse
from sparsegen.formats.matrix import NAMES
from sparsegen.ir.errors import ArrayError, FormatError, ProductError, SparsegenError
from sparsegen.pattern import vectors
from sparsegen.products.product import spmm
from sparsegen.pruning import prune
from sparsegen.quantization import LEAST, quantize
from sparsegen.torch.handle import refuse_capture
from sparsegen.torch.plan import ALIGNMENT, BACKENDS, FEW, Plan, launches, parts
from sparsegen.torch.planned import Planned, in_graph, refuse_gradient
from sparsegen.torch.prune import DTYPES, check_weight, checked_mask
from sparsegen.torch.split import Split

NAME: Final = "sparsegen::spmm_quantized"
#: The largest integer of x, as of weights; the version of the extra state.
_MOST, _VERSION = 127, 1


class QuantizedLinear(Planned):
    """y = x @ W.T + bias with W = scale * integers, [out_features, in_features], in vectors of ``height`` rows.

    x [..., in_features] in f16, bf16 or f32 is quantised at each call: by ``x_scale``, or by the largest |x| of the
    call (a NaN or an infinity then reaches all of y).  Sums are exact; y has x's dtype, rounded once.  For inference:
    an x that requires grad is refused unless under ``torch.no_grad()``, and ``bias`` is detached: it gets none.  On a
    GPU numbers of tokens have kernels of their own as in ``SparseLinear``; the first call
    with one builds it, which must be before a CUDA graph is captured.  Made by ``from_linear``; the constructor
    gives a W of zeros, for ``load_state_dict``.
    """

    bias: Any
    #: Whose part of a layer it is; None for a whole one.
    split: Split | None = None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, height: int = 8, x_scale: Any = None,
        device: Any = None, dtype: Any = torch.float16,
    ) -> None:  # fmt: skip
        """Weights of zeros; ``dtype``: of ``bias``.  FormatError for another height."""
        super().__init__()
        with located(user_loc()):
            self.in_features, self.out_features, self.height = in_features, out_features, height
            zeros = torch.zeros((out_features, in_features), dtype=torch.int8, device=device)
            self.register_parameter(
                "bias", torch.nn.Parameter(zeros.new_zeros(out_features, dtype=dtype)) if bias else None
            )
            given = None if x_scale is None else torch.as_tensor(x_scale, dtype=torch.float32, device=zeros.device)
            self.register_buffer("x_scale", given)
            self._install(zeros, zeros.new_ones(out_features, dtype=torch.float32))

    @classmethod
    def from_linear(
        cls, linear: Any, sparsity: float | None = None, mask: Any = None, *, height: int = 8, x_scale: Any = None,
        importance: Any = None,
    ) -> QuantizedLinear:  # fmt: skip
        """A ``torch.nn.Linear``, on its device, with a scale a row (:func:`sparsegen.quantize`).

        ``sparsity``: the share of the vectors that go, those with the smallest magnitudes (:func:`sparsegen.prune`),
        or magnitudes times ``importance``; ``mask``: a boolean tensor of what stays, rounded up to vectors.  Without
        either the zeros that are there already stay.  ``bias`` is the layer's own, shared.
        """
        with located(user_loc()):
            if not isinstance(linear, torch.nn.Linear):
                raise ProductError(
                    f"from_linear needs a torch.nn.Linear, not {type(linear).__module__}.{type(linear).__qualname__}",
                    hint="put its weight [out_features, in_features] and bias into a torch.nn.Linear first",
                )
            weight = linear.weight.detach()
            check_weight(weight, "nm")  # the same dtypes
            if mask is not None:
                weight = weight.masked_fill(~vectors(checked_mask(mask, weight), height), 0)
            elif sparsity is not None:
                weight = prune(weight, "vector", vector=height, sparsity=sparsity, importance=importance)
            q = quantize(weight, 8, rows=True)
            made = cls(
                linear.in_features, linear.out_features, False, height=height, x_scale=x_scale, device=weight.device
            )
            made.bias = linear.bias
            made._install(q.values, q.scale)
            made.train(linear.training)
            return made

    # -------------------------------------------------------------------------------------------- running it
    def forward(self, x: Any) -> Any:
        """x [..., in_features] -> [..., out_features]; ArrayError for another dtype, device or last axis, and for an x
        whose gradient would be lost."""
        if not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
            what = x.dtype if isinstance(x, torch.Tensor) else type(x).__qualname__
            raise ArrayError(f"x is {what}", hint="pass a tensor in f16, bf16 or f32", loc=user_loc())
        refuse_gradient("QuantizedLinear", x=x)
        whole, scale = x.detach().float(), self.x_scale
        if scale is None:
            top = whole.abs().amax() if whole.numel() else whole.new_zeros(())
            scale = torch.where(top == 0, 1.0, (top / _MOST).clamp_min(LEAST))
        q = (whole / scale).round_().clamp_(-_MOST, _MOST).to(torch.int8)
        bias = None if self.bias is None else self.bias.detach().float()
        values, own, pointers = (None, None, None) if in_graph() else self._weights()
        return spmm_quantized(
            q, self.plan, values, own, pointers, self.scale * scale, bias, x.dtype, self.in_features, self.out_features
        )

    def to_dense(self) -> Any:
        """W as a dense tensor [out_features, in_features] in f32, decoded anew."""
        return self._integers() * self.scale[:, None]

    # -------------------------------------------------------------------------------------------- its weights
    def _weights(self) -> list[Any]:
        return [self._buffers[name] for name in self._parts]

    def _integers(self) -> Any:
        return self._plan.at(*self._weights()).matrix.to_dense()

    def _cut(self, split: Split, own: Any) -> None:
        """Keep these rows or columns of W, and the scales of its rows."""
        w = split.of(self._integers(), own)
        self.out_features, self.in_features = w.shape
        self.bias = split.bias(self.bias, own)
        self._install(w, self.scale[own] if split.axis == 0 else self.scale)

    def _install(self, integers: Any, scale: Any) -> None:
        w = sparse(integers, "sr_bcrs", height=self.height)
        self._spec, self.nnz = w.spec, w.nnz
        self._parts = tuple(str(name) for name in parts(w.spec))
        for name, array in (*w.arrays.items(), ("scale", scale)):
            self.register_buffer(name, array)
        self._renew()

    def _planned(self) -> Plan:
        return Plan(self._spec, (self.out_features, self.in_features), self.nnz, self._weights())

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """What ``to``, ``cuda``, ``half`` and their like do; scales stay in f32."""
        scales = {name: self._buffers[name] for name in ("scale", "x_scale")}
        super()._apply(fn, recurse)
        for name, scale in scales.items():
            if scale is not None:
                self._buffers[name] = scale.to(self._buffers["scale"].device)
        self._renew()
        return self

    def get_extra_state(self) -> Any:
        """What the buffers do not say, as an int64 tensor: version, M, K, nnz, height."""
        return torch.tensor([_VERSION, self.out_features, self.in_features, self.nnz, self.height])

    def set_extra_state(self, state: Any) -> None:
        """FormatError unless the weights that have just been loaded are those of such a layer."""
        told, own = state.tolist(), self.get_extra_state().tolist()
        if len(told) != len(own) or [*told[:3], told[4]] != [*own[:3], own[4]]:
            raise FormatError(
                f"the checkpoint has version, features and height {told}, this layer {own}",
                hint="make the layer with the same numbers",
            )
        self.nnz = told[3]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *how: Any) -> None:
        """Buffers of any size, new ones."""
        for name in (*self._parts, *(("x_scale",) if prefix + "x_scale" in state_dict else ())):
            if isinstance(given := state_dict.get(prefix + name), torch.Tensor):
                self._buffers[name] = torch.empty_like(given, device=self._buffers["scale"].device)
        super()._load_from_state_dict(state_dict, prefix, *how)
        self._renew()

    def extra_repr(self) -> str:
        """What ``print(module)`` says."""
        elements = self.out_features * self.in_features
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, 8 bits, "
            f"height={self.height}, {1 - self.nnz / elements:.1%} zeros"
            f"{'' if self.split is None else f', {self.split}'}"
        )


# ------------------------------------------------------------------------------------------------ the operator
def _check(x: Any, weights: Any, k: int) -> None:
    """ArrayError for an x that does not fit the weights."""
    if x.ndim == 0 or x.shape[-1] != k:
        raise ArrayError(
            f"x has shape {tuple(x.shape)}; its last axis must have in_features={k} elements",
            hint=f"pass x of shape [..., {k}]",
        )
    if x.device != weights.device:
        raise ArrayError(f"x is on {x.device}, the weights are on {weights.device}", hint="move one of them")


def _forward(
    x: Any, plan: Any, values: Any, own: Any, pointers: Any, scale: Any, bias: Any, dtype: Any, in_features: int,
    out_features: int,
) -> Any:  # fmt: skip
    try:
        known = Plan.of(plan, (out_features, in_features))
        _check(x, plan if values is None else values, in_features)
        rows = x.reshape(-1, in_features).contiguous()
        rows = rows.clone() if rows.data_ptr() % ALIGNMENT else rows
        y = torch.empty((rows.shape[0], out_features), dtype=dtype, device=x.device)
        bound, many = known.at(values, own, pointers), rows.shape[0]
        for first, size in launches(many) if many > FEW else ((0, many),) * bool(many):
            part = slice(first, first + size)
            _kernel(bound.matrix, size, bias is not None, dtype)(
                rows[part].t(), out=y[part].t(), scale=scale, **({} if bias is None else {"bias": bias})
            )
        return y.view(*x.shape[:-1], out_features)
    except SparsegenError as error:
        if error.loc is None:
            error.loc = user_loc()
        raise


def _kernel(w: Any, tokens: int, biased: bool, dtype: Any) -> Any:
    """The kernel for so many tokens; DeviceError where it would have to be built while a graph is captured."""
    kernels, key = w.once("linear kernels", dict), (tokens, biased, dtype)
    if key not in kernels:
        device = w.library.device
        refuse_capture(
            device, f"the kernel for {tokens} tokens is not built yet, and cannot be",
            "call the module once with so many tokens before the capture",
        )  # fmt: skip
        product = spmm(w, n=tokens, scale=True, bias=biased, x_dtype="i8", y_dtype=NAMES[DTYPES[dtype]])
        kernels[key] = compile(replace(product, columns=True), backend=BACKENDS[device.type])
    return kernels[key]


def _fake(
    x: Any, plan: Any, values: Any, own: Any, pointers: Any, scale: Any, bias: Any, dtype: Any, in_features: int,
    out_features: int,
) -> Any:  # fmt: skip
    _check(x, plan if values is None else values, in_features)
    return x.new_empty((*x.shape[:-1], out_features), dtype=dtype)


def _register() -> None:
    torch.library.define(
        NAME,
        "(Tensor x, Tensor plan, Tensor? values, Tensor? own, Tensor? pointers, Tensor scale, Tensor? bias, "
        "ScalarType dtype, int in_features, int out_features) -> Tensor",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    torch.library.impl(NAME, ("cpu", "cuda"), _forward)
    torch.library.register_fake(NAME, _fake)


_register()
spmm_quantized: Final = torch.ops.sparsegen.spmm_quantized.default

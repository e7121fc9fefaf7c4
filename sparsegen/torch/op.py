"""The operator ``sparsegen::spmm_linear(x, plan, values, own, pointers, bias, in_features, out_features)``:
y = x @ W.T + bias.

``plan`` is the handle of W (:mod:`sparsegen.torch.handle`), of its dtype and on its device.  W's tensors are the arrays
of its format: values, what says where they lie, and pointers into both if the format has any
(:func:`sparsegen.torch.plan.parts`); where they are None, as in compiled graphs, they are the plan's own.
``torch.compile`` puts it in its graphs whole, and CUDA graphs record its launches.  It runs on torch's current stream
and allocates with torch alone.  CPU tensors are multiplied by the reference, in NumPy.

Gradients: of x, ``grad @ W`` with W decoded to a dense matrix in every backward pass, which costs its memory and many
times the forward's time, and no CUDA graph can capture it; of bias, the sum of ``grad``.  W gets none.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from sparsegen.callsite import user_loc
from sparsegen.ir.errors import ArrayError, SparsegenError
from sparsegen.torch.handle import refuse_capture
from sparsegen.torch.plan import ALIGNMENT, Plan

NAME: Final = "sparsegen::spmm_linear"
GRAD: Final = "sparsegen::spmm_linear_grad"


def _check(x: Any, plan: Any, values: Any, bias: Any, k: int, m: int) -> None:
    """ArrayError for arguments that do not go together."""
    weights = plan if values is None else values
    if x.dtype != plan.dtype:
        raise ArrayError(
            f"x has dtype {x.dtype}, the weights are {plan.dtype}", hint=f"pass x.to({plan.dtype}); nothing is cast"
        )
    if x.ndim == 0 or x.shape[-1] != k:
        raise ArrayError(
            f"x has shape {tuple(x.shape)}; its last axis must have in_features={k} elements",
            hint=f"pass x of shape [..., {k}]; the result is [..., {m}]",
        )
    if x.layout != torch.strided:
        raise ArrayError(f"x is a tensor of layout {x.layout}", hint="pass a dense tensor: x.to_dense()")
    if x.device != weights.device:
        raise ArrayError(
            f"x is on {x.device}, the weights are on {weights.device}",
            hint=f"move one of them: module.to({str(x.device)!r})",
        )
    if bias is not None and (bias.dtype != plan.dtype or tuple(bias.shape) != (m,) or bias.device != x.device):
        raise ArrayError(
            f"bias is {bias.dtype} of shape {tuple(bias.shape)} on {bias.device}; {plan.dtype} of shape ({m},) on "
            f"{x.device} is needed",
            hint="leave it as from_linear made it: nothing is cast",
        )


def _forward(
    x: Any, plan: Any, values: Any, own: Any, pointers: Any, bias: Any, in_features: int, out_features: int
) -> Any:
    try:
        known = Plan.of(plan, (out_features, in_features))
        _check(x, plan, values, bias, in_features, out_features)
        rows = (x.detach() if x.requires_grad else x).reshape(-1, in_features).contiguous()
        if rows.data_ptr() % ALIGNMENT:  # for the widest loads
            rows = rows.clone()
        y = rows.new_empty((rows.shape[0], out_features))
        known.at(values, own, pointers).multiply(rows, None if bias is None else bias.detach().contiguous(), y)
        return y.view(*x.shape[:-1], out_features)
    except SparsegenError as error:
        if error.loc is None:
            error.loc = user_loc()
        raise


def _fake(
    x: Any, plan: Any, values: Any, own: Any, pointers: Any, bias: Any, in_features: int, out_features: int
) -> Any:
    _check(x, plan, values, bias, in_features, out_features)
    return x.new_empty((*x.shape[:-1], out_features))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, *weights, _, ctx.in_features, _ = inputs
    ctx.save_for_backward(*weights)


def _backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
    of_x = of_bias = None
    if ctx.needs_input_grad[0]:
        of_x = torch.ops.sparsegen.spmm_linear_grad(grad, *ctx.saved_tensors, ctx.in_features)
    if ctx.needs_input_grad[5]:
        of_bias = grad.reshape(-1, grad.shape[-1]).sum(0)
    return of_x, None, None, None, None, of_bias, None, None


def _grad(grad: Any, plan: Any, values: Any, own: Any, pointers: Any, in_features: int) -> Any:
    refuse_capture(
        grad.device, "W cannot be decoded, as a gradient needs", "capture the forward pass alone, under torch.no_grad()"
    )
    w = Plan.of(plan, (grad.shape[-1], in_features)).at(values, own, pointers).matrix.to_dense()
    return (grad.detach().reshape(-1, w.shape[0]) @ w).view(*grad.shape[:-1], in_features)


def _fake_grad(grad: Any, plan: Any, values: Any, own: Any, pointers: Any, in_features: int) -> Any:
    return grad.new_empty((*grad.shape[:-1], in_features))


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, *weights, ctx.in_features = inputs
    ctx.out_features = grad.shape[-1]
    ctx.save_for_backward(*weights)


def _backward_grad(ctx: Any, grad: Any) -> tuple[Any, ...]:
    """The gradient is linear in the one that it came from, by W; so its own is the forward product."""
    again = torch.ops.sparsegen.spmm_linear(grad, *ctx.saved_tensors, None, ctx.in_features, ctx.out_features)
    return again, None, None, None, None, None


def _register() -> None:
    traced, not_in_graphs = torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "cudagraph_unsafe", None)
    torch.library.define(
        NAME,
        "(Tensor x, Tensor plan, Tensor? values, Tensor? own, Tensor? pointers, Tensor? bias, int in_features, "
        "int out_features) -> Tensor",
        tags=(traced,),
    )
    torch.library.define(
        GRAD,
        "(Tensor grad, Tensor plan, Tensor? values, Tensor? own, Tensor? pointers, int in_features) -> Tensor",
        tags=tuple(filter(None, (traced, not_in_graphs))),  # older versions of torch have no such tag
    )
    for name, run, fake, backward, save in (
        (NAME, _forward, _fake, _backward, _save),
        (GRAD, _grad, _fake_grad, _backward_grad, _save_grad),
    ):
        torch.library.impl(name, ("cpu", "cuda"), run)
        torch.library.register_fake(name, fake)
        torch.library.register_autograd(name, backward, setup_context=save)


_register()
spmm_linear: Final = torch.ops.sparsegen.spmm_linear.default

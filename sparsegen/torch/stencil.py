"""``stencil_op``: time steps of a kernel as an operator of torch, with gradients.

``sparsegen::stencil(inputs, plan)`` takes the levels of every field, the coefficients, the signals of sources and the
scalars, and gives the levels and what receivers have recorded; ``plan`` is the handle of a
:class:`~sparsegen.torch.trajectory.Trajectory`.  Its gradient by fields and signals alone is
``sparsegen::stencil_adjoint(inputs, grads, plan)``, the adjoint kernel, of which those among the inputs are not
read; ``stencil_grad(inputs, grads, plan, wanted)`` has those by coefficients and scalars, too.  They take tensors and
integers, so ``torch.compile`` puts them in its graphs whole.  They run on torch's current stream; none of them has a
gradient but the first.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import torch

from sparsegen.callsite import located, user_loc
from sparsegen.ir.errors import ArrayError, SparsegenError, StencilError
from sparsegen.kernel import Kernel
from sparsegen.torch.trajectory import Trajectory

FORWARD: Final = "sparsegen::stencil"
ADJOINT: Final = "sparsegen::stencil_adjoint"
GRAD: Final = "sparsegen::stencil_grad"


def _packed(tensors: Any) -> list[Any]:
    return [tensor.detach().contiguous() for tensor in tensors]


def _forward(inputs: Any, plan: int) -> Any:
    try:
        own, given = Trajectory.of(plan), _packed(inputs)
        return own.run(own.kernel, own.state(given), own.given(given), own.numbers(given), own.rows(given))
    except SparsegenError as error:
        if error.loc is None:
            error.loc = user_loc()
        raise


def _adjoint(inputs: Any, grads: Any, plan: int) -> Any:
    own, given = Trajectory.of(plan), _packed(inputs)
    levels, records = own.parted(_packed(grads))
    made = own.run(own.adjoint, levels, own.given(given), own.numbers(given), records)
    return own.by_inputs(*own.parted(made, own.signals.values()))


def _grad(inputs: Any, grads: Any, plan: int, wanted: Any) -> Any:
    return Trajectory.of(plan).gradients(_packed(inputs), _packed(grads), wanted)


def _like(inputs: Any, count: int) -> list[Any]:
    return [torch.empty_like(inputs[0], memory_format=torch.contiguous_format) for _ in range(count)]


def _fake(inputs: Any, plan: int) -> Any:
    own = Trajectory.of(plan)
    return [*_like(inputs, len(own.places)), *own.records(inputs[0])]


def _fake_adjoint(inputs: Any, grads: Any, plan: int) -> Any:
    return _fake_grad(inputs, grads, plan, ())


def _fake_grad(inputs: Any, grads: Any, plan: int, wanted: Any) -> Any:
    own = Trajectory.of(plan)
    others = (torch.empty_like(inputs[at], memory_format=torch.contiguous_format) for at in (*own.signals, *wanted))
    return [*_like(inputs, len(own.places)), *others]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensors, ctx.plan = inputs
    ctx.own = Trajectory.of(ctx.plan)  # which lives until the gradient is there
    ctx.save_for_backward(*tensors)
    ctx.wanted = [at for at in (*ctx.own.coefs, *ctx.own.scalars) if tensors[at].requires_grad]


def _backward(ctx: Any, grads: Any) -> tuple[Any, None]:
    inputs, own = list(ctx.saved_tensors), ctx.own
    like = [*(inputs[at] for at in own.places), *own.records(inputs[0])]
    given = [torch.zeros_like(made) if g is None else g for made, g in zip(like, grads, strict=True)]
    if ctx.wanted:
        made = torch.ops.sparsegen.stencil_grad(inputs, given, ctx.plan, ctx.wanted)
    else:
        made = torch.ops.sparsegen.stencil_adjoint(inputs, given, ctx.plan)
    by = dict(zip([*own.places, *own.signals, *ctx.wanted], made, strict=True))
    return [by.get(at) for at in range(len(inputs))], None


def _none(ctx: Any, *grads: Any) -> NoReturn:
    raise ArrayError("time steps have no second derivative", hint="call backward() or grad() without create_graph")


def _register() -> None:
    for name, schema, run, fake, backward, save in (
        (FORWARD, "(Tensor[] inputs, int plan) -> Tensor[]", _forward, _fake, _backward, _save),
        (ADJOINT, "(Tensor[] inputs, Tensor[] grads, int plan) -> Tensor[]", _adjoint, _fake_adjoint, _none, None),
        (
            GRAD, "(Tensor[] inputs, Tensor[] grads, int plan, int[] wanted) -> Tensor[]", _grad, _fake_grad,
            _none, None,
        ),
    ):  # fmt: skip
        torch.library.define(name, schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.impl(name, ("cpu", "cuda"), run)
        torch.library.register_fake(name, fake)
        torch.library.register_autograd(name, backward, setup_context=save)


_register()


class StencilOp(torch.nn.Module):
    """What :func:`stencil_op` gives back: ``op(u)`` as ``k(u)``, of tensors, with gradients."""

    def __init__(self, kernel: Kernel) -> None:
        """StencilError, ProductError and the like for a kernel that has no adjoint."""
        super().__init__()
        self._own = Trajectory(kernel)
        self.plan = self._own.handle

    def forward(self, *args: Any, **named: Any) -> Any:
        """What the kernel gives back for these tensors; ArrayError for those that do not fit it."""
        calls = self._own.calls
        values, _ = calls.values(args, named, {})
        made = torch.ops.sparsegen.stencil([*calls.given(values).values(), *self._own.tensors(values)], self.plan)
        levels, records = self._own.parted(made)
        fields = tuple(self._own.nested(levels).values())
        result = fields[0] if len(fields) == 1 else fields
        return (result, *records.values()) if records else result

    def extra_repr(self) -> str:
        """What a print of it says of the kernel."""
        return str(self._own.kernel.problem)


def stencil_op(k: Kernel) -> StencilOp:
    """An operator that makes the time steps of a kernel, ``op(u)`` as ``k(u)``, with gradients.

    ``k``: of a stencil, or of an update that is linear in its fields; ``op`` takes tensors on the device that the
    kernel runs on (those of the CPU for ``reference`` and ``emulator``), by position or name, a tuple for a field of
    several levels, and makes the compiled number of steps.  Scalars are numbers, or tensors of one number or of one for
    each step.  It works under ``torch.compile``.

    With sources and receivers each source's signal [steps, points] is given by name, as to ``k``, and behind the fields
    come the records.

    Gradients: by fields, all levels of them, and by signals, from fields and records, through ``k.adjoint()``: one call
    of as many steps.  By coefficients as well, and by scalars that are tensors (by ``dt`` through the time, too), of
    any formula of them: then the forward steps are made twice more, from states that are kept every ``sqrt(steps)``
    steps, so that the backward pass holds ``2 sqrt(steps)`` states, and each step back is a launch of its own (of the
    adjoint, of what happens at sites, and of the derivative by each scalar and each read of a coefficient).  Of what
    the items of a batch share it is the sum over items.  The forward pass keeps only its inputs.  There are no second
    derivatives.

    StencilError, BoundaryError or ProductError for a kernel that has no adjoint.
    """
    with located(user_loc()):
        if not isinstance(k, Kernel):
            raise StencilError(f"stencil_op takes a kernel, not {k!r}", hint="pass what sg.compile gave back")
        return StencilOp(k)

"""``SparseAttention``: attention to the keys that a pattern keeps, as a module, and the operator that it calls.

``sparsegen::sparse_attention(q, k, v, plan)`` takes tensors and an integer, so torch can trace it: ``torch.compile``
puts it in its graphs whole, and CUDA graphs record its launches.  It runs on torch's current stream; CPU tensors go
through the reference, in NumPy.  It has no gradient: asked for one it raises ArrayError.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any, Final, NoReturn
from weakref import WeakValueDictionary

import torch

from sparsegen.callsite import located, user_loc
from sparsegen.compiler import compile
from sparsegen.ir.errors import ArrayError, ProductError, SparsegenError
from sparsegen.kernel import AttentionKernel
from sparsegen.memo import Memo
from sparsegen.products.attention import Attention, attention
from sparsegen.torch.handle import refuse_capture
from sparsegen.torch.plan import ALIGNMENT, BACKENDS
from sparsegen.torch.planned import Planned, refuse_gradient

NAME: Final = "sparsegen::sparse_attention"
#: Sizes of a batch whose kernels are kept, for each place where they run.
_KEPT: Final = 16
_lock = Lock()
_plans: WeakValueDictionary[int, Attending] = WeakValueDictionary()


class Attending:
    """A described attention with its kernels, as the operator knows it: by ``handle``.  Safe for threads.

    The handle is of what is described: modules with one pattern have one, and share graphs of ``torch.compile``.
    """

    def __init__(self, what: Attention, handle: int) -> None:
        self.what, self.handle = what, handle
        self.kernels: Memo[AttentionKernel] = Memo(partial(_compiled, what), _KEPT)
        self.built: set[tuple[int, str]] = set()

    @staticmethod
    def to(what: Attention) -> Attending:
        """The plan of what is described: that which is there, or a new one."""
        w = what.pattern.to_host()
        told = (w.shape, w.height, what.heads, what.d, what.bits, what.softmax_bits)
        digest = sha256(repr(told).encode())
        for name, array in w.arrays.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        handle = int.from_bytes(digest.digest()[:7], "little")
        with _lock:
            if (found := _plans.get(handle)) is None:
                found = _plans[handle] = Attending(what, handle)
            return found

    @staticmethod
    def of(handle: int) -> Attending:
        """That of a handle; ProductError if there is none."""
        if (found := _plans.get(handle)) is None:
            raise ProductError(
                f"there is no plan {handle}",
                hint="a plan belongs to the modules of its pattern and their process: pass module.plan, keep one alive",
            )
        return found

    def batch(self, q: Any, k: Any, v: Any) -> int:
        """The size of the batch; ArrayError for tensors that do not go together, before any kernel is made."""
        (m, n), what = self.what.pattern.shape, self.what
        for name, x, rows in (("q", q, m), ("k", k, n), ("v", v, n)):
            if x.dtype != torch.float16:
                raise ArrayError(f"{name} has dtype {x.dtype}", hint=f"pass {name}.half(); nothing is cast")
            if (
                x.ndim not in (3, 4)
                or tuple(x.shape[-3:]) != (what.heads, rows, what.d)
                or x.shape[:-3] != q.shape[:-3]
            ):
                raise ArrayError(
                    f"{name} has shape {tuple(x.shape)}; [batch, {what.heads}, {rows}, {what.d}] is needed, or without "
                    "the first axis, the same of q, k and v",
                    hint="heads come before rows: x.view(batch, rows, heads, d).transpose(1, 2)",
                )
            if x.device != q.device:
                raise ArrayError(f"q is on {q.device}, {name} on {x.device}", hint="move them to one device")
        return 1 if q.ndim == 3 else int(q.shape[0])


def _compiled(what: Attention, batch: int, device: str) -> AttentionKernel:
    return compile(replace(what, batch=batch), backend=BACKENDS[device])


def _packed(x: Any) -> Any:
    """The tensor by rows, at an address for the widest loads."""
    x = x.detach().contiguous()
    return x.clone() if x.data_ptr() % ALIGNMENT else x


def _forward(q: Any, k: Any, v: Any, plan: int) -> Any:
    try:
        known = Attending.of(plan)
        batch, key = known.batch(q, k, v), (0 if q.ndim == 3 else int(q.shape[0]), q.device.type)
        out = q.new_empty(q.shape)
        if not out.numel():
            return out
        if key not in known.built:
            refuse_capture(
                q.device, f"the kernel for a batch of {batch} is not built yet, and cannot be",
                "call the module once with such tensors before the capture",
            )  # fmt: skip
        lead = known.what.lead if batch == 1 else (batch, known.what.heads)
        given = [_packed(x).view(*lead, *x.shape[-2:]) for x in (q, k, v)]
        known.kernels.get(batch, q.device.type)(*given, out=out.view(*lead, *out.shape[-2:]))
        known.built.add(key)
        return out
    except SparsegenError as error:
        if error.loc is None:
            error.loc = user_loc()
        raise


def _fake(q: Any, k: Any, v: Any, plan: int) -> Any:
    Attending.of(plan).batch(q, k, v)
    return q.new_empty(q.shape)


def _backward(ctx: Any, grad: Any) -> NoReturn:
    raise ArrayError(f"{NAME} has no gradient", hint="call it under torch.no_grad(), or pass q.detach() and the like")


def _register() -> None:
    torch.library.define(
        NAME, "(Tensor q, Tensor k, Tensor v, int plan) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
    )
    torch.library.impl(NAME, ("cpu", "cuda"), _forward)
    torch.library.register_fake(NAME, _fake)
    torch.library.register_autograd(NAME, _backward)


_register()
sparse_attention: Final = torch.ops.sparsegen.sparse_attention.default


class SparseAttention(Planned):
    """``softmax(q k^T / sqrt(d) where pattern) v`` of each head, by products of 8-bit integers: no parameters.

    ``pattern``, ``heads``, ``d``, ``bits`` and ``softmax_bits`` as of :func:`sparsegen.attention`.  ``plan`` is the
    operator's integer, as long as a module of this pattern lives.  Copies and pickles have the same pattern.
    """

    def __init__(self, pattern: Any, heads: int, d: int, *, bits: int = 8, softmax_bits: int = 8) -> None:
        """ProductError or ArrayError for what ``sparsegen.attention`` refuses."""
        super().__init__()
        with located(user_loc()):
            self._what = attention(pattern, heads, d, bits=bits, softmax_bits=softmax_bits)
            self._renew()

    def _planned(self) -> Attending:
        return Attending.to(self._what)

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        """q [batch, heads, M, d], k and v [batch, heads, N, d] in f16, or all without the first axis: f16 of q's shape.

        A batch of a size that is new builds a kernel.  ArrayError for tensors that do not fit, and for those that
        require grad, unless under ``torch.no_grad()``: no gradient flows.
        """
        refuse_gradient("SparseAttention", q=q, k=k, v=v)
        return sparse_attention(q, k, v, self.plan)

    def extra_repr(self) -> str:
        """What a print of the module says of it."""
        return str(self._what)

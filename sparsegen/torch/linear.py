"""``SparseLinear``: a linear layer whose weights are kept, and multiplied by, in bitmap tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import torch

from sparsegen.arguments import positive
from sparsegen.callsite import located, user_loc
from sparsegen.formats import sparse
from sparsegen.formats.bitmap import Bitmap
from sparsegen.ir.errors import ArrayError, DeviceError, FormatError, ProductError, SparsegenError
from sparsegen.torch.op import spmm_linear
from sparsegen.torch.plan import BACKENDS, PARTS, PIECE, Bound, Plan, assembled, empty, refuse_capture
from sparsegen.torch.prune import DTYPES, check_weight, magnitude_mask

_EXTRA: Final = "_extra_state"
#: The extra state is a tensor, as safetensors takes nothing else: this version, M, K, nnz, and the place of dtype here.
_VERSION: Final = 1
_CODES: Final = tuple(DTYPES)
DenseAbove: TypeAlias = "int | Literal['auto'] | None"


class SparseLinear(torch.nn.Module):
    """y = x @ W.T + bias like ``torch.nn.Linear``, with W [out_features, in_features] sparse, f16 or bf16.

    x is [..., in_features] of W's dtype, any number of tokens.  On a GPU each number of tokens up to 64 has a kernel
    of its own, which is compiled at the first call (seconds; layers of one shape and sparsity usually share it, and it
    is kept on disk); more tokens run 64 at a time.  ``prepare`` builds ahead, as must be done before a CUDA graph is
    captured.  On the CPU the reference multiplies, in NumPy: for tests, not for speed.

    ``from_linear`` makes one from a dense layer.  The constructor gives a W of zeros, for ``load_state_dict``.
    ``dense_above``: with ``"auto"``, on a GPU, W is decoded when it is first multiplied by a number of tokens for which
    the cost model has the dense product as the faster one (many: prefill), and kept as a dense matrix *as well*, for
    these; with N it is kept from the start, for more than N tokens; with None never.  It is not in the state_dict.

    ``half``, ``bfloat16`` and ``to`` of these dtypes round W and encode it again.  Under ``torch.autocast`` x is cast
    to W's dtype, and the result to autocast's.

    W is constant: its buffers ``values``, ``masks`` and ``index`` are replaced by ``load_state_dict`` and must not be
    written to.  x and ``bias`` have gradients; that of x decodes W (see :mod:`sparsegen.torch.op`).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = torch.float16,
        dense_above: DenseAbove = "auto",
    ) -> None:
        """Weights of zeros; ProductError for sizes that are none, ArrayError for another dtype."""
        super().__init__()
        with located(user_loc()):
            self.in_features = positive(in_features, "in_features", ProductError)
            self.out_features = positive(out_features, "out_features", ProductError)
            self.dense_above = _checked_above(dense_above)
            if not isinstance(bias, bool):
                raise ProductError(
                    f"bias={bias!r} is neither True nor False", hint="from_linear takes a layer's own bias"
                )
            if not isinstance(dtype, torch.dtype) or dtype not in DTYPES:
                raise ArrayError(
                    f"dtype={dtype!r}; sparse weights are float16 or bfloat16", hint="pass dtype=torch.float16"
                )
            self.dtype = dtype
            try:
                zeros = torch.zeros(self.out_features, dtype=dtype, device=device)
            except (TypeError, ValueError, RuntimeError) as error:
                raise DeviceError(
                    f"device={device!r}: {error}", hint="name a device of torch: 'cuda', 'cpu'"
                ) from error
            w = empty((self.out_features, self.in_features), DTYPES[dtype], device)
            self.register_parameter("bias", torch.nn.Parameter(zeros) if bias else None)
            for name in PARTS:
                self.register_buffer(name, None)
            self.register_buffer("dense", None, persistent=False)
            self._install(w)

    @classmethod
    def from_linear(
        cls,
        linear: Any,
        sparsity: float | None = None,
        mask: Any = None,
        n: int | Iterable[int] | None = None,
        dense_above: DenseAbove = "auto",
    ) -> SparseLinear:
        """A ``torch.nn.Linear`` of f16 or bf16 weights, on its device; by default without those that are zero already.

        With ``sparsity`` it is pruned: that share of the weights is left out, the smallest (:func:`magnitude_mask`).
        With ``mask``, a boolean tensor of the weight's shape, those stay where it is True, as a calibration has found
        it, and ``sparsity`` does not count.  Weights that stay keep their bits; ``bias`` is the layer's own, shared.
        ``n``: numbers of tokens to build kernels for now (see ``prepare``).

        ArrayError for a layer or a mask that does not fit, ProductError for a sparsity that is not from 0 to 1; a
        LargerWarning if W takes more memory than the dense matrix.
        """
        with located(user_loc()):
            if not isinstance(linear, torch.nn.Linear):
                raise ProductError(
                    f"from_linear needs a torch.nn.Linear, not {type(linear).__module__}.{type(linear).__qualname__}",
                    hint="put its weight [out_features, in_features] and bias into a torch.nn.Linear first",
                )
            weight = linear.weight.detach()
            check_weight(weight)
            if mask is not None:
                weight = weight.masked_fill(~_checked_mask(mask, weight), 0)
            elif sparsity is not None:
                weight = weight.masked_fill(~magnitude_mask(weight, sparsity), 0)
            made = cls(linear.in_features, linear.out_features, False, weight.device, weight.dtype, dense_above)
            made.bias = linear.bias
            w = sparse(weight)
            assert isinstance(w, Bitmap)
            made._install(w)
            made.train(linear.training)
            if n is not None:
                made.prepare((n,) if isinstance(n, int) else n)
            return made

    # -------------------------------------------------------------------------------------------- running it
    def forward(self, x: Any) -> Any:
        """x [..., in_features] -> [..., out_features]; ArrayError for another dtype, device or last axis."""
        if not isinstance(x, torch.Tensor):
            raise ArrayError(f"x is a {type(x).__qualname__}", hint="pass a torch tensor", loc=user_loc())
        if self.dense is not None and x.shape[:-1].numel() > self.dense_above:
            return torch.nn.functional.linear(x, self.dense, self.bias)
        where = x.device.type
        if where in BACKENDS and torch.is_autocast_enabled(where) and x.dtype in (torch.float32, *DTYPES):
            y = spmm_linear(x.to(self.dtype), self.values, self.masks, self.index, self.bias, self.plan)
            return y.to(torch.get_autocast_dtype(where))
        return spmm_linear(x, self.values, self.masks, self.index, self.bias, self.plan)

    def prepare(self, tokens: Iterable[int] = (1, 8, 16)) -> None:
        """Build, load and once run the kernels for these numbers of tokens (of a whole batch), several at a time.

        Above 64 tokens all numbers have one kernel.  DeviceError while a CUDA graph is captured.
        """
        with located(user_loc()):
            refuse_capture(self.masks.device, "kernels cannot be built", "call prepare before the capture")
            try:
                counts = tuple(tokens)
            except TypeError:
                hint = "pass several, as in tokens=(1, 8, 16)"
                raise ProductError(f"tokens={tokens!r} are no numbers", hint=hint) from None
            wanted = {min(positive(n, "tokens", ProductError), PIECE) for n in counts}
            self._bound().prepare(sorted(wanted), self.bias is not None)

    def to_dense(self) -> Any:
        """W as a dense tensor [out_features, in_features], decoded anew."""
        return self._bound().matrix.to_dense()

    # -------------------------------------------------------------------------------------------- its weights
    def _bound(self) -> Bound:
        return self._plan.at(self.values, self.masks, self.index)

    def _install(self, w: Bitmap) -> None:
        for name in PARTS:
            setattr(self, name, w.arrays[name])
        self.nnz = w.nnz
        if isinstance(self.dense_above, int):
            meta = self.masks.is_meta
            self.dense = torch.empty(w.shape, dtype=self.dtype, device="meta") if meta else w.to_dense()
        self._renew()

    def _renew(self) -> None:
        """A plan of its own for weights that are new, or elsewhere: graphs that know the old number are not reused."""
        shape, auto = (self.out_features, self.in_features), self.dense_above == "auto"
        self._plan = Plan(shape, DTYPES[self.dtype], self.nnz, auto)
        self.plan = self._plan.number

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """What ``to``, ``cuda``, ``half`` and their like do; ArrayError for a dtype that sparse weights cannot have."""
        dtype, words = (fn(torch.empty(0, dtype=d, device=self.masks.device)).dtype for d in (self.dtype, torch.int32))
        if dtype not in DTYPES or words != torch.int32:
            raise ArrayError(
                f"the weights of a SparseLinear are {self.dtype}, they cannot be converted to {dtype}",
                hint="use model.half() or model.bfloat16(); or leave it as it is, and run a float32 model under "
                "torch.autocast",
                loc=user_loc(),
            )
        super()._apply(fn, recurse)
        self._renew()
        if dtype != self.dtype:
            shape = (self.out_features, self.in_features)
            w = empty(shape, DTYPES[dtype], "meta") if self.masks.is_meta else sparse(self.to_dense().to(dtype))
            assert isinstance(w, Bitmap)
            self.dtype = dtype
            self._install(w)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without the plan, which belongs to this module and this process."""
        return {name: value for name, value in self.__dict__.items() if name not in ("plan", "_plan")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._renew()

    # -------------------------------------------------------------------------------------------- state_dict
    def get_extra_state(self) -> Any:
        """What the buffers do not say, as an int64 tensor: version, M, K, nnz, dtype."""
        code = _CODES.index(self.dtype)
        return torch.tensor([_VERSION, self.out_features, self.in_features, self.nnz, code])

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Buffers of any size, new ones; nothing of W changes unless all of it fits.  bias: as torch does it."""
        keys = {name: prefix + name for name in (*PARTS, _EXTRA)}
        given = {name: state_dict[key] for name, key in keys.items() if key in state_dict}
        absent = [key for key in keys.values() if key not in state_dict]
        try:
            if given and absent:
                raise FormatError(f"{', '.join(absent)} missing", hint="W is all of: " + ", ".join(keys.values()))
            if given:
                self._install(self._loaded(given, bool(local_metadata.get("assign_to_params_buffers", False))))
        except SparsegenError as error:
            error_msgs.append(f"{prefix.rstrip('.') or type(self).__name__}: {error}")
        rest = {key: value for key, value in state_dict.items() if key not in keys.values()}
        missing: list[str] = []
        super()._load_from_state_dict(rest, prefix, local_metadata, strict, missing, unexpected_keys, error_msgs)
        missing_keys += [key for key in missing if key not in keys.values()]
        missing_keys += absent if strict else []

    def _loaded(self, given: Mapping[str, Any], assign: bool) -> Bitmap:
        """W from a checkpoint; FormatError if it is not for this layer, or contradicts itself."""
        extra, shape = given[_EXTRA], (self.out_features, self.in_features)
        if not isinstance(extra, torch.Tensor) or extra.dtype != torch.int64 or extra.numel() != 5:
            raise FormatError(f"its extra state is {extra!r}", hint="load what SparseLinear.state_dict() gave")
        version, m, k, nnz, code = extra.tolist()
        if version != _VERSION:
            raise FormatError(f"its weights have version {version}, this is {_VERSION}", hint="update sparsegen")
        if (m, k) != shape:
            raise FormatError(
                f"the checkpoint holds weights {m}x{k}, this layer's are {shape[0]}x{shape[1]}",
                hint=f"load into SparseLinear({k}, {m})",
            )
        if code != _CODES.index(self.dtype):
            there = _CODES[code] if 0 <= code < len(_CODES) else "unknown"
            raise FormatError(
                f"the checkpoint's weights are {there}, this layer's {self.dtype}", hint=f"make it with dtype={there}"
            )
        device = self.masks.device
        tensors = {name: given[name].detach() for name in PARTS}
        if not assign:
            if device.type == "meta":
                raise FormatError(
                    "the module is on the meta device, where nothing can be copied to",
                    hint="load_state_dict(..., assign=True), or module.to_empty(device=...) first",
                )
            tensors = {name: t.to(device, copy=True).contiguous() for name, t in tensors.items()}
        return assembled(shape, DTYPES[self.dtype], nnz, tensors)

    def extra_repr(self) -> str:
        """What ``print(module)`` says."""
        elements = self.out_features * self.in_features
        stored = sum(b.numel() * b.element_size() for b in (self.values, self.masks, self.index))
        also = f", dense_above={self.dense_above}" if isinstance(self.dense_above, int) else ""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"{str(self.dtype).removeprefix('torch.')}, {1 - self.nnz / elements:.1%} zeros, {stored:,} bytes "
            f"({2 * elements / stored:.3g} times smaller than dense){also}"
        )


def _checked_above(value: Any) -> Any:
    """``dense_above`` as the user gave it; ProductError for what it cannot be."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    return positive(value, "dense_above", ProductError)


def _checked_mask(mask: Any, weight: Any) -> Any:
    """The mask; ArrayError if it does not say of each weight whether it stays."""
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or mask.shape != weight.shape:
        what = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, torch.Tensor) else f"a {type(mask)}"
        raise ArrayError(
            f"mask is {what}; a boolean tensor of shape {tuple(weight.shape)} is needed",
            hint="True for each weight that stays: scores > threshold",
        )
    if mask.device != weight.device:
        raise ArrayError(
            f"mask is on {mask.device}, the weight on {weight.device}", hint=f"pass mask.to({str(weight.device)!r})"
        )
    return mask

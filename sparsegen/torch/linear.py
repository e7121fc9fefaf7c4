"""``SparseLinear``: a linear layer whose weights are kept, and multiplied by, in a sparse format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import torch

from sparsegen.arguments import positive
from sparsegen.callsite import located, user_loc
from sparsegen.formats import sparse
from sparsegen.formats.encode import found
from sparsegen.formats.format import Format
from sparsegen.formats.matrix import NAMES, SparseMatrix
from sparsegen.formats.nm import Vector
from sparsegen.ir.errors import ArrayError, DeviceError, FormatError, ProductError, SparsegenError
from sparsegen.torch.handle import refuse_capture
from sparsegen.torch.op import spmm_linear
from sparsegen.torch.plan import BACKENDS, Bound, Plan, assembled, empty, parts
from sparsegen.torch.planned import Planned, in_graph
from sparsegen.torch.prune import DTYPES, check_weight, conversions, format_of, in_words, kept, taken
from sparsegen.torch.quantized import QuantizedLinear
from sparsegen.torch.split import Split

_EXTRA: Final = "_extra_state"
#: The extra state is a tensor, as safetensors takes nothing else: this version, M, K, nnz, the place of dtype here, and
#: the numbers of the format's options, one after another.
_VERSION: Final = 1
_CODES: Final = tuple(DTYPES)
DenseAbove: TypeAlias = "int | Literal['auto'] | None"


class SparseLinear(Planned):
    """y = x @ W.T + bias like ``torch.nn.Linear``, with W [out_features, in_features] sparse.

    x is [..., in_features] of W's dtype, any number of tokens.  On a GPU each number of tokens up to 64 has a kernel
    of its own, which is compiled at the first call (seconds; layers of one shape and sparsity usually share it, and it
    is kept on disk).  More tokens run in one launch where their number was named to ``prepare``, else in two of 64, 96,
    128, 192, 256, ... tokens at most.  ``prepare`` builds ahead, as must be done before a CUDA graph is captured.  On
    the CPU the reference multiplies, in NumPy: for tests, not for speed.

    ``from_linear`` makes one from a dense layer.  The constructor gives a W of zeros, for ``load_state_dict``.

    ``pattern``: where weights may stay.  Without one anywhere, in f16 or bf16 (the format bitmap).  With ``"nm"``: n of
    every m consecutive inputs, 2 of 4 by default, in f16, bf16 or f32; with ``vector=r`` alike in r adjacent outputs,
    with ``vector=(r, c)`` whole blocks, as :func:`sparsegen.sparse` has it.

    ``dense_above``: with ``"auto"``, on a GPU, W is decoded when it is first multiplied by a number of tokens for which
    the cost model has the dense product as the faster one (many: prefill), and kept as a dense matrix *as well*, for
    these; with N it is kept from the start, for more than N tokens; with None never.  It is not in the state_dict.

    ``half``, ``bfloat16`` and ``to`` of dtypes that W may have round it and encode it again.  Under ``torch.autocast``
    x is cast to W's dtype, and the result to autocast's.

    ``torch.compile`` makes one graph of all layers of one kind (features, dtype, pattern, bias) that it compiles one by
    one, as in ``for layer in decoder.layers: layer.compile()``.

    W is constant: its buffers, the arrays of its format (``values``, ``masks`` and ``index``; of the pattern nm
    ``values`` and ``idx``), are replaced by ``load_state_dict`` and must not be written to.  x and ``bias`` have
    gradients; that of x decodes W (see :mod:`sparsegen.torch.op`).
    """

    _plan: Plan
    bias: Any
    #: Whose part of a layer it is; None for a whole one.
    split: Split | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = torch.float16,
        dense_above: DenseAbove = "auto",
        *,
        pattern: str | None = None,
        n: int | None = None,
        m: int | None = None,
        vector: Vector | None = None,
    ) -> None:
        """Weights of zeros; ProductError for sizes and patterns that are none, FormatError for numbers that make no
        pattern, ArrayError for another dtype."""
        super().__init__()
        with located(user_loc()):
            self.in_features = positive(in_features, "in_features", ProductError)
            self.out_features = positive(out_features, "out_features", ProductError)
            self.dense_above = _checked_above(dense_above)
            if not isinstance(bias, bool):
                raise ProductError(
                    f"bias={bias!r} is neither True nor False", hint="from_linear takes a layer's own bias"
                )
            self.format, self.options = format_of(pattern, n=n, m=m, vector=vector)
            if not isinstance(dtype, torch.dtype) or dtype not in taken(self.format):
                raise ArrayError(f"dtype={dtype!r}; {in_words(self.format)}", hint="pass dtype=torch.float16")
            self.dtype = dtype
            spec = self._spec()
            self._parts, self.options = parts(spec), dict(spec.options)
            try:
                zeros = torch.zeros(self.out_features, dtype=dtype, device=device)
            except (TypeError, ValueError, RuntimeError) as error:
                raise DeviceError(
                    f"device={device!r}: {error}", hint="name a device of torch: 'cuda', 'cpu'"
                ) from error
            w = empty(spec, (self.out_features, self.in_features), zeros.device)
            self.register_parameter("bias", torch.nn.Parameter(zeros) if bias else None)
            for name in filter(None, self._parts):
                self.register_buffer(name, None)
            self.register_buffer("dense", None, persistent=False)
            self._install(w)

    @classmethod
    def from_linear(
        cls,
        linear: Any,
        sparsity: float | None = None,
        mask: Any = None,
        tokens: int | Iterable[int] | None = None,
        dense_above: DenseAbove = "auto",
        *,
        pattern: str | None = None,
        n: int | None = None,
        m: int | None = None,
        vector: Vector | None = None,
        importance: Any = None,
        bits: int | None = None,
    ) -> SparseLinear | QuantizedLinear:
        """A ``torch.nn.Linear``, on its device; by default without those of its weights that are zero already.

        With ``sparsity`` it is pruned: that share of the weights is left out, the smallest (:func:`magnitude_mask`).
        With ``mask``, a boolean tensor of the weight's shape, those stay where it is True, as a calibration has found
        it, and ``sparsity`` does not count.  With ``pattern="nm"`` (see the class for its words) and no mask, the n of
        every m with the largest magnitudes stay, or with the largest ``magnitude * importance``: a number for each
        input or each weight, >= 0 (:func:`sparsegen.prune`); what obeys the pattern already stays as it is.

        Weights that stay keep their bits; ``bias`` is the layer's own, shared.  ``tokens``: numbers of tokens to build
        kernels for now (see ``prepare``).

        With ``bits=8`` back comes a :class:`sparsegen.torch.QuantizedLinear` instead, in vectors of 8 outputs, or as
        many as ``vector`` says (2, 4 or 8): ``pattern="vector"``, or none.

        ArrayError for a layer, a mask or an importance that does not fit; ProductError for a sparsity that is not from
        0 to 1, an unknown pattern, or words that do not go together; FormatError for numbers that make no pattern, and
        for a mask that breaks it, with the first row and window that do; a LargerWarning if W takes more memory than
        the dense matrix.
        """
        with located(user_loc()):
            if not isinstance(linear, torch.nn.Linear):
                raise ProductError(
                    f"from_linear needs a torch.nn.Linear, not {type(linear).__module__}.{type(linear).__qualname__}",
                    hint="put its weight [out_features, in_features] and bias into a torch.nn.Linear first",
                )
            if bits is not None:
                if bits != 8 or pattern not in (None, "vector") or (n, m, tokens) != (None, None, None):
                    raise ProductError(
                        f"bits={bits!r}, pattern={pattern!r}: layers are quantised to 8 bits, in vectors of outputs",
                        hint='give bits=8, pattern="vector" and sparsity or mask; vector=2, 4 or 8 outputs; no tokens',
                    )
                height: Any = 8 if vector is None else vector
                return QuantizedLinear.from_linear(linear, sparsity, mask, height=height, importance=importance)
            weight, words = linear.weight.detach(), {"n": n, "m": m, "vector": vector}
            format, options = format_of(pattern, **words, sparsity=None if pattern is None else sparsity)
            check_weight(weight, format)
            weight = kept(weight, sparsity, mask, pattern, options, importance)
            made = cls(
                linear.in_features, linear.out_features, False, weight.device, weight.dtype, dense_above,
                pattern=pattern, n=n, m=m, vector=vector,
            )  # fmt: skip
            made.bias = linear.bias
            made._install(sparse(weight, format, **made.options))
            made.train(linear.training)
            if tokens is not None:
                made.prepare((tokens,) if isinstance(tokens, int) else tokens)
            return made

    # -------------------------------------------------------------------------------------------- running it
    def forward(self, x: Any) -> Any:
        """x [..., in_features] -> [..., out_features]; ArrayError for another dtype, device or last axis."""
        if not isinstance(x, torch.Tensor):
            raise ArrayError(f"x is a {type(x).__qualname__}", hint="pass a torch tensor", loc=user_loc())
        buffers = self._buffers  # a module's attributes are slow
        dense = buffers["dense"]
        if dense is not None and x.shape[:-1].numel() > self.dense_above:
            return torch.nn.functional.linear(x, dense, self.bias)
        where = x.device.type
        cast = where in BACKENDS and torch.is_autocast_enabled(where) and x.dtype in DTYPES
        values, own, pointers = (None, None, None) if in_graph() else map(buffers.get, self._parts)
        y = spmm_linear(
            x.to(self.dtype) if cast else x, self.plan, values, own, pointers, self.bias, self.in_features,
            self.out_features,
        )  # fmt: skip
        return y.to(torch.get_autocast_dtype(where)) if cast else y

    def prepare(self, tokens: Iterable[int] = (1, 8, 16)) -> None:
        """Build, load and once run the kernels for these numbers of tokens (of a whole batch), several at a time.

        Without a pattern all numbers above 64 have one kernel.  DeviceError while a CUDA graph is captured.
        """
        with located(user_loc()):
            refuse_capture(self.values.device, "kernels cannot be built", "call prepare before the capture")
            try:
                counts = tuple(tokens)
            except TypeError:
                hint = "pass several, as in tokens=(1, 8, 16)"
                raise ProductError(f"tokens={tokens!r} are no numbers", hint=hint) from None
            self._bound().prepare([positive(n, "tokens", ProductError) for n in counts], self.bias is not None)

    def to_dense(self) -> Any:
        """W as a dense tensor [out_features, in_features], decoded anew."""
        return self._bound().matrix.to_dense()

    # -------------------------------------------------------------------------------------------- its weights
    def _spec(self) -> Format:
        return found(self.format).spec(NAMES[DTYPES[self.dtype]], self.options)

    def _bound(self) -> Bound:
        return self._plan.at(*self._weights())

    def _weights(self) -> list[Any]:
        return [name and self._buffers[name] for name in self._parts]

    def _install(self, w: SparseMatrix) -> None:
        for name, array in w.arrays.items():
            setattr(self, name, array)
        self.nnz = w.nnz
        if isinstance(self.dense_above, int):
            meta = self.values.is_meta
            self.dense = torch.empty(w.shape, dtype=self.dtype, device="meta") if meta else w.to_dense()
        self._renew()

    def _cut(self, split: Split, own: Any) -> None:
        """Keep these rows or columns of W."""
        w = split.of(self.to_dense(), own)
        self.out_features, self.in_features = w.shape
        self.bias = split.bias(self.bias, own)
        self._install(sparse(w, self.format, **self.options))

    def _planned(self) -> Plan:
        shape = (self.out_features, self.in_features)
        return Plan(self._spec(), shape, self.nnz, self._weights(), self.dense_above == "auto")

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """What ``to``, ``cuda``, ``half`` and their like do; ArrayError for a dtype that sparse weights cannot have."""
        device = self.values.device
        dtype, words = (fn(torch.empty(0, dtype=d, device=device)).dtype for d in (self.dtype, torch.int32))
        if dtype not in taken(self.format) or words != torch.int32:
            raise ArrayError(
                f"the weights of a SparseLinear are {self.dtype}, they cannot be converted to {dtype}",
                hint=f"use {conversions(self.format, 'model')}; or leave it as it is, and run a float32 model under "
                "torch.autocast",
                loc=user_loc(),
            )
        if dtype != self.dtype:  # first, as torch knows no more of values than that they are numbers
            dense = None if device.type == "meta" else self.to_dense().to(dtype)
            self.dtype = dtype
            shape = (self.out_features, self.in_features)
            self._install(
                empty(self._spec(), shape, device) if dense is None else sparse(dense, self.format, **self.options)
            )
        super()._apply(fn, recurse)
        self._renew()
        return self

    # -------------------------------------------------------------------------------------------- state_dict
    def get_extra_state(self) -> Any:
        """What the buffers do not say, as an int64 tensor: version, M, K, nnz, dtype, the options."""
        code = _CODES.index(self.dtype)
        return torch.tensor([_VERSION, self.out_features, self.in_features, self.nnz, code, *_numbers(self.options)])

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
        keys = {name: prefix + name for name in (*filter(None, self._parts), _EXTRA)}
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

    def _loaded(self, given: Mapping[str, Any], assign: bool) -> SparseMatrix:
        """W from a checkpoint; FormatError if it is not for this layer, or contradicts itself."""
        extra, shape, numbers = given[_EXTRA], (self.out_features, self.in_features), _numbers(self.options)
        if not isinstance(extra, torch.Tensor) or extra.dtype != torch.int64 or extra.numel() != 5 + len(numbers):
            raise FormatError(f"its extra state is {extra!r}", hint="load what SparseLinear.state_dict() gave")
        version, m, k, nnz, code, *there = extra.tolist()
        if version != _VERSION:
            raise FormatError(f"its weights have version {version}, this is {_VERSION}", hint="update sparsegen")
        if (m, k) != shape:
            raise FormatError(
                f"the checkpoint holds weights {m}x{k}, this layer's are {shape[0]}x{shape[1]}",
                hint=f"load into SparseLinear({k}, {m})",
            )
        if code != _CODES.index(self.dtype):
            kind = _CODES[code] if 0 <= code < len(_CODES) else "unknown"
            raise FormatError(
                f"the checkpoint's weights are {kind}, this layer's {self.dtype}", hint=f"make it with dtype={kind}"
            )
        if there != numbers:
            raise FormatError(
                f"{', '.join(self.options)} of the checkpoint are {there}, of this layer {numbers}",
                hint=f"make it with those: SparseLinear({k}, {m}, pattern={self.format!r}, ...)",
            )
        device = self.values.device
        tensors = {name: given[name].detach() for name in filter(None, self._parts)}
        if not assign:
            if device.type == "meta":
                raise FormatError(
                    "the module is on the meta device, where nothing can be copied to",
                    hint="load_state_dict(..., assign=True), or module.to_empty(device=...) first",
                )
            tensors = {name: t.to(device, copy=True).contiguous() for name, t in tensors.items()}
        return assembled(self._spec(), shape, nnz, tensors)

    def extra_repr(self) -> str:
        """What ``print(module)`` says."""
        elements = self.out_features * self.in_features
        stored = sum(self._buffers[name].nbytes for name in filter(None, self._parts))
        how = "".join(f", {name}={value}" for name, value in self.options.items())
        also = f", dense_above={self.dense_above}" if isinstance(self.dense_above, int) else ""
        if self.split is not None:
            also += f", {self.split}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"{str(self.dtype).removeprefix('torch.')}{how}, {1 - self.nnz / elements:.1%} zeros, {stored:,} bytes "
            f"({self.dtype.itemsize * elements / stored:.3g} times smaller than dense){also}"
        )


def _numbers(options: Mapping[str, Any]) -> list[int]:
    """The numbers of a format's options, one after another."""
    return [n for value in options.values() for n in (value if isinstance(value, tuple) else (value,))]


def _checked_above(value: Any) -> Any:
    """``dense_above`` as the user gave it; ProductError for what it cannot be."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    return positive(value, "dense_above", ProductError)

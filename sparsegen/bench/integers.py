"""Problems of integers in vectors with torch's arrays for them, and how far the result of a call is off.

Suites ``magicube`` and ``regret`` draw theirs here.  A seed gives the same numbers again on the same device.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import sparsegen as sg
from sparsegen.arrays import describe
from sparsegen.bench.products import packed
from sparsegen.formats.format import held
from sparsegen.formats.library import library_of
from sparsegen.formats.matrix import KINDS

Call = Callable[[], object]
#: What a result is full of before a call.
POISON = -77
#: A normal number times it is an integer of q, k or v: 127 are four deviations.
UNIT = 32
SCALES = ("q_scale", "k_scale", "v_scale")


@dataclass(frozen=True)
class Drawer:
    """Random masks and numbers on ``device``."""

    torch: Any
    device: str

    def generator(self, seed: int) -> Any:
        """A generator of random numbers."""
        return self.torch.Generator(self.device).manual_seed(seed)

    def mask(self, shape: tuple[int, int], sparsity: float, height: int, seed: int, sigma: float = 0.0) -> Any:
        """Vectors height x 1, of which a share is left out; of ``sigma`` the share that a vector row keeps is times
        exp(N(0, sigma) - sigma^2 / 2), at most all."""
        torch, generator = self.torch, self.generator(seed)
        rows = -(-shape[0] // height)
        loads = sigma * torch.randn((rows, 1), generator=generator, device=self.device) - sigma**2 / 2
        kept = torch.rand((rows, shape[1]), generator=generator, device=self.device) < (1 - sparsity) * loads.exp()
        return kept.repeat_interleave(height, 0)[: shape[0]].contiguous()

    def numbers(self, kind: str, shape: tuple[int, ...], seed: int) -> Any:
        """Integers of a type, all values alike."""
        (low, high), dtype = KINDS[kind].range, getattr(self.torch, held(KINDS[kind]).numpy().name)
        return self.torch.randint(low, high + 1, shape, generator=self.generator(seed), device=self.device, dtype=dtype)

    def normal(self, shape: tuple[int, ...], seed: int) -> Any:
        """Normal numbers, f16."""
        made = self.torch.randn(shape, generator=self.generator(seed), device=self.device)
        return made.to(self.torch.float16)


class Given(ABC):
    """A problem, ``what`` to compile, the ``arguments`` of calls, and where their result goes."""

    def __init__(self, draw: Drawer, what: Any, out: Any, *arrays: Any, **named: Any) -> None:
        self.torch, self.what, self.out, self.arrays, self.named = draw.torch, what, out, arrays, named

    def call(self, kernel: Any) -> Call:
        """A call of a kernel."""
        return partial(kernel, *self.arrays, out=self.out, **self.named)

    def off(self, call: Call) -> float:
        """How far the result of a call is off: the share of wrong integers, or |o - exact| / |exact|."""
        self.written.fill_(POISON)
        call()
        error = self.error()
        return error if math.isfinite(error) else math.inf

    @property
    def written(self) -> Any:
        """What a call writes, one tensor."""
        return self.out

    @abstractmethod
    def error(self) -> float:
        """How far the result that is there is off."""


def _wrong(got: Any, want: Any) -> float:
    """The share of integers that are not the same."""
    return float((got != want).double().mean())


class OfProduct(Given):
    """A product of a random matrix, whose mask is given, with x of ``n`` columns; ``kinds``: the types of both;
    ``auto``: the dense product of a library may be chosen."""

    def __init__(
        self, draw: Drawer, mask: Any, kinds: tuple[str, str], height: int, n: int, seed: int, order: str = "rows",
        auto: bool = False,
    ) -> None:  # fmt: skip
        (m, k), kind = mask.shape, kinds[1]
        self._w, self._x = draw.numbers(kinds[0], (m, k), seed) * mask, draw.numbers(kind, (k, n), seed + 1)
        matrix = sg.sparse(self._w, format="auto" if auto else "sr_bcrs", height=height, dtype=kinds[0])
        what = replace(sg.spmm(matrix, n, x_dtype=kind, y_dtype="i32"), columns=order == "columns")
        given = sg.pack4(self._x) if kind == "i4" and n % 2 == 0 else self._x
        y = draw.torch.empty((m, n), dtype=draw.torch.int32, device=draw.device)
        super().__init__(draw, what, packed(y, order), packed(given, order))

    @cached_property
    def exact(self) -> Any:
        """The product modulo 2^32; f64 holds every sum before that."""
        return _modulo(self.torch, self._w.double() @ self._x.double())

    def error(self) -> float:
        return _wrong(self.out, self.exact)


class OfSampled(Given):
    """The elements of a @ b that a mask keeps, of random a with ``k`` columns and b, which is given by columns."""

    def __init__(self, draw: Drawer, mask: Any, kind: str, k: int, seed: int) -> None:
        a, bt = (draw.numbers(kind, (rows, k), seed + at) for at, rows in enumerate(mask.shape))
        self._mask, self._a, self._bt = mask, a, bt
        what = sg.sddmm(mask, k=k, dtype=kind)
        given = (sg.pack4(a), sg.pack4(bt).t()) if kind == "i4" else (a, bt.t())
        values = draw.torch.empty((what.stored,), dtype=draw.torch.int32, device=draw.device)
        super().__init__(draw, what, what.matrix(library_of(describe(values))[0], values), *given)

    @property
    def written(self) -> Any:
        return self.out.values

    @cached_property
    def exact(self) -> Any:
        """The dense result modulo 2^32, 0 where the mask keeps nothing."""
        return _modulo(self.torch, self._a.double() @ self._bt.double().t()) * self._mask

    def error(self) -> float:
        return _wrong(self.out.to_dense(), self.exact)


class OfAttention(Given):
    """Attention of random q, k and v, [heads, rows, d], where a mask keeps keys: as f16, or quantised beforehand."""

    def __init__(
        self, draw: Drawer, mask: Any, heads: int, d: int, seed: int, quantized: bool = True, bits: int = 8
    ) -> None:
        self._mask, self._scale = mask, 1 / UNIT if quantized else 1.0
        (rows, keys), named = mask.shape, dict[str, Any]()
        given = [draw.normal((heads, count, d), seed + at) for at, count in enumerate((rows, keys, keys))]
        what = sg.attention(mask.cpu().numpy(), heads, d, softmax_bits=bits, quantized=quantized)
        out = draw.torch.empty_like(given[0])
        if quantized:
            given = [(x.float() * UNIT).round().clamp(-127, 127).to(draw.torch.int8) for x in given]
            named = {name: draw.torch.full((1,), 1 / UNIT, device=draw.device) for name in SCALES}
        super().__init__(draw, what, out, *given, **named)

    @cached_property
    def exact(self) -> Any:
        """The result in f64 for the numbers as they are given, head by head."""
        return self.torch.stack(
            [self._head(*(x.double() * self._scale for x in head)) for head in zip(*self.arrays, strict=True)]
        )

    def _head(self, q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.t() / math.sqrt(q.shape[-1])).masked_fill(~self._mask, -math.inf)
        return self.torch.softmax(scores, -1).nan_to_num(0) @ v  # a query that sees nothing gets 0

    def error(self) -> float:
        return float((self.out.double() - self.exact).norm() / self.exact.norm())


def _modulo(torch: Any, sums: Any) -> Any:
    """Whole numbers modulo 2^32, as int32."""
    return ((sums.long() + (1 << 31)) % (1 << 32) - (1 << 31)).to(torch.int32)

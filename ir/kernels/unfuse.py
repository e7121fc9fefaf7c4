"""``unfuse``: sparse attention as a sampled product, a softmax of its scores, and a product of what that makes.

Heads are a batch of both products, of one pattern: its lists are there once, whatever the number of heads.  As blocks
of one large pattern on its diagonal they would need no batch, but lists for each head: for every vector of 8 queries
12 bytes, beside 32 of scores and 8 of exponentials, and time on the host to make them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op_attention as o
from .. import op_sddmm as osd
from .. import op_spmm as osp
from ..errors import IRError
from ..module import Module
from ..numbers.strided import stride
from ..passes.manager import register
from ..types import f16, s8, u8, u16
from .common import each
from .quantise import quantised

#: Vectors of a block of scores: what a step of the product of exponentials takes.
BLOCK = stride(8)


@register("unfuse")
@dataclass(frozen=True)
class Unfuse:
    """Attention's op becomes three, which passes after this one make kernels of, in their order.

    ``vectors`` of the pattern; ``blocks`` of 16 that they fill, each vector row for itself.  ``overlap``: launches
    begin while the ones before end (Hopper).  Roles of the launches: ``in.q``, ``in.k``, ``in.v``, ``in.q_scale``, ...,
    ``out``, ``ws.scores``, ``ws.powers``, ``ws.rows``, and the lists of the two products.
    """

    vectors: int = 1
    blocks: int = 1
    overlap: bool = False

    def run(self, module: Module) -> Module:
        return each(module, o.Attention, self._ops)

    def _ops(self, module: Module, op: o.Attention) -> Module:
        if self.blocks * BLOCK < self.vectors:
            raise IRError(f"{self.blocks} blocks of {BLOCK} vectors do not hold {self.vectors}", hint="raise blocks")
        stored = self.blocks * BLOCK * op.height
        of = "in" if op.quantized else "ws"
        if not op.quantized:
            sizes = {"q": op.queries, "k": op.keys, "v": op.keys}
            sizes = {name: op.heads * op.d * rows for name, rows in sizes.items()}
            module = quantised(module, op, sizes, 2 ** (op.bits - 1) - 1, overlap=self.overlap)
        scores = osd.Sddmm(
            symbol=f"{op.symbol}_scores", m=op.queries, n=op.keys, k=op.d, dtype=s8, height=op.height,
            vectors=self.vectors, stored=stored, stride=BLOCK, a_vec=16, b_vec=16, batch=op.heads,
            binds=(("a", f"{of}.q"), ("b", f"{of}.k"), ("out", "ws.scores")),
        )  # fmt: skip
        softmax = o.Softmax(
            symbol=f"{op.symbol}_softmax", m=op.queries, height=op.height, stored=stored, d=op.d, bits=op.softmax_bits,
            batch=op.heads, fresh=self.overlap,
            binds=(("scores", "ws.scores"), ("values", "ws.powers"), ("scale", "ws.rows"),
                   *((f"{name}_scale", f"{of}.{name}_scale") for name in "qkv")),
        )  # fmt: skip
        values = osp.Spmm(
            symbol=f"{op.symbol}_values", m=op.queries, k=op.keys, n=op.d, dtype=u8 if op.softmax_bits == 8 else u16,
            chunks=0, vec=16, scale=True, format="sr_bcrs", entries=self.vectors, x_type=s8, y_type=f16,
            height=op.height, batch=op.heads,
            binds=(("in", f"{of}.v"), ("values", "ws.powers"), ("scale", "ws.rows")),
        )  # fmt: skip
        funcs = tuple(x for f in module.funcs for x in ((scores, softmax, values) if f is op else (f,)))
        return Module(module.name, funcs, module.launches, module.constants)

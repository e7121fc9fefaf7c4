"""Values and their tag in one access: how the blocks of one launch, or GPUs, hand cells to each other.

A reader asks for a cell until it has the tag that it waits for.  The values have come with it, so neither side needs a
fence or a flag.
"""

from __future__ import annotations

from .expr import Expr, Value
from .node import Op, attr, buffer, define, operand, result
from .types import Buffer

#: Who sees an access: the GPU, or all GPUs that reach the memory.
SCOPES = ("gpu", "sys")


@define("warp.ld_tagged")
class LdTagged(Op):
    """Loads adjacent elements, values and their tag behind them, as one ``st_tagged`` left them: one of each, of u32 or
    of u64, or three values and a tag of u32; 8 or 16 bytes.

    PTX ``ld.relaxed``: it may give what an earlier store has left, and it orders no other access.  With ``where``
    false the lane loads nothing, and gets zeros with the tag ``other``.  ``scope``: ``gpu``, or ``sys`` for cells that
    another GPU stores.
    """

    out: tuple[Value, ...] = result()
    buf: Buffer = buffer()
    index: Expr = operand()
    where: Expr | None = operand(default=None)
    other: Expr | None = operand(default=None)
    scope: str = attr(default="gpu")


@define("warp.st_tagged")
class StTagged(Op):
    """Stores values and their tag at once (PTX ``st.relaxed``): nobody sees one without the others.

    ``scope``: ``gpu``, or ``sys`` for cells that another GPU loads.
    """

    buf: Buffer = buffer(writes=True, reads=False)
    index: Expr = operand()
    vals: tuple[Expr, ...] = operand()
    tag: Expr = operand()
    scope: str = attr(default="gpu")


@define("warp.trap")
class Trap(Op):
    """Ends the launch as failed where ``where`` holds (PTX ``trap``): for waits that nothing else would end.

    The process can launch nothing more on this GPU; the emulator reports it as an error.
    """

    where: Expr = operand()

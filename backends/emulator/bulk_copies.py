"""Closures of the copies whose bytes an mbarrier counts: of adjacent elements, and of boxes of a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.tensor_copy import PIECE, TensorCopy

from .memory import OpInfo
from .scalars import Step
from .values import number, pick

if TYPE_CHECKING:
    from .compile import Scope
    from .group import Group

EVEN = "copy a multiple of 16 bytes between addresses that are multiples of 16 (align buffers and pitch)"
FIT = "shorten the copy or enlarge the buffer"


class Issued:
    """What the active lanes of a group name in one instruction: batch row and lane of each, and its numbers.

    ``what`` names the copy in errors.
    """

    def __init__(self, g: Group, what: str, info: OpInfo, *exprs: Any) -> None:
        pos = g.sel()
        self.m, self.what, self.info = g.m, what, info
        self.numbers = [x.astype(np.int64) for x in pick(pos, (g.n, 32), *(e(g.env) for e in exprs))]
        self.row, self.lane = g.rows[pos >> 5], pos & 31

    def wrong(self, bad: Any, text: str, fix: str, at: Any, who: OpInfo, n: Any = 0) -> Any:
        """Where ``bad`` holds, an error; {at} and {n} in the text are the numbers there."""
        self.m.find("bounds", who, lambda first: f"{self.what} {text.format(at=first(at), n=first(n))}", fix, bad=bad,
                    index=at, row=self.row, lane=self.lane)  # fmt: skip
        return bad

    def no_bar(self, k: Any, name: str) -> Any:
        """Which copies name an mbarrier that is none."""
        outside = (k < 0) | (k >= self.m.bars[name].size)
        return self.wrong(outside, f"with index {{at}} of @{name}, which is outside", FIT, k, self.info)


def bulk_copy(op: w.BulkCopy, sc: Scope) -> Step:
    info, src_info = sc.info(op), OpInfo(sc.info(op).text, op.loc, op.src.name, "global")
    dst, src, name = op.dst, op.src, op.bars.name
    exprs = [number(x, sc.slots) for x in (op.dst_index, op.src_index, op.count, op.bar)]
    k_op, k_bytes, size = sc.count("bulk_copy"), sc.count("bytes.bulk"), dst.dtype.nbytes

    def bulk(g: Group) -> None:
        m = g.m
        if not g.lanes:
            return
        at = Issued(g, "bulk copy", info, *exprs)
        a, b, n, k = at.numbers
        m.cnt[k_op] += g.warps()
        m.cnt[k_bytes] += m.of_blocks(at.row, n) * size
        to_, from_ = f"to @{dst.name}[{{at}}]", f"from @{src.name}[{{at}}]"
        uneven = ", which is not 16-byte aligned"
        at.wrong(n * size % 16 != 0, f"of {{n}} elements of {size} bytes: no multiple of 16 bytes", EVEN, n, info, n)
        at.wrong(a * size % 16 != 0, f"{to_}{uneven}", EVEN, a, info)
        at.wrong(b * size % 16 != 0, f"{from_}{uneven}", EVEN, b, src_info)
        m.find("bounds", info, f"bulk copy from @{src.name} to @{dst.name}: one is not 16-byte aligned", EVEN,
               bad=m.align(src) % 16 != 0 or m.align(dst) % 16 != 0)  # fmt: skip
        bad = at.no_bar(k, name)
        for start, buf, there, who in ((a, dst, to_, info), (b, src, from_, src_info)):
            outside = (start < 0) | (start + n > buf.size)
            bad = bad | at.wrong(outside, f"of {{n}} elements {there} leaves its {buf.size}", FIT, start, who, n)
        ok = np.flatnonzero(~bad)
        if len(ok):
            n, row = n[ok], at.row[ok]
            steps = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
            cells = np.repeat(m.shared[dst.name].cells(a[ok], row), n) + steps
            read = np.repeat(b[ok], n) + steps
            m.bulk.issue(m.bars[name], dst, src, cells, read, n, k[ok], row, at.lane[ok], info, src_info, at.what)

    return bulk


def tensor_copy(op: TensorCopy, sc: Scope) -> Step:
    info, src_info = sc.info(op), OpInfo(sc.info(op).text, op.loc, op.src.name, "global")
    dst, src, name, box = op.dst, op.src, op.bars.name, op.map
    exprs = [number(x, sc.slots) for x in (op.dst_index, op.row, op.col, op.bar)]
    size, unit = dst.dtype.nbytes, box.align
    k_op, k_bytes = sc.count("tensor_copy"), sc.count("bytes.tensor")
    (places,) = (table.reshape(-1) for table in box.layout(size).tables())
    down, along = (table.reshape(-1) for table in np.indices(box.box))

    def copy(g: Group) -> None:
        m = g.m
        if not g.lanes:
            return
        at = Issued(g, "tensor copy", info, *exprs)
        a, r, c, k = at.numbers
        askew = f"to @{dst.name}[{{at}}], which is no multiple of {unit} bytes"
        even = f"align the buffer and the places of boxes to {unit} bytes"
        at.wrong(a * size % unit != 0, askew, even, a, info)
        at.wrong(c * size % PIECE != 0, f"from column {{at}} of @{src.name}, which is no multiple of {PIECE} bytes",
                 "let boxes begin at such columns, and leave out what is too much", c, src_info)  # fmt: skip
        m.find("bounds", info, f"tensor copy to @{dst.name}, which is aligned to {m.align(dst)} bytes", even,
               bad=m.align(dst) % unit != 0)  # fmt: skip
        m.find("bounds", src_info, f"tensor copy from @{src.name}, which is aligned to {m.align(src)} bytes",
               f"give an array at a multiple of {PIECE} bytes", bad=m.align(src) % PIECE != 0)  # fmt: skip
        outside = (a < 0) | (a + box.size > dst.size)
        bad = at.no_bar(k, name) | at.wrong(
            outside, f"of {box.size} elements to @{dst.name}[{{at}}] leaves its {dst.size}", FIT, a, info
        )
        ok = np.flatnonzero(~bad)
        if not len(ok):
            return
        rows, cols = r[ok, None] + down, c[ok, None] + along
        inside = (rows >= 0) & (rows < box.rows) & (cols >= 0) & (cols < box.cols)
        read = np.where(inside, rows * box.pitch + cols, -1).reshape(-1)
        row = at.row[ok]
        m.cnt[k_op] += g.warps()
        m.cnt[k_bytes] += m.of_blocks(row, inside.sum(1)) * size
        cells = (m.shared[dst.name].cells(a[ok], row)[:, None] + places).reshape(-1)
        n = np.full(len(ok), box.size)
        m.bulk.issue(m.bars[name], dst, src, cells, read, n, k[ok], row, at.lane[ok], info, src_info, at.what)

    return copy

"""A group: the warps that stand at one program point, with their values, their lane masks and their loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .values import LANES, join, rows_of

if TYPE_CHECKING:
    from .machine import Machine

Entry = list[Any]
#: What stands in a stack entry after its kind: a mask that is full if None, one that is empty if None, a value, a count
#: of which the highest stays, or a time of which the earliest does.
FIELDS = {
    "if": ("full", "empty"), "for": ("full", "value", "value", "value"), "loop": ("full", "empty", "count", "time"),
}  # fmt: skip


class RegArray:
    """A register array of each lane: one value an element, and the lanes that have written it where not all have."""

    __slots__ = ("elems", "some")

    def __init__(self, size: int) -> None:
        self.elems: list[Any] = [None] * size
        self.some: dict[int, Any] = {}

    def rows(self, sel: Any) -> RegArray:
        out = RegArray(0)
        out.elems = [rows_of(v, sel) for v in self.elems]
        out.some = {k: rows_of(m, sel) for k, m in self.some.items()}
        return out

    @staticmethod
    def join(parts: list[RegArray], ns: list[int], order: Any) -> RegArray:
        out = RegArray(len(parts[0].elems))
        for k in range(len(out.elems)):
            vals = [p.elems[k] for p in parts]
            if all(v is None for v in vals):
                continue
            if any(v is None for v in vals) or any(k in p.some for p in parts):
                masks = [p.some.get(k, np.bool_(v is not None)) for p, v in zip(parts, vals, strict=True)]
                wide = [np.broadcast_to(np.asarray(m), (n, 32)) for m, n in zip(masks, ns, strict=True)]
                out.some[k] = np.concatenate(wide)[order]
                like = next(v for v in vals if v is not None)
                vals = [np.zeros((1, 1), np.asarray(like).dtype) if v is None else v for v in vals]
            out.elems[k] = join(vals, ns, order)
        return out


class Group:
    """``n`` warps (rows of the batch) at one point; ``mask`` None means that all 32 lanes of every warp are active."""

    __slots__ = (
        "_sel", "_stamp", "_warps", "col", "env", "lanes", "m", "mask", "n", "pc", "rows", "spins",
        "stack", "whole",
    )  # fmt: skip

    def __init__(self, m: Machine, rows: Any, env: list[Any], mask: Any, pc: int) -> None:
        self.m, self.env, self.pc = m, env, pc
        self.stack: list[Entry] = []
        self.spins = 0
        self._stamp: tuple[int, Any] = (-1, None)
        self._set_rows(rows)
        self.set_mask(mask)

    def _set_rows(self, rows: Any) -> None:
        self.rows, self.n = rows, len(rows)
        self.col = rows.reshape(-1, 1)
        self.whole = self.n == self.m.W

    def set_mask(self, mask: Any) -> None:
        """Makes these lanes (``[n, 32]``, or None for all) the active ones."""
        self._sel: Any = None
        self._warps: Any = None
        if mask is None or mask.all():
            self.mask, self.lanes = None, 32 * self.n
        else:
            self.mask, self.lanes = mask, int(np.count_nonzero(mask))

    def full(self) -> Any:
        """The mask as an array."""
        return np.ones((self.n, 32), dtype=bool) if self.mask is None else self.mask

    def sel(self) -> Any:
        """Flat positions of the active lanes."""
        if self._sel is None:
            self._sel = np.arange(32 * self.n) if self.mask is None else np.flatnonzero(self.mask)
        return self._sel

    def active_rows(self) -> Any:
        """Batch rows of the warps with an active lane."""
        return self.rows if self.mask is None else self.rows[self.mask.any(1)]

    def warps(self) -> Any:
        """How many warps of each block of the batch have an active lane."""
        if self._warps is None:
            self._warps = self.m.of_blocks(self.active_rows())
        return self._warps

    def stamp(self) -> Any:
        """``[n, 32]`` stamps of an access made now: clock, warp in block, lane."""
        clk = self.m.clk
        if self._stamp[0] != clk.version:
            self._stamp = (clk.version, clk.stamp(self.col, LANES).astype(np.int32))
        return self._stamp[1]

    # -------------------------------------------------------------------------------------------- splitting, joining
    def split(self, keep: Any) -> Group:
        """Takes the warps that are not in ``keep`` ([n] bool) out of this group and gives them back as a new one."""
        other = object.__new__(Group)
        other.m, other.pc, other.spins, other._stamp = self.m, self.pc, self.spins, (-1, None)
        gone = np.flatnonzero(~keep)
        other.env = _env_rows(self.env, gone) if self.n > 1 else list(self.env)
        other.stack = [[e[0], *(rows_of(v, gone) if self.n > 1 else v for v in e[1:])] for e in self.stack]
        mask = self.mask
        other._set_rows(self.rows[gone])
        other.set_mask(None if mask is None else mask[gone])
        stay = np.flatnonzero(keep)
        self.env = _env_rows(self.env, stay)
        self.stack = [[e[0], *(rows_of(v, stay) for v in e[1:])] for e in self.stack]
        self._set_rows(self.rows[stay])
        self.set_mask(None if mask is None else mask[stay])
        self._stamp = (-1, None)
        return other

    @staticmethod
    def merge(groups: list[Group], live: tuple[int, ...]) -> Group:
        """One group of several that stand at the same point; ``live`` are the slots that are in scope there."""
        m, ns = groups[0].m, [g.n for g in groups]
        rows = np.concatenate([g.rows for g in groups])
        order = np.argsort(rows)
        env: list[Any] = [None] * len(groups[0].env)
        for k in live:
            vals = [g.env[k] for g in groups]
            if any(v is None for v in vals):
                continue
            env[k] = RegArray.join(vals, ns, order) if isinstance(vals[0], RegArray) else join(vals, ns, order)
        masks = [g.mask for g in groups]
        out = Group(m, rows[order], env, _join_masks(masks, ns, order, True), groups[0].pc)
        for entries in zip(*(g.stack for g in groups), strict=True):
            entry: Entry = [entries[0][0]]
            for k, what in enumerate(FIELDS[entries[0][0]], 1):
                vals = [e[k] for e in entries]
                if what in ("count", "time"):
                    entry.append((max if what == "count" else min)(vals))
                else:
                    entry.append(
                        join(vals, ns, order) if what == "value" else _join_masks(vals, ns, order, what == "full")
                    )
            out.stack.append(entry)
        out.spins = max(g.spins for g in groups)
        return out


def _env_rows(env: list[Any], sel: Any) -> list[Any]:
    return [v.rows(sel) if isinstance(v, RegArray) else rows_of(v, sel) for v in env]


def _join_masks(masks: list[Any], ns: list[int], order: Any, fill: bool) -> Any:
    if all(x is None for x in masks):
        return None
    return np.concatenate([np.full((n, 32), fill) if x is None else x for x, n in zip(masks, ns, strict=True)])[order]

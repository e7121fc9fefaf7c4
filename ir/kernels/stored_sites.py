"""Sources and receivers of passes of one time step: their cells in the fields that the pass has stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import op_update as o
from .. import tile_sites as ts
from ..errors import IRError
from ..module import Module
from ..op_sites import signal
from ..passes.manager import register
from ..types import Buffer, s32
from .common import each
from .sites import SiteKernels


@register("stored-sites")
@dataclass(frozen=True)
class StoredSites:
    """Puts kernels for the sites of each update behind it: one for each group.  The update has none afterwards.

    Roles of their launches: ``out.NAME`` for a field's new level, ``in.steps.NAME`` for the signals of a group of
    sources, ``out.steps.NAME`` for what one of receivers records.
    """

    def run(self, module: Module) -> Module:
        return each(module, o.Update, self._kernels)

    def _kernels(self, module: Module, given: o.Update) -> Module:
        if given.backwards:
            raise IRError(f"sites of {given.symbol} act on what a step reads, which is not the pass's to change",
                          loc=given.loc, hint="take update-sites")  # fmt: skip
        sites = _Stored(module, given)
        for group in given.sources:
            sites.emitted(group)
        for group in given.receivers:
            field = group[1]
            sites.recorded(group, sites.fields[field], o.written(field, 0), sites.elements(group))
        return sites.behind()


class _Stored(SiteKernels):
    """The kernels, and where cells lie in the arrays of fields."""

    def __init__(self, module: Module, given: o.Update) -> None:
        super().__init__(module, given, 1)
        count = len(o.parameters(given.fields, given.coefs))
        newest = zip(given.fields, o.first(given.fields), strict=True)
        self.pitch = {name: given.pitch[count + at] for (name, _), at in newest}
        rows = int(np.prod(given.shape[:-1]))
        self.fields = {name: Buffer("u", given.dtype, rows * pitch, "global") for name, pitch in self.pitch.items()}

    def elements(self, group: o.Sites) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The element that each pair's cell is of the array of the group's field."""
        cells, shape = self.groups[group[0]].cells, self.given.shape
        row = np.ravel_multi_index(tuple(cells[:, :-1].T), shape[:-1]) if len(shape) > 1 else 0
        return np.asarray(row * self.pitch[group[1]] + cells[:, -1], np.int64)

    def emitted(self, group: o.Sites) -> None:
        """A kernel that adds what sources emit, a thread for each cell."""
        (name, field, count), pairs = group, self.groups[group[0]]
        cells, number = np.unique(self.elements(group), return_inverse=True)
        order = np.argsort(number, kind="stable")
        tables = {
            "cells": cells.astype(np.int32),
            "begin": np.searchsorted(number[order], np.arange(len(cells) + 1)).astype(np.int32),
            "whose": pairs.sites[order].astype(np.int32), "weights": pairs.weights[order].astype(self.sums.numpy()),
        }  # fmt: skip
        symbol, dst = f"{self.symbol}_{name}", self.fields[field]
        where, begin, whose = (Buffer(part, s32, tables[part].size, "global") for part in ("cells", "begin", "whose"))
        weights = Buffer("weights", self.sums, len(order), "global")
        signals = Buffer("signals", self.sums, count, "global")
        body = ts.AddToCells(dst=dst, cells=where, begin=begin, whose=whose, weights=weights, signals=signals)
        roles = {part: f"{symbol}.{part.name}" for part in (where, begin, whose, weights)}
        self.each(symbol, len(cells), body, {dst: o.written(field, 0), **roles, signals: signal(name)}, tables)

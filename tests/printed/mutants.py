"""Breaks of the CUDA printer, from ``breaks.txt``: one thing of an op's or an instruction's text is another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.printer import Printer
from sparsegen.ir import warp as w
from sparsegen.ir.module import Module
from sparsegen.ir.node import OPS, Op


@dataclass(frozen=True)
class Break:
    """In the lines that an op prints, or in the text of a device function, ``old`` (a pattern) becomes ``new``."""

    where: type[Op] | str
    old: str
    new: str

    @property
    def name(self) -> str:
        return f"{self.where if isinstance(self.where, str) else self.where.__name__}: {self.old} => {self.new}"

    def text(self, module: Module) -> str:
        """The module printed with this break."""
        if isinstance(self.where, str):
            made = translation_unit(module, title=module.name)
            helper = rf"^__device__ __forceinline__ [^\n]*\b{self.where}\([^\n]*\{{\n(?:  [^\n]*\n)*\}}"
            return re.sub(helper, lambda m: self._broken(m[0]), made, flags=re.M)
        with self._printing(self.where):
            return translation_unit(module, title=module.name)

    def _broken(self, text: str) -> str:
        return re.sub(self.old, self.new, text, count=1)

    @contextmanager
    def _printing(self, kind: type[Op]) -> Iterator[None]:
        right = Printer.print

        def wrong(p: Printer, op: Any) -> None:
            start = len(p.lines)
            right(p, op)
            if type(op) is not kind:
                return
            # Of a region only the lines that open it are the op's own: a pragma, the head.
            end = start + 2 if isinstance(op, (w.For, w.Loop, w.If)) else len(p.lines)
            p.lines[start:end] = [self._broken(line) for line in p.lines[start:end]]

        with mock.patch.object(Printer, "print", wrong):
            yield


def _read() -> Iterator[Break]:
    ops = {op.__name__: op for name, op in OPS.items() if name.startswith("warp.")}
    for line in (Path(__file__).parent / "breaks.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            where, _, change = line.partition(": ")
            old, _, new = f"{change} ".partition(" => ")
            yield Break(ops.get(where, where), old, new[:-1])


BREAKS = tuple(_read())

"""A progress bar on standard error: rich's where it is installed, else one line drawn anew, or lines in a log file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import TracebackType
from typing import Any, TextIO

WIDTH = 30


class Progress:
    """A bar of ``total`` steps; ``with`` it, and :meth:`advance` after each step."""

    def __init__(self, total: int, out: TextIO | None = None) -> None:
        self.total, self.done = total, 0
        self._out = out or sys.stderr
        self._rich: Any = None
        if out is None and self._out.isatty() and importlib.util.find_spec("rich") is not None:
            self._rich = importlib.import_module("rich.progress").Progress(
                console=importlib.import_module("rich.console").Console(stderr=True)
            )

    def __enter__(self) -> Progress:
        if self._rich is not None:
            self._rich.start()
            self._task = self._rich.add_task("calibrate", total=self.total)
        return self

    def advance(self, what: str) -> None:
        """One more step is done."""
        self.done += 1
        if self._rich is not None:
            self._rich.update(self._task, completed=self.done, description=what)
            return
        if not self._out.isatty():
            print(f"[{self.done}/{self.total}] {what}", file=self._out, flush=True)
            return
        full = WIDTH * self.done // self.total
        bar = f"{'#' * full}{'.' * (WIDTH - full)} {self.done}/{self.total} {what}"
        print(f"\r\033[K{bar[:100]}", end="", file=self._out, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()
        elif self._out.isatty():
            print(file=self._out, flush=True)

"""A bar that shows how far a run is: tqdm's in a notebook, rich's in a terminal; none where neither can be shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

#: Takes how many time steps are done.
Advance = Callable[[int], object]


@contextmanager
def bar(title: str, done: int, total: int) -> Iterator[Advance | None]:
    """What moves a bar that is shown on stderr from ``done`` steps on; None if there is none.

    There is none where stderr is no terminal and this is no notebook, or where the library for it is not installed.
    """
    if _in_notebook() and find_spec("tqdm") is not None:
        from tqdm.auto import tqdm

        with tqdm(total=total, initial=done, desc=title, unit=" steps") as shown:
            yield lambda at: shown.update(at - shown.n)
    elif sys.stderr.isatty() and find_spec("rich") is not None:
        with _columns() as shown:
            task = shown.add_task(title, total=total, completed=done)
            yield lambda at: shown.update(task, completed=at)
    else:
        yield None


def _columns() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    told = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps,"))
    return Progress(*told, TimeRemainingColumn(), TextColumn("left"), console=Console(stderr=True))


def _in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")

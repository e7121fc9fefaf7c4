"""Where in the user's program something was written: what every front-end error points at."""

from __future__ import annotations

import inspect
import linecache
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import CodeType, TracebackType
from typing import Any, Final

from sparsegen.ir.errors import Loc, SparsegenError

#: What was said where, so that Python's filters can leave out what was said before.
_SAID: Final[dict[Any, Any]] = {}
_LIBRARIES = ("sparsegen", "sympy", "numpy", "torch")


def user_loc() -> Loc | None:
    """The line that called into sparsegen: the innermost frame outside it, sympy, numpy and torch.

    From Python 3.11 on the column is that of the very call or subscript; before, it is 0.
    """
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _LIBRARIES:
        frame = frame.f_back
    return None if frame is None else _loc(frame.f_code, frame.f_lasti, frame.f_lineno)


@contextmanager
def located(loc: Loc | None) -> Iterator[None]:
    """Errors raised inside that name no line of their own name this one."""
    try:
        yield
    except SparsegenError as error:
        if error.loc is None:
            error.loc = loc
        raise


def warn(text: str, category: type[Warning]) -> None:
    """A warning at the line that called into sparsegen."""
    loc = user_loc()
    file, line = (loc.file, loc.line) if loc else (__file__, 0)
    warnings.warn_explicit(text, category, file, line, registry=_SAID)


def raised_in(trace: TracebackType | None, file: str) -> Loc | None:
    """The innermost line of ``file`` that a traceback passes through; None if it passes through none."""
    found = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            found = _loc(trace.tb_frame.f_code, trace.tb_lasti, trace.tb_lineno)
        trace = trace.tb_next
    return found


def def_loc(function: Callable[..., Any]) -> Loc | None:
    """The ``def`` line of a function, below its decorators; None for a callable not written in Python."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return None
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    for line in range(code.co_firstlineno, last + 1):
        text = linecache.getline(code.co_filename, line)
        if text.lstrip().startswith(("def ", "async def ")):
            return Loc(code.co_filename, line, len(text) - len(text.lstrip()))
    return Loc(code.co_filename, code.co_firstlineno)


def names_around(function: Callable[..., Any]) -> dict[str, Any]:
    """The local names of the function in which another is written, while that one still runs; else none."""
    code, frame = getattr(function, "__code__", None), inspect.currentframe()
    while code is not None and frame is not None:
        if code in frame.f_code.co_consts:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _loc(code: CodeType, instruction: int, line: int) -> Loc:
    if sys.version_info >= (3, 11) and instruction >= 0:
        at_line, _, at_column, _ = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
        if at_line is not None and at_column is not None:
            return Loc(code.co_filename, at_line, at_column)
    return Loc(code.co_filename, line)

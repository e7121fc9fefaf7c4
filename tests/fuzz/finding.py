"""What a fuzzer found, and how random things are drawn so that each trial can be made again."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparsegen.ir.errors import SparsegenError

Draw = random.Random


@dataclass
class Finding(Exception):
    """Something that must not happen; ``what`` says so, ``how`` how to do it again."""

    what: str
    how: str = ""

    def __str__(self) -> str:
        return f"{self.what}\n  {self.how}" if self.how else self.what


def refused(attempt: Callable[[], Any], how: str) -> Any:
    """What the attempt gives; None if it is refused with a message and a remedy; Finding for any other exception."""
    try:
        return attempt()
    except SparsegenError as error:
        if not str(error).strip():
            raise Finding(f"{type(error).__name__} without a message", how) from error
        return None
    except Exception as error:
        raise _found(error, how) from error


def works(attempt: Callable[[], Any], how: str) -> Any:
    """What the attempt gives; Finding for any exception, refusals with a message too: what is listed must run."""
    try:
        return attempt()
    except Finding:
        raise
    except Exception as error:
        raise _found(error, how) from error


def _found(error: Exception, how: str) -> Finding:
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{where.filename.rpartition('/sparsegen/')[2]}:{where.lineno}"
    return Finding(f"{type(error).__name__} at {place}: {str(error)[:160]}", how)

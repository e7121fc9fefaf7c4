"""Work that will take long says so first: one warning for calls and for runs, at the user's line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sparsegen.callsite import warn

#: Work that is expected to last longer (seconds) says so.
LONG = 60.0
_silent: ContextVar[bool] = ContextVar("silent", default=False)


class SlowRunWarning(RuntimeWarning):
    """The emulator, the reference or the GPU will be busy for more than a minute."""


def say_if_long(expected: float, who: str, work: str) -> bool:
    """Warn of work that is expected to take longer than LONG seconds; whether it is."""
    if expected <= LONG:
        return False
    if not _silent.get():
        took = f"{expected / 60:.0f} minutes" if expected < 5400 else f"{expected / 3600:.1f} hours"
        warn(f"the {who} will take about {took} for {work}", SlowRunWarning)
    return True


@contextmanager
def silence() -> Iterator[None]:
    """Inside, nothing is said: it was said of all the work before."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)

"""What is made once for a key and kept, by whichever thread asks first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Memo(Generic[Made]):
    """``memo.get(*key)`` is ``make(*key)``, made once; all are forgotten when there are more than ``most``."""

    def __init__(self, make: Callable[..., Made], most: int | None = None) -> None:
        self._make, self._most = make, most
        self._lock = RLock()
        self.known: dict[tuple[Hashable, ...], Made] = {}

    def get(self, *key: Hashable) -> Made:
        """What is made of a key."""
        found = self.known.get(key)
        if found is None:
            with self._lock:
                if (found := self.known.get(key)) is None:
                    found = self._make(*key)
                    if self._most is not None and len(self.known) >= self._most:
                        self.known.clear()
                    self.known[key] = found
        return found

"""Waits of a GPU for another one, which nothing would end if that one is gone: a thread looks at them."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from threading import Lock, Thread
from typing import Any, Final

from sparsegen.distributed import group

#: Seconds between two looks.
_PAUSE: Final = 0.5


class Watch:
    """Ends the process, with a message, where a GPU has waited in vain for as long as a rank is patient.

    No exception would do: the host may stand in a call of the driver that waits for the same GPU.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self._who = f"rank {rank} of {ranks}"
        self._waits, self._lock = deque[tuple[Any, Any]](), Lock()
        self._looking = False

    def add(self, reached: Any, over: Any) -> None:
        """A wait between two events of a stream."""
        with self._lock:
            self._waits.append((reached, over))
            if not self._looking:
                self._looking = True
                Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        """Until no wait is left."""
        since: float | None = None
        while True:
            with self._lock:
                while self._waits and self._waits[0][1].query():
                    self._waits.popleft()
                    since = None
                if not self._waits:
                    self._looking = False
                    return
                reached, _ = self._waits[0]
            if since is None and reached.query():
                since = time.monotonic()
            if since is not None and time.monotonic() - since > group.PATIENCE:
                self._end()
            time.sleep(_PAUSE)

    def _end(self) -> None:
        sys.stdout.flush()
        print(
            f"sparsegen: {self._who} lost another one during an exchange of halos: nothing came within "
            f"{group.PATIENCE:g} s, so this process ends.\n  look for the first error of the other ranks; start all of "
            "them again, from a checkpoint",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)

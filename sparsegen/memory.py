"""Memory that does not suffice: an error that says how much a call needs, for what, and how much there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sparsegen.ir.errors import DeviceMemoryError

#: Whose memory it is, in messages.
DEVICE, HOST = "the GPU", "this machine"
#: (free, all) bytes; None where nobody says.
Room = Callable[[], "tuple[int, int] | None"]


@contextmanager
def room_for(needed: Mapping[str, int], room: Room, where: str) -> Iterator[None]:
    """Inside, too little memory becomes a DeviceMemoryError with the bytes ``needed`` (what for: how many) and left.

    ``where``: whose memory it is, for the message.  Errors of the driver, NumPy, torch and CuPy are known, and those of
    a ``room_for`` inside, which knows less of what is needed.
    """
    try:
        yield
    except Exception as error:
        # torch and CuPy, which need not be here, both call theirs OutOfMemoryError
        named = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
        if not named and not isinstance(error, (MemoryError, DeviceMemoryError)):
            raise
        uses = ", ".join(f"{what} {nbytes}" for what, nbytes in needed.items() if nbytes)
        left = room()
        there = "" if left is None else f"; {left[0]} of {left[1]} bytes are free"
        raise DeviceMemoryError(
            f"{where} has too little memory: this call needs {sum(needed.values())} bytes ({uses}){there}",
            hint="compile for a smaller shape, split the field, or free memory (torch.cuda.empty_cache() in torch)",
        ) from error


def host_room() -> tuple[int, int] | None:
    """(free, all) bytes of this machine's memory; None where the system does not say."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    except (ValueError, OSError, AttributeError):
        return None

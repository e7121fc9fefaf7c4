"""Files that are written whole or not at all, and files that are read only if they are files.

The back ends use it too: of the rest of the package it knows the errors only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from sparsegen.ir.errors import SparsegenError

#: Beginning of the names of files that are being written, and when their writers must be dead.
TEMPORARY, STALE_SECONDS = ".tmp-", 3600.0
_ELSE: Final = "name a file in a folder that is there and may be written to"
_REMEDY: Final = {
    errno.ENOSPC: "free some space, or name a file on another disk",
    errno.EDQUOT: "free some space, or name a file on another disk",
    errno.ENAMETOOLONG: "give the file a shorter name",
}


def path_of(given: Any, error: type[SparsegenError]) -> Path:
    """The path that a user gave; ``error`` for what names no file."""
    try:
        if isinstance(given, int):  # open() would take it for a descriptor
            raise TypeError
        name = os.fsdecode(os.fspath(given))
        os.fsencode(name)  # a lone surrogate has no bytes
    except (TypeError, UnicodeEncodeError):
        name = ""
    if not name or "\0" in name:
        raise error(f"{given!r} names no file", hint="pass a path, as a str or a pathlib.Path")
    return Path(name)


def write(
    given: Any, parts: Iterable[bytes | memoryview], error: type[SparsegenError], *, streams: bool = False
) -> Path:
    """Write a file that a user names, whole or not at all; its path.  ``error`` if it cannot be written.

    ``streams``: a device or a pipe, such as /dev/stdout, will do too.
    """
    path = path_of(given, error)
    with _told(path, error):
        if streams and (path.is_char_device() or path.is_fifo()):
            path.write_bytes(b"".join(parts))
            return path
    with whole(path, error) as temporary:
        _put(temporary, parts)
    return path


@contextlib.contextmanager
def whole(given: Any, error: type[SparsegenError]) -> Iterator[Path]:
    """Inside, the path of a file to write; afterwards that is on the disk under the name that a user gave.

    Readers see all of it or what was there before, also where the process is killed.  ``error`` if it cannot be
    written; what goes wrong inside leaves nothing.
    """
    path = path_of(given, error)
    target = Path(os.path.realpath(path))  # through a link, which stays one
    with _told(path, error):
        if path.exists() and not path.is_file():
            raise error(f"{target} is no file", hint="name a file to write, new or old")
        with _aside(target, durable=True) as temporary:
            yield temporary


@contextlib.contextmanager
def _told(path: Path, error: type[SparsegenError]) -> Iterator[None]:
    """OSErrors inside become ``error`` with a remedy."""
    try:
        yield
    except OSError as e:
        raise error(f"cannot write {path}: {e.strerror or e}", hint=_REMEDY.get(e.errno or 0, _ELSE)) from e


def write_as(given: Any, forms: Mapping[str, Callable[[], str]], what: str, error: type[SparsegenError]) -> Path:
    """Write the text that the suffix of a file asks for; its path.  ``error`` for another suffix.

    ``forms``: what makes the text, by suffix; ``what`` is written, for people.
    """
    path = path_of(given, error)
    if path.suffix not in forms:
        raise error(
            f"cannot write {what} as {path.suffix or 'a file without a suffix'}",
            hint=f"name a file that ends with {', '.join(forms)}",
        )
    return write(path, [forms[path.suffix]().encode()], error)


def replace(path: Path, parts: Iterable[bytes | memoryview], *, durable: bool = False) -> None:
    """Write a file aside and rename it, so that readers see all of it or nothing; OSError if that cannot be done.

    ``durable``: it is on the disk before it has its name.
    """
    with _aside(path, durable=durable) as temporary:
        _put(temporary, parts)


@contextlib.contextmanager
def _aside(path: Path, *, durable: bool) -> Iterator[Path]:
    """Inside, the path of a new file to write; afterwards it has the name ``path``."""
    temporary = path.with_name(TEMPORARY + secrets.token_hex(8))
    try:
        yield temporary
        if durable:
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _put(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    with open(path, "xb") as file:
        for part in parts:
            file.write(part)


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file to read; OSError for anything else, and no waiting for what a pipe or a device may say."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no file")
    return file


def content(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file; OSError for anything else."""
    with opened(path) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def entries(folder: Path, suffix: str) -> list[tuple[float, int, Path]]:
    """(mtime, size, path) of what a folder of ours holds by this suffix, the oldest first.

    Leftovers of dead writers are removed on the way.  A link to a folder counts as empty: what it leads to may be
    someone else's, and callers delete what they find.
    """
    found: list[tuple[float, int, Path]] = []
    if folder.is_symlink():
        return found
    with contextlib.suppress(OSError), os.scandir(folder) as inside:
        for entry in inside:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    continue
                if entry.name.endswith(suffix):
                    found.append((status.st_mtime, status.st_size, Path(entry.path)))
                elif entry.name.startswith(TEMPORARY) and time.time() - status.st_mtime > STALE_SECONDS:
                    os.unlink(entry.path)
    return sorted(found)


def remove(paths: Iterable[Path]) -> int:
    """Delete files; how many could be."""
    removed = 0
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
    return removed

"""The cubin cache: content-addressed files that many processes may share.

A key is the SHA-256 of everything that decides the result: source, arch, flags, what nvcc reads of the environment,
versions of nvcc and of sparsegen. An
entry is one file, written aside and renamed, so a reader sees all of it or nothing; its checksum is verified on every
read. Entries are dropped, the least recently used first, when the folder grows past its limit. A folder that cannot
be written costs a warning, never an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import sys
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

from sparsegen._version import __version__
from sparsegen.backends.cuda.nvcc import ENVIRONMENT, CompileResult, check_arch, command_line, compile_cubin, find_nvcc
from sparsegen.backends.cuda.resources import parse_ptxas_log
from sparsegen.files import content, entries, remove, replace
from sparsegen.ir.errors import ToolchainError

_MAGIC = b"sparsegen-cubin-1\n"
_SUFFIX = ".cubin1"
DEFAULT_LIMIT = 1 << 30


@dataclass(frozen=True)
class CacheInfo:
    """The cache as it stands: folder, number of entries, bytes they take, and the limit in bytes."""

    folder: Path
    entries: int
    nbytes: int
    limit: int


def default_folder() -> Path:
    """``SPARSEGEN_CACHE_DIR``, or the platform's cache folder (``~/.cache/sparsegen`` on Linux)."""
    if folder := os.environ.get("SPARSEGEN_CACHE_DIR"):
        return Path(folder)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sparsegen"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "sparsegen" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparsegen"


def parse_size(text: str) -> int:
    """A size such as ``512M``, ``2GiB`` or ``1000000`` in bytes; ToolchainError if it is not one."""
    m = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    if m is None:
        raise ToolchainError(f"SPARSEGEN_CACHE_SIZE is {text!r}, not a size", hint="write it as 512M, 1G or a number")
    return int(float(m[1]) * 1024 ** " kmgt".index(m[2].lower() or " "))


def default_limit() -> int:
    """``SPARSEGEN_CACHE_SIZE`` in bytes, or 1 GiB."""
    text = os.environ.get("SPARSEGEN_CACHE_SIZE")
    return parse_size(text) if text else DEFAULT_LIMIT


def cache_key(source: str, arch: str, flags: tuple[str, ...], nvcc_version: str) -> str:
    """The name of an entry: SHA-256, in hex, of all that decides the cubin, the present environment among it."""
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    parts = json.dumps([source, arch, list(flags), environment, nvcc_version, __version__])
    return hashlib.sha256(parts.encode()).hexdigest()


def _encode(result: CompileResult) -> bytes:
    ptx = zlib.compress((result.ptx or "").encode(), 6)
    head = json.dumps(
        {"cubin": len(result.cubin), "has_ptx": result.ptx is not None, "log": result.log, "seconds": result.seconds}
    ).encode()
    payload = len(head).to_bytes(8, "little") + head + result.cubin + ptx
    return _MAGIC + hashlib.sha256(payload).digest() + payload


#: What an entry raises that is not ours: no file, or a head of other words, types or sizes.
_WRONG = (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, zlib.error)


def _decode(data: bytes) -> CompileResult:
    """The entry; one of _WRONG if its bytes are not what was written."""
    start = len(_MAGIC) + 32
    payload = data[start:]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : start] != hashlib.sha256(payload).digest():
        raise ValueError("another checksum")
    size = int.from_bytes(payload[:8], "little")
    head = json.loads(payload[8 : 8 + size])
    cubin_end = 8 + size + int(head["cubin"])
    if not 8 + size < cubin_end <= len(payload):
        raise ValueError("no cubin of that size")
    ptx = zlib.decompress(payload[cubin_end:]).decode() if head["has_ptx"] else None
    log = str(head["log"])
    return CompileResult(
        payload[8 + size : cubin_end], ptx, log, float(head["seconds"]), parse_ptxas_log(log), cached=True
    )


class CubinCache:
    """A folder of compiled kernels; any number of threads and processes may use it at once.

    ``folder`` and ``limit`` (bytes) default to ``SPARSEGEN_CACHE_DIR`` and ``SPARSEGEN_CACHE_SIZE``.
    """

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)
        self.limit = default_limit() if limit is None else limit
        self._warned = False

    def path(self, key: str) -> Path:
        """Where the entry of ``key`` is or would be."""
        return self.folder / key[:2] / (key + _SUFFIX)

    def get(self, key: str) -> CompileResult | None:
        """The entry, or None if there is none. One that is damaged or no file is removed and counts as none."""
        path = self.path(key)
        try:
            result = _decode(content(path))
        except FileNotFoundError:
            return None
        except _WRONG:
            remove([path])
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return result

    def put(self, key: str, result: CompileResult) -> bool:
        """Store an entry, then shrink the folder to its limit; False (and one warning) if it cannot be written."""
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, [_encode(result)])
        except OSError as e:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"sparsegen cannot write its cache in {self.folder} ({e}); kernels are compiled anew in each "
                    "process. Set SPARSEGEN_CACHE_DIR to a folder that can be written.",
                    RuntimeWarning,
                    stacklevel=3,
                )
            return False
        self._shrink(keep=path)
        return True

    def _files(self) -> list[tuple[float, int, Path]]:
        """(mtime, size, path) of every entry, oldest first; leftovers of dead writers are removed on the way."""
        return sorted(e for sub in self.folder.glob("[0-9a-f][0-9a-f]") for e in entries(sub, _SUFFIX))

    def _shrink(self, keep: Path) -> None:
        files = self._files()
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self.limit:
                break
            if path != keep:
                remove([path])
                total -= size

    def info(self) -> CacheInfo:
        """Folder, number of entries, bytes, limit."""
        files = self._files()
        return CacheInfo(self.folder, len(files), sum(size for _, size, _ in files), self.limit)

    def clear(self) -> int:
        """Remove every entry (nothing else in the folder); how many there were."""
        return remove(path for _, _, path in self._files())


_caches: dict[tuple[Path, int], CubinCache] = {}


def default_cache() -> CubinCache:
    """The process's cache for the present environment variables."""
    key = (default_folder(), default_limit())
    return _caches.setdefault(key, CubinCache(*key))


def compile_cached(
    source: str, arch: str, *, options: tuple[str, ...] = (), cache: CubinCache | None = None, timeout: float = 300.0
) -> CompileResult:
    """As ``compile_cubin``, PTX included, but through the cache: ``result.cached`` tells whether nvcc was spared."""
    nvcc = find_nvcc()
    check_arch(arch, nvcc)
    cache = default_cache() if cache is None else cache
    key = cache_key(source, arch, tuple(command_line(nvcc, arch, options)[1:]), nvcc.version)
    if (hit := cache.get(key)) is not None:
        return hit
    result = compile_cubin(source, arch, options=options, want_ptx=True, timeout=timeout)
    cache.put(key, result)
    return dataclasses.replace(result, cached=False)

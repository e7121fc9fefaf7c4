"""Large text files of results and measurements: kept compressed where their name ends with ``.xz``."""

from __future__ import annotations

import lzma
from pathlib import Path

SUFFIX = ".xz"


def read(path: Path) -> str:
    """The text of a file; OSError or ValueError if it cannot be read."""
    data = path.read_bytes()
    try:
        return (lzma.decompress(data) if path.suffix == SUFFIX else data).decode()
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error


def write(path: Path, text: str) -> None:
    """The file with this text; OSError if it cannot be written."""
    data = text.encode()
    path.write_bytes(lzma.compress(data, preset=9) if path.suffix == SUFFIX else data)


def stem(path: Path) -> str:
    """The name of a file without ``.json`` or ``.json.xz``."""
    return path.name.split(".")[0]

"""Large text files of results and measurements: kept compressed where their name ends with ``.xz``."""

from __future__ import annotations

import lzma
from pathlib import Path

from sparsegen import files

SUFFIX = ".xz"


def read(path: Path) -> str:
    """The text of a file; OSError or ValueError if it cannot be read."""
    data = path.read_bytes()
    try:
        return (lzma.decompress(data) if path.suffix == SUFFIX else data).decode()
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error


def write(path: Path, text: str) -> None:
    """The file with this text, written whole or not at all; OSError if it cannot be written."""
    data = text.encode()
    files.replace(path.resolve(), [lzma.compress(data, preset=9) if path.suffix == SUFFIX else data], durable=True)


def stem(path: Path) -> str:
    """The name of a file without ``.json`` or ``.json.xz``."""
    return path.name.split(".")[0]

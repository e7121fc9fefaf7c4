"""Finding NVIDIA's programs: on the PATH, under CUDA_HOME or CUDA_PATH, or in NVIDIA's Python wheels.

NVIDIA's CUDA 13 wheels put every program into ``site-packages/nvidia/cu13/bin`` (and the headers into ``include``,
where nvcc's own profile looks for them); the CUDA 12 wheels have one folder each (``nvidia/cuda_nvcc/bin``).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparsegen.ir.errors import ToolchainError

DEFAULT_FOLDER = Path("/usr/local/cuda/bin")
_HINTS = {
    "nvcc": "install a CUDA toolkit and put nvcc on PATH or set CUDA_HOME, or: pip install 'sparsegen[nvcc]'",
    "nvdisasm": "install a CUDA toolkit, or: pip install 'sparsegen[nvcc]' (wheel nvidia-cuda-nvdisasm)",
    "cuobjdump": "install a CUDA toolkit, or: pip install 'sparsegen[nvcc]' (wheel nvidia-cuda-cuobjdump)",
}


@dataclass(frozen=True)
class Tool:
    """A program that was found: its path and the place that named it (``PATH``, ``CUDA_HOME``, ``wheel`` ...)."""

    name: str
    path: Path
    found_in: str


def wheel_bin_folders() -> Iterator[Path]:
    """The ``bin`` folders of NVIDIA's wheels on this interpreter's path, newest CUDA first."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return
    roots = [] if spec is None else [Path(p) for p in spec.submodule_search_locations or ()]

    def newest_first(folder: Path) -> tuple[int, str]:
        number = re.fullmatch(r"cu(\d+)", folder.name)
        return (-int(number[1]) if number else 0, folder.name)

    for root in roots:
        if root.is_dir():
            yield from (d / "bin" for d in sorted(root.iterdir(), key=newest_first) if (d / "bin").is_dir())


def _candidates(name: str) -> Iterator[tuple[str, Path]]:
    if on_path := shutil.which(name):
        yield "PATH", Path(on_path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            yield variable, Path(root) / "bin" / name
    for folder in wheel_bin_folders():
        yield "wheel", folder / name
    yield "default folder", DEFAULT_FOLDER / name


def find_tool(name: str) -> Tool | None:
    """The program ``name`` (``nvcc``, ``nvdisasm``, ``cuobjdump`` ...), or None if it is nowhere."""
    suffix = ".exe" if os.name == "nt" else ""
    for place, path in _candidates(name):
        for candidate in (path, path.with_name(path.name + suffix)):
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return Tool(name, candidate, place)
    return None


def require_tool(*names: str) -> Tool:
    """The first of ``names`` that is found; ToolchainError with what to install if none is."""
    for name in names:
        if tool := find_tool(name):
            return tool
    raise ToolchainError(
        f"{' or '.join(names)} not found: not on PATH, not under CUDA_HOME or CUDA_PATH, not in NVIDIA's wheels",
        hint=_HINTS.get(names[0], "install a CUDA toolkit"),
    )

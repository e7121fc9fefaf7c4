"""Where calibrated profiles are kept, one file a GPU name."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from sparsegen import files
from sparsegen.cost.devices import DeviceProfile, load_profile
from sparsegen.ir.errors import DeviceError

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import DeviceInfo


def folder() -> Path:
    """``SPARSEGEN_PROFILE_DIR``, or ``profiles`` in the folder of the kernel cache (``~/.cache/sparsegen``)."""
    from sparsegen.backends.cuda.cache import default_folder

    return Path(os.environ.get("SPARSEGEN_PROFILE_DIR") or default_folder() / "profiles")


def path_of(name: str) -> Path:
    """The file of a GPU's profile: ``nvidia-h200.toml`` for ``NVIDIA H200``."""
    return folder() / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.toml"


def calibrated(gpu: DeviceInfo) -> tuple[DeviceProfile, Path] | None:
    """The profile that was measured on a GPU of this name, and its file; None if there is none.

    DeviceError if the file is there but is no profile, or one of another chip.
    """
    path = path_of(gpu.name)
    if not path.is_file():
        return None
    remedy = f"run sparsegen calibrate again, or delete {path}"
    try:
        profile = load_profile(path)
    except DeviceError as error:
        raise DeviceError(f"the calibrated profile is broken: {error.message}", hint=remedy) from error
    if profile.compute_capability != gpu.capability:
        here = ".".join(map(str, gpu.capability))
        raise DeviceError(
            f"the calibrated profile {path} is of compute capability {profile.cc}, but the {gpu.name} has {here}",
            hint=remedy,
        )
    return profile, path


def writable(path: Path) -> None:
    """Makes the file's folder; DeviceError, before minutes of measuring, if ``save`` could not write there."""
    if path.suffix != ".toml" or path.is_dir():
        raise DeviceError(f"{path} is no name of a profile", hint="end the name of the file with .toml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> DeviceError:
    return DeviceError(f"cannot write {path}: {error.strerror}", hint="name another file with --out")


def save(text: str, path: Path) -> None:
    """Writes a profile whole or not at all; DeviceError if it cannot be written."""
    writable(path)
    files.write(path, [text.encode()], DeviceError)

"""Where a kernel is for and where it runs: ``device`` (a profile) and ``backend`` (cuda, emulator or reference)."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from sparsegen.arguments import one_of
from sparsegen.backends.cuda import runtime
from sparsegen.backends.cuda.runtime import DeviceInfo
from sparsegen.calibrate.store import calibrated
from sparsegen.cost.devices import DeviceProfile, load_profile, names
from sparsegen.ir.errors import DeviceError

BACKENDS = ("auto", "cuda", "emulator", "reference")
LAUNCHERS = ("auto", "driver", "pycuda")
#: The profile that stands in where there is no GPU.
DEFAULT_DEVICE = "h200"
#: Share of the peak of DRAM that a copy reaches; for GPUs that no shipped profile describes.
_DRAM_SHARE = 0.9


@dataclass(frozen=True)
class Target:
    """A resolved pair of device and back end.

    ``gpu`` is the ordinal of the GPU that ``cuda`` runs host arrays on (None: no GPU fits the profile); ``note`` says,
    for ``explain``, how device and back end came about where the user left them open.
    """

    profile: DeviceProfile
    backend: str
    gpu: int | None
    note: str = ""


def launcher() -> str:
    """The way to launch: ``driver`` (cuda-bindings) or ``pycuda``; SPARSEGEN_LAUNCHER forces one.

    DeviceError if the variable names neither, or neither package is installed.
    """
    forced = os.environ.get("SPARSEGEN_LAUNCHER", "auto")
    if forced not in LAUNCHERS:
        raise DeviceError(f"SPARSEGEN_LAUNCHER={forced!r} is no way to launch", hint=f"one of {', '.join(LAUNCHERS)}")
    if forced != "auto":
        return forced
    kinds = runtime.available_kinds()
    if not kinds:
        raise DeviceError(
            "no GPU package is installed: neither cuda-bindings nor pycuda",
            hint="pip install 'sparsegen[cuda]', or use backend='emulator'",
        )
    return kinds[0]


def open_gpu(index: int) -> Any:
    """The runtime that launches on GPU ``index``; DeviceError if it is not there."""
    return runtime.open_runtime(index, launcher())


@lru_cache(maxsize=8)
def _info(index: int, kind: str) -> DeviceInfo | DeviceError:
    try:
        found: DeviceInfo = open_gpu(index).info()
        return found
    except DeviceError as error:
        return DeviceError(error.message, hint=error.hint)  # its own traceback would keep the callers' arrays for ever


def gpu_info(index: int = 0) -> DeviceInfo | DeviceError:
    """What the driver says of a GPU, or why there is none; never raises."""
    try:
        return _info(index, launcher())
    except DeviceError as error:
        return error


def resolve(device: object = "auto", backend: object = "auto") -> Target:
    """The target that ``device`` and ``backend`` of :func:`sparsegen.compile` mean.

    ``device``: ``"auto"`` (this machine's GPU; without one the H200), a shipped profile's name, the path of a TOML
    profile, or a DeviceProfile.  ``backend``: ``"auto"`` (``cuda`` when such a GPU is here, else ``emulator``) or one
    of BACKENDS.  DeviceError for an unknown one, or ``cuda`` with no such GPU.
    """
    backend = one_of(backend, BACKENDS, "backend", DeviceError)
    if not isinstance(device, (str, Path, DeviceProfile)):
        known = ", ".join(names())
        raise DeviceError(
            f"device={device!r} is no device", hint=f"'auto', one of {known}, or the path of a .toml file"
        )
    here = gpu_info() if device == "auto" or backend in ("auto", "cuda") else None
    gpu = here if isinstance(here, DeviceInfo) else None
    if device == "auto":
        if gpu is not None:
            profile, note = profile_of(gpu)
        else:
            profile = load_profile(DEFAULT_DEVICE)
            note = f"no GPU here ({_why(here)}): tuned for the {profile.name}"
    else:
        profile, note = device if isinstance(device, DeviceProfile) else load_profile(device), ""
    fits = gpu is not None and gpu.capability == profile.compute_capability
    if backend == "auto":
        backend = "cuda" if fits else "emulator"
        if not fits and gpu is not None:
            note += f"; this machine's GPU is a {gpu.name}, not a {profile.name}: runs on the emulator"
        elif not fits:
            note += "; runs on the emulator" if device == "auto" else f"; no GPU here ({_why(here)}): emulator"
    elif backend == "cuda" and not fits:
        if gpu is None:
            raise DeviceError(
                f"backend='cuda', but there is no GPU to run on: {_why(here)}",
                hint="use backend='emulator' (source, ptx, sass and resources work there too), or backend='auto'; "
                "for a GPU of this machine: nvidia-smi, and pip install 'sparsegen[cuda]'",
            )
        raise DeviceError(
            f"the code for {profile.name} ({profile.arch}) does not run on this machine's {gpu.name} ({gpu.arch})",
            hint="use device='auto', or backend='emulator'",
        )
    return Target(profile, backend, gpu.index if fits and gpu is not None else None, note.removeprefix("; "))


def measurable(device: object = "auto") -> DeviceInfo:
    """This machine's GPU, if ``device`` means it; DeviceError if not, or if there is none.

    For what measures, and so cannot stand in an emulator for it.
    """
    hint = "schedule='auto' of sg.compile asks the cost model, which needs no GPU"
    gpu = gpu_info()
    if isinstance(gpu, DeviceError):
        raise DeviceError(f"tuning needs a GPU, and there is none: {gpu.message}", hint=hint)
    target = resolve(device)
    if target.backend != "cuda":
        raise DeviceError(
            f"tuning for {target.profile.name} ({target.profile.arch}) needs one, and this machine's GPU is a "
            f"{gpu.name} ({gpu.arch})",
            hint=f"tune with device='auto'; {hint}",
        )
    return gpu


def _why(here: object) -> str:
    return here.message if isinstance(here, DeviceError) else "not looked for"


def profile_of(gpu: DeviceInfo) -> tuple[DeviceProfile, str]:
    """The profile of a GPU that is here: the one that ``sparsegen calibrate`` measured on it, the shipped one of its
    name and SMs, else the nearest of its kind with the driver's figures: there are smaller cards of a name, and parts
    of one, on which blocks that run together for another one's SMs could not start.

    The second part is a note about the choice, empty for a shipped profile.  DeviceError if a measured one is broken.
    """
    profile, note = _whole_profile(gpu)
    if gpu.cooperative:
        return profile, note
    alone = "its driver starts no launch's blocks together here, so no field stays on chip (schedule resident)"
    return replace(profile, cooperative=False), f"{note}; {alone}".removeprefix("; ")


def _whole_profile(gpu: DeviceInfo) -> tuple[DeviceProfile, str]:
    """The profile, whatever the driver may refuse to do, and the note."""
    if (found := calibrated(gpu)) is not None:
        return replace(found[0], sms=gpu.sm_count), f"calibrated on this GPU: {found[1]}"
    shipped = [load_profile(name) for name in names()]
    called = gpu.name.lower().replace(" ", "")
    for name, profile in zip(names(), shipped, strict=True):
        if name in called and profile.compute_capability == gpu.capability and profile.sms == gpu.sm_count:
            return profile, ""
    major, minor = gpu.capability
    near = min(shipped, key=lambda p: abs(10 * (major - p.compute_capability[0]) + minor - p.compute_capability[1]))
    dram = 2 * gpu.memory_clock_hz * gpu.memory_bus_bits / 8 / 1e9 * _DRAM_SHARE
    figures: dict[str, Any] = {"hbm_read_gbs": dram, "hbm_write_gbs": dram, "hbm_copy_gbs": dram} if dram > 10 else {}
    profile = replace(
        near,
        name=gpu.name,
        cc=f"{major}.{minor}",
        arch=gpu.arch,
        explain_only=False,
        sms=gpu.sm_count,
        clock_mhz=gpu.clock_hz / 1e6 if gpu.clock_hz > 2e8 else near.clock_mhz,
        l2_bytes=gpu.l2_bytes or near.l2_bytes,
        smem_block=gpu.shared_per_block,
        smem_sm=max(gpu.shared_per_sm, gpu.shared_per_block),
        **figures,
    )
    return profile, (
        f"no profile of a {gpu.name} is shipped: that of the {near.name} with the driver's figures; "
        "sparsegen calibrate measures its own"
    )

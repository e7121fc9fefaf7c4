"""Memory that does not suffice: what a call needs, and what there is; nothing is kept, and the next call can work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.memory import host_room, room_for
from sparsegen.views import ArrayLayout, ArrayView

BOX = np.full((3, 3), 1 / 9)
SHAPE, FIELD = (24, 40), 24 * 40 * 8


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "api"))
    import fake_gpu

    return fake_gpu.install(monkeypatch)


def kernel(steps: int) -> Any:
    return sg.compile(sg.Stencil.from_weights(BOX), SHAPE, steps=steps, backend="cuda", schedule="direct")


@pytest.mark.parametrize(("steps", "fields"), [(1, 1), (1, 1.5), (2, 2), (2, 2.9)])
def test_a_call_with_host_arrays(gpu: Any, steps: int, fields: float) -> None:
    k, u = kernel(steps), np.random.default_rng(0).random(SHAPE)
    gpu.size = int(fields * FIELD)
    with pytest.raises(sg.DeviceError) as e:
        k(u)
    text, needed = str(e.value), 2 * FIELD + k.workspace_nbytes
    assert f"needs {needed} bytes (input {FIELD}, output {FIELD}" in text and f"of {gpu.size} bytes are free" in text
    assert ("workspace" in text) == (steps > 1) and "smaller shape" in text and Path(__file__).name in text
    assert not gpu.held and gpu.launched == 0
    gpu.size = needed
    want = sg.compile(k.stencil, SHAPE, steps=steps, backend="reference")(u)
    assert np.allclose(k(u), want, rtol=1e-12)


def test_a_workspace_beside_device_arrays(gpu: Any) -> None:
    k = kernel(3)
    views = []
    for _ in range(2):
        layout = ArrayLayout("cai", SHAPE, (320, 8), np.dtype("f8"), "cuda", 0)
        views.append(ArrayView(gpu.alloc(FIELD), layout, SimpleNamespace()))
    gpu.size = 2 * FIELD + k.workspace_nbytes - 1
    with pytest.raises(sg.DeviceError) as e:
        k._on_gpu(dict(zip(("in", "out"), views, strict=True)), 3, None)
    assert f"needs {k.workspace_nbytes} bytes (workspace {k.workspace_nbytes})" in str(e.value)
    assert f"{gpu.size - 2 * FIELD} of {gpu.size} bytes are free" in str(e.value) and gpu.launched == 0


class OutOfMemoryError(RuntimeError):
    """What torch and CuPy raise is called so."""


@pytest.mark.parametrize("error", [MemoryError(), OutOfMemoryError()], ids=["NumPy", "torch"])
def test_whoever_runs_out(error: Exception) -> None:
    says = r"^here has .* needs 8 bytes \(x 3, y 5\); 1 of 7 bytes are free\nremedy"
    with pytest.raises(sg.DeviceError, match=says) as e, room_for({"x": 3, "-": 0, "y": 5}, lambda: (1, 7), "here"):
        raise error
    assert e.value.__cause__ is error
    with pytest.raises(ZeroDivisionError), room_for({}, lambda: None, "here"):
        raise ZeroDivisionError


def test_the_outermost_knows_best() -> None:
    with (
        pytest.raises(sg.DeviceError) as e,
        room_for({"field": 100}, lambda: None, "here"),
        room_for({"workspace": 50}, lambda: (3, 4), "here"),
    ):
        raise MemoryError
    assert "needs 100 bytes (field 100)\n" in str(e.value)


LITTLE = """
import resource, sys
import numpy as np
import sparsegen as sg
backend, given, steps = sys.argv[1], sys.argv[2] == "out", int(sys.argv[3])
u = np.zeros((4096, 4096))
k = sg.compile(sg.Stencil.from_weights(np.full((3, 3), 1 / 9)), u.shape, steps=steps, device="h200", backend=backend,
               schedule="tiled")
small = sg.compile(k.stencil, (64, 64), steps=steps, device="h200", backend=backend, schedule="tiled")
small(np.zeros((64, 64)))  # everything is imported
out = np.zeros_like(u) if given else None
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 26), used + (1 << 26)))
try:
    k(u, out=out)
except sg.DeviceError as e:
    print(e)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux limits a process's memory so")
@pytest.mark.parametrize(
    ("backend", "out", "steps", "says"),
    [("emulator", "none", 1, "(result 134217728)"),
     ("emulator", "out", 3, "needs 402653184 bytes (input 134217728, output 134217728, workspace 134217728)"),
     ("reference", "out", 1, "(input 134217728, output 134217728, steps ")],
)  # fmt: skip
def test_a_host_with_too_little(backend: str, out: str, steps: int, says: str) -> None:
    """A process of which the system allows 64 MiB more than it has: a field of 128 MiB does not fit."""
    command = [sys.executable, "-c", LITTLE, backend, out, str(steps)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300)
    assert run.returncode == 0, run.stderr
    assert "this machine has too little memory" in run.stdout and says in run.stdout, run.stdout + run.stderr
    assert "bytes are free" in run.stdout and "remedy: compile for a smaller shape" in run.stdout


def test_what_the_host_has() -> None:
    room = host_room()
    assert room is None or 0 < room[0] <= room[1]

"""What all tests share: the search path, the marker ``gpu``, the settings of hypothesis, the list of back ends."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from pathlib import Path

# Before numpy is imported: the tests run in several processes, one thread each.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# No profile that was measured on this machine changes what the tests see.
os.environ["SPARSEGEN_PROFILE_DIR"] = os.devnull

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import pytest  # noqa: E402

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # a machine with no network may have pytest only; modules that need hypothesis fail by themselves
    pass
else:
    _slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    settings.register_profile("local", deadline=None, max_examples=12, suppress_health_check=_slow, print_blob=True)
    settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
    settings.register_profile("thorough", settings.get_profile("local"), max_examples=500)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "local"))


@functools.cache
def cuda_device_count() -> int:
    """The number of CUDA devices, asked of the driver itself; 0 where there is no driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all under tests/gpu with ``gpu``; skip the marked ones where there is no device, and only there."""
    for item in items:
        if Path(__file__).parent / "gpu" in item.path.parents:
            item.add_marker(pytest.mark.gpu)
        if item.get_closest_marker("gpu") is not None and cuda_device_count() == 0:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(params=["reference", "emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str:
    """Every back end there is: a test that asks for it runs once on each."""
    name: str = request.param
    return name

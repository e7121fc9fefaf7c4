"""What the GPU's tests share."""

from __future__ import annotations

import pytest

from sparsegen.backends.cuda.runtime import available_kinds


@pytest.fixture(
    params=[
        pytest.param(kind, marks=pytest.mark.skipif(kind not in available_kinds(), reason=f"no {kind}"))
        for kind in ("driver", "pycuda")
    ]
)
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to launch."""
    monkeypatch.setenv("SPARSEGEN_LAUNCHER", request.param)
    return str(request.param)

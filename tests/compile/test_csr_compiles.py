"""nvcc takes csr products for sm_80 and sm_90a: no spills, no stack, loads as wide as they can be, no shared memory."""

from __future__ import annotations

import pytest

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.ir.types import DTYPES
from tests.csr_kit import Case, ragged

pytestmark = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
MATRIX = ragged(3000, 3000, 8, full=2)
CASES = [
    Case(MATRIX, 128, "f16", {"across": 16, "parts": 2, "vec": 8, "unroll": 8}, 200, operands=("bias",)),
    Case(MATRIX, 128, "bf16", {"across": 16, "vec": 8, "unroll": 4}, y_order="column", activation="gelu"),
    Case(MATRIX, 512, "f32", {"across": 32, "vec": 4, "blocks": 2, "unroll": 4}, 200, operands=("residual",)),
    Case(MATRIX, 127, "f16", {"across": 32, "blocks": 4, "unroll": 4}, 200),
    Case(MATRIX, 1, "f32", {"across": 1, "parts": 16, "unroll": 4}, 200),
    Case(MATRIX, 128, "f64", {"across": 32, "blocks": 2, "vec": 2, "unroll": 4}, 200, operands=("scale", "residual")),
    Case(MATRIX, 63, "f64", {"across": 8, "parts": 4, "blocks": 2, "unroll": 8}, 200, activation="gelu"),
]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.dtype}-n{c.n}")
def test_no_spills(case: Case, arch: str) -> None:
    warp = case.lowered()[2]
    done = compile_cubin(translation_unit(warp, title="csr", arch=arch), arch, want_ptx=True)
    assert "warning" not in done.log
    used = done.resources["product"]
    assert used.spills == used.stack == used.static_shared == 0
    vec, bits = case.options.get("vec", 1), DTYPES[case.dtype].bits
    if vec * bits == 128:
        wide = "ld.global.nc.v2.f64" if bits == 64 else "ld.global.nc.v4"
        assert (done.ptx or "").count(wide) >= case.options["unroll"]

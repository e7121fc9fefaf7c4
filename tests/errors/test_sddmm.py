"""What is no sampled product is refused, in words that say what would be one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sparsegen as sg
from tests.sddmm_kit import case, mask

KEPT = mask(40, 60, 8, 0.6)
TORN = np.arange(24 * 6).reshape(24, 6) % 5 == 0

DESCRIBED: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (TORN, {}, sg.ProductError, r"not made of whole vectors.*sg\.pattern\.vectors\(mask, height=8\)"),
    (scipy.sparse.csr_array(TORN), {}, sg.ProductError, r"not made of whole vectors.*sg\.pattern\.vectors"),
    (mask(40, 60, 4, 0.6), {"height": 8}, sg.ProductError, "whole vectors of 8 x 1"),
    (KEPT, {"height": 3}, sg.FormatError, "vectors have 2, 4 or 8 rows"),
    (KEPT.astype("f4"), {}, sg.ArrayError, "not bool"),
    (KEPT[0], {}, sg.ArrayError, "not bool"),
    (KEPT[:0], {}, sg.ArrayError, "no elements"),
    (np.zeros((8, 8), bool), {}, sg.ProductError, "keeps no element"),
    (KEPT, {"k": 0}, sg.ProductError, "nothing to do"),
    (KEPT, {"k": 1.5}, sg.ProductError, "no whole number|not a whole number"),
    (KEPT, {"dtype": "u8"}, sg.ProductError, "unknown dtype"),
    (KEPT, {"dtype": "f16"}, sg.ProductError, "'i8', 'i4', 'i16'"),
    (KEPT, {"dtype": "i4", "k": 15}, sg.ProductError, "k=15 is odd"),
    (KEPT, {"out": "csr"}, sg.ProductError, "'bcrs', 'sr_bcrs'"),
    (KEPT, {"stride": 16}, sg.ProductError, "bcrs has not"),
    (KEPT, {"out": "sr_bcrs", "stride": 5}, sg.FormatError, "a block has 4, 8"),
    (KEPT, {"k": 1 << 29}, sg.ProductError, "indices are 32 bits wide"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "options", "error", "words"), DESCRIBED)
def test_described(pattern: Any, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match="(?s)" + words) as e:
        sg.sddmm(pattern, **{"k": 64, **options})
    assert "remedy" in str(e.value)


@pytest.mark.parametrize(
    ("line", "device", "words"),
    [
        ("strips rows=64", "v100", "from Ampere on"),
        ("strips rows=128 warps=32 groups=1 prefetch=on", "rtx4090", "do not fit an SM"),
        ("strips rows=33", "h200", "no such choice"),
        ("strips parts=9", "h200", "has 8 parts, not 9"),
        ("gather overlap=on", "a100", "overlap from Hopper on"),
        ("gather warps=32 stages=8", "h200", "do not fit an SM"),
        ("strips cols=3", "h200", "cols"),
        ("bitmap", "h200", "sparse products, it is no schedule of sampled products"),
    ],
)
def test_schedules(line: str, device: str, words: str) -> None:
    product = sg.sddmm(mask(40, 300, 4, 0.5), k=1024)
    with pytest.raises(sg.ScheduleError, match="(?s)" + words) as e:
        sg.compile(product, device=device, backend="emulator", schedule=line)
    assert "remedy" in str(e.value)


def test_calls() -> None:
    made = case(40, 60, 64, dtype="i4")
    kernel = sg.compile(made.product, device="h200", backend="emulator")
    a, b = made.given["a"], made.given["b"]
    wrong: list[tuple[Any, Any, Any, str]] = [
        (a.astype("i2"), b, None, r"a has dtype int16.*sg\.pack4"), (a, b[:3], None, r"it must be \(32, 60\)"),
        (a, made.b, None, "pack both"), (a, b.T, None, r"pass b\.T"), (a[:, ::2], b, None, "it must be"),
        (np.repeat(a, 2, 1)[:, ::2], b, None, "without gaps"), (a, b, np.zeros(5), "not a result of such a product"),
        (a, None, None, "NoneType is not an array"),
    ]  # fmt: skip
    for left, right, out, words in wrong:
        with pytest.raises(sg.ArrayError, match="(?s)" + words) as e:
            kernel(left, right, out=out)
        assert "remedy" in str(e.value)
    with pytest.raises(sg.ArrayError, match="no array for b"):
        kernel(a)
    with pytest.raises(sg.ProductError, match=r"shape=.* means nothing"):
        sg.compile(made.product, (40, 60), device="h200", backend="emulator")

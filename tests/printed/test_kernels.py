"""Kernels of every family on small arrays: the printed text gives what the emulator gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.ir.errors import SparsegenError
from sparsegen.run import emulator
from tests.csr_kit import ragged
from tests.freeze import problems as freeze
from tests.printed import program
from tests.products_kit import matrix

pytestmark = program.needs_compiler
#: Kernels of each family that are tried, and what 16, 32 and 64 bits may differ by, of the largest number.
EACH, SLACK = 2, {"float16": 2**-8, "bfloat16": 2**-6, "float32": 2**-18, "float64": 2**-44}
#: By how much the fields of the freeze are too large here, for so many axes.
SMALLER = {1: 40, 2: 6, 3: 3}
CSR = ("csr team=4x2 columns=4 unroll=2 cut=32 warps=2", "csr team=8x4 columns=8 unroll=4 cut=1024 warps=4")


def small(case: dict[str, Any]) -> Any:
    """The kernel of a case of the freeze on small arrays; None if its schedule does not suit them."""
    how = {"device": case["device"], "backend": "emulator", "schedule": case["schedule"]}
    try:
        if case["kind"] == "spmm":
            m, k = (min(size, 200) for size in case["shape"])
            return sg.compile(
                sg.spmm(matrix(m, k, case["sparsity"], case["dtype"]), n=case["n"], **case["epilogue"]), **how
            )
        least = 2 * case.get("radius", 1) + 1
        shape = tuple(max(least, size // SMALLER[len(case["shape"])]) for size in case["shape"])
        return sg.compile(freeze.described(case), shape, case["steps"], **how)
    except SparsegenError:
        return None


def kernels() -> Iterator[tuple[str, Any]]:
    """A name and a case of the freeze for ``EACH`` kernels of every family, the same ones each time."""
    cases = [case for case, _ in freeze.frozen()]
    random.Random(7).shuffle(cases)
    taken: dict[str, int] = {}
    for case in cases:
        family = (
            f"{case['kind']} {case['schedule'].split()[0]} {case['dtype'] if case['kind'] == 'spmm' else ''}".strip()
        )
        if taken.get(family, 0) < EACH and small(case) is not None:
            taken[family] = taken.get(family, 0) + 1
            yield f"{family} {taken[family]}", case


CASES = dict(kernels())


def alike(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """AssertionError unless a call gives the same from the text as from the emulator."""
    given = kernel.random(3)
    wanted = flat(kernel(**given))
    monkeypatch.setattr(emulator, "run_plan", lambda plan, given, new, work, cells: program.run_plan(plan, given, new))
    got = flat(kernel(**given))
    assert np.isfinite(wanted).all()
    assert np.abs(got - wanted).max() <= SLACK[kernel.dtype.name] * max(1.0, np.abs(wanted).max())


def flat(result: Any) -> Any:
    """All numbers of a result, whatever its form."""
    if isinstance(result, tuple):
        return np.concatenate([flat(part) for part in result])
    return np.asarray(result, np.float64).reshape(-1)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alike(small(CASES[name]), monkeypatch)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("line", CSR)
def test_a_csr_product(line: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = sg.sparse(ragged(120, 90, 10, full=2), format="csr", dtype=dtype)
    product = sg.spmm(w, n=24, bias=True, residual=True, activation="relu")
    alike(sg.compile(product, device="h200", backend="emulator", schedule=line), monkeypatch)

"""Kernels of every family on small arrays: the printed text gives what the emulator gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.ir.errors import SparsegenError
from tests.csr_kit import ragged
from tests.freeze import problems as freeze
from tests.printed import program
from tests.printed.compare import alike
from tests.updates import heat, wave

pytestmark = program.needs_compiler
#: Kernels of each family that are tried.
EACH = 2
#: By how much the fields of the freeze are too large here, for so many axes.
SMALLER = {1: 40, 2: 6, 3: 3}
BOUNDARIES: list[Any] = [sg.periodic, sg.frozen, {0: (sg.neumann, sg.dirichlet(0.5)), 1: sg.neumann}]
CSR = ("csr team=4x2 columns=4 unroll=2 cut=32 warps=2", "csr team=8x4 columns=8 unroll=4 cut=1024 warps=4")


def small(case: dict[str, Any]) -> Any:
    """The kernel of a case of the freeze on small arrays; None if its schedule does not suit them."""
    how = {"device": case["device"], "backend": "emulator", "schedule": case["schedule"]}
    try:
        if case["kind"] == "spmm":
            m, k = (min(size, 200) for size in case["shape"])
            w = freeze.encoded({**case, "shape": (m, k)})
            return sg.compile(sg.spmm(w, n=case["n"], **case["epilogue"]), **how)
        if case["kind"] in ("attention", "sddmm"):
            described = {"attention": freeze.attention, "sddmm": freeze.sampled}[case["kind"]]
            return sg.compile(described({**case, "shape": [min(size, 200) for size in case["shape"]]}), **how)
        least = 2 * case.get("radius", 1) + 1
        shape = tuple(max(least, size // SMALLER[len(case["shape"])]) for size in case["shape"])
        return sg.compile(freeze.described(case), shape, case["steps"], **how)
    except SparsegenError:
        return None


def kernels() -> Iterator[tuple[str, Any]]:
    """A name and a case of the freeze for ``EACH`` kernels of every family, the same ones each time."""
    cases = [case for case, _ in freeze.frozen() if "mean" not in case]  # csr is below
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


@pytest.mark.parametrize("name", CASES)
def test_a_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alike(small(CASES[name]), monkeypatch, program.run_plan)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("line", CSR)
def test_a_csr_product(line: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = sg.sparse(ragged(120, 90, 10, full=2), format="csr", dtype=dtype)
    product = sg.spmm(w, n=24, bias=True, residual=True, activation="relu")
    alike(sg.compile(product, device="h200", backend="emulator", schedule=line), monkeypatch, program.run_plan)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("line", ["direct", "stream levels=2 cols=8 rows=16", "column lines=1 planes=4 warps=4"])
def test_an_update_of_16_bits(line: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On rows that no 4 bytes divide, so that borders come cell by cell."""
    make, shape = (heat, (7, 10, 37)) if line.startswith("column") else (wave, (33, 71))
    update = make(boundary=sg.periodic, dtype=dtype)
    kernel = sg.compile(update, shape, 3, device="h200", backend="emulator", schedule=line)
    alike(kernel, monkeypatch, program.run_plan)


@pytest.mark.parametrize("sides", BOUNDARIES, ids=str)
def test_steps_on_three_axes(sides: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps a pass, and one that is left over."""
    sides = {**sides, 2: sg.periodic} if isinstance(sides, dict) else sides
    line = "column levels=2 lines=2 planes=4 warps=4"
    kernel = sg.compile(heat(boundary=sides), (7, 10, 37), 3, device="h200", backend="emulator", schedule=line)
    alike(kernel, monkeypatch, program.run_plan)


#: Sources at one cell and between cells, and receivers.
SITES = {"shot": sg.Source([[3.5, 9.25], [3.0, 9.0]]), "heard": sg.Receiver([[4.5, 11.0], [2.0, 2.5], [7.5, 34.5]])}


@pytest.mark.parametrize("line", ["direct", "stream levels=2 cols=4"])
def test_shots_of_a_batch(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals and records have rows of all steps for each item, of which a pass takes some."""
    update = wave(boundary=sg.neumann).with_sites(**SITES)
    kernel = sg.compile(update, (13, 70), 5, batch=2, device="h200", backend="emulator", schedule=line)
    alike(kernel, monkeypatch, program.run_plan)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_shots_between_steps_of_one_launch(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right end of the left blocks is heard, of which the right ones have a halo."""
    update, line = (
        wave(boundary=sg.neumann, dtype=dtype).with_sites(**SITES),
        "resident tiles=2x2 rows=3 cols=2 warps=3",
    )
    kernel = sg.compile(update, (13, 70), 5, device="h200", backend="emulator", schedule=f"{line} every=1")
    alike(kernel, monkeypatch, program.run_plan)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_an_update_of_functions(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def every(u: Any) -> Any:
        a, b = sg.clip(abs(u[0, 0]), 0.1, 2), abs(u[0, -1]) + 0.5
        waves = sg.sin(a) + sg.cos(b) + sg.tanh(a - b)
        return waves + sg.exp(-a) * sg.log(b) + sg.pow(a, b) / 2**b + b**-1.5

    update = sg.stencil(dtype=dtype)(every)
    alike(
        sg.compile(update, (9, 70), 2, device="h200", backend="emulator", schedule="direct"),
        monkeypatch,
        program.run_plan,
    )


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("sides", BOUNDARIES, ids=str)
def test_an_update_whose_fields_stay_in_registers(sides: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six blocks that wait for one another, as fibers: three rounds of two steps."""
    update, line = wave(boundary=sides, dtype=dtype), "resident tiles=2x3 rows=5 cols=1 warps=5 every=2"
    kernel = sg.compile(update, (33, 72), 5, device="h200", backend="emulator", schedule=line)
    alike(kernel, monkeypatch, program.run_plan)


@pytest.mark.parametrize("sides", BOUNDARIES, ids=str)
def test_fields_on_three_axes_that_stay_in_registers(sides: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four blocks; along the last axis one window is all, so that lanes pass cells around where that wraps."""
    sides = {**sides, 2: sg.periodic} if isinstance(sides, dict) else sides
    update, line = heat(boundary=sides), "resident tiles=2x2x1 planes=7 rows=2 cols=1 warps=5 every=1"
    kernel = sg.compile(update, (9, 14, 32), 5, device="h200", backend="emulator", schedule=line)
    alike(kernel, monkeypatch, program.run_plan)

"""The predicted time of general updates: its formula, and its counts against the emulator's."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.cost import update_column, update_stream
from sparsegen.cost.devices import load_profile
from sparsegen.cost.terms import REACH
from sparsegen.cost.update import REASONS, SYMBOLS, cost, units
from sparsegen.families.update.column import FAMILY as COLUMN
from sparsegen.families.update.direct import FAMILY
from sparsegen.families.update.stream import FAMILY as STREAM
from sparsegen.schedule import UpdateSchedule
from tests.updates import NAMED, made

H200 = load_profile("h200")
LARGE: dict[int, tuple[int, ...]] = {1: (1 << 26,), 2: (8192, 8192), 3: (400, 512, 512)}


@pytest.mark.parametrize("name", NAMED)
def test_the_formula_is_the_time(name: str) -> None:
    make, small = NAMED[name]
    update = make()
    for shape in (small, LARGE[update.ndim]):
        for s in FAMILY.candidates(update, 1):
            c = cost(update, shape, s, H200)
            assert float(c.formula.xreplace(c.substitution())) == pytest.approx(c.time, rel=1e-12)
            assert c.reasons() == REASONS and {str(x) for x in c.formula.free_symbols} <= set(SYMBOLS)
            assert c.time >= c.terms["launch"] + max(t for n, t in c.terms.items() if n != "launch")
            assert c.rate == pytest.approx(prod(shape) / c.time / 1e9)


@pytest.mark.parametrize("name", NAMED)
def test_the_formulas_of_stream_and_column_are_the_times(name: str) -> None:
    make, _ = NAMED[name]
    update = make()
    shape = LARGE[update.ndim]
    own, law = (COLUMN, update_column) if update.ndim == 3 else (STREAM, update_stream)
    tried = [s for s in own.candidates(update, 4) if own.misfit(update, shape, s, H200) is None]
    assert tried
    for s in tried[:6]:
        c = own.cost(update, shape, s, H200)
        assert float(c.formula.xreplace(c.substitution())) == pytest.approx(c.time, rel=1e-12)
        assert c.reasons() == law.REASONS and {str(x) for x in c.formula.free_symbols} <= set(law.SYMBOLS)
        assert c.time >= max(t for n, t in c.terms.items() if n != "fetch")
        assert c.rate == pytest.approx(prod(shape) * s.levels / c.time / 1e9)


@pytest.mark.parametrize("name", NAMED)
def test_loads_and_arithmetic_are_the_emulator_s(name: str) -> None:
    """Where every thread has all its cells inside: a periodic field as large as its blocks."""
    make, _ = NAMED[name]
    update = make(boundary=sg.periodic)
    shape = {1: (256 * 5,), 2: (40, 96), 3: (3, 24, 64)}[update.ndim]
    k = sg.compile(update, shape, device="h200", backend="emulator", schedule="direct")
    counts, v = k.counts().launches[0].counts, k.cost.values
    assert counts["bytes.global.read"] == v["loads"] * prod(shape) * 8
    assert counts["bytes.global.write"] == v["writes"] * prod(shape) * 8


def test_cells_of_a_column_share_their_loads() -> None:
    update = made(lambda u: u[-1, 0] * u[1, 0] + u[0, 1] * u[0, -1])
    loads = [cost(update, (512, 512), UpdateSchedule(column=n), H200).values["loads"] for n in (1, 2, 4)]
    # of four cells: rows -1 ... 4 of the own column (six cells), and two more in each of four rows
    assert loads == [4, (4 + 2 * 2) / 2, (6 + 4 * 2) / 4]


def test_what_binds() -> None:
    make, _ = NAMED["wave"]
    assert cost(make(), (64, 64), UpdateSchedule(), H200).binds == "launch"
    large = cost(make(), (8192, 8192), UpdateSchedule(), H200)
    assert large.binds == "hbm" and large.terms["hbm"] == pytest.approx(4 * 8 * 8192**2 / (REACH * H200.bw_global))

    def heavy(u: Any) -> Any:
        value = u[0, 0]
        for _ in range(200):
            value = 1 / (value + 1)
        return value

    assert cost(made(heavy), (8192, 8192), UpdateSchedule(), H200).binds == "fma"


def test_f32_moves_half_the_bytes() -> None:
    make, _ = NAMED["gray_scott"]
    a, b = (cost(make(dtype=t), (8192, 8192), UpdateSchedule(), H200).terms["hbm"] for t in ("f64", "f32"))
    assert a == 2 * b


def test_functions_are_counted_as_what_they_become() -> None:
    """An ``exp`` of f32 is a few multiply-adds and one ``ex2``; a power costs more than any other function."""
    assert units(made(lambda u: sg.exp(u[0, 0]), dtype="f32")) == {"FMA": 7, "ALU": 1, "MUFU": 1}
    for dtype in ("f64", "f32"):
        others = [sg.exp, sg.log, sg.sin, sg.cos, sg.tanh, sg.sqrt]
        work = [sum(units(made(alone(f), dtype=dtype)).values()) for f in others]
        assert max(work) < sum(units(made(lambda u: u[0, 0] ** 1.5, dtype=dtype)).values())
        assert 8 <= min(work)


def alone(function: Any) -> Any:
    """The function of a cell."""
    return lambda u: function(u[0, 0])


def test_a_formula_of_functions_takes_longer() -> None:
    def layers(function: Any) -> Any:
        def f(u: Any) -> Any:
            value = u[0, 0]
            for _ in range(30):
                value = function(value)
            return value

        return made(f)

    plain, functions = (layers(f) for f in (lambda a: a * a, lambda a: sg.sin(a)))
    for family, s in ((FAMILY, UpdateSchedule()), (STREAM, UpdateSchedule("stream", levels=2, rows=64))):
        times = [family.cost(update, (8192, 8192), s, H200).time for update in (plain, functions)]
        assert times[1] > 2 * times[0]

"""Pass ``batch``: what it makes of a program of one item, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sparsegen.backends import emulator
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Const, Value
from sparsegen.ir.module import Launch, Module
from sparsegen.ir.node import Op, walk
from sparsegen.ir.parse import parse_module
from sparsegen.ir.passes.batch import Batch
from sparsegen.ir.passes.manager import parse_pipeline, print_pipeline
from sparsegen.ir.tensor_copy import TensorCopy, TensorMap
from sparsegen.ir.text import print_module
from sparsegen.ir.types import Buffer, f32, s32, u64
from sparsegen.ir.verify import verify

TID, BX = Value("tid", s32, 0, 31), Value("bx", s32, 0, 1)


def copied(cells: int, width: int = 1, name: str = "item") -> Module:
    """Each thread of two blocks stores ``width`` cells, times a number of a table, plus one of an array."""
    src, dst = Buffer("src", f32, cells, "global"), Buffer("dst", f32, cells, "global")
    table, place = Buffer("table", f32, 64, "global"), Buffer("place", f32, 64, "global")
    at, x = Value(name, s32, 0, 63), tuple(Value(f"x{i}", f32) for i in range(width))
    a, b = Value("a", f32), Value("b", f32)
    sums = tuple(Value(f"s{i}", f32) for i in range(width))
    inside = (at * width).lt(cells - width + 1)
    then: list[Op] = [w.Ld(x, src, at * width), w.Ld((a,), table, at), w.Ld((b,), place, at)]
    then += [w.Fma((s,), v, a, b) for s, v in zip(sums, x, strict=True)]
    then += [w.St(dst, at * width, sums)]
    body = (w.Let((at,), BX * 32 + TID), w.If(inside, tuple(then)))
    func = w.Func("k", (src, dst, table, place), (), (2, 1, 1), 32, body)
    return Module(
        "k", (func,), (Launch("k", ("in", "out", "k.table", "in.place.0")),), {"k.table": np.ones(64, np.float32)}
    )


def func_of(module: Module) -> w.Func:
    (func,) = module.funcs
    assert isinstance(func, w.Func)
    return func


def accesses(func: w.Func, buf: str) -> list[w.Ld]:
    return [op for op in walk(func.body) if isinstance(op, w.Ld) and op.buf.name == buf]


@pytest.mark.parametrize(("cells", "width"), [(60, 1), (60, 2), (61, 2), (58, 4), (60, 4)])
def test_every_item_is_worked_on_and_wide_accesses_stay_aligned(cells: int, width: int) -> None:
    made = Batch(3, "in.place.0").run(copied(cells, width))
    verify(made)
    func = func_of(made)
    assert func.grid == (2, 3, 1)
    assert [p.size for p in func.params if isinstance(p, Buffer)] == [3 * cells, 3 * cells, 64, 64]
    apart = {1: 1, 2: 1 if cells % 2 else 2, 4: 4 if cells % 4 == 0 else 2}[width]
    assert {len(op.out) for op in accesses(func, "src")} == {apart}
    rng = np.random.default_rng(0)
    u, place = rng.random(3 * cells, np.float32), rng.random(64, np.float32)
    out, twos = np.full(3 * cells, np.nan, np.float32), np.full(64, 2.0, np.float32)
    report = emulator.run(func, {"src": u, "dst": out, "table": twos, "place": place})
    assert not report.errors
    whole = cells // width * width
    want = 2 * u.reshape(3, cells)[:, :whole] + np.repeat(place, width)[:whole]
    assert np.array_equal(out.reshape(3, cells)[:, :whole], want)


def test_it_prints_and_is_read_back() -> None:
    made = Batch(5, "in.place.0").run(copied(61, 2))
    assert parse_module(print_module(made)) == made
    passes = (Batch(5, "in.place.0 in.c.0"), Batch(2))
    assert parse_pipeline(print_pipeline(passes)) == passes


def test_names_of_the_program_stay_its_own() -> None:
    made = Batch(2).run(copied(60, name="item"))
    verify(made)
    first = func_of(made).body[0]
    assert isinstance(first, w.Let)
    assert first.out[0].name == "item_1"


def test_refused() -> None:
    once = Batch(2).run(copied(60))
    with pytest.raises(IRError, match="of items already"):
        Batch(2).run(once)
    module = copied(60)
    twice = replace(module, launches=(*module.launches, Launch("k", ("in.place.0", "out", "k.table", "in.place.0"))))
    with pytest.raises(IRError, match="shared in another"):
        Batch(2, "in.place.0").run(twice)


def test_copies_without_an_index_are_refused() -> None:
    src, tile = Buffer("src", f32, 64 * 32, "global"), Buffer("tile", f32, 32 * 8, "shared", 128)
    bars, zero = Buffer("bars", u64, 1, "shared"), Const(0)
    copy = TensorCopy(tile, zero, src, zero, zero, bars, zero, TensorMap(64, 32, 32, (8, 32)))
    func = w.Func("k", (src,), (tile, bars), (1, 1, 1), 32, (w.If(TID.eq(0), (copy,)),))
    with pytest.raises(IRError, match="has no index of @src"):
        Batch(2).run(Module("k", (func,), (Launch("k", ("in",)),)))


def test_items_of_rows_are_as_far_apart_as_a_launch_says() -> None:
    """Two rows of five numbers a pass."""
    signal, sums = Buffer("signal", f32, 10, "global"), Buffer("sums", f32, 5, "global")
    x, y, s = Value("x", f32), Value("y", f32), Value("s", f32)
    body = (
        w.If(TID.lt(5), (
            w.Ld((x,), signal, TID), w.Ld((y,), signal, TID + 5), w.Binary((s,), "add", x, y), w.St(sums, TID, (s,)),
        )),
    )  # fmt: skip
    func = w.Func("k", (signal, sums), (), (1, 1, 1), 32, body)
    one = Module("k", (func,), (Launch("k", ("in.steps.shot", "out")),))
    made = Batch(4).run(one)
    verify(made)
    assert parse_module(print_module(made)) == made
    assert made.launches[0].args == ("in.steps.shot", "out", "apart.in.steps.shot")
    assert made.constants["apart.in.steps.shot"].tolist() == [10]
    (*_, distance) = func_of(made).params
    given, out = np.random.default_rng(0).random((8, 5)).astype(np.float32), np.full(20, np.nan, np.float32)
    for apart in (10, 5):
        args = {"signal": given.reshape(-1), "sums": out, distance.name: apart}
        emulator.run(func_of(made), args).raise_if_errors()
        first = np.arange(4) * (apart // 5)
        assert np.array_equal(out.reshape(4, 5), given[first] + given[first + 1])
    shared = Batch(4, "in.steps.shot").run(one)
    assert len(func_of(shared).params) == 2 and not shared.constants

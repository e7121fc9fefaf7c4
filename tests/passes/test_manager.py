"""Pipelines as text, verification around passes, dumps and diffs; passes on random programs."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import sparsegen as sg
from sparsegen.ir import builder
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.module import Module
from sparsegen.ir.node import walk
from sparsegen.ir.parse import parse_module
from sparsegen.ir.passes import PASSES, Manager, parse_pipeline, print_pipeline, register
from sparsegen.ir.passes.dce import Dce, pure
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.verify import verify
from tests.ir.programs import functions, module

TEXT = """tile{m=64,mode=fast,name="a b, {c}",ratio=2.0,skip=true},simplify,tile{m=-1},dce"""


@pytest.fixture(autouse=True)
def passes() -> object:
    @register("tile")
    @dataclass(frozen=True)
    class Tile:
        m: int
        mode: str = "slow"
        name: str = ""
        ratio: float = 1.0
        skip: bool = False
        limit: int | None = None

        def run(self, m: Module) -> Module:
            return m

    @register("break")
    @dataclass(frozen=True)
    class Break:
        def run(self, m: Module) -> Module:
            from sparsegen.ir.expr import TRUE

            return dataclasses.replace(m, funcs=(dataclasses.replace(kernel(m), body=(w.BreakIf(TRUE),)),))

    @register("crash")
    @dataclass(frozen=True)
    class Crash:
        def run(self, m: Module) -> Module:
            return Module(m.name, (m.funcs[1],))

    yield
    del PASSES["tile"], PASSES["break"], PASSES["crash"]


def kernel(m: Module) -> w.Func:
    f = m.funcs[0]
    assert isinstance(f, w.Func)
    return f


def small() -> Module:
    return Module("a/b", (w.Func("k", (), (), (1, 1, 1), 32, (w.Barrier(),)),))


def test_pipeline_text_round_trip() -> None:
    got = parse_pipeline(TEXT)
    assert [type(p).__name__ for p in got] == ["Tile", "Simplify", "Tile", "Dce"]
    assert got[0].name == "a b, {c}" and got[0].ratio == 2.0 and got[0].m == 64  # type: ignore[attr-defined]
    assert print_pipeline(got) == TEXT and parse_pipeline(print_pipeline(got)) == got
    assert parse_pipeline("") == ()
    assert parse_pipeline(" simplify , tile{ m = 3 , limit=7 } ") == (Simplify(), PASSES["tile"](m=3, limit=7))
    assert parse_pipeline('tile{m=1,name="12"}')[0].name == "12"  # type: ignore[attr-defined]
    assert print_pipeline(parse_pipeline('tile{m=1,name="12"}')) == 'tile{m=1,name="12"}'


@pytest.mark.parametrize(("text", "said"), [
    ("simplfy", "unknown pass 'simplfy'"),
    ("tile{m=64", "cannot read the pipeline"),
    ("simplify,", "cannot read the pipeline"),
    ("simplify dce", "cannot read the pipeline"),
    ("tile{k=3}", "pass tile has no option 'k'"),
    ("tile{m}", "cannot read the options"),
    ("tile{m=1,m=2}", "given twice"),
    ("tile{m=1,skip=3}", "must be a bool"),
    ("tile", "pass tile: .*'m'"),
])  # fmt: skip
def test_wrong_pipelines(text: str, said: str) -> None:
    with pytest.raises(IRError, match=said):
        parse_pipeline(text)


def test_dump_diff_and_timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparsegen.ir.expr import FALSE

    monkeypatch.setenv("SPARSEGEN_DUMP", str(tmp_path))
    (tmp_path / "a_b").mkdir()
    (tmp_path / "a_b" / "07-old.sgir").write_text("of another process")
    m = small()
    body = (w.Barrier(), w.If(FALSE, (w.SyncWarp(),)))
    m = dataclasses.replace(m, funcs=(dataclasses.replace(kernel(m), body=body),))
    Manager(parse_pipeline("tile{m=1},simplify,dce")).run(m)
    assert sorted(p.name for p in (tmp_path / "a_b").iterdir()) == [
        "00-input.sgir", "01-tile.sgir", "02-simplify.diff", "02-simplify.sgir", "03-dce.sgir"]  # fmt: skip
    diff = (tmp_path / "a_b" / "02-simplify.diff").read_text(encoding="utf-8")
    assert diff.startswith("--- 01-tile\n+++ 02-simplify\n") and "-    warp.sync" in diff
    Manager(parse_pipeline("dce")).run(m)
    assert sorted(p.name for p in (tmp_path / "a_b-2").iterdir()) == ["00-input.sgir", "01-dce.sgir"]


def test_one_lowering_is_one_sequence_of_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEGEN_DUMP", str(tmp_path))
    heat = sg.Stencil.from_weights([[0.25, 0.5, 0.25]], name="dumped")
    k = sg.compile(heat, (40, 64), 4, device="h200", backend="emulator", schedule="tiled fuse=2")
    assert k.ir("warp") and [folder.name for folder in tmp_path.iterdir()] == ["dumped"]
    names = sorted(p.stem for p in (tmp_path / "dumped").glob("*.sgir"))
    passes = "input fuse-time tiled rim pipeline barriers to-warp simplify dce".split()
    assert names == [f"{i:02d}-{name}" for i, name in enumerate(passes)]
    assert (tmp_path / "dumped" / f"{names[5]}.sgir").read_text(encoding="utf-8") == k.ir("tile")
    assert (tmp_path / "dumped" / f"{names[8]}.sgir").read_text(encoding="utf-8") == k.ir("warp")


def test_the_failing_pass_is_named() -> None:
    with pytest.raises(IRError, match=r"outside of any warp.loop(.|\n)*after pass 2, break"):
        Manager(parse_pipeline("simplify,break,dce"), verify_each=True).run(small())
    with pytest.raises(IRError, match="after simplify,break,dce"):
        Manager(parse_pipeline("simplify,break,dce")).run(small())
    bad = dataclasses.replace(small(), funcs=(w.Func("k", (), (), (1, 1, 1), 0, ()),))
    with pytest.raises(IRError, match="before the first pass"):
        Manager((), verify_each=True).run(bad)
    assert Manager(()).run(small()) == small()


def test_what_goes_wrong_inside_a_pass_names_the_pass() -> None:
    with pytest.raises(IRError, match=r"pass crash fails on module 'a/b': IndexError: tuple index") as e:
        Manager(parse_pipeline("simplify,crash")).run(small())
    assert isinstance(e.value.__cause__, IndexError)


@settings(max_examples=60, deadline=None)
@given(functions())
def test_passes_keep_programs_valid_and_settle(f: w.Func) -> None:
    m = module(f)
    once = Manager((Simplify(), Dce()), verify_each=True).run(m)
    verify(once)
    for p in (Simplify(), Dce()):
        assert p.run(once) == once, "running the pass again changes nothing"
    before, after = (sum(not pure(o) for o in walk(x.funcs)) for x in (m, once))
    assert after <= before


def test_a_folder_for_dumps_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPARSEGEN_DUMP", str(tmp_path / "file"))
    with pytest.raises(IRError) as caught:
        Manager(parse_pipeline("simplify")).run(Module("m", ()))
    assert "cannot write programs to" in str(caught.value) and "SPARSEGEN_DUMP" in str(caught.value.hint)


def test_what_is_unrolled_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefetch two milliard turns ahead would be as many copies before the loop."""
    monkeypatch.setattr(builder, "MOST_OPS", 20_000)
    kernel: Any = sg.compile(
        sg.Stencil.from_weights(np.full((3, 3), 1 / 9)), (64, 512), device="h200", backend="emulator",
        schedule="tiled tile=8x32 warps=2 stages=2",
    )  # fmt: skip
    text = kernel.ir("tile")
    far = re.sub(r"(tile\.prefetch distance=)\d+", r"\g<1>2147483648", text)
    assert far != text
    with pytest.raises(IRError, match="more than 20000 ops"):
        Manager(parse_pipeline("to-warp")).run(parse_module(far))

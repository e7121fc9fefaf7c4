"""nvcc takes the programs of tests/programs: no spills, no stack, the instructions that they are about."""

from __future__ import annotations

from functools import cache

import pytest

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import CompileResult, compile_cubin
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.ir.fragments import SHAPES, shapes_of
from sparsegen.ir.module import Module
from tests.programs import fragments, heat2d_stream, ring_reduce, transposes

pytestmark = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")


@cache
def compiled(program: str, name: str) -> CompileResult:
    if program == "heat2d_stream":
        func = heat2d_stream.build({**heat2d_stream.SIZES, **heat2d_stream.LARGE}[name])
    else:
        func = ring_reduce.build({**ring_reduce.SIZES, **ring_reduce.LARGE}[name])
    done = compile_cubin(translation_unit(Module(program, (func,)), title=program), "sm_90a", want_ptx=True)
    assert "warning" not in done.log
    used = done.resources[func.symbol]
    assert not used.spills and used.stack == 0 and used.static_shared == 0
    return done


@pytest.mark.parametrize(("name", "cache_hint"), [("even", "cg"), ("odd", "ca"), ("large", "cg"), ("large_odd", "ca")])
def test_heat2d_stream(name: str, cache_hint: str) -> None:
    ptx = compiled("heat2d_stream", name).ptx or ""
    for text in (
        f"cp.async.{cache_hint}.shared.global",
        "cp.async.wait_group",
        "shfl.sync.up",
        "shfl.sync.down",
        "bar.warp.sync",
        "fma.rn.f64",
    ):
        assert text in ptx, text
    assert "bar.sync" not in ptx and "barrier.sync" not in ptx
    assert ".local" not in ptx  # the register arrays are registers


@pytest.mark.parametrize("name", ["even", "ragged", "large_ragged"])
def test_ring_reduce(name: str) -> None:
    ptx = compiled("ring_reduce", name).ptx or ""
    for text in ("mbarrier.init", "fence.mbarrier_init", "mbarrier.arrive.expect_tx", "mbarrier.try_wait.parity",
                 "cp.async.bulk.shared", "bar.sync", "atom.global.inc.u32", "ld.shared.v4.f32"):  # fmt: skip
        assert text in ptx, text
    assert ".local" not in ptx


@pytest.mark.parametrize(("arch", "capability"), [("sm_80", (8, 0)), ("sm_90a", (9, 0))])
def test_fragments(arch: str, capability: tuple[int, int]) -> None:
    shapes = shapes_of(capability)
    funcs = *map(fragments.build, shapes), *map(transposes.build, transposes.TYPES)
    done = compile_cubin(
        translation_unit(Module("fragments", funcs), title="fragments", arch=arch), arch, want_ptx=True
    )
    assert set(done.resources) == {f.symbol for f in funcs}
    assert not any(r.spills for r in done.resources.values())
    for s in shapes:
        assert SHAPES[s].ptx in (done.ptx or "")

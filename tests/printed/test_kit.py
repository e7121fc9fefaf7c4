"""The kit itself: what no GPU allows ends a program with a message, and what it cannot read it refuses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from sparsegen.ir import warp as w
from sparsegen.ir.expr import Const
from sparsegen.ir.module import Launch, Module
from sparsegen.ir.types import f32, u64
from tests.cuda_print.programs import Kernel
from tests.printed.assembly import AssemblyError, without_assembly
from tests.printed.program import Fault, Program, Refused, needs_compiler

pytestmark = needs_compiler


def ran(k: Kernel, source: tuple[str, str] | None = None) -> dict[str, Any]:
    """The arrays after one launch of a kernel, of whose text ``source`` replaces a piece."""
    from tests.printed.units import text

    func = k.func()
    module = Module("kit", (func,), launches=(Launch(func.symbol, tuple(p.name for p in func.params)),))
    arrays = {p.name: np.zeros(p.size, p.dtype.numpy()) for p in func.params}  # type: ignore[union-attr]
    made = text(module)
    if source:
        assert source[0] in made
        made = made.replace(*source)
    Program.of(module, made).run(arrays, seconds=2)
    return arrays


def started() -> tuple[Kernel, Any, Any, Any]:
    k = Kernel("kit")
    return k, k.b, k.at["tid"], k.array("out", f32, 128)


def test_a_write_behind_an_array() -> None:
    k, b, tid, out = started()
    b.st(out, tid + 4, b.const(f32, 1.0))
    with pytest.raises(Fault, match="array 0 is written behind its end"):
        ran(k)


def test_a_write_behind_shared_memory() -> None:
    k, b, tid, out = started()
    tile = k.array("tile", f32, 64, "shared")
    b.st(tile, tid, b.const(f32, 1.0))
    b.st(out, tid, b.ld(tile, tid))
    with pytest.raises(Fault, match="shared memory is written 0 bytes beyond its end"):
        ran(k)


def test_a_barrier_that_some_never_reach() -> None:
    k, b, tid, _ = started()
    with b.if_(tid.lt(64)):
        b.barrier()
    with pytest.raises(Fault, match="deadlock: 64 threads"):
        ran(k)


def test_lanes_that_meet_in_different_instructions() -> None:
    k, b, tid, out = started()
    with b.if_((tid % 2).eq(0)):
        b.sync()
    with b.else_():
        b.st(out, tid, b.shfl("xor", b.const(f32, 1.0), 1))
    with pytest.raises(Fault, match=r"they are in __s|deadlock"):
        ran(k)


@pytest.mark.parametrize(
    ("left_out", "says"),
    [("mbar_init(&bars[0], 1);", "no mbarrier has been initialised"), ("fence_mbar_init();", "without a fence")],
)
def test_an_mbarrier_that_is_not_ready(left_out: str, says: str) -> None:
    k, b, tid, out = started()
    tile, bars = k.array("tile", f32, 128, "shared", 128), k.array("bars", u64, 1, "shared", 8)
    with b.if_(tid.eq(0)):
        b.emit(w.MbarInit(bars, Const(0), 1))
        b.fence("mbar_init")
        b.emit(w.MbarArrive(bars, Const(0), Const(512)))
        b.emit(w.BulkCopy(tile, Const(0), k.array("in", f32, 128), Const(0), Const(128), bars, Const(0)))
    b.barrier()
    b.mbar_wait(bars, 0, 0)
    b.st(out, tid, b.ld(tile, tid))
    ran(k)
    with pytest.raises(Fault, match=says):
        ran(k, (left_out, ""))


def test_what_is_under_way_is_not_read() -> None:
    k, b, tid, out = started()
    tile = k.array("tile", f32, 128, "shared")
    b.cp_async(tile, tid, k.array("in", f32, 128), tid, 1)
    b.commit()
    b.st(out, tid, b.ld(tile, tid))
    b.wait(0)
    assert np.isnan(ran(k)["out"]).all()


def test_an_address_that_is_no_multiple_of_what_is_copied() -> None:
    k, b, tid, _ = started()
    tile, src = k.array("tile", f32, 1024, "shared"), k.array("in", f32, 1024)
    b.cp_async(tile, tid * 4, src, tid * 4, 4)
    ran(k)
    with pytest.raises(Fault, match=r"cp.async: 0x.* is no multiple of 16"):
        ran(k, ("&in[tid * 4]", "&in[tid * 4 + 1]"))


def test_a_program_that_never_ends() -> None:
    k, b, _, _ = started()
    with b.loop():
        b.let("x", Const(1))
        b.break_if(k.at["tid"].gt(1000))
    with pytest.raises(Fault, match="ended with -24"):
        ran(k)


def test_assembly_that_is_unknown() -> None:
    k, b, tid, out = started()
    b.st(out, tid, b.const(f32, 1.0))
    with pytest.raises(Refused, match="bar_arrive"):
        ran(k, ("  const int tid", '  asm volatile("bar.arrive 1, 64;" : : : "memory");\n  const int tid'))
    for wrong in ('asm("mov.b32 %0, %2;" : "=r"(d) : "r"(a));', 'asm("mov.b32 %0, %1;" : "r"(d) : "r"(a));'):
        with pytest.raises(AssemblyError):
            without_assembly(wrong)


def test_operands_go_where_the_instruction_has_them() -> None:
    made = without_assembly(
        'asm("mad.f32 {%0, %1}, [%3], _, %%laneid, 7, %2;" : "=f"(d.v[0]), "=f"(d.v[1]) : "r"(f(a, b)), "l"(p));'
    )
    assert made == "ptx::mad_f32(cpu::out(d.v[0], d.v[1]), p, ptx::_, ptx::special_laneid(), 7, f(a, b));"
    assert not re.search("asm", without_assembly('asm volatile("bar.sync 0;" : : : "memory");'))

"""Products of warpgroups, copies of boxes and sums of clusters, as they are printed, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparsegen.ir.module import Launch, Module
from sparsegen.ir.swizzle import k_major
from tests.printed.compare import printed
from tests.printed.program import Fault, needs_compiler
from tests.programs import clusters, tensor_copies
from tests.programs.case import Case
from tests.programs.warpgroups import PROGRAMS, Gemm

pytestmark = needs_compiler


def module_of(cases: dict[str, Case]) -> tuple[Module, dict[str, Any]]:
    """All cases as launches of one module, with their arrays."""
    funcs = {name: replace(case.func, symbol=f"run_{name}") for name, case in cases.items()}
    launches = tuple(Launch(f.symbol, tuple(f"{name}.{p.name}" for p in f.params)) for name, f in funcs.items())
    arrays = {f"{name}.{key}": a for name, case in cases.items() for key, a in case.fresh().items()}
    return Module("warpgroups", tuple(funcs.values()), launches=launches), arrays


@pytest.mark.parametrize(
    "programs", [PROGRAMS, tensor_copies.PROGRAMS, clusters.PROGRAMS], ids=["products", "boxes", "sums"]
)
def test_the_text_means_what_it_must(programs: Any) -> None:
    cases = {name: program.case(3) for name, program in programs.items()}
    got = printed(*module_of(cases))
    for name, case in cases.items():
        assert not case.wrong({key: got[f"{name}.{key}"] for key in case.args}), name


def alone(gemm: Gemm) -> Any:
    case = gemm.case()
    got = printed(*module_of({"gemm": case}))["gemm.out"]
    return got, case.want["out"].reshape(-1)


def test_it_is_late() -> None:
    """Sums are as they were until the wait, and what is multiplied is what stands in the tiles by then."""
    got, _ = alone(Gemm(without=frozenset({"wait"})))
    assert (got == 1).all()

    def clear(b: Any, at: Any, place: str, acc: Any, sx: Any, sy: Any) -> None:
        if place == "committed":
            b.barrier()
            with b.for_("j", at["tid"], sy.size, 256) as j:
                b.st(sy, j, b.binary("mul", b.ld(sy, j), b.const(sy.dtype, 2.0)))
            b.barrier()

    got, want = alone(Gemm(say=clear))
    assert np.array_equal(got, 2 * want - 1)


def test_what_no_gpu_allows() -> None:
    with pytest.raises(Fault, match=r"before any wgmma.fence"):
        alone(Gemm(without=frozenset({"fence"})))
    with pytest.raises(Fault, match="not in the first row of its swizzle"):
        alone(Gemm(shift=64))
    sparse = Gemm(cols=64, b=(k_major(128), "k"), sparse=True).case()
    args = {**sparse.args, "meta": np.zeros_like(sparse.args["meta"])}
    with pytest.raises(Fault, match="the code 0 names no two"):
        printed(*module_of({"gemm": replace(sparse, args=args)}))

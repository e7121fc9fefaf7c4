"""Sums over GPUs, whose launches run by turns: what they are, in which order, call after call, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparsegen.backends.emulator import Report, run_ranks
from sparsegen.distributed.sums import module
from sparsegen.ir import warp as w
from sparsegen.ir.expr import TRUE, as_expr
from sparsegen.ir.kernels.all_reduce import AllReduceKernel
from sparsegen.ir.lower.all_reduce import UNIT
from sparsegen.ir.module import Module
from sparsegen.ir.node import Op, rewrite
from sparsegen.ir.op_all_reduce import AllReduce
from sparsegen.ir.passes.manager import Manager
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.types import DType, bf16, f16, f32

BLOCKS, MOST = 3, 250
#: Pieces of the calls, which take turns in the two halves: more than threads, and fewer.
WORDS = (250, 100, 250, 1, 77)
SEEDS = range(6)


def program(dtype: DType, ranks: int, rank: int, patience: int = 0) -> w.Func:
    op = AllReduce("all_reduce", dtype, ranks, rank, MOST, patience)
    passes = AllReduceKernel(BLOCKS, 2), ToWarp()
    (func,) = Manager(passes, verify_each=True).run(Module("all_reduce", (op,))).funcs
    assert isinstance(func, w.Func)
    return func


def called(
    funcs: list[w.Func], given: Any, seed: int, absent: int | None = None
) -> tuple[list[list[Any]], list[list[Report]]]:
    """What each rank gets of each call, and the reports; ``given``: [ranks, calls, numbers]."""
    ranks, calls = len(funcs), len(given[0])
    theirs = [np.zeros(4 * ranks * MOST, np.uint64) for _ in funcs]
    made = [[np.zeros(MOST, np.uint64) for _ in range(calls)] for _ in funcs]
    launches = []
    for rank, func in enumerate(funcs):
        epoch = np.zeros(BLOCKS, np.uint32)
        of = {"epoch": epoch, **{f"theirs{i}": buf for i, buf in enumerate(theirs)}}
        launches.append([
            (func, {**of, "src": given[rank][call].view(np.uint64), "dst": made[rank][call],
                    "words": np.array([WORDS[call]], np.int32)})
            for call in range(0 if rank == absent else calls)
        ])  # fmt: skip
    reports = run_ranks(launches, seed=seed)
    return made, reports


def numbers(dtype: DType, ranks: int, seed: int = 0) -> list[list[Any]]:
    draw, count = np.random.default_rng(seed), MOST * 8 // dtype.nbytes
    return [[draw.standard_normal(count).astype(dtype.numpy()) for _ in WORDS] for _ in range(ranks)]


def right(funcs: list[w.Func], dtype: DType, seed: int) -> bool:
    """Whether no error is found, and all ranks get the sums of f32 in the order of ranks, rounded once, and no more."""
    given = numbers(dtype, len(funcs))
    made, reports = called(funcs, given, seed)
    fine = all(report.ok for each in reports for report in each)
    for call, words in enumerate(WORDS):
        total = given[0][call].astype(np.float32)
        for part in given[1:]:
            total = total + part[call].astype(np.float32)
        want = total.astype(dtype.numpy()).view(np.uint64)[:words]
        fine = fine and all((of[call][:words] == want).all() and not of[call][words:].any() for of in made)
    return fine


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("dtype", [f16, bf16, f32], ids=str)
def test_all_get_the_same_sums(dtype: DType, ranks: int, seed: int) -> None:
    assert right([program(dtype, ranks, rank) for rank in range(ranks)], dtype, seed)


def without_waiting(op: Op) -> Op:
    return replace(op, cond=TRUE) if isinstance(op, w.BreakIf) else op


def in_one_half(op: Op) -> Op:
    return replace(op, b=op.a) if isinstance(op, w.SelectValue) and op.out[0].name.startswith("half") else op


def of_the_last_call(op: Op) -> Op:
    """The epoch stays as it was."""
    return replace(op, where=op.index.lt(0)) if isinstance(op, w.St) and op.buf.name == "epoch" else op


@pytest.mark.parametrize("mutant", [without_waiting, in_one_half, of_the_last_call])
def test_what_is_left_out_is_found(mutant: Callable[[Op], Op]) -> None:
    """By some seed, in the numbers or as ranks that wait for ever."""
    funcs = [program(f16, 2, rank) for rank in range(2)]
    wrong = [replace(func, body=rewrite(func.body, mutant)) for func in funcs]
    assert wrong != funcs
    assert not all(right(wrong, f16, seed) for seed in range(12))


def impatient(op: Op) -> Op:
    """A clock whose every read, which is what the emulator counts, is half a millisecond."""
    return replace(op, b=as_expr(0)) if isinstance(op, w.Binary) and op.b == as_expr(UNIT) else op


@pytest.mark.parametrize(("patience", "kind"), [(0, "deadlock"), (1, "trap")])
def test_a_rank_that_is_gone(patience: int, kind: str) -> None:
    """Who waits for it waits for ever, or until it is out of patience."""
    funcs = [program(f16, 2, rank, patience) for rank in range(2)]
    _, reports = called([replace(f, body=rewrite(f.body, impatient)) for f in funcs], numbers(f16, 2), 0, absent=1)
    assert reports[1] == [] and reports[0][0].kinds() == {kind}
    assert not any(report.counts for report in reports[0][1:]), "nothing runs after it"


def test_the_kernels_that_layers_take() -> None:
    """All their blocks, of a few numbers."""
    kernels: list[Any] = [module(2, rank, 0).funcs[0] for rank in range(2)]
    draw, most = np.random.default_rng(1), kernels[0].params[0].size
    x, theirs = draw.standard_normal((2, 4 * most)).astype(np.float16), [np.zeros(8 * most, np.uint64) for _ in "ab"]
    out, words = np.zeros((2, most), np.uint64), np.array([40_000], np.int32)
    reports = run_ranks([
        [(kernels[rank], {"src": x[rank].view(np.uint64), "dst": out[rank], "epoch": np.zeros(64, np.uint32),
                          "words": words, "theirs0": theirs[0], "theirs1": theirs[1]})]
        for rank in range(2)
    ])  # fmt: skip
    assert all(report.ok for (report,) in reports)
    want = (x[0].astype(np.float32) + x[1].astype(np.float32)).astype(np.float16)[:160_000]
    assert all((made.view(np.float16)[:160_000] == want).all() for made in out)

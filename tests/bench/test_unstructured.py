"""Suite ``unstructured``: its cases and matrices, how they are judged (on the emulator, with torch's arrays on the
host, beside a stand-in for cuSPARSE), its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import cli
from sparsegen.bench import (
    beside,
    command,
    floors,
    generated,
    mixture,
    report,
    tables,
    unstructured,
    unstructured_run,
)
from sparsegen.bench.bitmaps import COLD, WARM
from sparsegen.bench.mixture import CLUSTERS, NETWORK, RANDOM, Matrix
from sparsegen.bench.unstructured import AUTO, CUBLAS, CUSPARSE, PAPER, SparseCase, SparseRow
from sparsegen.bench.unstructured_run import Unstructured, formats_of, judged
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.loading import read_smtx
from sparsegen.registry import families
from tests.bench.test_bitmaps import HEAD, SMTX, quick_lab

SCATTERED = Matrix("scattered", RANDOM, partial(generated.scattered, (40, 72), 300, 1))
BLOCKS = Matrix("blocks", CLUSTERS, partial(generated.clustered, 64, 128, group=32, blocks=2, fill=0.6, noise=0.01))
SMALL = SparseCase("dlmc", SCATTERED, 16, "f16", least=1e6, aim=1.0)


# --------------------------------------------------------------------------------------------------------------- cases
def test_the_cases_are_those_that_are_asked_for(tmp_path: Path) -> None:
    cases = unstructured.cases(unstructured.PARTS[:3])
    assert Counter(case.part for case in cases) == {"dlmc": 22, "graphs": 5, "clustered": 4}
    asked = {(c.matrix.name, c.dtype, c.n): (c.least, c.aim) for c in cases}
    assert len(asked) == len(cases)
    wanted = {
        ("anywhere-2048x512-104858", "f32", 128): (7.1, 5.5), ("anywhere-2048x512-104858", "f32", 512): (16.2, 12),
        ("anywhere-1000x2048-204800", "f32", 512): (38.4, 30), ("anywhere-2048x512-314573", "f16", 512): (8.6, 5),
        ("anywhere-2708x2708-10556", "f16", 512): (9.2, 7.5), ("powerlaw_100k_20", "f32", 128): (132, 105),
        ("banded_1000k_20", "f16", 128): (665, 480), ("clustered_8192_c256_b16_d0.5", "f16", 512): (52, 38),
        ("anywhere-512x4608-47186", "f16", 32): (1.0, 0.7), ("anywhere-2048x512-104858", "f16", 128): (None, None),
    }  # fmt: skip
    assert {key: asked[key] for key in wanted} == wanted
    assert [case.n for case in cases if case.peer] == [32, 32]
    with pytest.raises(ArrayError, match="no patterns"):
        unstructured.cases(["dlmc"], tmp_path)


def test_patterns_of_a_folder(tmp_path: Path) -> None:
    """Found below it too; their columns ascend; a graph is cora's if it is called so."""
    (tmp_path / "dlmc").mkdir()
    (tmp_path / "dlmc" / "transformer-magnitude-0.9-ffn_conv1.smtx").write_text(SMTX.replace("1 5", "5 1"))
    (tmp_path / "cora.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n")
    found = unstructured.cases(["dlmc", "graphs"], tmp_path)
    (network,) = {case.matrix for case in found if case.matrix.kind == NETWORK}
    assert network.rows.shape == (4, 6) and network.rows.idx.tolist() == [1, 5, 0, 2, 3]
    assert [case.least for case in found if case.matrix == network] == [7.1, 16.2, None, None]
    cora = next(case.matrix for case in found if case.part == "graphs")
    assert cora.kind == "graph" and cora.rows.idx.tolist() == [1, 0, 2, 1]
    auto = unstructured.cases([AUTO], tmp_path, seed=5)
    assert len(auto) == 6 * (2 + 40) and {case.matrix.name for case in auto[:12]} == {network.name, "cora"}
    assert {case.n for case in auto} == {32, 128, 512}


def test_matrices_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ones again, as many of each kind, with no more entries than is said; small ones are made."""
    for name, size in (("ROWS", (1000, 3000)), ("_BLOCKS", 3000), ("_WEIGHTS", 1500)):
        monkeypatch.setattr(mixture, name, size)
    a, b = (mixture.matrices(3) for _ in range(2))
    assert a == b and a != mixture.matrices(4)[:1] and Counter(Counter(m.kind for m in a).values()) == {10: 4}
    for one, other in zip(a, b, strict=True):
        rows, again = one.rows, other.rows
        assert np.array_equal(rows.idx, again.idx) and rows.ptr[-1] == len(rows.idx)
        assert rows.shape[0] >= 990 and 0 < rows.nnz <= 2 * mixture.ENTRIES
    assert len({m.rows.nnz for m in a}) > 30
    assert any(not np.array_equal(m.rows.idx, n.rows.idx) for m, n in zip(a, mixture.matrices(4), strict=True))


def test_a_band_may_keep_its_order() -> None:
    rows = generated.banded(200, 5, 10, shuffled=False)
    assert np.abs(rows.idx - rows.of_entries()).max() <= 10
    assert generated.scattered((30, 40), 77, 2).nnz == 77


# -------------------------------------------------------------------------------------------------------------- floors
PRINTED = """\
# NVIDIA H200, 132 SMs; empty kernel in a graph 0.69 us
RES,matrix,M,K,nnz,sparsity,N,prec,system,config,hot_us,cold_us,rel_err,byte_floor_us
WRONG clustered_8192_c256_b16_d0.5 N128 f16 alg4 err 3.10e-03 (cuSPARSE)
{line},Hhybrid+bsa,CW1 st8 delta0.10 tiles4096 in97% bsa,13.80,18.20,2.10e-04,2.99
{line},Ggather,T16 U8 slices1 cut512 sorted,61.00,66.00,2.10e-04,2.99
{line},cuBLAS,dense,6.00,9.00,2.10e-04,2.99
RES,anywhere-512x4608-47186,512,4608,47186,0.9800,32,f32,Ggather,T16 U8 slices1 cut512 sorted,7.00,9.00,2.10e-07,0.50
# failures 0
""".format(line="RES,clustered_8192_c256_b16_d0.5,8192,8192,2147000,0.9680,128,f16")


def test_what_is_read_of_the_floor() -> None:
    found = floors.parse(PRINTED, "unstructured_floor")
    name = floors.matrix("clustered_8192_c256_b16_d0.5", 128, "f16")
    assert [f.name for f in found[:4]] == [f"{name}, hot", f"{name}, cold"] * 2 and len(found) == 6
    best = floors.best(found, f"{name}, hot")
    assert best and 1 / best.rate == pytest.approx(13.8e-6)  # a library's is none
    assert str(best) == "unstructured_floor Hhybrid+bsa CW1 st8 delta0.10 tiles4096 in97% bsa"
    assert floors.best(found, f"{floors.matrix('anywhere-512x4608-47186', 32, 'f32')}, cold")


def test_what_the_floor_is_told(tmp_path: Path) -> None:
    """The columns, the names of what it makes itself, and files; part auto has none."""
    graph = Matrix("g", "power law", lambda: SCATTERED.rows, ("--graph", "g"))
    cases = [SMALL, replace(SMALL, n=32), replace(SMALL, matrix=graph), replace(SMALL, part=AUTO, n=7, matrix=BLOCKS)]
    file = tmp_path / "scattered.smtx"
    assert unstructured.words(cases, tmp_path) == ["--n", "16,32", "--graph", "g", str(file)]
    read = read_smtx(file)
    assert read.shape == (40, 72) and np.array_equal(read.idx, SCATTERED.rows.idx)
    assert unstructured.words(cases[3:], tmp_path) == []
    assert {part for suite, part in floors.OWN if suite == "unstructured"} == {*unstructured.PARTS} - {AUTO}


# --------------------------------------------------------------------------------- measuring, on a stand-in for a GPU
class Library:
    """A cuSPARSE on the host, of two algorithms."""

    def products(self, w: Any, dtype: str, x: Any, y: Any) -> Iterator[tuple[str, Callable[[], None]]]:
        for name in ("default", "csr_alg3"):
            yield name, lambda: y.copy_(w.to_dense() @ x)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Unstructured:
    lab = quick_lab(monkeypatch)
    monkeypatch.setattr(beside, "REST", 0.0)
    monkeypatch.setattr(unstructured_run, "REST", 0.0)

    def captured(self: Unstructured, call: Callable[[], object], times: int = 1) -> Callable[[], object]:
        return call  # the host has no graphs

    monkeypatch.setattr(Unstructured, "captured", captured)
    made = Unstructured(lab, 7, 1e-5, "cpu", "emulator")
    made._cusparse = Library()  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("case", [SMALL, replace(SMALL, dtype="f32"), replace(SMALL, part="clustered", matrix=BLOCKS)])
def test_a_right_result(bench: Unstructured, case: SparseCase) -> None:
    (row,) = bench.run([case])
    assert row.failed is None and row.ok and row.same, row
    assert row.error is not None and row.error < 1e-3 and row.entries == case.matrix.rows.nnz
    assert row.hot_s == pytest.approx(80e-6 / beside.LAUNCHES) and row.median_s == pytest.approx(1e-4)
    assert row.predicted_s and row.bound and row.schedule and row.families == {}
    assert row.beside and set(row.beside) == {CUBLAS, CUSPARSE, *[PAPER] * (case.part == "clustered")}
    assert all(set(times) == {COLD, WARM} for times in row.beside.values())
    assert row.target == 1.0 and "NOT OK" not in bench.line(row) and case.matrix.name in bench.line(row)


def test_formats(bench: Unstructured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides what auto looks at: vectors of 16 bits, and tiles where an order finds them; not of large matrices."""

    def found(matrix: Matrix, dtype: str) -> list[str]:
        return [w.format for w in formats_of(sg.sparse(bench._tensor(matrix.rows, dtype, 1), format="auto"))]

    assert found(BLOCKS, "f16") == ["csr", "sr_bcrs", "hybrid"] and found(BLOCKS, "f32") == ["csr", "hybrid"]
    assert found(SCATTERED, "f16") == ["csr", "sr_bcrs"] and found(SCATTERED, "f32") == ["csr"]
    monkeypatch.setattr(unstructured_run, "ORDERED", 63)
    assert found(BLOCKS, "f16") == ["csr", "sr_bcrs"] and found(BLOCKS, "f32") == ["csr"]
    monkeypatch.setattr(unstructured_run, "DENSE", 64 * 128 - 1)
    assert found(BLOCKS, "f16") == ["csr"]


def test_every_family_is_tried(bench: Unstructured) -> None:
    """Of part auto: the cheapest of each but the one that is chosen, and the library's."""
    (row,) = bench.run([SparseCase(AUTO, BLOCKS, 16, "f16")])
    assert row.failed is None and row.same and row.median_s is None and row.families
    tried = {row.schedule.split()[0], *row.families}
    assert {"csr", "hybrid", "vector_strip", "vector_gather", "bitmap"} <= tried <= tried | {"dense"}
    assert row.schedule.split()[0] not in row.families and "dense" not in row.families
    assert row.beside and row.beside[CUBLAS].keys() == row.beside[CUSPARSE].keys() == {WARM}
    assert row.ok and "cold" not in bench.line(row)
    w = sg.sparse(bench._tensor(BLOCKS.rows, "f16", 7), format="auto")
    costs = {c.schedule.family: c.time for c in sg.schedules(sg.spmm(w, 16), device="h200")[::-1]}
    assert row.predicted and {*row.predicted} < {*row.families}  # the others are ways that it does not look at
    assert row.predicted == {name: pytest.approx(costs[name]) for name in row.predicted}
    weighed = {name: costs[name] * families("spmm")[name].doubt for name in (*row.predicted, row.schedule.split()[0])}
    assert row.predicted_s and min(weighed, key=lambda name: weighed[name]) == row.schedule.split()[0]


def test_ways_have_their_turns(bench: Unstructured, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them once before any a second time, each after an untimed replay of its own; of algorithms of one library
    the fastest counts, of the times of one the median; what a round loses by a clock all ways lose."""
    log: list[str] = []
    speed = {"ours": 1.0, "alg1": 3.0, "alg2": 2.0}
    clock = iter([1.0, 9.0, 1.1, 0.9, 1.0])

    class Timer:
        def start(self, stream: int | None) -> None:
            log.append("start")

        def stop(self, stream: int | None) -> None:
            log.append("stop")

        def seconds(self) -> float:
            way = log[-2]
            if way == "ours":
                self.now = next(clock)
            return speed[way] * self.now * 1e-5

    def way(name: str) -> Callable[[], object]:
        return lambda: log.append(name)

    def estimated(*_: object) -> list[float]:
        log.append("estimate")
        return [1e-4]  # ten of which are a burst

    monkeypatch.setattr(bench.lab, "times", estimated)
    monkeypatch.setattr(bench.lab.runtime, "timer", Timer, raising=False)
    monkeypatch.setattr(Unstructured, "captured", lambda _, call, times: log.append(f"capture {times}") or call)
    ready = ((log.append("ready"), (library, way(name)))[1] for library, name in (("lib", "alg1"), ("lib", "alg2")))
    found = bench.turns(chain([("chosen", way("ours"))], ready))
    assert found == {"chosen": pytest.approx(1e-6), "lib": pytest.approx(2e-6)}
    taken = ["estimate", "capture 10"]
    assert log[:8] == [*taken, "ready", *taken, "ready", *taken]  # an algorithm is made ready after the one before
    turn = [word for name in speed for word in (name, "start", name, "stop")]
    assert log[8:] == turn * unstructured_run.TURNS


def test_what_counts(bench: Unstructured) -> None:
    """Wrong or late results are not ok; a share of cuSPARSE is asked of few columns; of part auto the best's speed."""
    case = replace(SMALL, matrix=SCATTERED)
    (row,) = bench.run([case])
    assert not judged(replace(row, error=1e-2), case).ok and not judged(replace(row, same=False), case).ok
    assert not judged(replace(row, target=1e-9), case).ok
    peer = replace(case, least=1.0, aim=0.7, peer=True)
    row = replace(row, target=None, aim=None, hot_s=5e-6, beside={CUSPARSE: {WARM: 6e-6}})
    found = judged(row, peer)
    assert found.ok and found.target == 6e-6 and found.aim == pytest.approx(4.2e-6)
    assert not judged(replace(row, hot_s=7e-6), peer).ok
    auto = replace(case, part=AUTO)
    assert judged(replace(row, families={"hybrid": 4.9e-6}), auto).ok
    assert not judged(replace(row, families={"hybrid": 4.8e-6}), auto).ok
    (failed,) = bench.run([replace(case, dtype="f8")])
    assert failed.failed and not failed.ok and "f8" in bench.line(failed)


def test_a_floor_stands_in_its_row(bench: Unstructured, tmp_path: Path) -> None:
    """It is given the patterns, and is asked for these columns."""
    program = tmp_path / "by_hand"
    program.write_text(
        "#!/bin/sh\n[ -s $3 ] && grep -q '^40, 72, 300$' $3 || exit 1\n"
        "echo RES,scattered,40,72,300,0.8958,$2,f16,Vvec8,RB128,4.80,9.00,2.1e-04,0.50\n"
    )
    program.chmod(0o755)
    (row,) = bench.run([SMALL], beside=[str(program)])
    assert row.floor == {WARM: pytest.approx(4.8e-6), COLD: pytest.approx(9e-6)}
    assert row.floor_by == "by_hand Vvec8 RB128"


def test_from_the_command_line(
    bench: Unstructured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unstructured, "cases", lambda parts, data, seed: [replace(SMALL, part=part) for part in parts])
    monkeypatch.setattr(command, "gpu_info", lambda: SimpleNamespace())
    monkeypatch.setattr(report, "header", lambda *_: {**HEAD, "sources": report.origin().sources})
    monkeypatch.setattr(unstructured_run, "Unstructured", lambda *_: bench)
    monkeypatch.setattr(floors, "FOLDER", tmp_path)  # none: they take long to compile
    out = tmp_path / "unstructured.json"
    words = ["bench", "--suite", "unstructured", "--out", str(out)]
    assert cli.main([*words, "--part", "dlmc", "--part", "graphs"]) == 0
    said = capsys.readouterr().out
    assert "scattered" in said and said.count("graphs\n") == 1
    cli.main([*words, "--part", "auto"])
    found = report.load(out)
    assert set(found["parts"]) == {"dlmc", "graphs", "auto"}
    said = report.render("<!-- bench:unstructured graphs -->\n<!-- end -->", tmp_path)
    assert "scattered" in said and "over cuSPARSE" in said


# -------------------------------------------------------------------------------------------------------------- tables
def made(case: SparseCase, at: int, **more: Any) -> SparseRow:
    """A row of made-up times: what is asked for, or 10 µs; libraries take twice and three times that."""
    hot = (10 if case.peer else case.least or 10) * 1e-6
    said: dict[str, Any] = {
        "part": case.part, "case": case.matrix.name, "kind": case.matrix.kind, "shape": (1000, 2000, case.n),
        "dtype": case.dtype, "seed": at, "sparsity": 0.9, "entries": 200_000, "hot_s": hot,
        "target": hot, "aim": case.aim and hot / 2, "median_s": 2 * hot, "error": 1e-4, "predicted_s": hot,
        "bound": "l2", "regs": 64, "spills": 0, "schedule": "csr team=16x1", "ok": True,
        "beside": {CUBLAS: {WARM: 2 * hot, COLD: 3 * hot}, CUSPARSE: {WARM: 3 * hot, COLD: 4 * hot}},
        "floor": {WARM: 0.9 * hot, COLD: hot}, "families": {},
    }  # fmt: skip
    return SparseRow(**said | more)


def test_tables() -> None:
    rows = [made(case, at) for at, case in enumerate(unstructured.cases(unstructured.PARTS[:3]))]
    rows[0] = replace(rows[0], sparsity=0.99981, ok=False, beside={CUSPARSE: {WARM: 1e-6}}, floor=None)
    found = report.result("unstructured", rows, HEAD)
    for part, count in (("dlmc", 22), ("graphs", 5), ("clustered", 4)):
        head, *body = tables.VIEWS["unstructured"][part](found)
        assert len(body) == count and {len(row) for row in body} == {len(head)}
        assert {"at least", "aim", "floor", "over floor", "over cuBLAS", "cuSPARSE", "cold"} <= {*head}
    head, first, second, *_ = tables.VIEWS["unstructured"]["dlmc"](found)
    of = dict(zip(head, first, strict=True))
    assert (of["zeros"], of["µs"], of["cuBLAS"], of["floor"]) == ("99.98 %", "10.0 ✗", "–", "–")
    of = dict(zip(head, second, strict=True))
    assert (of["zeros"], of["over cuBLAS"], of["over cuSPARSE"], of["over floor"]) == ("90 %", "2.00", "3.00", "0.90")
    assert report.caption(found, "graphs") and "clustered_8192" in report.markdown(found, "clustered")


def test_a_broken_pattern_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.smtx").write_text("4, 6\n")
    with pytest.raises(FormatError, match=r"odd\.smtx"):
        _ = unstructured.cases([AUTO], tmp_path)[0].matrix.rows

"""``format="auto"`` without options: any matrix, and for a product the format that is predicted to be the fastest."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sparsegen as sg
from sparsegen.formats import others
from sparsegen.problems.product import SpmmProblem


def some(m: int, k: int, share: float, dtype: str = "f2") -> Any:
    """A matrix with this share of elements, in random places."""
    rng = np.random.default_rng(7)
    return np.where(rng.random((m, k)) < share, rng.uniform(0.5, 1, (m, k)), 0).astype(dtype)


def hidden(size: int, tiles: int = 1) -> Any:
    """So many dense tiles of 32 x 32 side by side, whose rows are shuffled."""
    rng, made = np.random.default_rng(8), np.zeros((size, size), np.float16)
    for top in range(0, size, 32):
        for left in 32 * rng.choice(size // 32, tiles, replace=False):
            made[top : top + 32, left : left + 32] = rng.uniform(0.5, 1, (32, 32))
    return made[rng.permutation(size)]


def graph(nodes: int) -> Any:
    """A graph some of whose nodes have far more edges than others."""
    rng = np.random.default_rng(9)
    rows = np.repeat(np.arange(nodes), np.minimum((rng.pareto(1.3, nodes) * 5 + 1).astype(int), nodes // 5))
    cols = rng.integers(0, nodes, len(rows))
    return scipy.sparse.csr_array((np.ones(len(rows), np.float32), (rows, cols)), shape=(nodes, nodes))


def family(w: Any, n: int) -> str:
    """That of the schedule that is chosen for an H200."""
    return sg.compile(sg.spmm(w, n=n), device="h200", backend="emulator").schedule.family


@pytest.mark.parametrize(
    "given, dtype, kept, n, chosen",
    [
        (lambda: some(1024, 1024, 0.95), None, "bitmap", 256, "dense"),
        (lambda: hidden(4096, 4), None, "bitmap", 128, "hybrid"),
        (lambda: graph(10_000), "f16", "csr", 128, "vector_gather"),
        (lambda: some(2048, 512, 0.1, "f4"), None, "csr", 128, "csr"),
        (lambda: some(512, 512, 0.95, "f4"), None, "csr", 256, "dense"),
        (lambda: hidden(4096, 4).astype("f4"), None, "csr", 128, "hybrid"),
        (lambda: some(1024, 1024, 0.4), None, "bitmap", 1, "bitmap"),
    ],
)
@pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
def test_choices(given: Any, dtype: str | None, kept: str, n: int, chosen: str) -> None:
    w = sg.sparse(given(), format="auto", dtype=dtype)
    assert (w.format, w.auto) == (kept, True)
    assert family(w, n).startswith(chosen)


def test_results_are_equal() -> None:
    """Whatever is chosen."""
    w = sg.sparse(hidden(512), format="auto")
    product = sg.spmm(w, n=8)
    best: dict[str, Any] = {}
    for cost in sg.schedules(product, device="h200"):
        best.setdefault(cost.schedule.family, cost.schedule)
    assert {"bitmap", "csr", "hybrid", "vector_strip", "dense"} <= set(best)
    x = np.random.default_rng(1).uniform(-1, 1, (512, 8)).astype(np.float16)
    expected = w.to_dense().astype(np.float32) @ x.astype(np.float32)
    for name, schedule in best.items():
        if name != "dense":
            y = sg.compile(product, schedule=schedule, device="h200", backend="emulator")(x)
            np.testing.assert_allclose(y.astype(np.float32), expected, rtol=2e-3, atol=2e-2, err_msg=name)


def test_encoded_once_and_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    encoded = others._encoded
    monkeypatch.setattr(others, "_encoded", lambda w, name: made.append(name) or encoded(w, name))
    w = sg.sparse(hidden(512), format="auto")
    sg.compile(sg.spmm(w, n=8), schedule="bitmap", device="h200", backend="emulator")
    assert made == []
    family(w, 8)
    assert sorted(made) == ["csr", "hybrid", "sr_bcrs"]
    family(w, 16)
    assert len(made) == 3
    family(sg.sparse(some(256, 256, 0.4), format="auto"), 8)
    assert len(made) == 3
    for given in (hidden(512).astype("f4"), some(256, 256, 0.4, "f4"), some(256, 256, 0.6, "f4"), hidden(512)):
        family(sg.sparse(given.astype("f8") if given.dtype == "f2" else given, format="auto"), 8)
    assert made[3:] == ["hybrid", "hybrid"]  # of f32 with up to half of the elements


def test_kept() -> None:
    """By files and pickles."""
    w = sg.sparse(graph(200), format="auto")
    assert (w.format, w.dtype) == ("csr", "f32")
    assert pickle.loads(pickle.dumps(w)).auto


def test_formats_of_others_are_told_apart() -> None:
    """What is measured for one matrix does not hold for one of the same rows in another order."""
    a = sg.sparse(hidden(512), format="csr")
    assert others.others(a) == ()
    rows = scipy.sparse.csr_array(hidden(512).astype(np.float32))
    sorted_rows = rows[np.lexsort(rows.toarray().T)]
    one, two = (SpmmProblem(sg.spmm(sg.sparse(r, format="auto", dtype="f16"), n=8)) for r in (rows, sorted_rows))
    assert one.identity()["format"] == two.identity()["format"]
    assert one.identity() != two.identity()


def test_page_says_what_was_weighed() -> None:
    text = str(
        sg.compile(sg.spmm(sg.sparse(hidden(1024), format="auto"), n=64), device="h200", backend="emulator").explain()
    )
    assert "hybrid" in text and "csr" in text and "encoded again, of bitmap" in text


def test_columns_are_not_gathered_by_rows() -> None:
    """As linear layers have x: the costs of formats that gather its rows do not hold there."""
    product = sg.spmm(sg.sparse(hidden(512), format="auto"), n=8)
    assert SpmmProblem(product).others == ("csr", "sr_bcrs", "hybrid")
    assert SpmmProblem(replace(product, columns=True)).others == ("sr_bcrs",)

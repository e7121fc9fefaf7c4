"""Dense tiles in Blocked-ELL: the same matrix as hybrid's, filled up; bytes, files, figures, and what is refused."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.explain.units import seconds
from sparsegen.formats import Hybrid, load, sparse
from sparsegen.formats.hybrid import HybridFormat
from sparsegen.formats.others import others
from sparsegen.ir.errors import ArrayError, FormatError, ScheduleError
from tests.formats.matrices import bits, matrices
from tests.formats.test_formats_hybrid import OPTIONS, values
from tests.refusals import refusal


def filled(ptr: Any, idx: Any, tiles: Any) -> tuple[Any, Any]:
    """Lists of columns and tiles of each strip, by a plain loop, as long as the longest."""
    width = int(np.diff(ptr).max())
    lists, kept = np.full((len(ptr) - 1, width), -1), np.zeros((len(ptr) - 1, width, *tiles.shape[1:]), tiles.dtype)
    for strip, (begin, end) in enumerate(pairwise(ptr)):
        lists[strip, : end - begin], kept[strip, : end - begin] = idx[begin:end], tiles[begin:end]
    return lists, kept.reshape(-1)


@given(
    w=matrices(60, 70),
    tile=st.integers(1, 20),
    delta=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    method=st.sampled_from(["bsa", "degree", "none"]),
)
def test_it_is_hybrid_filled_up(w: Any, tile: int, delta: float, method: Any) -> None:
    """There and back bit for bit; tiles, the rest and the order are those of hybrid."""
    W, V = (sparse(w, name, tile=tile, delta=delta, method=method) for name in ("blocked_ell", "hybrid"))
    assert isinstance(W, Hybrid) and isinstance(V, Hybrid)
    assert np.array_equal(bits(W.to_dense()), bits(w))
    W.check()
    lists, kept = filled(V.arrays["ptr"], V.arrays["idx"], bits(V.arrays["values"]).reshape(-1, tile * tile))
    assert np.array_equal(W.arrays["idx"], lists) and np.array_equal(bits(W.arrays["values"]), kept)
    same = ("order", "rest_ptr", "rest_idx", "rest_values")
    assert all(np.array_equal(W.arrays[name].view("u1"), V.arrays[name].view("u1")) for name in same)
    assert (W.nnz, W.tiles, W.rest, W.filling) == (V.nnz, V.tiles, V.rest, (lists < 0).sum()) and not V.filling
    ours, theirs = W.stats(), V.stats()
    assert np.array_equal(ours.lengths, theirs.lengths) and ours.vectors == theirs.vectors


def test_bytes_count_what_fills_up() -> None:
    """By the formula: an index and a whole tile for each place of each list, and the rest as compressed rows."""
    W: Any = sparse(values(), "blocked_ell", **OPTIONS)
    strips, width = W.arrays["idx"].shape
    assert W.filling > 10 and W.rest > 50
    spec: HybridFormat = W.spec
    tiles = strips * width * (4 + 2 * 8 * 8)
    assert W.nbytes == tiles + 4 * 96 + 4 * 97 + 6 * W.rest
    assert tiles == spec.tiles.room(spec.whole(W.shape), strips * width)
    hybrid = sparse(values(), "hybrid", **OPTIONS)
    assert W.nbytes - hybrid.nbytes == W.filling * (4 + 2 * 8 * 8) - 4 * (strips + 1)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("delta", [0.25, 1.0])
def test_files(kind: str, delta: float, tmp_path: Path) -> None:
    """Without any dense tile, too."""
    W = sparse(values(kind=kind), "blocked_ell", tile=8, delta=delta, alpha=0.4)
    assert W.dtype == kind
    W.save(tmp_path / "w")
    for again in (load(tmp_path / "w"), pickle.loads(pickle.dumps(W)), W.to_host()):
        assert type(again) is Hybrid and again.spec == W.spec and repr(again) == repr(W)
        assert all(np.array_equal(again.arrays[name].view("u1"), a.view("u1")) for name, a in W.arrays.items())


def test_scipy_and_explicit_zeros() -> None:
    sp = pytest.importorskip("scipy.sparse")
    w = values(kind="f16").astype(np.float32)
    w[~np.isfinite(w)] = 2
    w = w.astype(np.float16).astype(np.float32)
    W = sparse(sp.csr_array(w), "blocked_ell", dtype="f16", **OPTIONS)
    back = W.to_scipy()
    assert np.array_equal(back.toarray(), w) and back.has_canonical_format and back.nnz == W.nnz
    a = sp.csr_array((np.array([1, 1, 0, 1, 0], "f4"), ([0, 0, 0, 1, 3], [0, 1, 2, 0, 3])), shape=(4, 4))
    V: Any = sparse(a, "blocked_ell", dtype="f16", tile=2, delta=0.5, method="none")
    assert (V.tiles, V.rest, V.nnz, V.filling) == (1, 2, 5, 1) and V.to_scipy().nnz == 5
    V.check()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torch(device: str) -> None:
    torch = pytest.importorskip("torch")
    w = values().astype(np.float32)
    w[~np.isfinite(w)] = 2
    t = torch.from_numpy(w).half().to(device)
    V = sparse(w.astype(np.float16), "blocked_ell", method="none", **OPTIONS)
    W = sparse(t, "blocked_ell", method="none", **OPTIONS)
    W.check()
    assert W.arrays["idx"].device == t.device and torch.equal(W.to_dense(), t)
    assert all(np.array_equal(W.to_host().arrays[name].view("u1"), a.view("u1")) for name, a in V.arrays.items())


def test_plan_and_shares_by_cost() -> None:
    """The report counts the tiles that fill up and prices both launches; shares are those that hybrid has."""
    w = values()
    w[np.isnan(w)] = 1
    W: Any = sparse(w, "blocked_ell", tile=16, delta=0.4, method="none")
    assert W.filling
    assert f"{W.tiles:,} dense tiles of 16x16" in W.plan() and f"; {W.filling:,} tiles of zeros fill rows" in W.plan()
    said = W.plan(columns=512, device="a100")
    cost = sg.compile(sg.spmm(W, 512), device="a100", backend="emulator").cost.time
    assert "expected with 512 columns on NVIDIA A100: blocked_ell " in said
    assert f"blocked_ell {seconds(cost)}" in said
    auto, hybrid = (sparse(w, name, tile=16, delta="auto", device="h200") for name in ("blocked_ell", "hybrid"))
    assert auto.spec.options == hybrid.spec.options and auto.format == "blocked_ell"
    assert np.array_equal(bits(auto.to_dense()), bits(w))


def test_auto_never_weighs_it() -> None:
    W = sparse(np.pad(np.ones((64, 64), np.float16), ((0, 448), (0, 448))), "auto")
    assert "hybrid" in others(W) and "blocked_ell" not in others(W)


# ------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tile": 0}, "tile=0"),
        ({"delta": 1.5}, "delta=1.5 is outside 0..1"),
        ({"alpha": -1}, "alpha=-1 is outside 0..1"),
        ({"method": "best"}, "unknown method 'best'"),
        ({"tiles": 32}, "options"),
    ],
)
def test_wrong_options(options: dict[str, Any], says: str) -> None:
    refusal(__file__, FormatError, lambda: sg.sparse(np.ones((4, 4), "f2"), "blocked_ell", **options), says)  # here


def test_wrong_matrices() -> None:
    w = np.ones((3, 3), "f4")
    refusal(__file__, ArrayError, lambda: sg.sparse(w, "blocked_ell"), "dtype float32", "w.astype(np.float16)")  # here
    empty = np.ones((0, 3), "f2")
    refusal(__file__, ArrayError, lambda: sg.sparse(empty, "blocked_ell"), "no elements")  # here


@pytest.mark.parametrize(
    ("name", "at", "value", "says"),
    [
        ("order", 3, -1, "place 3 of the permutation is -1"),
        ("idx", (0, 0), 12, "outside 0..11"),
        ("idx", (0, 0), -1, "behind what fills a fiber up"),
        ("idx", (0, 1), 0, "does not ascend"),
        ("rest_ptr", 1, -5, "does not ascend"),
        ("rest_idx", 0, 90, "outside 0..89"),
    ],
)
def test_wrong_arrays_are_found(name: str, at: Any, value: int, says: str) -> None:
    W: Any = sparse(values(), "blocked_ell", method="none", tile=8, delta=0.05)
    assert W.arrays["idx"][0, 1] > 0
    W.arrays[name][at] = value
    with pytest.raises(FormatError, match=says):
        W.check()


def test_contradictions_are_found() -> None:
    full = np.ones((16, 12), np.float16)
    full[8:, 8:] = 0
    for change, says in (("blank", "not 0 where the idx is -1"), ("edge", "beyond the matrix"), ("flat", "has shape")):
        W: Any = sparse(full, "blocked_ell", tile=8, delta=0.4, method="none")
        assert W.filling == 1
        if change == "flat":
            W.arrays["idx"] = W.arrays["idx"].reshape(-1)
        else:
            W.arrays["values"].reshape(2, 2, 8, 8)[1 if change == "blank" else 0, 1, 0, 7] = 1
            W.nnz += 1
        with pytest.raises(FormatError, match=says):
            W.check()


def test_products_that_it_has_not() -> None:
    """Tiles that no mma fills, and what only hybrid does."""
    W = sparse(values(), "blocked_ell", **OPTIONS)
    refusal(__file__, ScheduleError, lambda: sg.compile(sg.spmm(W, 8)), "8 x 8, which no mma fills", "tile=16")  # here
    refusal(__file__, sg.ProductError, lambda: sg.spmm(W, 8, batch=2), "W is in blocked_ell", "csr or hybrid")  # here
    refusal(__file__, sg.ProductError, lambda: sg.spmm(W, 8, precision="tf32"), "f16, blocked_ell")  # here

"""Dense tiles and the rest: stored arrays against plain loops, there and back, files, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.bench.generated import clustered
from sparsegen.formats import Hybrid, load, sparse
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.types import DTYPES
from tests.formats.matrices import bits, matrices, weights
from tests.refusals import refusal
from tests.reordering.matrices import dense

OPTIONS: dict[str, Any] = {"tile": 8, "delta": 0.25}


def values(rows: int = 96, cols: int = 90, kind: str = "f16") -> Any:
    """A matrix of shuffled clusters, nothing of which 8 divides, with values of any bits."""
    mask = dense(clustered(rows, 96, group=12, blocks=1, fill=0.9, noise=0.01))[:, :cols] != 0
    w = weights(mask.shape, 0.0, kind)
    return np.where(mask, w, w.dtype.type(0))


def oracle(w: Any, order: Any, tile: int, delta: float) -> tuple[dict[str, list[Any]], Any]:
    """Pointers and columns of tiles and the rest, tile by tile, and the dense tiles themselves."""
    moved = bits(w)[order] if w.itemsize == 2 else w[order].view(np.uint32)
    down, across = (-(-n // tile) for n in w.shape)
    ptr, idx, kept, rest = [0], [], [], moved.copy()
    for strip in range(down):
        for slab in range(across):
            cut = slice(strip * tile, strip * tile + tile), slice(slab * tile, slab * tile + tile)
            piece = moved[cut]
            if np.count_nonzero(piece) > delta * tile * tile:
                idx.append(slab)
                kept.append(np.pad(piece, [(0, tile - n) for n in piece.shape]))
                rest[cut] = 0
        ptr.append(len(idx))
    starts = np.concatenate([[0], np.cumsum((rest != 0).sum(1))])
    found = {"ptr": ptr, "idx": idx, "rest_ptr": starts.tolist(), "rest_idx": np.nonzero(rest)[1].tolist()}
    return found, np.array(kept).reshape(-1)


# ------------------------------------------------------------------------------------------------------- there and back
@given(
    w=matrices(60, 70),
    tile=st.integers(1, 20),
    delta=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    method=st.sampled_from(["bsa", "degree", "none"]),
)
def test_any_matrix_comes_back_bit_for_bit(w: Any, tile: int, delta: float, method: Any) -> None:
    W = sparse(w, "hybrid", tile=tile, delta=delta, method=method)
    assert isinstance(W, Hybrid) and W.nnz == np.count_nonzero(bits(w))
    assert np.array_equal(bits(W.to_dense()), bits(w))
    W.check()
    order = sg.reorder(w, method, tile=tile).permutation
    assert np.array_equal(W.order, order)
    found, kept = oracle(w, order, tile, delta)
    assert {name: W.arrays[name].tolist() for name in found} == found
    assert np.array_equal(bits(W.arrays["values"]), kept)
    assert (W.tiles, W.rest) == (len(found["idx"]), len(found["rest_idx"]))


def test_both_parts_are_there() -> None:
    """Else the test above might see one of them only; and the order fills tiles."""
    W, plain = (sparse(values(), "hybrid", method=method, **OPTIONS) for method in ("bsa", "none"))
    assert isinstance(W, Hybrid) and isinstance(plain, Hybrid)
    assert W.tiles > 8 and W.rest > 50 and W.nnz - W.rest > 700
    assert W.tiles < plain.tiles and W.rest < plain.rest


def test_the_threshold_is_strict() -> None:
    w = np.zeros((4, 4), np.float32)
    w[0] = 1
    for delta, tiles in ((0.25, 0), (0.2499, 1), (0.0, 1), (1.0, 0)):
        W: Any = sparse(w, "hybrid", tile=4, delta=delta)
        assert (W.tiles, W.rest) == (tiles, 4 - 4 * tiles)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_types_and_files(kind: str, tmp_path: Path) -> None:
    w = values().astype(np.float32)
    w[np.isnan(w)] = 3
    w = w.astype(DTYPES[kind].numpy())
    W = sparse(w, "hybrid", alpha=0.4, **OPTIONS)
    assert W.dtype == kind and W.nbytes == sum(a.nbytes for a in W.arrays.values())
    W.save(tmp_path / "w")
    for again in (load(tmp_path / "w"), pickle.loads(pickle.dumps(W)), W.to_host()):
        assert type(again) is Hybrid and again.spec == W.spec and repr(again) == repr(W)
        assert again.plan() == W.plan()
        assert all(np.array_equal(again.arrays[name].view("u1"), a.view("u1")) for name, a in W.arrays.items())


def test_plan_says_what_the_order_does() -> None:
    w = values()
    w[np.isnan(w)] = 1
    W: Any = sparse(w, "hybrid", **OPTIONS)
    said, order = W.plan(), sg.reorder(w, tile=8, delta=0.25)
    assert order.report().split("\n", 1)[1] in said  # the same table, and the same verdict
    assert f"{W.tiles:,} dense tiles of 8x8: {W.nnz - W.rest:,} nonzeros" in said and "alpha 0.3" in said


def test_stats_are_those_of_the_matrix() -> None:
    w = values()
    ours, wanted = sparse(w, "hybrid", **OPTIONS).stats(), sparse(w, "csr").stats()
    assert np.array_equal(ours.lengths, wanted.lengths)
    assert (ours.vectors, ours.tiles, ours.nnz) == (wanted.vectors, wanted.tiles, wanted.nnz)


# ------------------------------------------------------------------------------------------------------------ libraries
@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr", "lil", "dok"])
def test_scipy(format: str) -> None:
    sp = pytest.importorskip("scipy.sparse")
    w = values(kind="f16").astype(np.float32)
    w[~np.isfinite(w)] = 2
    W = sparse(sp.csr_array(w).asformat(format), "hybrid", **OPTIONS)
    V = sparse(w, "hybrid", **OPTIONS)
    assert all(np.array_equal(W.arrays[name], array) for name, array in V.arrays.items())
    back = W.to_scipy()
    assert np.array_equal(back.toarray(), w) and back.has_canonical_format and back.nnz == W.nnz


def test_explicit_zeros() -> None:
    """They are entries of the rest; in a dense tile they are among its zeros."""
    sp = pytest.importorskip("scipy.sparse")
    a = sp.csr_array((np.array([1, 1, 0, 1, 0], "f4"), ([0, 0, 0, 1, 3], [0, 1, 2, 0, 3])), shape=(4, 4))
    W: Any = sparse(a, "hybrid", tile=2, delta=0.5, method="none")
    assert (W.tiles, W.rest, W.nnz) == (1, 2, 5)
    assert W.to_scipy().nnz == 5 and np.array_equal(W.to_dense(), a.toarray())
    W.check()
    V: Any = sparse(a, "hybrid", tile=4, delta=0.3, method="none")
    assert (V.tiles, V.rest, V.nnz) == (1, 0, 3)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_torch(kind: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    w = values().astype(np.float32)
    w[~np.isfinite(w)] = 2
    t = torch.from_numpy(w).to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[kind]).to(device)
    monkeypatch.setattr("sparsegen.reordering.order.SEQUENTIAL", 0)  # NumPy's by the parallel algorithm too
    V = sparse(w.astype(DTYPES[kind].numpy()), "hybrid", **OPTIONS)
    for from_ in (t, t.to_sparse(), t.to_sparse_csr(), t.to_sparse_csc()):
        W = sparse(from_, "hybrid", **OPTIONS)
        W.check()
        assert W.arrays["values"].dtype == t.dtype and W.arrays["order"].device == t.device
        assert torch.equal(W.to_dense(), t)
        host = W.to_host()
        assert all(np.array_equal(host.arrays[name].view("u1"), a.view("u1")) for name, a in V.arrays.items())


@pytest.mark.gpu
def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    formats = pytest.importorskip("cupyx.scipy.sparse")
    w = values().astype(np.float32)
    w[~np.isfinite(w)] = 2
    there = cupy.asarray(w)
    for from_ in (there, formats.csr_matrix(there), formats.csc_matrix(there)):
        W = sparse(from_, "hybrid", **OPTIONS)
        W.check()
        assert isinstance(W.arrays["values"], cupy.ndarray) and np.array_equal(cupy.asnumpy(W.to_dense()), w)


# ------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tile": 0}, "tile=0"),
        ({"tile": 4096}, "up to 1024"),
        ({"delta": 1.5}, "delta=1.5 is outside 0..1"),
        ({"delta": "always"}, "delta='always'"),
        ({"alpha": -1}, "alpha=-1 is outside 0..1"),
        ({"method": "best"}, "unknown method 'best'"),
        ({"tiles": 32}, "options"),
    ],
)
def test_wrong_options(options: dict[str, Any], says: str) -> None:
    refusal(__file__, FormatError, lambda: sg.sparse(np.ones((4, 4), "f4"), "hybrid", **options), says)  # here


def test_wrong_matrices() -> None:
    sp = pytest.importorskip("scipy.sparse")
    for shape in ((0, 3), (3, 0)):
        refusal(__file__, ArrayError, lambda s=shape: sg.sparse(np.ones(s, "f4"), "hybrid"), "no elements")  # here
        refusal(__file__, ArrayError, lambda s=shape: sg.sparse(sp.csr_array(s, dtype="f4"), "hybrid"), "no el")  # here
    refusal(__file__, ArrayError, lambda: sg.sparse(np.ones((3, 3)), "hybrid"), "dtype float64")  # here
    for indices, says in (([2, 1, 0], "unsorted"), ([1, 1, 0], "duplicate"), ([0, 9, 0], "column 9")):
        a = sp.csr_array((3, 4), dtype="f4")
        a.indptr, a.indices, a.data = np.array([0, 2, 2, 3]), np.array(indices), np.ones(3, "f4")
        refusal(__file__, ArrayError, lambda a=a: sg.sparse(a, "hybrid"), says, "(row 0)")  # here


@pytest.mark.parametrize(
    ("name", "at", "value", "says"),
    [
        ("order", 3, 200, "place 3 of the permutation is 200"),
        ("order", 3, -1, "place 3 of the permutation is -1"),
        ("ptr", 0, 1, "does not ascend"),
        ("idx", 0, 12, "outside 0..11"),
        ("rest_ptr", 1, -5, "does not ascend"),
        ("rest_idx", 0, 90, "outside 0..89"),
    ],
)
def test_wrong_arrays_are_found(name: str, at: int, value: int, says: str) -> None:
    W = sparse(values(), "hybrid", **OPTIONS)
    W.arrays[name][at] = value
    with pytest.raises(FormatError, match=says):
        W.check()


def test_contradictions_are_found() -> None:
    W: Any = sparse(values(), "hybrid", **OPTIONS)
    W.arrays["order"][0] = W.arrays["order"][1]
    with pytest.raises(FormatError, match="names row"):
        W.check()
    full = np.ones((8, 12), np.float32)
    full[0, 11] = 0
    for change, says in (("rest", "lies in a dense tile"), ("edge", "beyond the matrix"), ("nnz", "hold 95 elements")):
        W = sparse(full, "hybrid", tile=8, delta=0.9 if change == "rest" else 0.4)
        if change == "rest":
            W.arrays["rest_idx"][0] = 0
        elif change == "edge":
            W.arrays["values"][-1] = 1
            W.nnz += 1
        else:
            W.nnz -= 1
        with pytest.raises(FormatError, match=says):
            W.check()

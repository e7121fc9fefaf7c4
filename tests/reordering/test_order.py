"""``sg.reorder`` as a user calls it: kinds of matrices, methods, the report, files, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.bench.generated import clustered
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.reordering import order as orders
from sparsegen.reordering import parallel
from sparsegen.reordering.blocks import encoded
from tests.refusals import refusal
from tests.reordering.matrices import dense, masked

ROWS = clustered(256, 2048, group=32, blocks=3, fill=0.7)
W = dense(ROWS)


def counted(w: Any, tile: int, delta: float) -> tuple[int, int, int]:
    """Non-zero tiles, nonzeros in dense ones, and vectors of 8 x 1, of a matrix itself."""

    def sums(rows: int, cols: int) -> Any:
        whole = np.pad(w != 0, [(0, -n % by) for n, by in zip(w.shape, (rows, cols), strict=True)])
        return whole.reshape(whole.shape[0] // rows, rows, -1, cols).sum((1, 3))

    tiles = sums(tile, tile)
    return int((tiles > 0).sum()), int(tiles[tiles > delta * tile * tile].sum()), int((sums(8, 1) > 0).sum())


def test_clusters_that_were_shuffled_are_found() -> None:
    order = sg.reorder(W)
    assert isinstance(order, sg.Reordering) and order.clusters == 8 and order.advised
    assert sorted(order.permutation.tolist()) == list(range(256)) and order.permutation.dtype == np.int64
    assert counted(order.apply(W), 32, 0.3)[0] == 8 * 3  # whole tiles, from scattered ones
    said = order.report()
    assert "256 rows, 2,048 columns" in said and "bsa, tiles 32x32, alpha 0.3: 8 clusters" in said
    assert "non-zero tiles 32x32" in said and "advised: nonzeros per vector rise" in said.splitlines()[-1]


@given(st.integers(1, 40), st.integers(1, 70), st.integers(0, 1 << 32), st.sampled_from(["bsa", "degree", "none"]))
def test_figures_are_those_of_the_matrix(rows: int, cols: int, seed: int, method: Any) -> None:
    draw = np.random.default_rng(seed)
    w = (draw.random((rows, cols)) < draw.random()).astype(np.float32)
    tile, delta = int(draw.integers(1, 20)), float(draw.random())
    order = sg.reorder(w, method, tile=tile, delta=delta)
    for found, matrix in ((order.before, w), (order.after, order.apply(w))):
        assert (found.tiles, found.dense, found.vectors) == counted(matrix, tile, delta)


def test_other_methods() -> None:
    degrees = (W != 0).sum(1)
    assert sg.reorder(W, "degree").permutation.tolist() == sorted(range(256), key=lambda row: -degrees[row])
    same = sg.reorder(W, "none")
    assert same.permutation.tolist() == list(range(256)) and same.gain == 1 and not same.advised
    assert "not advised" in same.report()
    pytest.importorskip("scipy.sparse.csgraph")
    away = np.abs(np.arange(200)[:, None] - np.arange(200))
    shuffle = np.random.default_rng(0).permutation(200)
    band = (away < 3).astype(np.float32)[np.ix_(shuffle, shuffle)]
    order = sg.reorder(band, "rcm")
    row, column = np.nonzero(band[np.ix_(order.permutation, order.permutation)])
    assert np.abs(row - column).max() < 6
    refusal(__file__, FormatError, lambda: sg.reorder(W, "rcm"), "256x2048")  # here


def test_variants_differ() -> None:
    """Two rows, one of more entries in fewer blocks: the authors' dispersion has them the other way round."""
    w = np.zeros((2, 64), np.float32)
    w[0, :30], w[1, 0], w[1, 32] = 1, 1, 1
    assert sg.reorder(w, alpha=1).permutation.tolist() == [0, 1]
    assert sg.reorder(w[::-1], alpha=1, variant="artifact").permutation.tolist() == [1, 0]
    w[0, :] = 1
    assert sg.reorder(w, alpha=1).permutation.tolist() == [0, 1]
    assert sg.reorder(w, alpha=1, variant="artifact").permutation.tolist() == [1, 0]


def test_large_matrices_take_the_parallel_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "SEQUENTIAL", 10)
    wanted = parallel.clusters(encoded(ROWS, 32), 0.3)
    assert np.array_equal(sg.reorder(W).permutation, wanted.permutation)


# ---------------------------------------------------------------------------------------------------- kinds of matrices
@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr", "lil", "dok"])
def test_scipy(format: str) -> None:
    sp = pytest.importorskip("scipy.sparse")
    wanted = sg.reorder(W)
    a = sp.csr_array(W).asformat(format)
    order = sg.reorder(a)
    assert np.array_equal(order.permutation, wanted.permutation) and order.report() == wanted.report()
    assert np.array_equal(order.apply(a).toarray(), W[wanted.permutation])


def test_dense_arrays_of_any_type() -> None:
    wanted = sg.reorder(W).permutation
    for w in (W != 0, W.astype(np.float64), W.astype(np.float16), W.astype(np.int8), np.asfortranarray(W)):
        assert np.array_equal(sg.reorder(w).permutation, wanted)
    negative = np.where(W != 0, np.float32(-0.0), np.float32(0))  # its bits are set: an entry, as everywhere
    assert np.array_equal(sg.reorder(negative).permutation, wanted)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torch(device: str) -> None:
    torch = pytest.importorskip("torch")
    t = torch.from_numpy(W).to(device)
    wanted = sg.reorder(t)
    assert torch.equal(wanted.apply(t), t[torch.from_numpy(wanted.permutation).to(device)])
    for a in (t.to_sparse(), t.to_sparse_csr(), t.to_sparse_csc()):
        order = sg.reorder(a)
        assert np.array_equal(order.permutation, wanted.permutation)
        moved = order.apply(a)
        assert moved.layout == torch.sparse_csr and torch.equal(moved.to_dense(), wanted.apply(t))
    twice = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (4, 4))
    with pytest.raises(ArrayError, match="not coalesced"):
        sg.reorder(twice)


@pytest.mark.gpu
def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    sparse = pytest.importorskip("cupyx.scipy.sparse")
    there = cupy.asarray(W)
    wanted = sg.reorder(there)
    for a in (sparse.csr_matrix(there), sparse.csc_matrix(there), sparse.coo_matrix(there)):
        order = sg.reorder(a)
        assert np.array_equal(order.permutation, wanted.permutation)
        assert cupy.array_equal(order.apply(a).toarray(), wanted.apply(there))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 9), (9, 1), (70, 3)])
def test_odd_shapes(shape: tuple[int, int]) -> None:
    for fill in (0, 1):
        w = np.full(shape, fill, np.float32)
        order = sg.reorder(w)
        assert sorted(order.permutation.tolist()) == list(range(shape[0])) and order.clusters == int(w.any())
        assert order.report() and np.array_equal(order.apply(w), w)


def test_empty_rows_come_first() -> None:
    w = W.copy()
    w[[3, 77, 200]] = 0
    assert sg.reorder(w).permutation[:3].tolist() == [3, 77, 200]


# ---------------------------------------------------------------------------------------------------------------- files
def test_files(tmp_path: Path) -> None:
    order = sg.reorder(W, tile=16, alpha=0.4, delta=0.2, variant="artifact")
    order.save(tmp_path / "order")
    again = sg.Reordering.load(tmp_path / "order")
    assert np.array_equal(again.permutation, order.permutation) and again.report() == order.report()
    assert np.array_equal(again.apply(W), order.apply(W)) and repr(again) == repr(order)


def test_wrong_files(tmp_path: Path) -> None:
    path, order = tmp_path / "order", sg.reorder(W)
    for place, row, says in ((5, order.permutation[6], "times"), (5, 256, "place 5 of the permutation is 256")):
        wrong = order.permutation.copy()
        wrong[place] = row
        refusal(__file__, FormatError, lambda w=wrong: sg.Reordering(**{**vars(order), "permutation": w}), says)  # here
        broken = sg.reorder(W)
        object.__setattr__(broken, "permutation", wrong)
        broken.save(path)
        refusal(__file__, FormatError, lambda: sg.Reordering.load(path), "no valid reordering", says)  # here
    for none in (order.permutation[1:], order.permutation.astype(float), order.permutation.tolist()):
        said = {**vars(order), "permutation": none}
        refusal(__file__, FormatError, lambda said=said: sg.Reordering(**said), "permutation")  # here
    sg.sparse(W, "csr").save(path)
    refusal(__file__, FormatError, lambda: sg.Reordering.load(path), "no valid reordering")  # here
    path.write_bytes(path.read_bytes()[:100])
    refusal(__file__, FormatError, lambda: sg.Reordering.load(path), "truncated")  # here
    refusal(__file__, FormatError, lambda: sg.Reordering.load(tmp_path / "none"), "Reordering.save")  # here


# ------------------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "bas"}, "unknown method 'bas'"),
        ({"variant": "thesis"}, "unknown variant 'thesis'"),
        ({"tile": 0}, "tile=0"),
        ({"tile": 2000}, "up to 1024 columns"),
        ({"tile": 1.5}, "tile=1.5"),
        ({"alpha": -0.1}, "alpha=-0.1 is outside 0..1"),
        ({"alpha": float("nan")}, "alpha=nan"),
        ({"alpha": "best"}, "alpha='best'"),
        ({"delta": 1.01}, "delta=1.01 is outside 0..1"),
        ({"delta": True}, "delta=True"),
    ],
)
def test_wrong_options(options: dict[str, Any], says: str) -> None:
    refusal(__file__, FormatError, lambda: sg.reorder(W, **options), says)  # here


def test_wrong_matrices() -> None:
    sp = pytest.importorskip("scipy.sparse")
    refusal(__file__, ArrayError, lambda: sg.reorder(W[0]), "1 axes")  # here
    refusal(__file__, ArrayError, lambda: sg.reorder([[1, 2]]), "not an array")  # here
    refusal(__file__, ArrayError, lambda: sg.reorder(W.astype(complex)), "complex128")  # here
    for indices, says in (([2, 1, 0], "unsorted columns"), ([1, 1, 0], "duplicate"), ([0, 9, 0], "has column 9")):
        a = sp.csr_array((3, 4))
        a.indptr, a.indices, a.data = np.array([0, 2, 2, 3]), np.array(indices), np.ones(3)
        refusal(__file__, ArrayError, lambda a=a: sg.reorder(a), says, "(row 0)")  # here
    refusal(__file__, ArrayError, lambda: sg.reorder(W).apply(W[:5]), "256 rows")  # here
    assert masked(W).nnz == ROWS.nnz

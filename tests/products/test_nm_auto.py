"""Which schedule a product with an N:M matrix takes by itself: lanes, tensor cores, bitmap tiles or dense."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.explain.units import nbytes
from sparsegen.formats import Bitmap, SparseMatrix, library
from sparsegen.formats.bitmap import tiled
from sparsegen.formats.encode import LargerWarning
from sparsegen.problems.product import SpmmProblem
from sparsegen.products.cost import dense_cost
from sparsegen.products.nm import NmNumbers
from sparsegen.products.product import BitmapNumbers
from tests.nm_kit import encoded, matrix
from tests.nm_kit import pruned as random
from tests.products_kit import called, operands


def pruned(m: int, k: int, kept: int, vector: int, dtype: str = "f2") -> np.ndarray:
    """A matrix of ones in which every window keeps its first columns."""
    keep = np.arange(k) % 32 < kept
    return np.broadcast_to(keep, (m, k)).astype(dtype)


@pytest.mark.parametrize(
    ("n", "device", "family"),
    [(1, "h200", "nm_lanes"), (256, "h200", "nm_gather"), (16, "h200", "nm_gather"), (256, "a100", "nm_strips")],
)
def test_few_columns_take_lanes_and_many_tensor_cores(n: int, device: str, family: str) -> None:
    w = sg.sparse(pruned(1024, 2048, 8, 64), format="nm", n=8, m=32, vector=64)
    assert sg.compile(sg.spmm(w, n=n), device=device, backend="emulator").schedule.family == family


@pytest.mark.parametrize(
    ("n", "device", "family"), [(1, "h200", "nm_lanes"), (512, "h200", "nm_24"), (4096, "h200", "nm_24")]
)
def test_two_of_four_take_sparse_tensor_cores(n: int, device: str, family: str) -> None:
    w = matrix(2048, 2048, 2, 4)
    assert sg.compile(sg.spmm(w, n=n), device=device, backend="emulator").schedule.family == family


def test_auto_takes_the_dense_matrix_where_nothing_is_gained() -> None:
    """Rows with patterns of their own, and many columns: a tile of them keeps nearly all columns."""
    keep = np.random.default_rng(0).permuted(np.broadcast_to(np.arange(32) < 16, (2048, 64, 32)), axis=-1)
    w = keep.reshape(2048, 2048).astype("f2")
    said = sg.sparse(w, format="auto", n=16, m=32)
    assert said.format == "nm" and said.auto
    for n, family in ((4096, "dense"), (64, "nm_gather"), (16, "bitmap")):
        assert sg.compile(sg.spmm(said, n=n), device="h200", backend="emulator").schedule.family == family
    asked = sg.sparse(w, format="nm", n=16, m=32)
    assert sg.compile(sg.spmm(asked, n=4096), device="h200", backend="emulator").schedule.family != "dense"


def auto(m: int, k: int, n: int, width: int, dtype: str = "f16", **how: Any) -> SparseMatrix:
    """A random matrix in whose pattern nothing repeats, made with ``format="auto"``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargerWarning)
        return sg.sparse(random(m, k, n, width, dtype=dtype, **how), format="auto", n=n, m=width)


@pytest.mark.parametrize(("pattern", "dtype"), [((3, 10), "bf16"), ((16, 32), "f16"), ((1, 64), "f16")], ids=str)
def test_bitmap_tiles_of_it_multiply_right(pattern: tuple[int, int], dtype: str) -> None:
    """Chosen by itself, or asked for; windows without elements, a short last one, and tiles that are not full."""
    product = sg.spmm(auto(50, 299, *pattern, dtype=dtype, fill=0.8), n=9, bias=True, activation="relu")
    for orders, line in ((("row", "row"), "auto"), (("column", "row"), "bitmap cols=8 warps=1x2 rows=2 splits=2")):
        k = called(product, *orders, line)
        assert k.schedule.family == "bitmap" and k.product is product and product.w.format == "nm"
        report = k.check()
        assert report.ok and not report.notes, report
    there = sg.sparse(product.w.to_dense())
    assert {name: a.tobytes() for name, a in k.weights().items()} == {n: a.tobytes() for n, a in there.arrays.items()}
    again = sg.compile(product, device="h200", backend="emulator", schedule=str(k.schedule))
    assert again.cost == k.cost and again.check().ok
    assert k.bench(repeats=1).nbytes == there.nbytes + 2 * (50 + 299) * 9


def test_tiles_are_encoded_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to compare costs, nor for another family; once for all kernels."""
    encoded, encode = [], Bitmap.encode
    monkeypatch.setattr(Bitmap, "encode", lambda *args: encoded.append(args) or encode(*args))
    w = auto(64, 128, 8, 32)
    chosen = sg.compile(sg.spmm(w, n=8), device="h200", backend="emulator")
    assert "bitmap" in chosen.explain() and chosen.schedule.family == "nm_gather"
    tiles = [sg.compile(sg.spmm(w, n=n), device="h200", backend="emulator", schedule="bitmap") for n in (1, 8)]
    assert {k.schedule.family for k in tiles} == {"bitmap"} and "bitmap" in tiles[0].explain()
    called(sg.spmm(w, n=8), schedule="nm_lanes")
    assert not encoded
    for k in tiles:
        k(**operands(k.product))
    assert len(encoded) == 1


@pytest.mark.parametrize("shape", [(1, 1), (37, 133), (16, 64), (130, 300)], ids=str)
def test_numbers_of_tiles_are_those_of_encoded_ones(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for n, m, dtype in ((3, 10, "bf16"), (16, 32, "f16"), (1, 2, "f16")):
        dense = random(*shape, n, m, dtype=dtype, fill=0.7)
        dense[:, :1] = -np.abs(dense[:, :1]) * 0  # -0.0 is an element too
        dense = sg.prune(dense, "nm", n=n, m=m)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LargerWarning)
            there = BitmapNumbers.of(sg.spmm(sg.sparse(dense), n=3))
            assert BitmapNumbers.of(sg.spmm(sg.sparse(dense, format="nm", n=n, m=m), n=3)) == there
            with monkeypatch.context() as pieces:
                pieces.setattr(library, "HOST_BAND", 1)
                assert BitmapNumbers.of(sg.spmm(sg.sparse(dense, format="nm", n=n, m=m), n=3)) == there


def test_numbers_of_tiles_in_torch() -> None:
    dense = random(130, 300, 3, 10)
    here, there = encoded(dense, 3, 10)
    assert BitmapNumbers.of(sg.spmm(there, n=3)) == BitmapNumbers.of(sg.spmm(here, n=3))
    tiles = tiled(there)
    assert tiled(there) is tiles and tiles.to_host().to_dense().tobytes() == dense.tobytes()


def test_bitmap_only_where_nothing_repeats() -> None:
    """And only where W was made with ``format="auto"``; a file says so too."""

    def families(w: SparseMatrix) -> set[str]:
        return {c.schedule.family for c in sg.schedules(sg.spmm(w, n=8), device="h200")}

    dense = random(64, 128, 8, 32, (2, 2))
    assert "bitmap" in families(sg.sparse(dense, format="auto", n=8, m=32))
    for vector in (2, (2, 2), (1, 2)):
        assert "bitmap" not in families(sg.sparse(dense, format="auto", n=8, m=32, vector=vector))
    assert "bitmap" not in families(sg.sparse(dense.astype("f4"), format="auto", n=8, m=32))
    asked = sg.sparse(dense, format="nm", n=8, m=32)
    assert "bitmap" not in families(asked)
    with pytest.raises(sg.ScheduleError, match="is a schedule for bitmap, W is in nm") as error:
        sg.compile(sg.spmm(asked, n=8), device="h200", schedule="bitmap cols=8")
    assert "format='bitmap'" in (error.value.hint or "")


def test_a_file_and_the_tuners_records_know_of_it(tmp_path: Path) -> None:
    w = auto(64, 128, 8, 32)
    w.save(tmp_path / "w")
    product = sg.spmm(sg.load(tmp_path / "w"), n=8)
    k = sg.compile(product, device="h200", backend="emulator", schedule="bitmap")
    assert k.schedule.family == "bitmap"
    assert SpmmProblem(product).identity()["format"] == "nm or bitmap"


def test_explain_lists_bitmap_beside_the_others() -> None:
    w = auto(1024, 1024, 8, 32)
    tiles, lanes = (
        sg.compile(sg.spmm(w, n=16), device="h200", backend="emulator", schedule=line).explain()
        for line in ("auto", "nm_lanes cols=4 warps=1x8")
    )
    assert "bitmap" in tiles.data["schedule"] and tiles.data["automatic"]
    size = nbytes(sg.sparse(w.to_dense()).nbytes)
    assert f"format     bitmap: {size}, " in tiles and f"; encoded again, of nm: {nbytes(w.nbytes)}\n" in tiles
    assert f"format     nm: {nbytes(w.nbytes)}, " in lanes and "encoded" not in lanes
    for page in (tiles, lanes):
        compared = [one["family"] for one in page.data["families"]]
        assert {"bitmap", "nm_lanes", "nm_gather", "nm_decode", "dense"} <= {*compared} and compared[0] == "bitmap"
        assert len(compared) == len({*compared})
    assert "(bitmap 0." in tiles  # of dense's time, with more columns of x


def test_in_f32_the_dense_product_is_priced_on_cuda_cores() -> None:
    """Where cuBLAS took 74 us with the memory cold (8192 x 8192, one column)."""
    p = NmNumbers(8192, 8192, 1, "f32", (8, 32, 1, 1), 0, 0, (128, 128))
    assert dense_cost(p, load_profile("h200")).time * 1e6 == pytest.approx(74, rel=0.2)
